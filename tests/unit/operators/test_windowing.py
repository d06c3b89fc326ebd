"""The window operator: what goes into which window, when windows fire, purge and end, and what late elements meet.

Timelines: one column is a unit of event time; letters are elements, W is a watermark, [..) a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.operators.rig import END, Rig, restored
from topo.api import aggregates
from topo.api.aggregates import AggregateFunction
from topo.api.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor
from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from topo.api.windows import (
    CountWindows,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    ProcessWindowFunction,
    ReduceFunction,
    SlidingEventTimeWindows,
    SlidingWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    TumblingWindows,
    WindowAssigner,
)
from topo.errors import UserError
from topo.keys import KeyGroupRange
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.windows.builder import build_window_operator
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.scope import NoWindowScope
from topo.operators.windows.tumbling_fast_path import TumblingFastPath

TEN = TumblingWindows(10, 0, TumblingEventTimeWindows.of("1s").stagger, is_event_time=True)
GAP_3S = EventTimeSessionWindows.with_gap("3s")


class Together(ProcessWindowFunction):
    """Gives (key, bounds, elements) of each firing."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit((key, tuple(context.window), list(elements)))


def with_bounds(key: Any, window: Any, result: Any) -> Any:
    return key, window.start, window.end, result


def rig(window: Any, **options: Any) -> Rig:
    if not {"reduce", "aggregate", "process"} & set(options):
        options["process"] = Together()
    return Rig(build_window_operator(window, **options))


def operator_of(rig: Rig) -> WindowOperator:
    assert isinstance(rig.operator, WindowOperator)
    return rig.operator


def timers(rig: Rig) -> tuple[int, int]:
    service = operator_of(rig).timer_service
    return service.event_timers, service.processing_timers


def entries(rig: Rig) -> int:
    return operator_of(rig).state.entries


both_ways = pytest.mark.parametrize("direct", [True, False], ids=["direct", "general"])


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


def test_process_sees_all_elements_and_incremental_process_sees_exactly_one_value() -> None:
    whole, reduced = rig(TEN), rig(TEN, aggregate=aggregates.Sum(), process=Together())
    for r in (whole, reduced):
        r.element("k", 2, 1)
        r.element("k", 1, 2)
    assert whole.watermark(9) == [(("k", (0, 10), [2, 1]), 9)]
    assert reduced.watermark(9) == [(("k", (0, 10), [3]), 9)]


def test_sliding_windows_fire_in_the_order_of_their_ends() -> None:
    #  -10   0    10   20
    #   [---------)a        first
    #        [----a----)    second
    r = rig(SlidingWindows(20, 10, 0, is_event_time=True), aggregate=aggregates.Collect(), result_of=with_bounds)
    r.element("k", "a", 5)
    r.element("k", "b", 12)
    assert r.watermark(END) == [
        (("k", -10, 10, ("a",)), 9),
        (("k", 0, 20, ("a", "b")), 19),
        (("k", 10, 30, ("b",)), 29),
    ]


@both_ways
def test_an_element_without_timestamp_is_refused_by_event_time_windows(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Count(), direct=direct)
    for timestamp in (None, MIN_TIMESTAMP):
        with pytest.raises(UserError, match="without timestamp"):
            r.operator.process_batch(["k"], ["x"], [timestamp])


def test_processing_time_windows_go_by_the_clock_and_results_carry_the_windows_last_millisecond() -> None:
    r = rig(TumblingProcessingTimeWindows.of("10s"), aggregate=aggregates.Count())
    r.clock.advance_to(3000)
    r.element("k", "x", None)
    r.element("k", "x", 99_999_999)
    assert r.time(9998) == []
    assert r.time(9999) == [(2, 9999)]
    assert timers(r) == (0, 0)
    assert entries(r) == 0


def test_the_global_window_never_ends_and_its_results_carry_the_last_timestamp_of_all() -> None:
    r = rig(GlobalWindows(), trigger=CountTrigger(2), process=Together())
    r.element("k", "a", 5)
    assert r.element("k", "b", None) == [(("k", (), ["a", "b"]), MAX_TIMESTAMP)]
    assert timers(r) == (0, 0)
    assert r.watermark(END) == []
    assert entries(r) == 1


def test_the_global_window_of_the_streams_end_fires_once_at_the_last_watermark() -> None:
    r = rig(GlobalWindows.at_end_of_stream(), aggregate=aggregates.Count())
    r.element("k", "a", 5)
    r.element("k", "b", None)
    assert r.watermark(END - 1) == []
    assert r.watermark(END) == [(2, MAX_TIMESTAMP)]


def test_a_count_window_holds_n_elements_and_begins_again() -> None:
    r = rig(CountWindows.of(3), aggregate=aggregates.Collect())
    out = [r.element("k", value, None) for value in range(7)]
    assert [one for part in out for one in part] == [((0, 1, 2), MAX_TIMESTAMP), ((3, 4, 5), MAX_TIMESTAMP)]


def test_a_sliding_count_window_looks_at_the_last_n_every_slide_elements() -> None:
    r = rig(CountWindows.of(3, 2), aggregate=aggregates.Collect())
    out = [r.element("k", value, None) for value in range(6)]
    assert [one[0] for part in out for one in part] == [(0, 1), (1, 2, 3), (3, 4, 5)]


# Lateness


@pytest.mark.parametrize(("watermark", "accepted"), [(20, True), (21, False)])
def test_an_element_is_too_late_from_the_clean_up_time_on(watermark: int, accepted: bool) -> None:
    #  [0 1)  last millisecond 1, lateness 20: clean-up at 21
    r = rig(TumblingWindows(2, 0, TEN.stagger, True), aggregate=aggregates.Count(), allowed_lateness_ms=20, late_stream="late")
    r.watermark(watermark)
    assert r.element("k", "x", 1) == ([(1, 1)] if accepted else [("late", "x", 1)])


@both_ways
def test_each_late_element_within_lateness_fires_at_once_with_all_so_far(direct: bool) -> None:
    #  [a        )[
    #            W12   b  c
    r = rig(TEN, aggregate=aggregates.Sum(), allowed_lateness_ms=5, direct=direct)
    r.element("k", 1, 3)
    assert r.watermark(12) == [(1, 9)]
    assert r.element("k", 2, 4) == [(3, 9)]
    assert r.element("k", 4, 4) == [(7, 9)]
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


def test_an_element_of_which_only_some_windows_are_late_is_never_side_output() -> None:
    r = rig(SlidingWindows(20, 10, 0, True), aggregate=aggregates.Count(), result_of=with_bounds, late_stream="late")
    r.watermark(9)
    assert r.element("k", "x", 5) == []
    assert r.watermark(END) == [(("k", 0, 20, 1), 19)]


def test_an_element_without_any_window_is_side_output_only_if_it_is_late_itself() -> None:
    r = rig(SlidingWindows(5, 20, 0, True), aggregate=aggregates.Count(), late_stream="late")
    assert r.element("k", "gap", 10) == []
    r.watermark(10)
    assert r.element("k", "gap", 10) == [("late", "gap", 10)]
    assert r.element("k", "gap", 11) == []


def test_an_element_whose_windows_are_all_late_but_which_is_not_late_itself_is_only_skipped() -> None:
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


def test_processing_time_windows_have_no_lateness() -> None:
    r = rig(TumblingProcessingTimeWindows.of("10s"), aggregate=aggregates.Count(), allowed_lateness_ms=60_000)
    r.element("k", "x", None)
    assert operator_of(r).cleanup_time(TimeWindow(0, 10)) == 9
    assert r.time(9999) == [(1, 9999)]
    assert entries(r) == 0


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


def test_firing_keeps_the_contents_and_purging_drops_them() -> None:
    fire = rig(TEN, trigger=CountTrigger(2), aggregate=aggregates.Collect())
    purge = rig(TEN, trigger=PurgingTrigger.of(CountTrigger(2)), aggregate=aggregates.Collect())
    assert [fire.element("k", value, 1) for value in "abcd"] == [[], [(("a", "b"), 9)], [], [(("a", "b", "c", "d"), 9)]]
    assert [purge.element("k", value, 1) for value in "abcd"] == [[], [(("a", "b"), 9)], [], [(("c", "d"), 9)]]


class Scripted(Trigger):
    """Answers elements and timers as told, and notes every call."""

    can_merge = True

    def __init__(
        self, on_element: TriggerResult = TriggerResult.CONTINUE, on_time: TriggerResult = TriggerResult.CONTINUE
    ) -> None:
        self.on_element_result, self.on_time_result = on_element, on_time
        self.calls: list[tuple[Any, ...]] = []

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.calls.append(("element", value, window))
        context.put("seen", True)
        return self.on_element_result

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.calls.append(("event time", time, window))
        return self.on_time_result

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.calls.append(("processing time", time, window))
        return self.on_time_result

    def on_merge(self, window: Any, context: Any) -> None:
        self.calls.append(("merge", window))

    def clear(self, window: Any, context: TriggerContext) -> None:
        self.calls.append(("clear", window))
        context.forget("seen")


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


def test_the_clean_up_timer_is_registered_even_when_the_trigger_purges_at_each_element() -> None:
    r = rig(TEN, trigger=Scripted(on_element=TriggerResult.FIRE_AND_PURGE), aggregate=aggregates.Count())
    assert r.element("k", "x", 1) == [(1, 9)]
    assert r.element("k", "x", 2) == [(1, 9)]
    assert timers(r) == (1, 0)


def test_a_processing_time_trigger_on_event_time_windows_leaves_the_clean_up_to_the_watermark() -> None:
    r = rig(TEN, trigger=ProcessingTimeTrigger(), aggregate=aggregates.Count())
    r.element("k", "x", 1)
    assert timers(r) == (1, 1)
    assert r.time(9) == [(1, 9)]
    assert entries(r) == 1
    assert r.watermark(9) == []
    assert (timers(r), entries(r)) == ((0, 0), 0)


def test_a_continuous_trigger_fires_on_the_way_and_the_cap_makes_the_last_fire_the_windows_own() -> None:
    #  0  3  6  9
    #  [a........)   fires at 3, 6 and 9
    r = rig(TEN, trigger=ContinuousEventTimeTrigger(3), aggregate=aggregates.Count())
    r.element("k", "x", 1)
    assert r.watermark(END) == [(1, 9)] * 3
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
    """Counts its firings per window and per key, and gives what it sees."""

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


def test_the_function_sees_times_and_state_per_window_and_per_key_and_side_outputs_carry_the_same_timestamp() -> None:
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


def test_windows_that_merge_have_no_state_of_their_own() -> None:
    class Asking(Together):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            context.window_state.value("x").set(1)

    r = rig(GAP_3S, process=Asking())
    r.element("k", "x", 0)
    with pytest.raises(UserError, match="global_state"):
        r.watermark(END)


def test_a_side_output_needs_a_name() -> None:
    class Nameless(Together):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            collector.emit("x", stream=None)

    r = rig(TEN, process=Nameless())
    r.element("k", "x", 0)
    with pytest.raises(UserError, match="name of a stream"):
        r.watermark(END)


# Evictors


def test_the_buffer_is_replaced_by_what_is_left_after_each_firing() -> None:
    r = rig(GlobalWindows(), trigger=CountTrigger(2), evictor=CountEvictor(1), process=Together())
    fired = [r.element("k", value, None) for value in "abcd"]
    assert fired == [[], [(("k", (), ["b"]), END)], [], [(("k", (), ["d"]), END)]]
    assert operator_of(r).state.snapshot()[operator_of(r).keys.group_of["k"]]["__window-contents"]["rows"][0][2] == [("d", None)]


def test_eviction_after_lets_the_function_see_everything_first() -> None:
    r = rig(GlobalWindows(), trigger=CountTrigger(2), evictor=CountEvictor(1, after=True), process=Together())
    fired = [r.element("k", value, None) for value in "abcd"]
    assert fired[1] == [(("k", (), ["a", "b"]), END)]
    assert fired[3] == [(("k", (), ["b", "c", "d"]), END)]


def test_the_function_is_called_when_all_was_evicted_and_not_when_the_buffer_is_empty_later() -> None:
    trigger = Scripted(on_element=TriggerResult.FIRE, on_time=TriggerResult.FIRE)
    r = rig(TEN, trigger=trigger, evictor=CountEvictor(0), process=Together())
    assert r.element("k", "x", 1) == [(("k", (0, 10), []), 9)]
    assert r.watermark(9) == []


def test_reduce_and_aggregate_run_over_what_is_left() -> None:
    summed = rig(GlobalWindows(), trigger=CountTrigger(3), evictor=CountEvictor(2), aggregate=aggregates.Sum())
    reduced = rig(
        GlobalWindows(), trigger=CountTrigger(3), evictor=CountEvictor(2), reduce=lambda a, b: a + b, process=Together()
    )
    empty = rig(GlobalWindows(), trigger=CountTrigger(3), evictor=CountEvictor(0), reduce=lambda a, b: a + b)
    for r in (summed, reduced, empty):
        r.element("k", 1, None)
        r.element("k", 2, None)
    assert summed.element("k", 4, None) == [(6, END)]
    assert reduced.element("k", 4, None) == [(("k", (), [6]), END)]
    assert empty.element("k", 4, None) == []


def test_the_time_evictor_sees_the_timestamps_of_the_elements() -> None:
    r = rig(TEN, trigger=CountTrigger(3), evictor=TimeEvictor.of("3ms"), process=Together())
    r.element("k", "old", 1)
    r.element("k", "new", 5)
    assert r.element("k", "mid", 3) == [(("k", (0, 10), ["new", "mid"]), 9)]


def test_the_delta_evictor_drops_at_the_threshold_where_the_delta_trigger_does_not_fire_yet() -> None:
    def delta(one: Any, other: Any) -> float:
        return abs(float(one) - float(other))

    r = rig(GlobalWindows(), trigger=DeltaTrigger(5, delta), evictor=DeltaEvictor(5, delta), process=Together())
    assert [r.element("k", value, None) for value in (1, 6)] == [[], []]
    assert r.element("k", 7, None) == [(("k", (), [6, 7]), END)]
    assert r.element("k", 12, None) == []
    assert r.element("k", 13, None) == [(("k", (), [12, 13]), END)]


def test_a_users_own_evictor_sees_window_watermark_and_clock() -> None:
    class Noting(Evictor):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def evict_before(self, elements: Any, window: Any, watermark: int, clock: int) -> None:
            self.seen.append((list(elements), window, watermark, clock))

    evictor = Noting()
    r = rig(TEN, evictor=evictor, process=Together())
    r.clock.advance_to(4)
    r.element("k", "x", 1)
    r.watermark(9)
    assert evictor.seen == [([("x", 1)], TimeWindow(0, 10), 9, 4)]


# Sessions


def test_a_session_takes_what_only_touches_it_and_ends_a_gap_after_its_last_element() -> None:
    #  0       2500     5500
    #  a--------b-------c        gap 3000: c at 5500 touches, 5501 would not
    r = rig(GAP_3S, aggregate=aggregates.Count(), result_of=with_bounds)
    for timestamp in (0, 2500, 5500):
        r.element("k", "x", timestamp)
    assert r.watermark(END) == [(("k", 0, 8500, 3), 8499)]

    r = rig(GAP_3S, aggregate=aggregates.Count(), result_of=with_bounds)
    for timestamp in (0, 2500, 5501):
        r.element("k", "x", timestamp)
    assert r.watermark(END) == [(("k", 0, 5500, 2), 5499), (("k", 5501, 8501, 1), 8500)]


def test_an_element_between_two_sessions_joins_them_and_their_contents() -> None:
    #  0        3000     6000
    #  a                 c       two sessions
    #           b                joins them
    r = rig(GAP_3S, aggregate=aggregates.Collect(), result_of=with_bounds)
    r.element("k", "a", 0)
    r.element("k", "c", 6000)
    assert timers(r) == (2, 0)
    r.element("k", "b", 3000)
    assert timers(r) == (1, 0)
    assert r.watermark(END) == [(("k", 0, 9000, ("a", "c", "b")), 8999)]
    assert (timers(r), entries(r)) == ((0, 0), 0)


def test_a_merge_deletes_the_clean_up_timers_of_its_members() -> None:
    r = rig(GAP_3S, aggregate=aggregates.Count(), allowed_lateness_ms=10)
    r.element("k", "a", 0)
    r.element("k", "c", 6000)
    assert timers(r) == (4, 0)
    r.element("k", "b", 3000)
    assert timers(r) == (2, 0)


def test_sessions_of_keys_do_not_meet() -> None:
    r = rig(GAP_3S, aggregate=aggregates.Count(), result_of=with_bounds)
    r.element("a", "x", 0)
    r.element("b", "x", 1000)
    assert r.watermark(END) == [(("a", 0, 3000, 1), 2999), (("b", 1000, 4000, 1), 3999)]


def test_the_contents_of_a_merged_session_lie_under_a_state_window_and_its_timers_under_the_merged_one() -> None:
    r = rig(GAP_3S, aggregate=aggregates.Count())
    r.element("k", "x", 0)
    r.element("k", "x", 1000)
    operator = operator_of(r)
    group = operator.keys.group_of["k"]
    state = operator.snapshot().keyed[group]
    assert [row[1] for row in state["state"]["__window-contents"]["rows"]] == [TimeWindow(0, 3000)]
    assert [row[2] for row in state["state"]["__merging-window-set"]["rows"]] == [[(TimeWindow(0, 4000), TimeWindow(0, 3000))]]
    assert state["timers"]["window-timers"][0] == [("k", TimeWindow(0, 4000), 3999)]


def test_a_late_element_that_merges_into_a_live_session_is_not_late() -> None:
    r = rig(GAP_3S, aggregate=aggregates.Count(), result_of=with_bounds, late_stream="late")
    r.element("k", "x", 5000)
    r.watermark(6000)
    assert r.element("k", "late but live", 2500) == []
    assert r.watermark(END) == [(("k", 2500, 8000, 2), 7999)]


def test_two_late_elements_never_merge_with_each_other() -> None:
    r = rig(GAP_3S, aggregate=aggregates.Count(), late_stream="late")
    r.watermark(10_000)
    assert r.element("k", "one", 1000) == [("late", "one", 1000)]
    assert entries(r) == 0
    assert r.element("k", "two", 1000) == [("late", "two", 1000)]


def test_a_late_element_within_lateness_merges_with_a_session_that_fired_and_fires_the_whole() -> None:
    r = rig(GAP_3S, aggregate=aggregates.Count(), result_of=with_bounds, allowed_lateness_ms=10_000)
    r.element("k", "x", 0)
    assert r.watermark(3000) == [(("k", 0, 3000, 1), 2999)]
    assert r.element("k", "x", 0) == [(("k", 0, 3000, 2), 2999)]
    assert r.element("k", "x", 1000) == []
    assert r.watermark(4000) == [(("k", 0, 4000, 3), 3999)]


def test_a_purged_session_that_is_not_cleaned_up_still_merges_by_its_extent() -> None:
    purging = PurgingTrigger.of(EventTimeTrigger())
    r = rig(GAP_3S, trigger=purging, aggregate=aggregates.Count(), result_of=with_bounds, allowed_lateness_ms=10_000)
    r.element("k", "x", 0)
    assert r.watermark(3000) == [(("k", 0, 3000, 1), 2999)]
    assert r.element("k", "x", 2000) == []
    assert r.watermark(5000) == [(("k", 0, 5000, 1), 4999)]


def test_counts_of_merged_sessions_are_summed_and_the_merge_itself_does_not_fire() -> None:
    r = rig(GAP_3S, trigger=CountTrigger(4), aggregate=aggregates.Count(), result_of=with_bounds)
    for timestamp in (0, 1, 6000):
        assert r.element("k", "x", timestamp) == []
    assert r.element("k", "x", 3001) == [(("k", 0, 9000, 4), 8999)]


def test_dangling_timers_of_merged_sessions_are_ignored_and_the_trigger_is_not_asked() -> None:
    trigger = Scripted(on_time=TriggerResult.FIRE)
    r = rig(GAP_3S, trigger=trigger, aggregate=aggregates.Count())
    r.element("k", "x", 0)
    operator_of(r).timer_service.register_event_timer(TimeWindow(0, 3000), 100)
    operator_of(r).timer_service.register_processing_timer(TimeWindow(0, 3000), 100)
    r.element("k", "x", 1000)
    trigger.calls.clear()
    assert r.watermark(100) == []
    assert r.time(100) == []
    assert trigger.calls == []


def test_a_continuous_trigger_follows_its_sessions_through_a_merge() -> None:
    r = rig(GAP_3S, trigger=ContinuousEventTimeTrigger(1000), aggregate=aggregates.Count())
    r.element("k", "x", 1500)
    r.element("k", "x", 200)
    assert r.watermark(1999) == []
    assert r.watermark(2000) == [(2, 4499)]
    assert [one[0] for one in r.watermark(END)] == [2, 2, 2]
    assert entries(r) == 0


def test_a_merge_calls_merge_then_clear_for_the_members_and_asks_about_the_element_last() -> None:
    trigger = Scripted()
    r = rig(GAP_3S, trigger=trigger, aggregate=aggregates.Count())
    r.element("k", "a", 0)
    r.element("k", "c", 5000)
    trigger.calls.clear()
    r.element("k", "b", 2500)
    merged = TimeWindow(0, 8000)
    assert trigger.calls == [
        ("merge", merged),
        ("clear", TimeWindow(0, 3000)),
        ("clear", TimeWindow(5000, 8000)),
        ("element", "b", merged),
    ]


def test_processing_time_sessions_end_by_the_clock() -> None:
    r = rig(ProcessingTimeSessionWindows.with_gap("3s"), aggregate=aggregates.Count(), result_of=with_bounds)
    r.element("k", "x", None)
    r.clock.advance_to(1000)
    r.element("k", "x", None)
    assert timers(r) == (0, 1)
    assert r.time(3999) == [(("k", 0, 4000, 2), 3999)]
    assert (timers(r), entries(r)) == ((0, 0), 0)


def test_a_merge_that_gives_a_window_that_is_over_is_an_error() -> None:
    # On a real clock the timer of [0, 1) may still be a mail when the element at 1 comes.
    r = rig(ProcessingTimeSessionWindows.with_gap("1ms"), aggregate=aggregates.Count())
    r.element("k", "1ms", None)
    r.clock.quiesce()
    r.clock.advance_to(1)
    with pytest.raises(UserError, match="over already"):
        r.element("k", "1ms", None)


def test_dynamic_gaps_grow_a_session_by_its_longest_and_keep_contents_of_a_window_named_again() -> None:
    r = rig(EventTimeSessionWindows.with_dynamic_gap(lambda value: value), aggregate=aggregates.Count(), result_of=with_bounds)
    r.element("k", "4ms", 0)
    r.element("k", "4ms", 4)
    r.element("k", "8ms", 0)
    assert r.watermark(END) == [(("k", 0, 8, 3), 7)]


def test_sessions_with_an_evictor_keep_elements_and_timestamps_through_merges() -> None:
    r = rig(GAP_3S, evictor=TimeEvictor.of("2s"), process=Together())
    r.element("k", "c", 4000)
    r.element("k", "a", 0)
    r.element("k", "b", 2500)
    assert r.watermark(END) == [(("k", (0, 7000), ["c", "b"]), 6999)]


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


def test_merging_windows_need_an_aggregate_that_merges() -> None:
    class NoMerge(AggregateFunction):
        def create_accumulator(self) -> int:
            return 0

        def add(self, value: Any, accumulator: int) -> int:
            return 1

        def get_result(self, accumulator: int) -> int:
            return accumulator

    rig(TEN, aggregate=NoMerge())
    with pytest.raises(UserError, match="no merge"):
        rig(GAP_3S, aggregate=NoMerge())


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


# Snapshot and restore


def test_contents_trigger_values_timers_and_merging_sets_survive_and_the_watermark_does_not() -> None:
    def build() -> WindowOperator:
        return build_window_operator(GAP_3S, trigger=CountTrigger(3), aggregate=aggregates.Count(), result_of=with_bounds)

    r = Rig(build())
    r.element("k", "x", 0)
    r.element("k", "x", 1000)
    r.watermark(500)
    again = restored(build, r.snapshot())
    assert operator_of(again).timer_service.current_watermark == MIN_TIMESTAMP
    assert again.element("k", "x", 2000) == [(("k", 0, 5000, 3), 4999)]
    again.watermark(END)
    assert (timers(again), entries(again)) == ((0, 0), 0)


def test_a_restored_processing_time_window_arms_the_clock_again() -> None:
    def build() -> WindowOperator:
        return build_window_operator(TumblingProcessingTimeWindows.of("10s"), aggregate=aggregates.Count())

    r = Rig(build())
    r.element("k", "x", None)
    again = restored(build, r.snapshot(), now_ms=5000)
    assert again.time(9999) == [(1, 9999)]


def test_the_snapshot_of_a_global_window_comes_back() -> None:
    def build() -> WindowOperator:
        return build_window_operator(CountWindows.of(2), aggregate=aggregates.Collect())

    r = Rig(build())
    r.element("k", "a", None)
    again = restored(build, r.snapshot())
    assert again.element("k", "b", None) == [(("a", "b"), END)]
    assert operator_of(again).decode_namespace(()) == GlobalWindow()


def test_key_groups_go_to_the_task_that_owns_them() -> None:
    def build() -> WindowOperator:
        return build_window_operator(TEN, aggregate=aggregates.Count(), result_of=with_bounds)

    r = Rig(build())
    keys = [f"key-{number}" for number in range(40)]
    for key in keys:
        r.element(key, "x", 1)
    snapshot = r.snapshot()
    halves = [restored(build, snapshot, groups=groups) for groups in (KeyGroupRange(0, 63), KeyGroupRange(64, 127))]
    fired = [{row[0][0] for row in half.watermark(9)} for half in halves]
    assert fired[0] | fired[1] == set(keys)
    assert not fired[0] & fired[1]
    assert fired[0] and fired[1]


def test_a_settled_stagger_is_kept() -> None:
    def build() -> WindowOperator:
        window = TumblingEventTimeWindows.of("10s", stagger="natural")
        return build_window_operator(window, aggregate=aggregates.Count(), result_of=with_bounds)

    r = Rig(build(), now_ms=1234)
    r.element("k", "x", 5000)
    again = restored(build, r.snapshot(), now_ms=999)
    again.element("k", "x", 5000)
    assert again.watermark(END) == [(("k", 1234, 11234, 2), 11233)]


# Tracking


class Held(NoWindowScope):
    """Notes which inputs each pane holds, as a tracker does."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def held(self, position: int, key: Any, window: Any) -> None:
        self.log.append(("held", position, key, tuple(window)))

    def held_run(self, positions: Sequence[int], keys: Sequence[Any], window: Any) -> None:
        for position in positions:
            self.held(position, keys[position], window)

    def merge(self, key: Any, target: Any, sources: Sequence[Any]) -> None:
        self.log.append(("moved", key, tuple(target), [tuple(source) for source in sources]))

    def firing(self, key: Any, window: Any) -> None:
        self.log.append(("firing", key, tuple(window)))

    def evicted(self, key: Any, window: Any, positions: Sequence[int]) -> None:
        self.log.append(("evicted", key, tuple(window), list(positions)))

    def released(self, key: Any, window: Any) -> None:
        self.log.append(("released", key, tuple(window)))


@both_ways
def test_the_scope_hears_which_elements_a_pane_holds_until_it_is_cleared(direct: bool) -> None:
    held = Held()
    r = rig(TEN, aggregate=aggregates.Count(), direct=direct)
    operator_of(r).scope = held
    r.operator.process_batch(["a", "b", "a", "a"], "wxyz", [1, 1, 2, 11])
    r.watermark(9)
    assert sorted(held.log[:4], key=lambda entry: entry[1]) == [
        ("held", 0, "a", (0, 10)),
        ("held", 1, "b", (0, 10)),
        ("held", 2, "a", (0, 10)),
        ("held", 3, "a", (10, 20)),
    ]
    assert sorted(held.log[4:]) == [
        ("firing", "a", (0, 10)),
        ("firing", "b", (0, 10)),
        ("released", "a", (0, 10)),
        ("released", "b", (0, 10)),
    ]
    assert held.log.index(("firing", "a", (0, 10))) < held.log.index(("released", "a", (0, 10)))


def test_the_scope_hears_of_merges_under_state_windows() -> None:
    held = Held()
    r = rig(GAP_3S, aggregate=aggregates.Count())
    operator_of(r).scope = held
    for timestamp in (0, 5000, 2500):
        r.element("k", "x", timestamp)
    r.watermark(END)
    assert held.log == [
        ("held", 0, "k", (0, 3000)),
        ("held", 0, "k", (5000, 8000)),
        ("moved", "k", (0, 3000), [(5000, 8000)]),
        ("held", 0, "k", (0, 3000)),
        ("firing", "k", (0, 3000)),
        ("released", "k", (0, 3000)),
    ]


def test_the_scope_hears_which_elements_were_evicted_equal_ones_told_apart() -> None:
    class OneOfTwo(Evictor):
        def evict_before(self, elements: Any, window: Any, watermark: int, clock: int) -> None:
            del elements[1]

    held = Held()
    r = rig(GlobalWindows(), trigger=CountTrigger(3), evictor=OneOfTwo(), process=Together())
    operator_of(r).scope = held
    for _ in range(3):
        r.element("k", "same", 5)
    assert held.log[3:] == [("firing", "k", ()), ("evicted", "k", (), [1])]


def test_a_late_element_is_held_by_nothing() -> None:
    held = Held()
    r = rig(TEN, aggregate=aggregates.Count())
    operator_of(r).scope = held
    r.watermark(9)
    r.element("k", "x", 1)
    assert held.log == []


# The direct way


def test_the_direct_way_is_taken_where_it_applies_and_nowhere_else() -> None:
    def is_direct(window: Any, **options: Any) -> bool:
        return isinstance(build_window_operator(window, **options), TumblingFastPath)

    count = aggregates.Count()
    assert is_direct(TEN, aggregate=count)
    assert is_direct(TEN, reduce=max, trigger=EventTimeTrigger(), allowed_lateness_ms=5)
    assert is_direct(TEN, aggregate=count, process=Together())
    assert not is_direct(TEN, process=Together())
    assert not is_direct(TEN, aggregate=count, evictor=CountEvictor(1))
    assert not is_direct(TEN, aggregate=count, trigger=CountTrigger(1))
    assert not is_direct(TumblingProcessingTimeWindows.of("1s"), aggregate=count)
    assert not is_direct(SlidingEventTimeWindows.of("1s", "1s"), aggregate=count)
    assert not is_direct(GAP_3S, aggregate=count)


@both_ways
def test_an_exception_of_the_aggregate_leaves_the_others_and_says_whose_it_was(direct: bool) -> None:
    r = rig(TEN, aggregate=aggregates.Sum(), direct=direct)
    with pytest.raises(TypeError):
        r.operator.process_batch(["k"] * 4, [1, 2, "three", 4], [1, 2, 3, 4])
    assert operator_of(r).position == 2
    r.operator.process_batch(["k"], [4], [4])
    assert r.watermark(9) == [(7, 9)]


def test_a_session_that_an_element_has_joined_outlives_that_the_aggregate_raises_for_it() -> None:
    #  0   3   5       15
    #  a---b---x........)   x joins and cannot be added
    r = rig(EventTimeSessionWindows.with_gap("10ms"), aggregate=aggregates.Sum(), result_of=with_bounds)
    r.element("k", 1, 0)
    r.element("k", 2, 3)
    with pytest.raises(TypeError):
        r.element("k", "x", 5)
    assert r.watermark(END) == [(("k", 0, 15, 3), 14)]
    assert (timers(r), entries(r)) == ((0, 0), 0)


@pytest.mark.parametrize("window", [TEN, GAP_3S], ids=["tumbling", "session"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_window_whose_function_raises_for_an_element_is_cleaned_up_all_the_same(window: Any, count: int) -> None:
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


def test_a_session_whose_clean_up_raises_is_over_all_the_same() -> None:
    class Raises(Together):
        def clear(self, context: Any) -> None:
            raise ValueError

    #  0        10       20
    #  [x........)[y......)   they would touch
    r = rig(EventTimeSessionWindows.with_gap("10ms"), process=Raises())
    for value, timestamp in (("x", 0), ("y", 10)):
        assert r.element("k", value, timestamp) == []
        with pytest.raises(ValueError):
            r.watermark(timestamp + 9)
        assert r.taken() == [(("k", (timestamp, timestamp + 10), [value]), timestamp + 9)]
        assert (timers(r), entries(r)) == ((0, 0), 0)


@both_ways
def test_an_accumulator_of_none_is_no_contents(direct: bool) -> None:
    r = rig(TEN, reduce=lambda first, second: None if second == "drop" else second, direct=direct)
    r.operator.process_batch(["k", "k"], ["a", "drop"], [1, 1])
    assert entries(r) == 0
    r.operator.process_batch(["k"], ["b"], [1])
    assert r.watermark(9) == [("b", 9)]
    assert (timers(r), entries(r)) == ((0, 0), 0)
