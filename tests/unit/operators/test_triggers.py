"""Triggers, each against real timers and state: what it answers, which timers and values it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerLike,
    TriggerResult,
)
from topo.api.windows import GlobalWindow, TimeWindow
from topo.errors import UserError
from topo.operators.state.keyed_state import KeyContext, KeyedState
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP, ManualProcessingTime
from topo.operators.time.timers import TimerServices
from topo.operators.windows.operator import WindowTriggerContext
from topo.operators.windows.triggers import build_trigger

CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = TriggerResult
W = TimeWindow(0, 20)
LATER = TimeWindow(30, 40)


class TriggerRig:
    """One trigger, one key, real timers and state."""

    def __init__(self, declared: TriggerLike, now_ms: int = 0) -> None:
        self.trigger = build_trigger(declared)
        self.clock = ManualProcessingTime(now_ms)
        keys = KeyContext()
        keys.key = "k"
        self.state = KeyedState(keys, self.clock.now_ms)
        self.timers = TimerServices(keys, self.clock).get("timers", self)
        self.context = WindowTriggerContext(self.timers, self.state.map("trigger"))
        self.fired: list[tuple[Any, int, TriggerResult]] = []

    def element(self, timestamp: int, window: Any = W, value: Any = "x") -> TriggerResult:
        self.context.window = window
        return self.trigger.on_element(value, timestamp, window, self.context)

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        self.context.window = namespace
        self.fired.append((namespace, timestamp, self.trigger.on_event_time(timestamp, namespace, self.context)))

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        self.context.window = namespace
        self.fired.append((namespace, timestamp, self.trigger.on_processing_time(timestamp, namespace, self.context)))

    def watermark(self, timestamp: int) -> list[tuple[Any, int, TriggerResult]]:
        self.timers.advance_watermark(timestamp)
        fired, self.fired = self.fired, []
        return fired

    def time(self, now_ms: int) -> list[tuple[Any, int, TriggerResult]]:
        self.clock.advance_to(now_ms)
        fired, self.fired = self.fired, []
        return fired

    def merge(self, result: TimeWindow, members: list[TimeWindow]) -> None:
        self.context.window, self.context.merged = result, members
        self.trigger.on_merge(result, self.context)  # type: ignore[arg-type]
        self.context.merged = ()
        for member in members:
            self.clear(member)

    def clear(self, window: Any = W) -> None:
        self.context.window = window
        self.trigger.clear(window, self.context)

    @property
    def event_timers(self) -> list[tuple[Any, int]]:
        found: list[tuple[Any, int]] = []
        self.timers.for_each_event_timer(lambda namespace, timestamp: found.append((namespace, timestamp)))
        return sorted(found)

    @property
    def processing_timers(self) -> list[tuple[Any, int]]:
        found: list[tuple[Any, int]] = []
        self.timers.for_each_processing_timer(lambda namespace, timestamp: found.append((namespace, timestamp)))
        return sorted(found)

    @property
    def is_clean(self) -> bool:
        return not self.event_timers and not self.processing_timers and self.state.entries == 0


# Event time


def test_event_time_registers_the_end_of_the_window_and_fires_there() -> None:
    rig = TriggerRig(EventTimeTrigger())
    assert rig.element(3) is CONTINUE
    assert rig.element(4) is CONTINUE
    assert rig.event_timers == [(W, 19)]
    assert rig.watermark(18) == []
    assert rig.watermark(19) == [(W, 19, FIRE)]


def test_event_time_fires_at_once_without_a_timer_when_the_window_is_behind_the_watermark() -> None:
    rig = TriggerRig(EventTimeTrigger())
    rig.watermark(19)
    assert rig.element(3) is FIRE
    assert rig.event_timers == []


def test_event_time_continues_at_other_timers_and_clears_its_own() -> None:
    rig = TriggerRig(EventTimeTrigger())
    rig.element(3)
    rig.context.window = W
    assert rig.trigger.on_event_time(18, W, rig.context) is CONTINUE
    assert rig.trigger.on_processing_time(19, W, rig.context) is CONTINUE
    rig.clear()
    assert rig.is_clean


def test_event_time_after_a_merge_registers_only_an_end_ahead_of_the_watermark() -> None:
    rig = TriggerRig(EventTimeTrigger())
    rig.element(3, TimeWindow(0, 10))
    rig.element(12, TimeWindow(10, 20))
    rig.merge(W, [TimeWindow(0, 10), TimeWindow(10, 20)])
    assert rig.event_timers == [(W, 19)]

    behind = TriggerRig(EventTimeTrigger())
    behind.watermark(19)
    behind.merge(W, [])
    assert behind.event_timers == []


# Processing time


def test_processing_time_fires_when_the_clock_reaches_the_end() -> None:
    rig = TriggerRig(ProcessingTimeTrigger())
    assert rig.element(MIN_TIMESTAMP) is CONTINUE
    assert rig.processing_timers == [(W, 19)]
    assert rig.time(18) == []
    assert rig.time(19) == [(W, 19, FIRE)]


def test_processing_time_fires_at_any_timer_of_the_clock_and_at_none_of_the_watermark() -> None:
    rig = TriggerRig(ProcessingTimeTrigger())
    rig.context.window = W
    assert rig.trigger.on_processing_time(7, W, rig.context) is FIRE
    assert rig.trigger.on_event_time(19, W, rig.context) is CONTINUE


def test_processing_time_after_a_merge_registers_only_an_end_ahead_of_the_clock() -> None:
    rig = TriggerRig(ProcessingTimeTrigger())
    rig.element(3, TimeWindow(0, 10))
    rig.merge(W, [TimeWindow(0, 10)])
    assert rig.processing_timers == [(W, 19)]

    behind = TriggerRig(ProcessingTimeTrigger(), now_ms=19)
    behind.merge(W, [])
    assert behind.processing_timers == []


# Count


def test_count_fires_at_the_nth_element_and_begins_again() -> None:
    rig = TriggerRig(CountTrigger(3))
    assert [rig.element(0) for _ in range(7)] == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]


def test_count_keeps_windows_apart_and_clears_one() -> None:
    rig = TriggerRig(CountTrigger(2))
    rig.element(0)
    assert rig.element(0, LATER) is CONTINUE
    rig.clear()
    assert rig.element(0) is CONTINUE
    assert rig.element(0, LATER) is FIRE


def test_a_merge_sums_counts_but_only_the_next_element_fires() -> None:
    rig = TriggerRig(CountTrigger(3))
    first, second = TimeWindow(0, 10), TimeWindow(10, 20)
    for window in (first, first, second, second):
        assert rig.element(0, window) is CONTINUE
    rig.merge(W, [first, second])
    assert rig.fired == []
    assert rig.element(0) is FIRE
    assert rig.is_clean


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="above zero"):
        CountTrigger(0)


# Continuous, event time


def test_continuous_event_time_fires_every_interval_from_the_first_element_seen() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(5))
    assert rig.element(7) is CONTINUE
    assert rig.element(1) is CONTINUE
    assert rig.event_timers == [(W, 10), (W, 19)]
    assert rig.watermark(9) == []
    assert rig.watermark(10) == [(W, 10, FIRE)]
    assert rig.event_timers == [(W, 15), (W, 19)]


def test_continuous_event_time_is_capped_so_that_the_last_fire_is_the_windows_end() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(5))
    rig.element(17)
    assert rig.event_timers == [(W, 19)]
    assert rig.watermark(50) == [(W, 19, FIRE)]
    assert rig.event_timers == []


def test_continuous_event_time_fires_all_that_one_watermark_passes() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(5))
    rig.element(0)
    assert [timestamp for _, timestamp, result in rig.watermark(19) if result is FIRE] == [5, 10, 15, 19]


def test_continuous_event_time_does_not_count_up_to_the_end_of_time_when_the_input_has_ended() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(5))
    rig.element(0, GlobalWindow())
    assert rig.watermark(5) == [(GlobalWindow(), 5, FIRE)]
    assert rig.watermark(MAX_TIMESTAMP) == [(GlobalWindow(), 10, FIRE), (GlobalWindow(), MAX_TIMESTAMP, FIRE)]
    assert rig.event_timers == []


def test_continuous_event_time_fires_at_once_behind_the_watermark() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(5))
    rig.watermark(19)
    assert rig.element(3) is FIRE
    assert rig.is_clean


def test_the_remainder_of_continuous_triggers_truncates_for_negative_timestamps() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(10))
    rig.element(-5, TimeWindow(-20, 20))
    assert (TimeWindow(-20, 20), 10) in rig.event_timers


def test_continuous_event_time_clears_its_fire_time_and_leaves_the_timer_at_the_end() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(5))
    rig.element(0)
    rig.clear()
    assert rig.event_timers == [(W, 19)]
    assert rig.state.entries == 0


def test_continuous_event_time_merges_to_the_least_fire_time_registers_it_and_leaves_old_timers_dangling() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(4))
    first, second = TimeWindow(0, 10), TimeWindow(9, 20)
    rig.element(1, first)
    rig.element(13, second)
    rig.merge(W, [first, second])
    assert (W, 4) in rig.event_timers
    assert (first, 4) in rig.event_timers  # its fire time has moved away before clear looked for it
    assert (second, 16) in rig.event_timers
    assert (W, 4, FIRE) in rig.watermark(4)
    assert (W, 8) in rig.event_timers


def test_continuous_event_time_merges_without_fire_times() -> None:
    rig = TriggerRig(ContinuousEventTimeTrigger(4))
    rig.merge(W, [TimeWindow(0, 10)])
    assert rig.is_clean


# Continuous, processing time


def test_continuous_processing_time_goes_by_the_clock_and_arms_itself_again() -> None:
    rig = TriggerRig(ContinuousProcessingTimeTrigger(5), now_ms=7)
    assert rig.element(999) is CONTINUE
    assert rig.processing_timers == [(W, 10)]
    assert rig.time(10) == [(W, 10, FIRE)]
    assert rig.processing_timers == [(W, 15)]


def test_continuous_processing_time_continues_at_other_timers() -> None:
    rig = TriggerRig(ContinuousProcessingTimeTrigger(5))
    rig.element(0)
    rig.context.window = W
    assert rig.trigger.on_processing_time(3, W, rig.context) is CONTINUE
    assert rig.trigger.on_event_time(5, W, rig.context) is CONTINUE


def test_continuous_processing_time_stops_at_the_windows_end() -> None:
    rig = TriggerRig(ContinuousProcessingTimeTrigger(15))
    rig.element(0)
    assert [timestamp for _, timestamp, _ in rig.time(100)] == [15, 19]
    assert rig.is_clean


def test_continuous_processing_time_merges_to_the_least_fire_time() -> None:
    rig = TriggerRig(ContinuousProcessingTimeTrigger(5))
    first, second = TimeWindow(0, 10), TimeWindow(10, 20)
    rig.element(0, first)
    rig.time(4)
    rig.element(0, second)
    rig.merge(W, [first, second])
    assert (W, 5) in rig.processing_timers
    rig.clear(W)
    assert rig.state.entries == 0


def test_continuous_processing_time_clears_timer_and_state() -> None:
    rig = TriggerRig(ContinuousProcessingTimeTrigger(5))
    rig.element(0)
    rig.clear()
    assert rig.is_clean


@pytest.mark.parametrize("declare", [ContinuousEventTimeTrigger.of, ContinuousProcessingTimeTrigger.of])
def test_a_continuous_interval_is_above_zero(declare: Any) -> None:
    with pytest.raises(UserError, match="above zero"):
        declare("0s")


# Purging


class Always(Trigger):
    """Answers everything with one result."""

    def __init__(self, result: TriggerResult) -> None:
        self.result = result

    def on_element(self, value: Any, timestamp: int, window: Any, context: Any) -> TriggerResult:
        return self.result

    def on_event_time(self, time: int, window: Any, context: Any) -> TriggerResult:
        return self.result

    def on_processing_time(self, time: int, window: Any, context: Any) -> TriggerResult:
        return self.result

    def clear(self, window: Any, context: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("inner", "outer"), [(CONTINUE, CONTINUE), (FIRE, FIRE_AND_PURGE), (PURGE, PURGE), (FIRE_AND_PURGE, FIRE_AND_PURGE)]
)
def test_purging_turns_fire_into_fire_and_purge_and_nothing_else(inner: TriggerResult, outer: TriggerResult) -> None:
    rig = TriggerRig(PurgingTrigger.of(Always(inner)))
    assert rig.element(0) is outer
    assert rig.trigger.on_event_time(0, W, rig.context) is outer
    assert rig.trigger.on_processing_time(0, W, rig.context) is outer


def test_purging_merges_and_clears_as_the_inner_trigger_does() -> None:
    rig = TriggerRig(PurgingTrigger.of(CountTrigger(3)))
    first = TimeWindow(0, 10)
    rig.element(0, first)
    rig.element(0, first)
    rig.merge(W, [first])
    assert rig.element(0) is FIRE_AND_PURGE
    rig.element(0)
    rig.clear()
    assert rig.is_clean
    assert not build_trigger(PurgingTrigger.of(DeltaTrigger(1, lambda a, b: 0))).can_merge


# Delta, never, end of stream


def test_delta_fires_strictly_above_the_threshold_from_the_element_of_the_last_fire() -> None:
    rig = TriggerRig(DeltaTrigger(5, lambda last, current: current - last))
    answers = [rig.element(0, value=value) for value in (1, 6, 7, 12, 13)]
    assert answers == [CONTINUE, CONTINUE, FIRE, CONTINUE, FIRE]
    rig.clear()
    assert rig.is_clean
    assert rig.element(0, value=100) is CONTINUE


def test_delta_remembers_a_first_element_that_is_none() -> None:
    rig = TriggerRig(DeltaTrigger(0, lambda last, current: 0 if last is current else 1))
    assert [rig.element(0, value=value) for value in (None, None, 1)] == [CONTINUE, CONTINUE, FIRE]


def test_delta_does_not_merge() -> None:
    trigger = build_trigger(DeltaTrigger(1, lambda a, b: 0))
    assert not trigger.can_merge
    with pytest.raises(UserError, match="cannot merge"):
        trigger.on_merge(W, TriggerRig(NeverTrigger()).context)  # type: ignore[arg-type]


def test_never_continues_whatever_happens() -> None:
    rig = TriggerRig(NeverTrigger())
    rig.context.window = W
    assert rig.element(0) is CONTINUE
    assert rig.trigger.on_event_time(19, W, rig.context) is CONTINUE
    assert rig.trigger.on_processing_time(19, W, rig.context) is CONTINUE
    assert rig.is_clean


def test_end_of_stream_fires_at_the_last_watermark_only() -> None:
    rig = TriggerRig(EndOfStreamTrigger())
    window = GlobalWindow()
    assert rig.element(0, window) is CONTINUE
    assert rig.event_timers == [(window, MAX_TIMESTAMP)]
    assert rig.watermark(MAX_TIMESTAMP - 1) == []
    assert rig.watermark(MAX_TIMESTAMP) == [(window, MAX_TIMESTAMP, FIRE)]


# Processing timeout


def test_a_timeout_is_armed_once_by_the_first_element() -> None:
    rig = TriggerRig(ProcessingTimeoutTrigger.of(CountTrigger(3), "50ms"), now_ms=100)
    assert rig.element(0) is CONTINUE
    rig.time(120)
    assert rig.element(0) is CONTINUE
    assert rig.processing_timers == [(W, 150)]
    assert rig.time(150) == [(W, 150, FIRE)]
    assert rig.is_clean


def test_a_timeout_that_resets_is_armed_by_every_element() -> None:
    rig = TriggerRig(ProcessingTimeoutTrigger.of(CountTrigger(3), "50ms", resets_on_element=True), now_ms=100)
    rig.element(0)
    rig.time(120)
    rig.element(0)
    assert rig.processing_timers == [(W, 170)]


def test_when_the_inner_trigger_fires_all_is_cleared_and_its_answer_stands() -> None:
    rig = TriggerRig(ProcessingTimeoutTrigger.of(PurgingTrigger.of(CountTrigger(2)), "50ms"))
    rig.element(0)
    assert rig.element(0) is FIRE_AND_PURGE
    assert rig.is_clean


def test_a_timeout_that_does_not_clear_keeps_the_inner_triggers_count() -> None:
    rig = TriggerRig(ProcessingTimeoutTrigger.of(CountTrigger(3), "50ms", clears_on_timeout=False))
    rig.element(0)
    rig.element(0)
    assert rig.time(50) == [(W, 50, FIRE)]
    assert rig.element(0) is FIRE


def test_every_timer_of_the_window_counts_as_the_timeout() -> None:
    rig = TriggerRig(ProcessingTimeoutTrigger.of(EventTimeTrigger(), "50ms"))
    rig.element(0)
    assert rig.time(50) == [(W, 50, FIRE)]
    assert rig.is_clean
    rig.element(0)
    assert rig.watermark(19) == [(W, 19, FIRE)]
    assert rig.is_clean


def test_a_timeout_purges_when_the_inner_trigger_does() -> None:
    rig = TriggerRig(ProcessingTimeoutTrigger.of(PurgingTrigger.of(ProcessingTimeTrigger()), "5ms"))
    rig.element(0)
    assert rig.time(5) == [(W, 5, FIRE_AND_PURGE)]


def test_a_timeout_does_not_merge() -> None:
    assert not build_trigger(ProcessingTimeoutTrigger.of(CountTrigger(2), "1s")).can_merge


# Users' own


def test_a_users_own_trigger_gives_its_results_and_anything_else_is_refused() -> None:
    built, nothing = build_trigger(Always(FIRE)), object()
    assert not built.can_merge
    assert built.on_element(1, 2, W, nothing) is built.on_event_time(1, W, nothing) is FIRE  # type: ignore[arg-type]
    with pytest.raises(UserError, match="on_processing_time returned True"):
        build_trigger(Always(True)).on_processing_time(1, W, nothing)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="Always cannot merge windows"):
        built.on_merge(W, nothing)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no trigger"):
        build_trigger("always")  # type: ignore[arg-type]
