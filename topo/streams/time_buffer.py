"""Records of a key in the order of their times, as state: found by bisection, dropped from the front."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, TypeAlias

from topo.streams.process import KeyedDeclaration

Kept: TypeAlias = tuple[int, Any, bool]
"""A record in a buffer: its time, its plain values, and whether it has had a partner."""
_BY_TIME = itemgetter(0)


class KeyedBuffer(KeyedDeclaration[Any]):
    """A `TimeBuffer` for each key, declared on the class of a process."""

    def __init__(self) -> None:
        super().__init__(Any)

    def installed(self, state: Any, place: str) -> TimeBuffer:
        """Return the buffer, with what a checkpoint has of it."""
        handle = state.sorted(self.name)
        handle.decode(lambda rows: [tuple(row) for row in rows])
        return TimeBuffer(handle)


class TimeBuffer:
    """The buffer of the current key. Of records with equal times the first that came is ahead."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def add(self, time: int, packed: Any, *, is_paired: bool = False) -> None:
        """Insert a record."""
        rows = self._handle.get()
        # Most records come in order.
        place = len(rows) if not rows or rows[-1][0] <= time else bisect_right(rows, time, key=_BY_TIME)
        self._handle.splice(place, place, ((time, packed, is_paired),))

    def between(self, first: int, last: int) -> tuple[int, Sequence[Kept]]:
        """Return the records with times from `first` to `last`, and the place of the first."""
        rows: Sequence[Kept] = self._handle.get()
        if not rows or rows[-1][0] < first or rows[0][0] > last:
            return 0, ()
        # Most keys have few records, and all of them near.
        start = 0 if rows[0][0] >= first else bisect_left(rows, first, key=_BY_TIME)
        return start, rows[start : len(rows) if rows[-1][0] <= last else bisect_right(rows, last, key=_BY_TIME)]

    def pair(self, start: int, found: Sequence[Kept]) -> None:
        """Note that the records that `between` has just returned have had a partner."""
        if False in [is_paired for _time, _packed, is_paired in found]:
            self._handle.splice(start, start + len(found), [(time, packed, True) for time, packed, _ in found])

    def take_until(self, last: int, *, but: int = 0) -> Sequence[Kept]:
        """Remove the records with times up to `last`, and return them; `but`: how many of the latest of them stay."""
        rows: Sequence[Kept] = self._handle.get()
        if not rows or rows[0][0] > last:
            return ()
        stop = (len(rows) if rows[-1][0] <= last else bisect_right(rows, last, key=_BY_TIME)) - but
        if stop <= 0:
            return ()
        taken = rows[:stop]
        self._handle.splice(0, stop, ())
        return taken

    def at(self, time: int) -> Any:
        """Return the plain values of the last record at or before a time; None if there is none."""
        rows = self._handle.get()
        place = bisect_right(rows, time, key=_BY_TIME)
        return rows[place - 1][1] if place else None
