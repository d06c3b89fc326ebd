"""The quick way into windows that the watermark has not reached, for accumulators and the event-time trigger.

Such an element needs no trigger to be asked: it is added to the accumulators of its windows, and nothing else happens.
Tumbling and sliding windows cut event time into *slots*: all timestamps of a slot are in the same windows. A slot is open while
the watermark has reached none of them. State, output and snapshots are those of `WindowOperator`, which takes every element
that this way does not. Elements that user code may change in place are copied where several windows or attempts have them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from topo.api.windows import TimeWindow
from topo.hot import NO_TIMESTAMP, Slots, accumulate
from topo.operators.state.deep_copy import independent
from topo.operators.windows.assigners import SlidingAssigner, TumblingAssigner
from topo.operators.windows.contents import Accumulated
from topo.operators.windows.scope import WindowScope

TakeOne = Callable[[int, Any, Any, int | None], None]

_FEW = 50
"""Slots that it costs little to look at each. Input that is out of order may keep thousands open."""


class OpenWindows:
    """The open slots of one operator.

    Args:
        assigner: of the windows.
        contents: of the windows.
        is_reached: whether the watermark has reached the end of a window.
        begins: called with each window that is opened. None: the first element of a pane goes the other way.

    Attributes:
        position: of the last element of the batch that was taken; after an exception, of the element whose call raised.
    """

    def __init__(
        self,
        assigner: TumblingAssigner | SlidingAssigner,
        contents: Accumulated,
        is_reached: Callable[[TimeWindow], bool],
        begins: Callable[[TimeWindow], None] | None,
    ) -> None:
        self._assigner = assigner
        self._contents = contents
        self._is_reached = is_reached
        self._begins = begins
        self._slots: Slots = {}
        """By start: the accumulators of each window by key, and the positions of the batch that have gone into them."""
        self._windows: dict[int, Sequence[TimeWindow]] = {}
        """By start of the slot: the windows, in the same order."""
        self._first_end: float = inf
        self.position = -1

    def setup(self, clock: Callable[[], int], begin_call: Callable[[], None], *, can_undo: bool) -> None:
        """Take the surroundings of the operator."""
        self._clock = clock
        self._begin_call = begin_call
        self._protect = independent if can_undo and not self._contents.is_atomic else None
        self._looks = can_undo or isinstance(self._assigner, SlidingAssigner)

    def rise(self, watermark: int) -> None:
        """Close all slots if the watermark reaches one of their windows."""
        if watermark < self._first_end:
            return
        for windows in self._windows.values():
            for window in windows:
                self._contents.handle.table.give_back(window)
        self._slots.clear()
        self._windows.clear()
        self._first_end = inf

    def process(self, keys: Sequence[Any], values: Sequence[Any], stamps: array[int], take: TakeOne, scope: WindowScope) -> None:
        """Take the elements of a batch, until `values` is emptied.

        Args:
            keys, values, stamps: of the elements; NO_TIMESTAMP for none.
            take: takes an element the other way.
            scope: gets to know what panes hold.
        """
        self.position = -1
        contents = self._contents
        step, offset = self._assigner.slots(self._clock)
        more, first, at = contents.more, contents.first, 0
        if self._looks:
            contents.look_at(values)
            if contents.copies:
                more, first = _copying(more, first)
        try:
            while True:
                at, error = accumulate(
                    keys, values, stamps, at, self._slots, offset, step, more, first if self._begins else None, self._protect
                )
                self.position = at - 1
                if error is not None:
                    # The accumulators have not changed: there is nothing to undo.
                    self.position = at
                    self._begin_call()
                    raise error
                # Read once: another thread may empty the list at any moment, to end the call.
                one = values[at : at + 1]
                if not one:
                    break
                if not self._open(stamps[at], offset, step):
                    self.position = at
                    take(at, keys[at], one[0], None if stamps[at] == NO_TIMESTAMP else stamps[at])
                    at += 1
        finally:
            self._report_held(scope, keys, self._starts(stamps, offset, step))

    def _open(self, stamp: int, offset: int, step: int) -> bool:
        """Open the slot of a timestamp; False if it is open, or if the watermark has reached one of its windows."""
        start = stamp - (stamp - offset) % step
        if stamp == NO_TIMESTAMP or start in self._slots:
            return False
        windows = self._assigner.assign(None, stamp, self._clock)
        if not windows or any(map(self._is_reached, windows)):
            return False
        rows = self._contents.handle.table.rows
        self._slots[start] = (tuple([rows(window) for window in windows]), [])
        self._windows[start] = windows
        self._first_end = min(self._first_end, *[window.max_timestamp for window in windows])
        if self._begins is not None:
            for window in windows:
                self._begins(window)
        return True

    def _starts(self, stamps: array[int], offset: int, step: int) -> Iterable[int]:
        """Return the starts of the slots that the elements of the batch up to `position` may be in."""
        if len(self._slots) <= self.position + _FEW:
            return self._slots
        starts = dict.fromkeys(stamp - (stamp - offset) % step for stamp in stamps[: self.position + 1])
        return [start for start in starts if start in self._slots]

    def _report_held(self, scope: WindowScope, keys: Sequence[Any], starts: Iterable[int]) -> None:
        for start in starts:
            positions = self._slots[start][1]
            if positions:
                windows = self._windows[start]
                if len(windows) == 1:
                    scope.held_run(positions, keys, windows[0])
                else:
                    for position in positions:
                        for window in windows:
                            scope.held(position, keys[position], window)
                positions.clear()


def _copying(
    more: Callable[[Any, Any], Any], first: Callable[[Any], Any]
) -> tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]:
    return lambda value, kept: more(independent(value), kept), lambda value: first(independent(value))
