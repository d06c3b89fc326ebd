"""A frame of input as a bolt works on it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, repeat
from typing import Any

from topo.api.tuples import Origin
from topo.ids import ID_BYTES
from topo.wire.frames import Anchoring, Frame, pack_words

Row = tuple[Any, ...]
Stamp = int | None


class Batch:
    """The tuples of one DATA frame, worked on slice by slice.

    Attributes:
        done: how many of the `count` tuples have been taken.
        roots, edges: by tuple; each a tuple of ids when the frame is MULTI, an id when it is SINGLE, and empty without ids.
        stamps: event times by tuple; None when the frame has none.
    """

    __slots__ = ("_packed_roots", "anchoring", "count", "done", "edges", "origin", "roots", "rows", "stamps")

    def __init__(self, frame: Frame, rows: list[Row], origin: Origin) -> None:
        self.rows = rows
        self.origin = origin
        self.count = len(rows)
        self.done = 0
        self.anchoring = frame.anchoring
        self.stamps: list[Stamp] | None = frame.timestamp_list() if frame.timestamps else None
        self._packed_roots = frame.roots
        self.roots: list[Any] = frame.root_list()
        self.edges: list[Any] = frame.edge_list()
        if frame.anchoring is Anchoring.MULTI:
            bounds = [0]
            for count in frame.count_list():
                bounds.append(bounds[-1] + count)
            self.roots, self.edges = ([tuple(ids[a:b]) for a, b in pairwise(bounds)] for ids in (self.roots, self.edges))

    @property
    def comes_again(self) -> bool:
        """Whether a tuple descends from a message that has failed before."""
        return not bytes(self._packed_roots[ID_BYTES - 1 :: ID_BYTES]).isascii()

    def inputs(self, first: int, last: int) -> Iterable[tuple[int, Row, Stamp]]:
        """Return index, values and timestamp of the tuples of a slice."""
        stamps = repeat(None) if self.stamps is None else self.stamps[first:last]
        return zip(range(first, last), self.rows[first:last], stamps)  # noqa: B905

    def stamps_of(self, first: int, last: int) -> list[Stamp] | None:
        """Return the timestamps of a slice; None when the frame has none."""
        return None if self.stamps is None else self.stamps[first:last]

    def packed_roots(self, first: int, last: int) -> bytes:
        """Return the roots of a slice as packed words."""
        if self.anchoring is Anchoring.SINGLE:
            return bytes(self._packed_roots[8 * first : 8 * last])
        return pack_words([root for roots in self.roots[first:last] for root in roots])

    def ids_at(self, index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the roots and edges of one tuple."""
        if self.anchoring is Anchoring.MULTI:
            return self.roots[index], self.edges[index]
        if self.anchoring is Anchoring.SINGLE:
            return (self.roots[index],), (self.edges[index],)
        return (), ()
