"""Inputs that are delivered at most once: ackers do not follow them, and lost rows are counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topo.emission.collectors import TrackedTuple
from topo.task.batch import Batch
from topo.task.guarantees.inputs import InputGuarantee


class UntrackedInputs(InputGuarantee):
    """Inputs of a topology without ackers."""

    def lose_input(self, values: Any, roots: Iterable[int], error: Exception) -> None:
        """Nothing more: the input counts as failed."""

    def lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """Count the row."""
        self._counters.unsent += 1

    def _lose_anchored(self, values: Any, anchors: tuple[TrackedTuple, ...], error: Exception) -> None:
        self._counters.unsent += 1

    def _fail_slice_input(self, batch: Batch, index: int, error: Exception) -> None: ...

    def _decide(self, acked: list[TrackedTuple], failed: list[TrackedTuple], touched: list[TrackedTuple]) -> None: ...
