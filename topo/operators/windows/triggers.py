"""Triggers: the behaviour of the declared ones.

A trigger keeps nothing itself: timers and values live in the context, under one key and window. `on_element` is asked after
the element was added; the timer methods are asked for *every* timer of the window, also for the operator's clean-up timer, so
each compares the time with its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    OnMergeContext,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerContext,
    TriggerLike,
    TriggerResult,
)
from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP
from topo.user_errors import returned

CONTINUE: Final = TriggerResult.CONTINUE
FIRE: Final = TriggerResult.FIRE
PURGE: Final = TriggerResult.PURGE
FIRE_AND_PURGE: Final = TriggerResult.FIRE_AND_PURGE

_FIRE_TIME: Final = "fire-time"
_COUNT: Final = "count"
_LAST: Final = "last-element"
_TIMEOUT: Final = "timeout"

MOST_MISSED: Final = 100
"""A continuous trigger fires for each interval that one watermark, or one step of the clock, passes, as Flink's does. All of them
show the same contents, so behind by more intervals than this it continues with the last due interval."""


def _next_fire_time(since: int, interval_ms: int, now: int, last: int) -> int:
    """Return when a continuous trigger fires next.

    Args:
        since: when it fired last, or the interval's beginning before the first time.
        interval_ms: between two firings.
        now: the watermark, or the clock.
        last: the window's last millisecond, which is the latest time to fire at.
    """
    if last == MAX_TIMESTAMP == now:
        # The input has ended and the global window has not.
        return last
    missed = (min(now, last) - since) // interval_ms
    return min(since + interval_ms * (missed if missed > MOST_MISSED else 1), last)


class _Quiet(Trigger):
    """Continues whatever happens and keeps nothing; the others say where they differ."""

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return CONTINUE

    def clear(self, window: Any, context: TriggerContext) -> None:
        pass


class _Never(_Quiet):
    can_merge = True

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        pass


class _EndOfStream(_Quiet):
    """Fires at the last watermark. After a merge the element that caused it registers the timer again."""

    can_merge = True

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        pass

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        context.register_event_time_timer(MAX_TIMESTAMP)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return FIRE if time == MAX_TIMESTAMP else CONTINUE


class _EventTime(_Quiet):
    can_merge = True

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= context.current_watermark:
            return FIRE
        context.register_event_time_timer(window.max_timestamp)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp else CONTINUE

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        # Behind the watermark the element that caused the merge fires at once; a timer would fire a second time.
        if window.max_timestamp > context.current_watermark:
            context.register_event_time_timer(window.max_timestamp)

    def clear(self, window: Any, context: TriggerContext) -> None:
        context.delete_event_time_timer(window.max_timestamp)


class AtWindowEnd(_Quiet):
    """Fires when it is asked, which the operator does at the end of a window alone."""

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return FIRE


class _ProcessingTime(_Quiet):
    can_merge = True

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        context.register_processing_time_timer(window.max_timestamp)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return FIRE

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        if window.max_timestamp > context.current_processing_time:
            context.register_processing_time_timer(window.max_timestamp)

    def clear(self, window: Any, context: TriggerContext) -> None:
        context.delete_processing_time_timer(window.max_timestamp)


class _Count(_Quiet):
    can_merge = True

    def __init__(self, count: int) -> None:
        self._count = count

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        count = context.get(_COUNT, 0) + 1
        if count >= self._count:
            context.forget(_COUNT)
            return FIRE
        context.put(_COUNT, count)
        return CONTINUE

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        context.merge(_COUNT, lambda first, second: first + second)

    def clear(self, window: Any, context: TriggerContext) -> None:
        context.forget(_COUNT)


class _ContinuousEventTime(_Quiet):
    """Keeps the next fire time. `clear` leaves the timer at the window's end alone; the operator ignores it when it dangles."""

    can_merge = True

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= context.current_watermark:
            return FIRE
        context.register_event_time_timer(window.max_timestamp)
        if context.get(_FIRE_TIME) is None:
            self._arm(timestamp - _truncated_remainder(timestamp, self._interval_ms), window, context)
        return CONTINUE

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp:
            return FIRE
        if time == context.get(_FIRE_TIME):
            self._arm(time, window, context)
            return FIRE
        return CONTINUE

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        fire_time = context.merge(_FIRE_TIME, min)
        if fire_time is not None:
            context.register_event_time_timer(fire_time)

    def clear(self, window: Any, context: TriggerContext) -> None:
        fire_time = context.get(_FIRE_TIME)
        if fire_time is not None:
            context.delete_event_time_timer(fire_time)
            context.forget(_FIRE_TIME)

    def _arm(self, since: int, window: Any, context: TriggerContext) -> None:
        fire_time = _next_fire_time(since, self._interval_ms, context.current_watermark, window.max_timestamp)
        context.put(_FIRE_TIME, fire_time)
        context.register_event_time_timer(fire_time)


class _ContinuousProcessingTime(_Quiet):
    can_merge = True

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        if context.get(_FIRE_TIME) is None:
            clock = context.current_processing_time
            self._arm(clock - _truncated_remainder(clock, self._interval_ms), window, context)
        return CONTINUE

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        if time != context.get(_FIRE_TIME):
            return CONTINUE
        context.forget(_FIRE_TIME)
        # At the window's end the cap gives the same time again, for ever: the next element arms it, if one still comes.
        if time < window.max_timestamp:
            self._arm(time, window, context)
        return FIRE

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        fire_time = context.merge(_FIRE_TIME, min)
        if fire_time is not None:
            context.register_processing_time_timer(fire_time)

    def clear(self, window: Any, context: TriggerContext) -> None:
        fire_time = context.get(_FIRE_TIME)
        if fire_time is not None:
            context.delete_processing_time_timer(fire_time)
            context.forget(_FIRE_TIME)

    def _arm(self, since: int, window: Any, context: TriggerContext) -> None:
        fire_time = _next_fire_time(since, self._interval_ms, context.current_processing_time, window.max_timestamp)
        context.put(_FIRE_TIME, fire_time)
        context.register_processing_time_timer(fire_time)


class _Delta(_Quiet):
    def __init__(self, threshold: float, delta: Callable[[Any, Any], float]) -> None:
        self._threshold = threshold
        self._delta = delta

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        last = context.get(_LAST, _ABSENT)
        if last is _ABSENT:
            context.put(_LAST, value)
        elif self._delta(last, value) > self._threshold:
            context.put(_LAST, value)
            return FIRE
        return CONTINUE

    def clear(self, window: Any, context: TriggerContext) -> None:
        context.forget(_LAST)


_ABSENT: Final = object()


class _Around(Trigger):
    """Asks another trigger, and adjusts its results."""

    def __init__(self, inner: Trigger) -> None:
        self._inner = inner

    @property
    def can_merge(self) -> bool:
        return self._inner.can_merge

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        return self._adjusted(self._inner.on_element, self._inner.on_element(value, timestamp, window, context))

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return self._adjusted(self._inner.on_event_time, self._inner.on_event_time(time, window, context))

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return self._adjusted(self._inner.on_processing_time, self._inner.on_processing_time(time, window, context))

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        self._inner.on_merge(window, context)

    def clear(self, window: Any, context: TriggerContext) -> None:
        self._inner.clear(window, context)

    def _adjusted(self, method: Callable[..., TriggerResult], result: TriggerResult) -> TriggerResult:
        raise NotImplementedError


class _Purging(_Around):
    def _adjusted(self, method: Callable[..., TriggerResult], result: TriggerResult) -> TriggerResult:
        return FIRE_AND_PURGE if result is FIRE else result


class _ProcessingTimeout(Trigger):
    """Adds a time-out to another trigger. Every timer of the window, the inner trigger's as well, counts as the time-out."""

    def __init__(self, inner: Trigger, timeout_ms: int, resets_on_element: bool, clears_on_timeout: bool) -> None:
        self._inner = inner
        self._timeout_ms = timeout_ms
        self._resets_on_element = resets_on_element
        self._clears_on_timeout = clears_on_timeout

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        result = self._inner.on_element(value, timestamp, window, context)
        if result in (FIRE, FIRE_AND_PURGE):
            self.clear(window, context)
            return result
        deadline = context.get(_TIMEOUT)
        if deadline is not None and self._resets_on_element:
            context.delete_processing_time_timer(deadline)
            deadline = None
        if deadline is None:
            deadline = context.current_processing_time + self._timeout_ms
            context.put(_TIMEOUT, deadline)
            context.register_processing_time_timer(deadline)
        return result

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return self._timed_out(self._inner.on_event_time(time, window, context), window, context)

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return self._timed_out(self._inner.on_processing_time(time, window, context), window, context)

    def clear(self, window: Any, context: TriggerContext) -> None:
        deadline = context.get(_TIMEOUT)
        if deadline is not None:
            context.delete_processing_time_timer(deadline)
            context.forget(_TIMEOUT)
        self._inner.clear(window, context)

    def _timed_out(self, inner_result: TriggerResult, window: Any, context: TriggerContext) -> TriggerResult:
        if self._clears_on_timeout:
            self.clear(window, context)
        return FIRE_AND_PURGE if inner_result in (PURGE, FIRE_AND_PURGE) else FIRE


class _OwnTrigger(_Around):
    """Calls a user's trigger and checks its results: with the None of a forgotten `return` no window would fire."""

    def _adjusted(self, method: Callable[..., TriggerResult], result: TriggerResult) -> TriggerResult:
        if type(result) is not TriggerResult:
            raise returned(method, result, "return a TriggerResult, such as TriggerResult.CONTINUE or TriggerResult.FIRE")
        return result


def build_trigger(declared: TriggerLike) -> Trigger:
    match declared:
        case Trigger():
            return _OwnTrigger(declared)
        case EventTimeTrigger():
            return _EventTime()
        case ProcessingTimeTrigger():
            return _ProcessingTime()
        case CountTrigger(count):
            return _Count(count)
        case ContinuousEventTimeTrigger(interval_ms):
            return _ContinuousEventTime(interval_ms)
        case ContinuousProcessingTimeTrigger(interval_ms):
            return _ContinuousProcessingTime(interval_ms)
        case DeltaTrigger(threshold, delta):
            return _Delta(threshold, delta)
        case NeverTrigger():
            return _Never()
        case EndOfStreamTrigger():
            return _EndOfStream()
        case PurgingTrigger(inner):
            return _Purging(build_trigger(inner))
        case ProcessingTimeoutTrigger(inner, timeout_ms, resets_on_element, clears_on_timeout):
            return _ProcessingTimeout(build_trigger(inner), timeout_ms, resets_on_element, clears_on_timeout)
    raise UserError(f"{declared!r} is no trigger; take one of topo.api.windows or derive from Trigger")


def _truncated_remainder(value: int, divisor: int) -> int:
    """The remainder that truncates towards zero, as Flink's continuous triggers use it: -5 by 10 gives -5."""
    remainder = abs(value) % divisor
    return remainder if value >= 0 else -remainder
