"""A trigger on its own: windows of one key, a watermark and a clock that the test moves. docs/testing-operators.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from topo.api.triggers import TriggerLike, TriggerResult
from topo.api.windows import Window
from topo.operators.state.keyed_state import KeyContext, KeyedState
from topo.operators.time.clock import MIN_TIMESTAMP, ManualProcessingTime
from topo.operators.time.timers import TimerServices
from topo.operators.windows.trigger_context import WindowTriggerContext
from topo.operators.windows.triggers import build_trigger


class Asked(NamedTuple):
    """A trigger's answer to a timer of a window."""

    window: Window
    result: TriggerResult


class _DueTimers:
    """Asks the trigger of a harness for each timer that is due."""

    def __init__(self, harness: TriggerHarness) -> None:
        self.asked: list[Asked] = []
        self._harness = harness

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """The watermark has passed the timer."""
        self.asked.append(Asked(namespace, self._harness.on_event_time(timestamp, namespace)))

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """The clock has passed the timer."""
        self.asked.append(Asked(namespace, self._harness.on_processing_time(timestamp, namespace)))


class TriggerHarness:
    """Asks one trigger, and shows the timers and values that it leaves.

    The trigger's answers have no effect: no window is fired, purged or cleaned up, and there is no clean-up timer.

    Args:
        trigger: a declared trigger, or your own.
        now_ms: the first time of the clock.

    Attributes:
        trigger: what behaves as declared.
        clock: the processing time.
    """

    def __init__(self, trigger: TriggerLike, now_ms: int = 0) -> None:
        self.trigger = build_trigger(trigger)
        self.clock = ManualProcessingTime(now_ms)
        keys = KeyContext()
        keys.key = "key"
        self._state = KeyedState(keys, self.clock.now_ms)
        self._due = _DueTimers(self)
        self._timers = TimerServices(keys, self.clock).get("timers", self._due)
        self._context = WindowTriggerContext(self._timers, self._state.map("values"))

    def process(self, value: Any, timestamp: int | None, window: Window) -> TriggerResult:
        """Say that an element has come into a window; return the answer."""
        time = MIN_TIMESTAMP if timestamp is None else timestamp
        return self.trigger.on_element(value, time, window, self._of(window))

    def watermark(self, timestamp: int) -> list[Asked]:
        """Set the watermark; return (window, answer) of each event-time timer that was due, in order."""
        return self._asked_by(lambda: self._timers.advance_watermark(timestamp))

    def set_clock(self, now_ms: int) -> list[Asked]:
        """Set the clock, to milliseconds; return (window, answer) of each processing-time timer that was due, in order."""
        return self._asked_by(lambda: self.clock.advance_to(now_ms))

    def on_event_time(self, timestamp: int, window: Window) -> TriggerResult:
        """Ask as for an event-time timer of a window, whether or not there is one; return the answer."""
        return self.trigger.on_event_time(timestamp, window, self._of(window))

    def on_processing_time(self, timestamp: int, window: Window) -> TriggerResult:
        """Ask as for a processing-time timer of a window, whether or not there is one; return the answer."""
        return self.trigger.on_processing_time(timestamp, window, self._of(window))

    def merge(self, target: Window, windows: Sequence[Window]) -> None:
        """Say that windows were merged into one, and clear each of them, as the window operator does.

        Raises:
            UserError: the trigger cannot merge.
        """
        context = self._of(target)
        context.merged = windows
        self.trigger.on_merge(target, context)
        context.merged = ()
        for window in windows:
            self.clear(window)

    def clear(self, window: Window) -> None:
        """Say that a window is cleaned up."""
        self.trigger.clear(window, self._of(window))

    def state_entries(self, window: Window | None = None) -> int:
        """How many values are kept for a window, or for all."""
        rows = [row for states in self._state.snapshot().values() for state in states.values() for row in state["rows"]]
        return sum(len(values) for _, owner, values in rows if window is None or owner == window)

    def event_timers(self, window: Window | None = None) -> int:
        """How many event-time timers a window has, or all have."""
        return self._count(self._timers.for_each_event_timer, window)

    def processing_timers(self, window: Window | None = None) -> int:
        """How many processing-time timers a window has, or all have."""
        return self._count(self._timers.for_each_processing_timer, window)

    def _of(self, window: Window) -> WindowTriggerContext:
        self._context.window = window
        return self._context

    def _asked_by(self, advance: Callable[[], object]) -> list[Asked]:
        self._due.asked = []
        advance()
        return self._due.asked

    @staticmethod
    def _count(visit_all: Callable[[Callable[[Any, int], None]], None], window: Window | None) -> int:
        owners: list[Any] = []
        visit_all(lambda owner, _timestamp: owners.append(owner))
        return len(owners) if window is None else owners.count(window)
