"""The committed position of a source: the end of the contiguous prefix of positions that are done.

The prefix is taken in the order of emission, not by comparing positions, so positions need only be hashable here (and, for
the store, ordered and storable: an int, a str, a tuple). For a source that emits in rising order, the usual one, both mean
the same: every position up to `committed` is done. When a source emits a position below earlier ones, the commit follows:
once that position is its turn and done, `committed` moves back to it. A restart then reads more again, never less. What
such a source must not do is emit, for the first time, a position below a committed one: a crash before it is
done would skip it.

A position is one message. Emitting it again while it is uncommitted, as a retry does, changes nothing: it keeps its place,
and if it was done already it stays done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


class PositionTracker(Generic[P]):
    """Follows the positions of one spout task.

    Attributes:
        committed: the last position of the prefix that is done; at first the position that the tracker was started with.
    """

    def __init__(self, committed: P | None = None) -> None:
        """Start with nothing emitted since `committed`, the stored position; None if there is none."""
        self.committed = committed
        self._order: deque[P] = deque()
        self._is_done: dict[P, bool] = {}

    def emitted(self, positions: Iterable[P]) -> None:
        """Append positions in order of emission; those that are uncommitted already keep their place and state."""
        is_done = self._is_done
        for position in positions:
            if position not in is_done:
                is_done[position] = False
                self._order.append(position)

    def done(self, positions: Iterable[P]) -> None:
        """Mark positions as acked or dead-lettered and move the commit. Those committed or never emitted are ignored."""
        is_done = self._is_done
        for position in positions:
            if position in is_done:
                is_done[position] = True
        order = self._order
        while order and is_done[order[0]]:
            self.committed = order.popleft()
            del is_done[self.committed]

    def open_positions(self) -> list[P]:
        """Positions emitted and not done, in order of emission."""
        return [position for position in self._order if not self._is_done[position]]

    def __len__(self) -> int:
        """How many positions are uncommitted: open, or done behind an open one."""
        return len(self._order)

    def validate(self) -> None:
        """Assert the invariants."""
        assert len(self._order) == len(self._is_done) == len(set(self._order)), "a position occurs twice"
        assert not self._order or not self._is_done[self._order[0]], "the first uncommitted position is done"
