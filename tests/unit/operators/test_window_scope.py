"""What a window operator keeps: its snapshot, and the scope that learns which inputs a pane holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.unit.operators.rig import END, Rig, restored
from tests.unit.operators.window_rig import (
    GAP_3S,
    TEN,
    Together,
    both_ways,
    entries,
    operator_of,
    rig,
    timers,
    with_bounds,
)
from topo.api import aggregates
from topo.api.evictors import Evictor
from topo.api.triggers import (
    CountTrigger,
)
from topo.api.windows import (
    CountWindows,
    GlobalWindow,
    GlobalWindows,
    TumblingEventTimeWindows,
)
from topo.operators.time.clock import MIN_TIMESTAMP
from topo.operators.windows.builder import build_window_operator
from topo.operators.windows.operator import WindowOperator
from topo.operators.windows.scope import NoWindowScope


def test_a_snapshot_has_contents_trigger_values_timers_and_merging_sets() -> None:
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


def test_the_snapshot_of_a_global_window_comes_back() -> None:
    def build() -> WindowOperator:
        return build_window_operator(CountWindows.of(2), aggregate=aggregates.Collect())

    r = Rig(build())
    r.element("k", "a", None)
    again = restored(build, r.snapshot())
    assert again.element("k", "b", None) == [(("a", "b"), END)]
    assert operator_of(again).decode_namespace(()) == GlobalWindow()


def test_a_settled_stagger_is_kept() -> None:
    def build() -> WindowOperator:
        window = TumblingEventTimeWindows.of("10s", stagger="natural")
        return build_window_operator(window, aggregate=aggregates.Count(), result_of=with_bounds)

    r = Rig(build(), now_ms=1234)
    r.element("k", "x", 5000)
    again = restored(build, r.snapshot(), now_ms=999)
    again.element("k", "x", 5000)
    assert again.watermark(END) == [(("k", 1234, 11234, 2), 11233)]


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
def test_the_scope_learns_which_elements_a_pane_holds_until_it_is_cleared(direct: bool) -> None:
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


def test_elements_of_few_among_many_open_windows_are_reported_once() -> None:
    held = Held()
    r = rig(TEN, aggregate=aggregates.Count())
    operator_of(r).scope = held
    r.operator.process_batch(["k"] * 200, ["x"] * 200, range(0, 2000, 10))
    assert held.log == [("held", number, "k", (10 * number, 10 * number + 10)) for number in range(200)]
    for _ in range(2):
        held.log.clear()
        r.operator.process_batch(["a", "b", "c"], "xyz", [1995, 7, 1991])
        assert sorted(held.log) == [("held", 0, "a", (1990, 2000)), ("held", 1, "b", (0, 10)), ("held", 2, "c", (1990, 2000))]


def test_the_scope_learns_of_merges_under_state_windows() -> None:
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


def test_the_scope_learns_which_of_equal_elements_was_evicted() -> None:
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
