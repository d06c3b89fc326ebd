"""The window operator: what goes into which window, when windows fire, purge and end, and what late elements meet.

Timelines: one column is a unit of event time; a, b, c are elements, W is a watermark, [..) a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.operators.rig import END
from tests.unit.operators.window_rig import (
    GAP_3S,
    TEN,
    Scripted,
    Together,
    both_ways,
    entries,
    operator_of,
    rig,
    timers,
    with_bounds,
)
from topo.api import aggregates
from topo.api.evictors import CountEvictor
from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    TriggerResult,
)
from topo.api.windows import (
    CountWindows,
    ProcessWindowFunction,
    ReduceFunction,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP

# Elements and windows


@both_ways
def test_a_window_fires_when_the_watermark_reaches_its_last_millisecond(direct: bool) -> None:
    #  0    5    10
    #  [a  b     )[c
    #           W8 W9
    r = rig(TEN, aggregate=aggregates.Sum(), result_of=with_bounds, direct=direct)
    r.element("k", 1, 0)
    r.element("k", 2, 3)
    r.element("k", 4, 10)
    assert r.watermark(8) == []
    assert r.watermark(9) == [(("k", 0, 10, 3), 9)]
    assert r.watermark(19) == [(("k", 10, 20, 4), 19)]


@both_ways
def test_results_leave_before_the_watermark_that_caused_them(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Sum(), direct=direct)
    r.element("k", 1, 0)
    r.operator.process_watermark(9)
    assert r.taken() == [(1, 9), ("watermark", 9)]


@both_ways
def test_keys_have_windows_of_their_own(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Count(), result_of=with_bounds, direct=direct)
    for key in ("a", "b", "a"):
        r.element(key, "x", 1)
    assert sorted(r.watermark(9)) == [(("a", 0, 10, 2), 9), (("b", 0, 10, 1), 9)]


@both_ways
def test_window_all_puts_everything_under_one_key(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Count(), result_of=with_bounds, keyed=False, direct=direct)
    for key in ("a", "b", "a"):
        r.element(key, "x", 1)
    r.operator.process_batch(["c"], ["x"], [2])
    assert r.watermark(9) == [((None, 0, 10, 4), 9)]


@both_ways
def test_reduce_goes_in_order_of_arrival(direct: bool) -> None:
    r = rig(TEN, reduce=lambda first, second: first + second, direct=direct)
    r.operator.process_batch(["k"] * 3, ["c", "a", "b"], [5, 1, 3])
    assert r.watermark(9) == [("cab", 9)]


def test_a_reduce_function_object_serves_as_a_plain_function_does() -> None:
    class Longest(ReduceFunction):
        def reduce(self, first: Any, second: Any) -> Any:
            return max(first, second, key=len)

    r = rig(TEN, reduce=Longest())
    for value in ("a", "ccc", "bb"):
        r.element("k", value, 1)
    assert r.watermark(9) == [("ccc", 9)]


@both_ways
def test_an_element_without_timestamp_is_refused_by_event_time_windows(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Count(), direct=direct)
    for timestamp in (None, MIN_TIMESTAMP):
        with pytest.raises(UserError, match="without timestamp"):
            r.operator.process_batch(["k"], ["x"], [timestamp])


# Lateness


@both_ways
def test_each_late_element_within_lateness_fires_at_once_with_all_so_far(direct: bool) -> None:
    #  [a        )[
    #            W12   b  c
    r = rig(TEN, aggregate=aggregates.Sum(), allowed_lateness_ms=5, direct=direct)
    r.element("k", 1, 3)
    assert r.watermark(12) == [(1, 9)]
    assert r.element("k", 2, 4) == [(3, 9)]
    assert r.element("k", 4, 4) == [(7, 9)]
    for number in range(2):
        r.operator.process_batch(["k"], [8], [4])
        assert r.taken() == [(15 + 8 * number, 9)], "in batches, too"
    assert r.watermark(14) == []
    assert (timers(r), entries(r)) == ((0, 0), 0)


@both_ways
def test_an_element_behind_the_watermark_is_on_time_while_its_window_is(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Sum(), late_stream="late", direct=direct)
    r.watermark(8)
    assert r.element("k", 1, 3) == []
    assert r.watermark(9) == [(1, 9)]


@both_ways
def test_a_late_element_without_late_stream_is_dropped_and_counted(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Sum(), direct=direct)
    r.watermark(9)
    assert r.element("k", 1, 3) == []
    assert (operator_of(r).late_elements, operator_of(r).late_dropped) == (1, 1)
    assert (timers(r), entries(r)) == ((0, 0), 0)


@both_ways
def test_a_late_element_goes_to_the_late_stream_with_its_own_timestamp(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Sum(), late_stream="late", direct=direct)
    r.watermark(9)
    assert r.element("k", 1, 3) == [("late", 1, 3)]
    assert (operator_of(r).late_elements, operator_of(r).late_dropped) == (1, 0)


def test_an_element_that_is_not_late_but_whose_windows_are_is_skipped() -> None:
    class Behind(WindowAssigner):
        def assign(self, value: Any, timestamp: int, clock: Callable[[], int]) -> list[TimeWindow]:
            return [TimeWindow(0, 10)]

        def default_trigger(self) -> EventTimeTrigger:
            return EventTimeTrigger()

    r = rig(Behind(), late_stream="late")
    r.watermark(9)
    assert r.element("k", "x", 50) == []
    assert operator_of(r).late_elements == 0


@pytest.mark.parametrize("lateness_ms", [MAX_TIMESTAMP, 2**63 + 5])
@both_ways
def test_a_clean_up_time_beyond_the_end_of_time_is_no_clean_up_timer(direct: bool, lateness_ms: int) -> None:
    r = rig(TEN, aggregate=aggregates.Count(), allowed_lateness_ms=lateness_ms, direct=direct)
    r.element("k", "x", 3)
    assert operator_of(r).cleanup_time(TimeWindow(0, 10)) == MAX_TIMESTAMP
    assert timers(r) == (1, 0)
    assert r.watermark(END - 1) == [(1, 9)]
    assert r.element("k", "x", 3) == [(2, 9)]


def test_negative_lateness_is_refused() -> None:
    with pytest.raises(UserError, match="zero or more"):
        rig(TEN, allowed_lateness_ms=-1)


# Fire, purge, clean-up


@both_ways
def test_trigger_and_clean_up_are_one_timer_without_lateness_and_two_with(direct: bool) -> None:
    assert timers_after_one_element(direct, 0) == (1, 0)
    assert timers_after_one_element(direct, 5) == (2, 0)


def timers_after_one_element(direct: bool, lateness_ms: int) -> tuple[int, int]:
    r = rig(TEN, aggregate=aggregates.Count(), allowed_lateness_ms=lateness_ms, direct=direct)
    r.element("k", "x", 3)
    r.element("k", "x", 3)
    return timers(r)


def test_the_clean_up_timer_asks_the_trigger_which_may_fire_a_last_time() -> None:
    trigger = Scripted(on_time=TriggerResult.FIRE)
    r = rig(TEN, trigger=trigger, aggregate=aggregates.Count(), allowed_lateness_ms=5)
    r.element("k", "x", 1)
    assert r.watermark(14) == [(1, 9)]
    assert trigger.calls[1:] == [("event time", 14, TimeWindow(0, 10)), ("clear", TimeWindow(0, 10))]
    assert entries(r) == 0


def test_a_timer_that_is_not_the_clean_up_clears_nothing() -> None:
    trigger = Scripted()
    r = rig(TEN, trigger=trigger, aggregate=aggregates.Count())
    operator = operator_of(r)
    r.element("k", "x", 1)
    operator.timer_service.register_event_timer(TimeWindow(0, 10), 5)
    operator.timer_service.register_processing_timer(TimeWindow(0, 10), 9)
    r.watermark(5)
    r.time(9)
    assert ("clear", TimeWindow(0, 10)) not in trigger.calls
    assert entries(r) == 2


def test_purging_leaves_timers_and_the_triggers_values() -> None:
    r = rig(TEN, trigger=Scripted(on_element=TriggerResult.PURGE), aggregate=aggregates.Count())
    r.element("k", "x", 1)
    assert timers(r) == (1, 0)
    assert entries(r) == 1


def test_fire_without_contents_emits_nothing_but_still_purges_and_cleans_up() -> None:
    trigger = Scripted(on_element=TriggerResult.PURGE, on_time=TriggerResult.FIRE_AND_PURGE)
    r = rig(TEN, trigger=trigger, process=Together())
    r.element("k", "x", 1)
    assert r.watermark(9) == []
    assert trigger.calls[-2:] == [("event time", 9, TimeWindow(0, 10)), ("clear", TimeWindow(0, 10))]
    assert (timers(r), entries(r)) == ((0, 0), 0)


def test_the_clean_up_timer_is_registered_when_the_trigger_purges_each_element() -> None:
    r = rig(TEN, trigger=Scripted(on_element=TriggerResult.FIRE_AND_PURGE), aggregate=aggregates.Count())
    assert r.element("k", "x", 1) == [(1, 9)]
    assert r.element("k", "x", 2) == [(1, 9)]
    assert timers(r) == (1, 0)


def test_a_processing_time_trigger_leaves_the_clean_up_to_the_watermark() -> None:
    r = rig(TEN, trigger=ProcessingTimeTrigger(), aggregate=aggregates.Count())
    r.element("k", "x", 1)
    assert timers(r) == (1, 1)
    assert r.time(10) == [(1, 9)]
    assert entries(r) == 1
    assert r.watermark(9) == []
    assert (timers(r), entries(r)) == ((0, 0), 0)


@both_ways
def test_panes_with_contents_are_counted(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Count(), direct=direct)
    r.operator.process_batch(["a", "b", "a", "a"], "wxyz", [1, 1, 1, 11])
    assert operator_of(r).open_panes == 3
    r.watermark(9)
    assert operator_of(r).open_panes == 1


# Functions


class Counting(ProcessWindowFunction):
    """Counts its firings per window and per key, and emits the times of its context."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self) -> None:
        self.calls.append("open")

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        per_window, per_key = context.window_state.value("fired", default=0), context.global_state.value("fired", default=0)
        per_window.set(per_window.get() + 1)
        per_key.set(per_key.get() + 1)
        collector.emit((per_window.get(), per_key.get(), context.current_watermark, context.current_processing_time))
        collector.emit(context.window.start, stream="side")

    def clear(self, context: Any) -> None:
        self.calls.append(f"clear {tuple(context.window)}")
        context.window_state.value("fired").clear()

    def close(self) -> None:
        self.calls.append("close")


def test_a_window_function_has_state_per_window_and_key_and_side_outputs() -> None:
    function = Counting()
    r = rig(TEN, process=function, allowed_lateness_ms=5)
    r.clock.advance_to(77)
    r.element("k", "x", 1)
    assert r.watermark(9) == [((1, 1, 9, 77), 9), ("side", 0, 9)]
    assert r.element("k", "x", 1) == [((2, 2, 9, 77), 9), ("side", 0, 9)]
    r.element("k", "x", 11)
    assert r.watermark(19) == [((1, 3, 19, 77), 19), ("side", 10, 19)]
    assert function.calls == ["open", "clear (0, 10)"]
    r.watermark(24)
    r.operator.close()
    assert function.calls == ["open", "clear (0, 10)", "clear (10, 20)", "close"]
    assert entries(r) == 1


def test_a_side_output_needs_a_name() -> None:
    class Nameless(Together):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            collector.emit("x", stream=None)

    r = rig(TEN, process=Nameless())
    r.element("k", "x", 0)
    with pytest.raises(UserError, match="name of a stream"):
        r.watermark(END)


# What does not go together


@pytest.mark.parametrize(
    ("window", "options", "message"),
    [
        (TEN, {"reduce": max, "aggregate": aggregates.Count()}, "not both"),
        (TEN, {"process": None}, "need one of"),
        (GAP_3S, {"trigger": DeltaTrigger(1, lambda a, b: 0)}, "cannot merge"),
        (CountWindows.of(3), {"trigger": NeverTrigger()}, "of their own"),
    ],
)
def test_parts_that_do_not_go_together_are_refused_at_build(window: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rig(window, **options)


def test_reduce_and_aggregate_functions_have_no_life_of_their_own() -> None:
    class Rich(ReduceFunction):
        def open(self) -> None:
            pass

        def reduce(self, first: Any, second: Any) -> Any:
            return first

    with pytest.raises(UserError, match="open or close"):
        rig(TEN, reduce=Rich())


@pytest.mark.parametrize(("count", "slide"), [(0, None), (1, 0)])
def test_count_windows_need_counts_above_zero(count: int, slide: int | None) -> None:
    with pytest.raises(UserError, match="above zero"):
        CountWindows.of(count, slide)


@pytest.mark.parametrize("wrong", [2.5, "3"])
def test_what_counts_elements_or_milliseconds_needs_whole_numbers(wrong: Any) -> None:
    declare: list[Callable[[Any], object]] = [
        CountWindows.of,
        lambda count: CountWindows.every(count, "10s"),
        CountTrigger,
        CountEvictor,
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
    ]
    for one in declare:
        with pytest.raises(UserError, match=r"whole number|takes milliseconds"):
            one(wrong)
    with pytest.raises(UserError, match="whole number"):
        CountWindows(3, wrong)


# The direct way


def test_windows_that_only_fire_at_their_end_have_one_timer_for_all_keys() -> None:
    def fires_whole(window: Any, **options: Any) -> bool:
        r = rig(window, **options)
        for key in "abc":
            r.operator.process_batch([key, key], [1, 1], [3, 3])
        operator = operator_of(r)
        assert operator.pending_timers == sum(timers(r))
        return timers(r) == (len(operator.ends), 0)

    count = aggregates.Count()
    assert fires_whole(TEN, aggregate=count)
    assert fires_whole(TEN, reduce=max, trigger=EventTimeTrigger())
    assert fires_whole(TEN, aggregate=count, process=Together())
    assert fires_whole(TEN, process=Together())
    assert fires_whole(SlidingEventTimeWindows.of("1s", "300ms"), aggregate=count)
    assert not fires_whole(TEN, aggregate=count, allowed_lateness_ms=5)
    assert not fires_whole(TEN, aggregate=count, direct=False)
    assert not fires_whole(TEN, aggregate=count, evictor=CountEvictor(1))
    assert not fires_whole(TEN, aggregate=count, trigger=CountTrigger(1))
    assert not fires_whole(TumblingProcessingTimeWindows.of("1s"), aggregate=count)
    assert not fires_whole(GAP_3S, aggregate=count)


@both_ways
def test_an_exception_of_the_aggregate_leaves_the_others_and_says_whose_it_was(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Sum(), direct=direct)
    with pytest.raises(TypeError):
        r.operator.process_batch(["k"] * 4, [1, 2, "three", 4], [1, 2, 3, 4])
    assert operator_of(r).position == 2
    r.operator.process_batch(["k"], [4], [4])
    assert r.watermark(9) == [(7, 9)]


@pytest.mark.parametrize("window", [TEN, GAP_3S], ids=["tumbling", "session"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_window_whose_function_raises_for_an_element_is_cleaned_up(window: Any, count: int) -> None:
    class Raises(ProcessWindowFunction):
        def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
            raise ValueError

    r = rig(window, trigger=CountTrigger(count), process=Raises())
    for timestamp in range(count - 1):
        r.element("k", "x", timestamp)
    with pytest.raises(ValueError):
        r.element("k", "x", 5)
    assert operator_of(r).open_panes == 1
    r.watermark(END)
    assert (timers(r), entries(r)) == ((0, 0), 0)


@both_ways
def test_an_accumulator_of_none_is_no_contents(direct: bool) -> None:
    r = rig(TEN, reduce=lambda first, second: None if second == "drop" else second, direct=direct)
    r.operator.process_batch(["k", "k"], ["a", "drop"], [1, 1])
    assert entries(r) == 0
    r.operator.process_batch(["k"], ["b"], [1])
    assert r.watermark(9) == [("b", 9)]
    assert (timers(r), entries(r)) == ((0, 0), 0)
