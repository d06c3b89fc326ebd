"""The trees of an acker with lists in place of packed columns."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from topo.hot import pack_words, unpack_words
from topo.ids import TaskId


class ListedTrees:
    """Packs and unpacks for `Trees`. Verdicts are pairs of a kind and a root, in the order of acked, failed, reset."""

    def __init__(self, hot: ModuleType) -> None:
        self.trees: Any = hot.Trees()
        self.clear, self.validate = self.trees.clear, self.trees.validate

    def init(self, spout: TaskId, roots: Sequence[int], values: Sequence[int]) -> None:
        self.trees.init(spout, pack_words(roots), pack_words(values))

    def ack(self, roots: Sequence[int], values: Sequence[int]) -> None:
        self.trees.ack(pack_words(roots), pack_words(values))

    def fail(self, roots: Sequence[int]) -> None:
        self.trees.fail(pack_words(roots))

    def reset(self, roots: Sequence[int]) -> None:
        self.trees.reset(pack_words(roots))

    def rotate(self) -> list[int]:
        return unpack_words(self.trees.rotate())

    def open_roots(self) -> list[int]:
        return unpack_words(self.trees.open_roots())

    def verdicts(self) -> dict[TaskId, list[tuple[str, int]]]:
        return {
            spout: [(kind, root) for kind, roots in own._asdict().items() for root in unpack_words(roots)]
            for spout, own in self.trees.verdicts().items()
        }
