"""Window bolts through the harness: assigners, triggers, evictors, lateness, merging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.testing.window_harness import END, contents, sessions, tumbling, windows
from topo import UserError, WindowBolt, aggregates
from topo.api.windows import (
    ContinuousProcessingTimeTrigger,
    CountWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from topo.testing import OperatorHarness


def test_an_element_is_in_every_sliding_window_that_covers_it() -> None:
    harness = windows(SlidingEventTimeWindows.of("3s", "1s"))
    harness.process(("a", 1), 1500)
    harness.end_of_input()
    assert [values[1:3] for values in harness.values] == [(-1000, 2000), (0, 3000), (1000, 4000)]


def test_an_element_in_a_gap_between_windows_is_late_by_its_own_timestamp() -> None:
    harness = windows(SlidingEventTimeWindows.of("1s", "3s"), late_stream="late")
    harness.process(("a", 1), 1500)
    harness.watermark(1499)
    harness.process(("a", 2), 1500)
    harness.watermark(1500)
    harness.process(("a", 3), 1500)
    assert harness.values == []
    assert harness.late == [(("a", 3), 1500)]


def test_processing_time_windows_go_by_the_clock_and_not_by_timestamps_or_lateness() -> None:
    harness = windows(TumblingProcessingTimeWindows.of("3s"), allowed_lateness="1m", now_ms=3000)
    harness.process(("a", 1), END)
    harness.process(("a", 2))
    harness.watermark(END - 1)
    assert harness.values == []
    harness.set_clock(6000)
    assert harness.outputs == [(("a", 3000, 6000, 3), 5999)]
    assert (harness.open_windows, harness.timers) == (0, 0)


def test_a_number_without_unit_is_no_duration() -> None:
    with pytest.raises(UserError, match="10 is not a duration here"):
        EventTimeSessionWindows.with_gap(10)  # type: ignore[arg-type]
    harness = windows(EventTimeSessionWindows.with_dynamic_gap(lambda row: row[1]))
    with pytest.raises(UserError, match="2 is not a duration here"):
        harness.process(("a", 2), 0)


def test_count_windows_fire_and_begin_again() -> None:
    harness = contents(CountWindows.of(2))
    for value in range(5):
        harness.process(("a", value))
    assert harness.outputs == [(("a", (0, 1)), END), (("a", (2, 3)), END)]
    assert harness.timers == 0


def test_sliding_count_windows_look_at_the_last_elements() -> None:
    harness = contents(CountWindows.of(3, 2))
    for value in range(6):
        harness.process(("a", value))
    assert harness.values == [("a", (0, 1)), ("a", (1, 2, 3)), ("a", (3, 4, 5))]


def test_the_continuous_processing_time_trigger_goes_by_the_clock() -> None:
    harness = windows(TumblingProcessingTimeWindows.of("10s"), trigger=ContinuousProcessingTimeTrigger.of("3s"), now_ms=1000)
    harness.process(("a", 1))
    harness.set_clock(3001)
    harness.set_clock(6001)
    harness.process(("a", 2))
    harness.set_clock(9001)
    harness.set_clock(10000)
    assert [values[3] for values in harness.values] == [1, 1, 3, 3]
    assert (harness.open_windows, harness.timers) == (0, 0)


def test_an_event_time_trigger_merged_into_the_past_is_not_registered_again() -> None:
    harness = sessions("3s", allowed_lateness="10s")
    harness.process(("a", 1), 0)
    harness.watermark(6000)
    harness.clear()
    harness.process(("a", 2), 2000)
    # The merged session [0, 5000) is over but for the lateness: it fires by the element, and only the clean-up timer stays.
    assert harness.values == [("a", 0, 5000, 3)]
    assert harness.timers == 1
    harness.watermark(14_999)
    assert harness.values == [("a", 0, 5000, 3)]
    assert (harness.timers, harness.open_windows) == (0, 0)


def test_reduce_gets_rows_in_the_order_of_arrival() -> None:
    harness = tumbling(reduce=lambda first, second: (first[0], first[1] + second[1]), result_fields=("first_key", "text"))
    for text in "abc":
        harness.process(("k", text), 0)
    harness.watermark(2999)
    assert harness.values == [("k", 0, 3000, "k", "abc")]


def test_with_an_aggregate_the_process_function_sees_one_value() -> None:
    class Named(ProcessWindowFunction):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            collector.emit((key, len(elements), elements[0], context.current_watermark))

    harness = tumbling(aggregate=aggregates.Sum("value"), process=Named(), outputs=("key", "seen", "sum", "watermark"))
    harness.process(("a", 1), 0)
    harness.process(("a", 2), 0)
    harness.watermark(2999)
    assert harness.values == [("a", 1, 3, 2999)]


def test_windows_over_everything_have_no_key() -> None:
    harness = tumbling(key=None)
    harness.process(("a", 1), 0)
    harness.process(("b", 2), 0)
    harness.watermark(2999)
    assert harness.values == [(0, 3000, 3)]


def test_several_key_fields_come_out_as_several_fields() -> None:
    harness = tumbling(key=("key", "value"), aggregate=aggregates.Count())
    harness.process(("a", 7), 0)
    harness.watermark(2999)
    assert harness.values == [("a", 7, 0, 3000, 1)]


def test_a_late_stream_that_the_outputs_name_too_is_refused() -> None:
    with pytest.raises(UserError, match="late_stream"):
        WindowBolt(
            key="key", window=TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count(), late_stream="l", outputs={"l": ()}
        )


def test_sessions_are_the_same_whatever_the_order_of_the_elements() -> None:
    timestamps = [0, 1500, 2500, 5500, 9000, 11_900]
    for order in (timestamps, timestamps[::-1], [9000, 0, 5500, 1500, 11_900, 2500]):
        harness = contents(EventTimeSessionWindows.with_gap("3s"))
        for timestamp in order:
            harness.process(("a", timestamp), timestamp)
        harness.watermark(END - 1)
        found = [(start, end, sorted(values)) for _, start, end, values in harness.values]
        assert found == [(0, 8500, [0, 1500, 2500, 5500]), (9000, 14_900, [9000, 11_900])]
        assert (harness.timers, harness.state_entries) == (0, 0), "nothing dangles"


class AsSaid(WindowAssigner):
    """Assigns the window in the element; merges all into a window that the test sets."""

    is_merging = True

    def __init__(self, is_event_time: bool = True) -> None:
        self.is_event_time = is_event_time
        self.into: TimeWindow | None = None
        self.asked: list[list[TimeWindow]] = []

    def assign(self, value: Any, timestamp: int, clock: Any) -> list[TimeWindow]:
        return [TimeWindow(*value[1])]

    def merge(self, windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
        self.asked.append(list(windows))
        return [] if self.into is None else [(self.into, list(windows))]

    def default_trigger(self) -> Any:
        return EventTimeTrigger() if self.is_event_time else ProcessingTimeTrigger()


def as_said(is_event_time: bool = True) -> tuple[OperatorHarness, AsSaid]:
    harness = windows(AsSaid(is_event_time), aggregate=aggregates.Count())
    return harness, harness.operator.assigner  # type: ignore[attr-defined]


def test_an_assigners_own_merge_is_asked_about_the_windows_of_the_key() -> None:
    harness, assigner = as_said()
    harness.process(("a", (0, 10)), 0)
    harness.process(("b", (1, 10)), 0)
    harness.process(("a", (2, 10)), 0)
    assert assigner.asked == [[(0, 10)], [(1, 10)], [(0, 10), (2, 10)]]
    assigner.into = TimeWindow(0, 20)
    harness.process(("a", (5, 6)), 0)
    assert harness.open_windows == 2
    harness.watermark(19)
    assert harness.outputs == [(("b", 1, 10, 1), 9), (("a", 0, 20, 3), 19)]
    assert (harness.timers, harness.state_entries) == (0, 0)


@pytest.mark.parametrize("is_event_time", [True, False])
def test_windows_that_merging_makes_end_in_the_past_are_refused(is_event_time: bool) -> None:
    harness, assigner = as_said(is_event_time)
    harness.process(("a", (0, 22)), 0)
    if is_event_time:
        harness.watermark(20)
    else:
        harness.set_clock(21)
    assigner.into = TimeWindow(0, 21)
    with pytest.raises(UserError, match="must not end earlier"):
        harness.process(("a", (0, 25)), 0)
    assigner.into = TimeWindow(0, 22)
    harness.process(("a", (0, 22)), 0)
    harness.set_clock(22)
    harness.watermark(21)
    assert harness.values == [("a", 0, 22, 2)]


def test_two_late_elements_do_not_merge_with_each_other() -> None:
    harness = sessions("3s", late_stream="late")
    harness.watermark(20_000)
    harness.process(("a", 1), 0)
    harness.process(("a", 2), 1000)
    assert [one.values[1] for one in harness.late] == [1, 2]
    assert harness.state_entries == 0


def test_a_late_element_that_reaches_a_living_session_is_taken() -> None:
    harness = sessions("3s", late_stream="late")
    harness.process(("a", 1), 4000)
    harness.watermark(5000)
    harness.process(("a", 2), 1500)
    harness.watermark(6999)
    assert harness.values == [("a", 1500, 7000, 3)]
    assert harness.late == []


def test_processing_time_sessions_end_a_gap_after_the_last_element() -> None:
    harness = windows(ProcessingTimeSessionWindows.with_gap("3s"))
    harness.process(("a", 1))
    harness.set_clock(2000)
    harness.process(("a", 2))
    harness.set_clock(4999)
    assert harness.values == []
    harness.set_clock(5000)
    assert harness.values == [("a", 0, 5000, 3)]
