"""Triggers at the edges of their rules. `tests/unit/testing/test_trigger_harness.py` has the rules themselves."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.operators.window_rig import TEN, entries, timers
from tests.unit.operators.window_rig import rig as windows
from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerResult,
)
from topo.api.windows import GlobalWindow, TimeWindow, TumblingProcessingTimeWindows
from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.windows.triggers import build_trigger
from topo.testing import TriggerHarness

CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = TriggerResult
W = TimeWindow(0, 20)


def with_element(trigger: Any, timestamp: int = 0, now_ms: int = 0) -> TriggerHarness:
    """Return a harness with one element in the window [0, 20)."""
    harness = TriggerHarness(trigger, now_ms)
    assert harness.process("x", timestamp, W) is CONTINUE
    return harness


def is_clean(harness: TriggerHarness) -> bool:
    return (harness.state_entries(), harness.event_timers(), harness.processing_timers()) == (0, 0, 0)


# Time


def test_event_time_continues_at_timers_that_are_not_its_own() -> None:
    harness = with_element(EventTimeTrigger())
    assert harness.on_event_time(18, W) is CONTINUE
    assert harness.on_processing_time(19, W) is CONTINUE


def test_processing_time_fires_at_any_timer_of_the_clock_alone() -> None:
    harness = TriggerHarness(ProcessingTimeTrigger())
    assert harness.on_processing_time(7, W) is FIRE
    assert harness.on_event_time(19, W) is CONTINUE


def test_windows_that_merge_to_one_that_is_over_leave_no_timer() -> None:
    by_event_time, by_clock = TriggerHarness(EventTimeTrigger()), TriggerHarness(ProcessingTimeTrigger(), now_ms=19)
    by_event_time.watermark(19)
    for harness in (by_event_time, by_clock):
        harness.merge(W, [])
        assert is_clean(harness)


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="above zero"):
        CountTrigger(0)


# Continuous


def test_continuous_event_time_fires_for_each_interval_that_one_watermark_passes() -> None:
    assert with_element(ContinuousEventTimeTrigger(5)).watermark(19) == [(W, FIRE)] * 4
    assert with_element(ContinuousEventTimeTrigger(5), 17).watermark(50) == [(W, FIRE)], "at the window's end alone"


def test_continuous_event_time_does_not_count_up_to_the_end_of_time() -> None:
    harness = TriggerHarness(ContinuousEventTimeTrigger(5))
    harness.process("x", 0, GlobalWindow())
    assert harness.watermark(5) == [(GlobalWindow(), FIRE)]
    assert harness.watermark(MAX_TIMESTAMP) == [(GlobalWindow(), FIRE)] * 2, "at 10 and at the end"
    assert harness.event_timers() == 0


def test_continuous_event_time_merges_without_fire_times() -> None:
    harness = TriggerHarness(ContinuousEventTimeTrigger(4))
    harness.merge(W, [TimeWindow(0, 10)])
    assert is_clean(harness)


def test_a_merged_continuous_trigger_continues_from_the_least_fire_time() -> None:
    harness = TriggerHarness(ContinuousEventTimeTrigger(4))
    first, second = TimeWindow(0, 10), TimeWindow(9, 20)
    harness.process("x", 1, first)
    harness.process("x", 13, second)
    harness.merge(W, [first, second])
    assert (W, FIRE) in harness.watermark(4)
    assert (W, FIRE) in harness.watermark(8)


def test_continuous_processing_time_continues_at_other_timers() -> None:
    harness = with_element(ContinuousProcessingTimeTrigger(5))
    assert harness.on_processing_time(3, W) is CONTINUE
    assert harness.on_event_time(5, W) is CONTINUE


def test_continuous_processing_time_counts_from_a_multiple_of_the_interval() -> None:
    assert with_element(ContinuousProcessingTimeTrigger(5), 999, now_ms=7).clock.next_due_ms == 11


def test_continuous_processing_time_stops_at_the_windows_end() -> None:
    harness = with_element(ContinuousProcessingTimeTrigger(15))
    assert harness.set_clock(100) == [(W, FIRE)] * 2, "at 15 and at 19"
    assert is_clean(harness)


def test_continuous_processing_time_merges_to_the_least_fire_time() -> None:
    harness = TriggerHarness(ContinuousProcessingTimeTrigger(5))
    first, second = TimeWindow(0, 10), TimeWindow(10, 20)
    harness.process("x", 0, first)
    harness.set_clock(5)
    harness.process("x", 0, second)
    harness.merge(W, [first, second])
    assert (W, FIRE) in harness.set_clock(6)
    harness.clear(W)
    assert harness.state_entries() == 0


@pytest.mark.parametrize("declare", [ContinuousEventTimeTrigger.of, ContinuousProcessingTimeTrigger.of])
def test_a_continuous_interval_is_above_zero(declare: Any) -> None:
    with pytest.raises(UserError, match="above zero"):
        declare("0s")


# Delta, never


def test_a_cleared_delta_has_no_last_element() -> None:
    harness = TriggerHarness(DeltaTrigger(5, lambda last, current: current - last))
    assert [harness.process(value, None, W) for value in (1, 7)] == [CONTINUE, FIRE]
    harness.clear(W)
    assert is_clean(harness)
    assert harness.process(100, None, W) is CONTINUE


def test_delta_remembers_a_first_element_that_is_none() -> None:
    harness = TriggerHarness(DeltaTrigger(0, lambda last, current: 0 if last is current else 1))
    assert [harness.process(value, None, W) for value in (None, None, 1)] == [CONTINUE, CONTINUE, FIRE]


def test_delta_does_not_merge() -> None:
    with pytest.raises(UserError, match="cannot merge"):
        TriggerHarness(DeltaTrigger(1, lambda a, b: 0)).merge(W, [])


def test_never_continues_at_any_timer() -> None:
    harness = with_element(NeverTrigger())
    assert harness.on_event_time(19, W) is CONTINUE
    assert harness.on_processing_time(19, W) is CONTINUE
    assert is_clean(harness)


# Processing timeout


@pytest.mark.parametrize(("resets", "due"), [(False, 151), (True, 171)])
def test_a_timeout_runs_from_the_first_element_or_from_each(resets: bool, due: int) -> None:
    harness = with_element(ProcessingTimeoutTrigger.of(CountTrigger(3), "50ms", resets_on_element=resets), now_ms=100)
    harness.set_clock(120)
    harness.process("x", 0, W)
    assert harness.processing_timers(W) == 1
    assert harness.set_clock(due - 1) == []
    assert harness.set_clock(due) == [(W, FIRE)]
    assert is_clean(harness)


def test_when_the_inner_trigger_fires_all_is_cleared_and_its_answer_stands() -> None:
    harness = with_element(ProcessingTimeoutTrigger.of(PurgingTrigger.of(CountTrigger(2)), "50ms"))
    assert harness.process("x", 0, W) is FIRE_AND_PURGE
    assert is_clean(harness)


def test_a_timeout_that_does_not_clear_keeps_the_inner_triggers_count() -> None:
    harness = with_element(ProcessingTimeoutTrigger.of(CountTrigger(3), "50ms", clears_on_timeout=False))
    harness.process("x", 0, W)
    assert harness.set_clock(51) == [(W, FIRE)]
    assert harness.process("x", 0, W) is FIRE


def test_every_timer_of_the_window_counts_as_the_timeout() -> None:
    harness = with_element(ProcessingTimeoutTrigger.of(EventTimeTrigger(), "50ms"))
    assert harness.set_clock(51) == [(W, FIRE)]
    assert is_clean(harness)
    harness.process("x", 0, W)
    assert harness.watermark(19) == [(W, FIRE)]
    assert is_clean(harness)


def test_a_timeout_that_clears_the_inner_trigger_leaves_the_window_its_end() -> None:
    """The timer that the inner trigger deletes is the one of the clean-up."""
    by_event = windows(TEN, trigger=ProcessingTimeoutTrigger.of(EventTimeTrigger(), "5ms"), reduce=max)
    by_event.element("k", "a", 1)
    assert [by_event.time(6), by_event.watermark(9)] == [[("a", 9)]] * 2
    ten = TumblingProcessingTimeWindows.of("10ms")
    by_clock = windows(ten, trigger=ProcessingTimeoutTrigger.of(ProcessingTimeTrigger(), "5ms"), reduce=max)
    by_clock.element("k", "a", None)
    assert [by_clock.time(6), by_clock.time(10)] == [[("a", 9)]] * 2
    assert [(entries(rig), timers(rig)) for rig in (by_event, by_clock)] == [(0, (0, 0))] * 2


def test_a_timeout_purges_when_the_inner_trigger_does() -> None:
    harness = with_element(ProcessingTimeoutTrigger.of(PurgingTrigger.of(ProcessingTimeTrigger()), "5ms"))
    assert harness.set_clock(6) == [(W, FIRE_AND_PURGE)]


@pytest.mark.parametrize(
    "declared", [ProcessingTimeoutTrigger.of(CountTrigger(2), "1s"), PurgingTrigger.of(DeltaTrigger(1, lambda a, b: 0))]
)
def test_timeouts_and_the_purging_form_of_a_trigger_that_cannot_merge_do_not_merge(declared: Any) -> None:
    assert not build_trigger(declared).can_merge


# Users' own


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


@pytest.mark.parametrize("moment", [MAX_TIMESTAMP + 1, MIN_TIMESTAMP - 1, None, "5", float("nan")])
@pytest.mark.parametrize("domain", ["event", "processing"])
def test_a_moment_that_no_time_reaches_is_refused_in_the_call_that_registers_it(moment: Any, domain: str) -> None:
    """In the queue it would fail every later timer, or every snapshot."""

    class Registers(Always):
        def on_element(self, value: Any, timestamp: int, window: Any, context: Any) -> Any:
            getattr(context, f"register_{domain}_time_timer")(moment if value == "bad" else 9)
            return CONTINUE

    r = windows(TEN, trigger=Registers(FIRE), reduce=max)
    for _ in range(2):
        with pytest.raises(UserError, match=re.escape(f"64-bit number of milliseconds; got {moment!r}")):
            r.element("a", "bad", 1)
    r.element("b", "good", 1)
    assert sorted(r.time(10) + r.watermark(9))[-1] == ("good", 9)
    assert timers(r) == (0, 0)
