"""The window operator over merging windows: sessions, their triggers, evictors and timers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.operators.rig import END
from tests.unit.operators.window_rig import (
    GAP_3S,
    TEN,
    Scripted,
    Together,
    entries,
    operator_of,
    rig,
    timers,
    with_bounds,
)
from topo.api import aggregates
from topo.api.aggregates import AggregateFunction
from topo.api.evictors import TimeEvictor
from topo.api.triggers import (
    TriggerResult,
)
from topo.api.windows import (
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    TimeWindow,
)
from topo.errors import UserError


def test_windows_that_merge_have_no_state_of_their_own() -> None:
    class Asking(Together):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            context.window_state.value("x").set(1)

    r = rig(GAP_3S, process=Asking())
    r.element("k", "x", 0)
    with pytest.raises(UserError, match="global_state"):
        r.watermark(END)


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


def test_a_late_element_merges_with_a_session_that_fired_and_fires_the_whole() -> None:
    r = rig(GAP_3S, aggregate=aggregates.Count(), result_of=with_bounds, allowed_lateness_ms=10_000)
    r.element("k", "x", 0)
    assert r.watermark(3000) == [(("k", 0, 3000, 1), 2999)]
    assert r.element("k", "x", 0) == [(("k", 0, 3000, 2), 2999)]
    assert r.element("k", "x", 1000) == []
    assert r.watermark(4000) == [(("k", 0, 4000, 3), 3999)]


def test_the_trigger_is_not_asked_for_dangling_timers_of_merged_sessions() -> None:
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


def test_a_merge_calls_merge_then_clear_then_asks_about_the_element() -> None:
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


def test_a_merge_that_gives_a_window_that_is_over_is_an_error() -> None:
    # On a real clock the timer of [0, 1) may still be a mail when the element at 1 comes.
    r = rig(ProcessingTimeSessionWindows.with_gap("1ms"), aggregate=aggregates.Count())
    r.element("k", "1ms", None)
    r.clock.quiesce()
    r.clock.advance_to(1)
    with pytest.raises(UserError, match="over already"):
        r.element("k", "1ms", None)


def test_dynamic_gaps_grow_a_session_by_its_longest_and_keep_its_contents() -> None:
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


def test_a_session_keeps_its_new_extent_when_the_aggregate_raises() -> None:
    #  0   3   5       15
    #  a---b---x........)   x joins and cannot be added
    r = rig(EventTimeSessionWindows.with_gap("10ms"), aggregate=aggregates.Sum(), result_of=with_bounds)
    r.element("k", 1, 0)
    r.element("k", 2, 3)
    with pytest.raises(TypeError):
        r.element("k", "x", 5)
    assert r.watermark(END) == [(("k", 0, 15, 3), 14)]
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
