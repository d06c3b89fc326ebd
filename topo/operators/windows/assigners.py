"""Window assigners: which windows an element belongs to.

The arithmetic is Flink's. Windows start at `offset` modulo their size (or slide) on both sides of the epoch: Python's `%` floors,
which is what Flink reaches by correcting a truncated remainder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, Final

from topo.api.durations import duration_ms
from topo.api.triggers import EndOfStreamTrigger, EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger, TriggerLike
from topo.api.windows import (
    AssignerLike,
    GlobalWindow,
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindow,
    TumblingWindows,
    Window,
    WindowAssigner,
    WindowStagger,
    merge_time_windows,
)
from topo.errors import UserError
from topo.operators.time.clock import MIN_TIMESTAMP

__all__ = [
    "Clock", "Draw", "GlobalAssigner", "SessionAssigner", "SlidingAssigner", "TumblingAssigner", "build_assigner",
    "merge_time_windows", "window_start",
]  # fmt: skip

Clock = Callable[[], int]
Draw = Callable[[int], int]

_GLOBAL: Final = (GlobalWindow(),)


def window_start(timestamp: int, offset: int, size: int) -> int:
    """Return the start of the window of `size` (above zero), shifted by `offset`, that holds `timestamp`."""
    return timestamp - (timestamp - offset) % size


class TumblingAssigner(WindowAssigner):
    """One window for each element.

    Attributes:
        is_staggered: whether windows are shifted by more than the offset.
        shift_ms: by how much; None until the first element settles it.
    """

    def __init__(self, declared: TumblingWindows, draw: Draw | None) -> None:
        self.is_event_time = declared.is_event_time
        self.size_ms = declared.size_ms
        self.offset_ms = declared.offset_ms
        self.is_staggered = declared.stagger is not WindowStagger.ALIGNED
        self.shift_ms: int | None = None if self.is_staggered else 0
        if declared.stagger is WindowStagger.RANDOM and draw is None:
            raise UserError("a random stagger needs a source of random numbers (draw)")
        self._draw = draw if declared.stagger is WindowStagger.RANDOM else None

    def effective_offset(self, clock: Clock) -> int:
        """Offset and stagger together; settles the stagger at the first call."""
        if self.shift_ms is None:
            self.shift_ms = clock() % self.size_ms if self._draw is None else self._draw(self.size_ms)
        return (self.offset_ms + self.shift_ms) % self.size_ms

    def slots(self, clock: Clock) -> tuple[int, int]:
        """Return length and offset of the slots of time that are in the same windows."""
        return self.size_ms, self.effective_offset(clock)

    def assign(self, value: Any, timestamp: int, clock: Clock) -> Sequence[TimeWindow]:
        time = _element_time(timestamp) if self.is_event_time else clock()
        start = window_start(time, self.effective_offset(clock), self.size_ms)
        return (TimeWindow(start, start + self.size_ms),)

    def default_trigger(self) -> TriggerLike:
        return _time_trigger(self.is_event_time)


class SlidingAssigner(WindowAssigner):
    """Every window that holds the element, the latest first; none at all in the gaps when the slide exceeds the size."""

    def __init__(self, declared: SlidingWindows) -> None:
        self.is_event_time = declared.is_event_time
        self._size = declared.size_ms
        self._slide = declared.slide_ms
        self._offset = declared.offset_ms

    def slots(self, clock: Clock) -> tuple[int, int]:
        """Return length and offset of the slots of time that are in the same windows."""
        length = gcd(self._size, self._slide)
        return length, self._offset % length

    def assign(self, value: Any, timestamp: int, clock: Clock) -> Sequence[TimeWindow]:
        time = _element_time(timestamp) if self.is_event_time else clock()
        latest = window_start(time, self._offset, self._slide)
        return [TimeWindow(start, start + self._size) for start in range(latest, time - self._size, -self._slide)]

    def default_trigger(self) -> TriggerLike:
        return _time_trigger(self.is_event_time)


class SessionAssigner(WindowAssigner):
    """A window of the gap's length from each element on; windows that overlap or touch are merged."""

    is_merging = True

    def __init__(self, declared: SessionWindows) -> None:
        self.is_event_time = declared.is_event_time
        self._gap = declared.gap

    def assign(self, value: Any, timestamp: int, clock: Clock) -> Sequence[TimeWindow]:
        """The element's own session.

        Raises:
            UserError: a dynamic gap is not above zero.
        """
        time = _element_time(timestamp) if self.is_event_time else clock()
        gap = self._gap if isinstance(self._gap, int) else duration_ms(self._gap(value))
        if gap <= 0:
            raise UserError(f"a dynamic session gap must be above zero; the function gave {gap} ms for {value!r}")
        return (TimeWindow(time, time + gap),)

    def default_trigger(self) -> TriggerLike:
        return _time_trigger(self.is_event_time)


class GlobalAssigner(WindowAssigner):
    """The one window for everything."""

    is_event_time = False

    def __init__(self, declared: GlobalWindows) -> None:
        self._fires_at_end = declared.fires_at_end

    def assign(self, value: Any, timestamp: int, clock: Clock) -> Sequence[Window]:
        return _GLOBAL

    def default_trigger(self) -> TriggerLike:
        return EndOfStreamTrigger() if self._fires_at_end else NeverTrigger()


def build_assigner(declared: AssignerLike, draw: Draw | None = None) -> WindowAssigner:
    """Give a declared assigner its behaviour; a user's own is used as it is.

    Args:
        declared: the user's declaration.
        draw: returns a random integer in [0, n) for n; used by the random stagger.
    """
    match declared:
        case TumblingWindows():
            return TumblingAssigner(declared, draw)
        case SlidingWindows():
            return SlidingAssigner(declared)
        case SessionWindows():
            return SessionAssigner(declared)
        case GlobalWindows():
            return GlobalAssigner(declared)
        case WindowAssigner():
            return declared
    raise UserError(f"{declared!r} is no window assigner; take one of topo.api.windows or derive from WindowAssigner")


def _time_trigger(is_event_time: bool) -> TriggerLike:
    return EventTimeTrigger() if is_event_time else ProcessingTimeTrigger()


def _element_time(timestamp: int) -> int:
    if timestamp == MIN_TIMESTAMP:
        raise UserError(
            "an element without timestamp reached an event-time window: emit it with timestamp=, set a WatermarkStrategy, "
            "or use processing-time windows"
        )
    return timestamp
