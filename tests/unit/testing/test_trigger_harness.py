"""Triggers by themselves: what they answer, and which timers and values they leave to which window."""

from __future__ import annotations

from typing import Any

import pytest

from topo import UserError
from topo.api.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EndOfStreamTrigger,
    EventTimeTrigger,
    GlobalWindow,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
)
from topo.testing import TriggerHarness

CONTINUE, FIRE, PURGE, FIRE_AND_PURGE = TriggerResult
FIRST, SECOND, BOTH = TimeWindow(0, 2), TimeWindow(2, 4), TimeWindow(0, 4)
END = 2**63 - 1


def counts(harness: TriggerHarness, window: Any = None) -> tuple[int, int, int]:
    """Values, event-time timers and processing-time timers, of a window or of all."""
    return harness.state_entries(window), harness.event_timers(window), harness.processing_timers(window)


def with_elements(trigger: Any, *windows: Any) -> TriggerHarness:
    """A harness with an element of timestamp 1 in each of the windows."""
    harness = TriggerHarness(trigger)
    for window in windows:
        assert harness.process(1, 1, window) is CONTINUE
    return harness


# -- event time ----------------------------------------------------------------------------------------------------------


def test_event_time_has_one_timer_a_window_and_fires_each_at_its_end() -> None:
    harness = with_elements(EventTimeTrigger(), FIRST, FIRST, SECOND)
    assert (counts(harness), counts(harness, FIRST), counts(harness, SECOND)) == ((0, 2, 0), (0, 1, 0), (0, 1, 0))
    assert harness.watermark(0) == []
    assert harness.watermark(2) == [(FIRST, FIRE)]
    assert (counts(harness), counts(harness, FIRST)) == ((0, 1, 0), (0, 0, 0))
    assert harness.watermark(4) == [(SECOND, FIRE)]
    assert counts(harness) == (0, 0, 0)


def test_event_time_fires_late_elements_at_once() -> None:
    harness = with_elements(EventTimeTrigger(), FIRST)
    assert harness.watermark(2) == [(FIRST, FIRE)]
    assert harness.process(1, None, FIRST) is FIRE
    assert counts(harness) == (0, 0, 0)


def test_clearing_event_time_takes_the_timer_of_that_window_alone() -> None:
    harness = with_elements(EventTimeTrigger(), FIRST, SECOND)
    harness.clear(SECOND)
    assert (counts(harness, FIRST), counts(harness, SECOND)) == ((0, 1, 0), (0, 0, 0))
    harness.clear(FIRST)
    assert counts(harness) == (0, 0, 0)


def test_merged_event_time_windows_have_one_timer() -> None:
    harness = with_elements(EventTimeTrigger(), FIRST, SECOND)
    harness.merge(BOTH, [FIRST, SECOND])
    assert (counts(harness), counts(harness, BOTH)) == ((0, 1, 0), (0, 1, 0))
    assert harness.watermark(4) == [(BOTH, FIRE)]
    assert counts(harness) == (0, 0, 0)


def test_event_time_merged_behind_the_watermark_fires_with_the_next_element_alone() -> None:
    harness = with_elements(EventTimeTrigger(), FIRST, SECOND)
    assert harness.watermark(10) == [(FIRST, FIRE), (SECOND, FIRE)]
    harness.merge(BOTH, [FIRST, SECOND])
    assert counts(harness) == (0, 0, 0)
    assert harness.process(1, 1, BOTH) is FIRE


# -- processing time -----------------------------------------------------------------------------------------------------


def test_processing_time_fires_at_the_end_by_the_clock() -> None:
    harness = with_elements(ProcessingTimeTrigger(), FIRST, SECOND)
    assert counts(harness) == (0, 0, 2)
    assert harness.clock.next_due_ms == 2
    assert harness.set_clock(1) == []
    assert harness.set_clock(2) == [(FIRST, FIRE)]
    harness.merge(BOTH, [FIRST, SECOND])
    assert (counts(harness), counts(harness, BOTH)) == ((0, 0, 1), (0, 0, 1))
    assert harness.set_clock(5) == [(BOTH, FIRE)]


# -- counts --------------------------------------------------------------------------------------------------------------


def test_a_count_fires_and_begins_anew_for_each_window_by_itself() -> None:
    harness = with_elements(CountTrigger(3), FIRST, SECOND, FIRST)
    assert (counts(harness), counts(harness, FIRST), counts(harness, SECOND)) == ((2, 0, 0), (1, 0, 0), (1, 0, 0))
    assert harness.process(1, 1, FIRST) is FIRE
    assert (counts(harness, FIRST), counts(harness, SECOND)) == ((0, 0, 0), (1, 0, 0))
    assert harness.process(1, 1, FIRST) is CONTINUE


def test_clearing_a_count_forgets_that_of_the_window() -> None:
    harness = with_elements(CountTrigger(3), FIRST, SECOND)
    harness.clear(SECOND)
    assert (harness.state_entries(FIRST), harness.state_entries(SECOND)) == (1, 0)
    harness.clear(FIRST)
    assert counts(harness) == (0, 0, 0)


def test_merged_counts_add_up_and_the_next_element_fires() -> None:
    third = TimeWindow(4, 6)
    harness = with_elements(CountTrigger(3), FIRST, FIRST, SECOND, SECOND, third)
    harness.merge(BOTH, [FIRST, SECOND])
    assert (counts(harness), counts(harness, BOTH)) == ((2, 0, 0), (1, 0, 0))
    assert harness.process(1, 1, BOTH) is FIRE
    assert harness.process(1, 1, third) is CONTINUE
    assert harness.process(1, 1, third) is FIRE
    assert counts(harness) == (0, 0, 0)


def test_windows_that_kept_nothing_merge_to_nothing() -> None:
    harness = TriggerHarness(CountTrigger(3))
    harness.merge(BOTH, [FIRST, SECOND])
    assert counts(harness) == (0, 0, 0)


# -- continuous event time -----------------------------------------------------------------------------------------------


def test_continuous_event_time_has_the_next_firing_and_the_end_as_timers() -> None:
    harness = TriggerHarness(ContinuousEventTimeTrigger(5))
    window, other = TimeWindow(0, 10), TimeWindow(10, 20)
    assert harness.process(1, 1, window) is CONTINUE
    assert (counts(harness), counts(harness, window)) == ((1, 2, 0), (1, 2, 0))
    assert harness.process(1, 11, other) is CONTINUE
    assert (counts(harness), counts(harness, other)) == ((2, 4, 0), (1, 2, 0))
    assert harness.watermark(4) == []
    assert harness.watermark(5) == [(window, FIRE)]
    # The next firing, at 10, is capped at the last millisecond of the window.
    assert counts(harness, window) == (1, 1, 0)
    assert harness.watermark(9) == [(window, FIRE)]
    assert harness.watermark(19) == [(other, FIRE), (other, FIRE)]
    assert harness.event_timers() == 0


def test_continuous_event_time_fires_late_elements_at_once() -> None:
    harness = TriggerHarness(ContinuousEventTimeTrigger(5))
    harness.watermark(10)
    assert harness.process(1, 1, FIRST) is FIRE
    assert counts(harness) == (0, 0, 0)


def test_continuous_event_time_continues_at_timers_of_others() -> None:
    harness = with_elements(ContinuousEventTimeTrigger(5), TimeWindow(0, 20))
    assert harness.on_event_time(4, TimeWindow(0, 20)) is CONTINUE
    assert harness.on_event_time(5, TimeWindow(0, 20)) is FIRE
    assert harness.on_event_time(19, TimeWindow(0, 20)) is FIRE
    assert harness.on_processing_time(5, TimeWindow(0, 20)) is CONTINUE


def test_clearing_continuous_event_time_leaves_the_timer_of_the_end() -> None:
    windows = TimeWindow(0, 10), TimeWindow(10, 20)
    harness = with_elements(ContinuousEventTimeTrigger(5), *windows)
    harness.clear(windows[1])
    assert (counts(harness, windows[0]), counts(harness, windows[1])) == ((1, 2, 0), (0, 1, 0))


def test_merged_continuous_event_time_takes_the_first_firing_and_old_timers_dangle() -> None:
    first, second, both = TimeWindow(0, 20), TimeWindow(10, 30), TimeWindow(0, 30)
    harness = TriggerHarness(ContinuousEventTimeTrigger(5))
    harness.process(1, 1, first)
    harness.process(1, 11, second)
    harness.merge(both, [first, second])
    assert (harness.state_entries(), counts(harness, both)) == (1, (1, 1, 0))
    assert harness.process(1, 2, both) is CONTINUE
    assert counts(harness, both) == (1, 2, 0)
    assert (both, FIRE) in harness.watermark(5)
    assert harness.state_entries(first) == harness.state_entries(second) == 0


# -- continuous processing time ------------------------------------------------------------------------------------------


def test_continuous_processing_time_goes_by_the_clock() -> None:
    window = TimeWindow(0, 20)
    harness = with_elements(ContinuousProcessingTimeTrigger(5), window, window)
    assert counts(harness) == (1, 0, 1)
    assert harness.set_clock(5) == []
    assert harness.set_clock(6) == [(window, FIRE)]
    assert counts(harness) == (1, 0, 1)
    assert harness.set_clock(11) == [(window, FIRE)]
    harness.clear(window)
    assert counts(harness) == (0, 0, 0)


# -- purging and others --------------------------------------------------------------------------------------------------


class Answers(Trigger):
    """Gives the answer that the test sets."""

    answer = CONTINUE

    def on_element(self, value: Any, timestamp: int, window: Any, context: Any) -> TriggerResult:
        context.register_event_time_timer(1)
        context.register_processing_time_timer(1)
        context.put("seen", True)
        return self.answer

    def on_event_time(self, time: int, window: Any, context: Any) -> TriggerResult:
        return self.answer

    def on_processing_time(self, time: int, window: Any, context: Any) -> TriggerResult:
        return self.answer

    def clear(self, window: Any, context: Any) -> None:
        context.delete_event_time_timer(1)
        context.delete_processing_time_timer(1)
        context.forget("seen")


@pytest.mark.parametrize(
    ("inner", "purging"), [(CONTINUE, CONTINUE), (FIRE, FIRE_AND_PURGE), (PURGE, PURGE), (FIRE_AND_PURGE, FIRE_AND_PURGE)]
)
def test_a_purging_trigger_answers_as_its_inner_one_and_purges_when_that_fires(inner: Any, purging: Any) -> None:
    answers = Answers()
    answers.answer = inner
    harness = TriggerHarness(PurgingTrigger.of(answers))
    assert harness.process(1, 0, FIRST) is purging
    assert harness.on_event_time(7, FIRST) is purging
    assert harness.on_processing_time(7, FIRST) is purging
    assert counts(harness, FIRST) == (1, 1, 1)
    assert harness.watermark(1) == [(FIRST, purging)]
    assert harness.set_clock(2) == [(FIRST, purging)]
    harness.process(1, 0, SECOND)
    harness.clear(SECOND)
    assert (counts(harness, FIRST), counts(harness, SECOND)) == ((1, 0, 0), (0, 0, 0))


def test_a_purging_trigger_merges_as_its_inner_one() -> None:
    harness = with_elements(PurgingTrigger.of(CountTrigger(3)), FIRST, SECOND)
    harness.merge(BOTH, [FIRST, SECOND])
    assert harness.process(1, 1, BOTH) is FIRE_AND_PURGE
    with pytest.raises(UserError, match="Answers cannot merge"):
        TriggerHarness(PurgingTrigger.of(Answers())).merge(BOTH, [FIRST, SECOND])


def test_a_timeout_keeps_its_own_value_beside_that_of_its_inner_trigger() -> None:
    harness = with_elements(ProcessingTimeoutTrigger.of(CountTrigger(3), "50ms"), FIRST)
    assert counts(harness) == (2, 0, 1)
    assert harness.clock.next_due_ms == 51
    assert harness.set_clock(51) == [(FIRST, FIRE)]
    assert counts(harness) == (0, 0, 0)


def test_the_global_window_is_a_window_as_any_other() -> None:
    harness = with_elements(CountTrigger(3), GlobalWindow(), FIRST)
    assert (harness.state_entries(), harness.state_entries(GlobalWindow())) == (2, 1)
    harness = with_elements(EndOfStreamTrigger(), GlobalWindow())
    assert harness.watermark(END - 1) == []
    assert harness.watermark(END) == [(GlobalWindow(), FIRE)]
    assert with_elements(NeverTrigger(), GlobalWindow()).watermark(END) == []


def test_a_delta_is_that_to_the_element_of_the_last_firing() -> None:
    harness = TriggerHarness(DeltaTrigger(10, lambda before, now: now - before))
    answers = [harness.process(value, None, FIRST) for value in (1, 11, 12, 22, 23)]
    assert answers == [CONTINUE, CONTINUE, FIRE, CONTINUE, FIRE]
    assert harness.state_entries(FIRST) == 1
