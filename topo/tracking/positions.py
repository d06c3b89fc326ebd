"""The committed position of a source: the end of the prefix of positions that are done.

The prefix is taken in the order of emission, not by comparing positions, so positions need only be hashable here (and, for
the store, ordered and storable: an int, a str, a tuple). For a source that emits in rising order, the usual one, both mean
the same: every position up to `committed` is done. When a source emits a position below earlier ones, the commit follows:
once that position is its turn and done, `committed` moves back to it. A restart then reads more again, never less. What
such a source must not do is emit, for the first time, a position below a committed one: a crash before it is
done would skip it.

The tracker keeps the order alone. The messages that are open are the table of `topo.tracking.retries`; a position that has
been emitted and is not in it is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


class PositionTracker(Generic[P]):
    """Follows the positions of one source.

    Args:
        open_positions: those that have been emitted and are not done.
        committed: the stored position; None if there is none.

    Attributes:
        committed: the last position of the prefix that is done.
    """

    def __init__(self, open_positions: Container[P], committed: P | None = None) -> None:
        self.committed = committed
        self._open = open_positions
        self._order: deque[P] = deque()

    @property
    def mark(self) -> P | None:
        """What `committed` is compared by."""
        return self.committed

    def emitted(self, positions: Iterable[P]) -> None:
        """Append positions in order of emission; they have to be open before `advance` is called."""
        self._order.extend(positions)

    def advance(self) -> None:
        """Move the commit behind the positions that are done."""
        order, still_open = self._order, self._open
        while order and order[0] not in still_open:
            self.committed = order.popleft()

    def __len__(self) -> int:
        """How many positions are uncommitted: open, or done behind an open one."""
        return len(self._order)

    def validate(self) -> None:
        """Assert the invariant."""
        assert not self._order or self._order[0] in self._open, "the first uncommitted position is done"
