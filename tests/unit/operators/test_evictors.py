"""Evictors: which elements of a buffer go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.operators.rig import END
from tests.unit.operators.window_rig import TEN, Scripted, Together, rig
from topo.api import aggregates
from topo.api.evictors import CountEvictor, DeltaEvictor, Evictor, EvictorLike, TimeEvictor, TimestampedValue
from topo.api.triggers import CountTrigger, ProcessingTimeoutTrigger, TriggerResult
from topo.api.windows import GlobalWindows, TimeWindow
from topo.errors import UserError
from topo.operators.windows.evictors import build_evictor


def evict(declared: EvictorLike, elements: list[tuple[object, int | None]]) -> tuple[list[object], list[object]]:
    """Return the elements that remain after each of the two hooks."""
    evictor = build_evictor(declared)
    before = [TimestampedValue(*element) for element in elements]
    after = list(before)
    evictor.evict_before(before, None, 0, 0)
    evictor.evict_after(after, None, 0, 0)
    return [element.value for element in before], [element.value for element in after]


ABC: list[tuple[object, int | None]] = [("a", 1), ("b", 2), ("c", 3)]


def test_the_count_evictor_drops_from_the_front_until_n_remain() -> None:
    assert evict(CountEvictor(2), ABC)[0] == ["b", "c"]
    assert evict(CountEvictor(3), ABC)[0] == ["a", "b", "c"]
    assert evict(CountEvictor(0), ABC)[0] == []


@pytest.mark.parametrize(
    "declared", [CountEvictor(1, after=True), TimeEvictor(1, after=True), DeltaEvictor(0, lambda a, b: 0, after=True)]
)
def test_the_after_flag_chooses_one_of_the_two_hooks(declared: EvictorLike) -> None:
    before, after = evict(declared, ABC)
    assert before == ["a", "b", "c"]
    assert len(after) < 3


def test_the_time_evictor_counts_from_the_greatest_timestamp_wherever_it_is() -> None:
    elements: list[tuple[object, int | None]] = [("late", 100), ("old", 4), ("new", 106), ("edge", 96), ("in", 97)]
    assert evict(TimeEvictor.of("10ms"), elements)[0] == ["late", "new", "in"]


def test_the_time_evictor_does_nothing_when_the_first_element_has_no_timestamp() -> None:
    assert evict(TimeEvictor(1), [("a", None), ("b", 2), ("c", 30)])[0] == ["a", "b", "c"]


def test_the_time_evictor_stands_an_empty_buffer() -> None:
    assert evict(TimeEvictor(1), [])[0] == []


def test_the_delta_evictor_drops_at_the_threshold_too_measured_from_the_last_element() -> None:
    distance = DeltaEvictor(5, lambda element, last: abs(element - last))
    assert evict(distance, [(1, None), (6, None), (7, None), (5, None), (10, None)])[0] == [6, 7, 10]


def test_a_users_own_evictor_changes_the_list_and_anything_else_is_refused() -> None:
    class Own(Evictor):
        def evict_after(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
            del elements[0]

    elements = [TimestampedValue(1, None), TimestampedValue(2, None)]
    own = build_evictor(Own())
    own.evict_before(elements, None, 0, 0)
    own.evict_after(elements, None, 0, 0)
    assert [element.value for element in elements] == [2]
    with pytest.raises(UserError, match="no evictor"):
        build_evictor(3)  # type: ignore[arg-type]


# In the window operator


def test_eviction_after_lets_the_function_see_everything_first() -> None:
    r = rig(GlobalWindows(), trigger=CountTrigger(2), evictor=CountEvictor(1, after=True), process=Together())
    fired = [r.element("k", value, None) for value in "abcd"]
    assert fired[1] == [(("k", (), ["a", "b"]), END)]
    assert fired[3] == [(("k", (), ["b", "c", "d"]), END)]


def test_the_function_is_called_when_all_was_evicted_and_not_for_an_empty_buffer() -> None:
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


def test_a_duration_in_place_of_milliseconds_is_refused_with_the_call_that_takes_one() -> None:
    with pytest.raises(UserError, match=r"write TimeEvictor.of\('5s'\)"):
        TimeEvictor("5s")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"write ProcessingTimeoutTrigger.of\(..., '5s'\)"):
        ProcessingTimeoutTrigger(CountTrigger(2), "5s")  # type: ignore[arg-type]
