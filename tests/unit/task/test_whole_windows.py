"""Windows that fire whole: results leave in one batch, and each pane still has a separate root, attempts and verdict."""

from __future__ import annotations

from collections import Counter
from math import isnan
from typing import Any

import pytest

from tests.tasks.components import CHECKPOINTED, TRACKED, Sink
from tests.tasks.solo import Solo
from tests.unit.task.operators import Source, between, decide, put, sums, time
from topo import aggregates
from topo.api.groupings import CustomGrouping
from topo.api.operator_bolts import WindowBolt
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import ProcessWindowFunction, SlidingEventTimeWindows
from topo.builder import TopologyBuilder
from topo.task.task import Task
from topo.wire.frames import FrameKind

BOTH = pytest.mark.parametrize("delivery", [TRACKED, CHECKPOINTED])
KEYS = [f"k{number}" for number in range(2_500)]


class Unlucky(aggregates.Sum):
    """Raises for some sums, each as often as given, and notes each call."""

    def __init__(self, raises: dict[int, int] | None = None) -> None:
        super().__init__(1)
        self.raises = {} if raises is None else raises
        self.calls: list[Any] = []

    def get_result(self, accumulator: Any) -> Any:
        self.calls.append(accumulator)
        if self.raises.get(accumulator):
            self.raises[accumulator] -= 1
            raise ValueError("unlucky")
        return accumulator


@BOTH
def test_all_panes_of_a_window_fire_under_roots_of_their_own(delivery: str) -> None:
    solo = between(sums(), delivery=delivery)
    ids = put(solo, [(key, place) for place, key in enumerate(KEYS)], [1] * len(KEYS))
    assert solo.task.statistics().levels["timers"] == 1.0
    time(solo, 10)
    assert solo.rows() == [(key, 0, 10, place) for place, key in enumerate(KEYS)]
    if delivery == TRACKED:
        roots = solo.roots(FrameKind.INIT)
        assert len(set(roots)) == len(KEYS) and solo.task.runner.pending == len(KEYS)
        decide(solo, FrameKind.ACKED, roots[:1_000])
        decide(solo, FrameKind.FAILED, roots[1_000:1_500])
        decide(solo, FrameKind.ACKED, roots[1_500:])
        assert solo.roots(FrameKind.FAIL) == ids.roots[1_000:1_500] and solo.task.runner.pending == 0
        assert set(solo.owed(ids.pairs)) == set(ids.roots[1_000:1_500])


@BOTH
@pytest.mark.parametrize("times", [1, 99])
def test_panes_whose_result_raises_are_repeated_alone_and_as_often_as_attempts_allow(delivery: str, times: int) -> None:
    aggregate = Unlucky({3: times, 7: times})
    solo = between(sums(aggregate=aggregate), delivery=delivery, attempts=3)
    ids = put(solo, [(f"k{value}", value) for value in range(10)], [1] * 10)
    time(solo, 10)
    fails = times == 99
    assert [row[3] for row in solo.rows()] == [value for value in range(10) if not (fails and value in (3, 7))]
    made = Counter(aggregate.calls)
    assert {value: made[value] for value in (3, 7)} == dict.fromkeys(
        (3, 7), 2 if not fails else 3 + (delivery == CHECKPOINTED)
    ), "the dead letter shows the result if it can"
    assert solo.task.counters.failed == (2 if fails and delivery == CHECKPOINTED else 0)
    if delivery == TRACKED:
        assert solo.roots(FrameKind.FAIL) == ([ids.roots[3], ids.roots[7]] if fails else [])
    else:
        assert [given[0] for given in solo.given_up()] == (["k3", "k7"] if fails else [])
    levels = solo.task.statistics().levels
    assert (levels["open_windows"], levels["timers"]) == (0.0, 0.0)


@BOTH
def test_results_that_can_change_are_as_safe(delivery: str) -> None:
    class Listed(aggregates.Collect):
        def get_result(self, accumulator: Any) -> Any:
            return list(accumulator)

    solo = between(sums(aggregate=Listed("value")), delivery=delivery)
    put(solo, [("a", 1), ("b", 2), ("a", 3)], [1, 1, 1])
    time(solo, 10)
    assert solo.rows() == [("a", 0, 10, (1, 3)), ("b", 0, 10, (2,))]


@BOTH
def test_the_brake_stops_between_two_results_and_the_rest_fires_later(delivery: str) -> None:
    class Braking(Unlucky):
        def get_result(self, accumulator: Any) -> Any:
            if accumulator in (1_100, 1_200):
                solo.task.cut_short()
            return super().get_result(accumulator)

    aggregate = Braking()
    solo = between(sums(aggregate=aggregate), delivery=delivery)
    put(solo, [(key, place) for place, key in enumerate(KEYS)], [1] * len(KEYS))
    time(solo, 10)
    assert aggregate.calls == list(range(len(KEYS))), "no call is repeated"
    assert [row[3] for row in solo.rows()] == aggregate.calls


def test_the_brake_stops_between_two_batches_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cutting(CustomGrouping):
        def choose(self, values: tuple[Any, ...]) -> list[int]:
            turn_of_rows.append(counts["turns"])
            if len(turn_of_rows) == 1:
                solo.task.cut_short()
            return [0]

    def turn(task: Task, now: float) -> None:
        counts["turns"] += 1
        run_turn(task, now)

    counts, turn_of_rows, run_turn = Counter[str](), list[int](), Task.turn
    monkeypatch.setattr(Task, "turn", turn)
    builder = TopologyBuilder("one").config(delivery=TRACKED)
    builder.set_spout("a", Source(), watermarks=WatermarkStrategy.emitted())
    builder.set_bolt("b", sums()).fields_grouping("a", "key")
    builder.set_bolt("sink", Sink()).custom_grouping("b", Cutting())
    solo = Solo(builder.build(), "b")
    put(solo, [(key, place) for place, key in enumerate(KEYS)], [1] * len(KEYS))
    time(solo, 10)
    assert len(turn_of_rows) == len(KEYS)
    assert turn_of_rows[0] == turn_of_rows[1_023] < turn_of_rows[1_024], "a batch has 1,024 panes"


def test_a_window_of_untracked_inputs_sends_results_without_roots() -> None:
    solo = between(sums())
    put(solo, [("a", 1), ("b", 2)], [1, 1], tracked=False)
    time(solo, 10)
    assert solo.rows() == [("a", 0, 10, 1), ("b", 0, 10, 2)]
    assert solo.frames(FrameKind.INIT) == [] and solo.roots(FrameKind.DATA) == [] and solo.task.runner.pending == 0


def test_panes_of_which_some_hold_untracked_inputs_fire_one_by_one() -> None:
    solo = between(sums())
    ids = put(solo, [("a", 1), ("c", 5)], [1, 1])
    put(solo, [("b", 2), ("c", 6)], [1, 1], tracked=False)
    time(solo, 10)
    assert sorted(solo.rows()) == [("a", 0, 10, 1), ("b", 0, 10, 2), ("c", 0, 10, 11)]
    assert len(solo.roots(FrameKind.INIT)) == 2
    decide(solo, FrameKind.ACKED)
    assert solo.owed(ids.pairs) == {}


def test_an_input_of_several_sliding_windows_is_acked_with_the_last_of_them() -> None:
    solo = between(sums(window=SlidingEventTimeWindows.of("30ms", "10ms")))
    ids = put(solo, [("a", 1), ("b", 2), ("a", 3)], [21, 25, 32])
    time(solo, 70)
    sums_by_window = {(row[0], row[1]): row[3] for row in solo.rows()}
    assert sums_by_window == {
        ("a", 0): 1, ("b", 0): 2, ("a", 10): 4, ("b", 10): 2, ("a", 20): 4, ("b", 20): 2, ("a", 30): 3
    }  # fmt: skip
    roots = solo.roots(FrameKind.INIT)
    assert len(roots) == 7
    decide(solo, FrameKind.ACKED, roots[:-1])
    assert list(solo.owed(ids.pairs)) == ids.roots[2:]
    decide(solo, FrameKind.ACKED, roots[-1:])
    assert solo.owed(ids.pairs) == {}


def test_inputs_whose_accumulator_was_dropped_are_acked_when_their_window_ends() -> None:
    solo = between(sums(aggregate=None, reduce=lambda first, second: None if second[1] < 0 else second))
    ids = put(solo, [("a", 1), ("a", -1), ("b", 2)], [1, 2, 3])
    time(solo, 10)
    assert [row[-1] for row in solo.rows()] == [("b", 2)]
    decide(solo, FrameKind.ACKED)
    assert solo.owed(ids.pairs) == {}


class Numbers(CustomGrouping):
    """Names a task that does not exist for NaN."""

    def choose(self, values: tuple[Any, ...]) -> list[int]:
        return [99] if isnan(values[3]) else [0]


@pytest.mark.parametrize("is_custom", [False, True])
def test_a_result_that_cannot_be_routed_fails_the_inputs_of_its_pane_alone(is_custom: bool) -> None:
    builder = TopologyBuilder("one").config(delivery=TRACKED)
    builder.set_spout("a", Source(), watermarks=WatermarkStrategy.emitted())
    builder.set_bolt("b", sums()).fields_grouping("a", "key")
    sink = builder.set_bolt("sink", Sink(), 2)
    # A custom grouping is asked for the tasks of a row before the row has an edge.
    if is_custom:
        sink.custom_grouping("b", Numbers())
    else:
        sink.fields_grouping("b", "sum")
    solo = Solo(builder.build(), "b")
    ids = put(solo, [("a", 1), ("b", float("nan")), ("c", 2)], [1, 1, 1])
    time(solo, 10)
    assert sorted(row[3] for row in solo.rows()) == [1, 2] and solo.roots(FrameKind.FAIL) == ids.roots[1:2]
    assert ("99" if is_custom else "nan") in solo.errors()[0]
    decide(solo, FrameKind.ACKED)
    assert list(solo.owed(ids.pairs)) == ids.roots[1:2] and solo.task.runner.pending == 0


class Repeated(ProcessWindowFunction):
    """Emits a row for each unit of the sum; raises for some sums behind the first row, each as often as given."""

    def __init__(self, raises: dict[int, int] | None = None) -> None:
        self.raises = raises or {}
        self.calls: list[int] = []

    def open(self) -> None:
        self.put_result = self.put

    def put(self, key: Any, window: Any, result: Any, put: Any) -> None:
        self.calls.append(result)
        for number in range(result):
            put((key, window.start, number))
            if self.raises.get(result):
                self.raises[result] -= 1
                raise ValueError("unlucky")

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        for result in elements:
            self.put(key, context.window, result, collector.emit)


def repeated(function: ProcessWindowFunction) -> WindowBolt:
    return sums(process=function, outputs=("key", "start", "number"))


@BOTH
def test_panes_with_any_number_of_rows_fire_together(delivery: str) -> None:
    solo = between(repeated(function := Repeated()), delivery=delivery)
    given = [("a", 2), ("b", 0), ("c", 1), ("d", 3)]
    ids = put(solo, given, [1] * 4)
    time(solo, 10)
    assert solo.rows() == [(key, 0, number) for key, count in given for number in range(count)]
    assert function.calls == [2, 0, 1, 3]
    levels = solo.task.statistics().levels
    assert (levels["open_windows"], levels["timers"]) == (0.0, 0.0)
    if delivery == TRACKED:
        roots = solo.roots(FrameKind.INIT)
        assert len(roots) == 3, "a pane without rows needs no verdict"
        assert set(solo.owed(ids.pairs)) == {ids.roots[0], ids.roots[2], ids.roots[3]}
        decide(solo, FrameKind.FAILED, roots[:1])
        decide(solo, FrameKind.ACKED, roots[1:])
        assert solo.roots(FrameKind.FAIL) == ids.roots[:1] and list(solo.owed(ids.pairs)) == ids.roots[:1]


@BOTH
@pytest.mark.parametrize("times", [1, 99])
def test_rows_of_a_pane_that_raises_are_discarded_and_the_others_are_made_once(delivery: str, times: int) -> None:
    solo = between(repeated(function := Repeated({2: times})), delivery=delivery, attempts=3)
    ids = put(solo, [("a", 1), ("b", 2), ("c", 3)], [1] * 3)
    time(solo, 10)
    fails = times == 99
    assert sorted(solo.rows()) == [
        (key, 0, number) for key, count in (("a", 1), ("b", 0 if fails else 2), ("c", 3)) for number in range(count)
    ]
    assert Counter(function.calls) == {1: 1, 2: 3 if fails else 2, 3: 1}
    if delivery == TRACKED:
        assert solo.roots(FrameKind.FAIL) == (ids.roots[1:2] if fails else [])
    else:
        assert [given[0] for given in solo.given_up()] == (["b"] if fails else [])


@BOTH
def test_panes_of_a_bolt_without_outputs_fire_together(delivery: str) -> None:
    builder = TopologyBuilder("one").config(delivery=delivery)
    builder.set_spout("a", Source(), watermarks=WatermarkStrategy.emitted())
    builder.set_bolt("b", sums(process=(function := Repeated()), outputs={})).fields_grouping("a", "key")
    solo = Solo(builder.build(), "b")
    ids = put(solo, [("a", 0), ("b", 0)], [1, 1])
    time(solo, 10)
    assert function.calls == [0, 0] and solo.rows() == []
    if delivery == TRACKED:
        assert solo.owed(ids.pairs) == {} and solo.task.runner.pending == 0


@BOTH
def test_user_code_may_change_a_result_that_the_accumulator_holds(delivery: str) -> None:
    class Kept(aggregates.Collect):
        def get_result(self, accumulator: Any) -> Any:
            return accumulator

    class Emptying(Repeated):
        def put(self, key: Any, window: Any, result: Any, put: Any) -> None:
            count = len(result)
            result.clear()
            super().put(key, window, count, put)

    solo = between(sums(aggregate=Kept("value"), process=Emptying({2: 1}), outputs=("key", "start", "number")), delivery=delivery)
    put(solo, [("a", 1), ("a", 2), ("b", 3)], [1] * 3)
    time(solo, 10)
    assert sorted(solo.rows()) == [("a", 0, 0), ("a", 0, 1), ("b", 0, 0)]


@pytest.mark.parametrize("counts", [(0, 1, 2), (2, 1, 1, 1), (2, 1)])
def test_a_row_that_cannot_be_routed_fails_the_inputs_of_its_pane_whatever_the_others_have(counts: tuple[int, ...]) -> None:
    class Unroutable(Repeated):
        def put(self, key: Any, window: Any, result: Any, put: Any) -> None:
            for number in range(result):
                put((key, 0, float("nan") if key == 1 else number))

    builder = TopologyBuilder("one").config(delivery=TRACKED)
    builder.set_spout("a", Source(), watermarks=WatermarkStrategy.emitted())
    builder.set_bolt("b", repeated(Unroutable())).fields_grouping("a", "key")
    builder.set_bolt("sink", Sink(), 2).fields_grouping("b", "number")
    solo = Solo(builder.build(), "b")
    ids = put(solo, list(enumerate(counts)), [1] * len(counts))
    time(solo, 10)
    assert solo.roots(FrameKind.FAIL) == ids.roots[1:2] and len(solo.errors()) == 1
    assert len(solo.rows()) == sum(counts) - counts[1]
    decide(solo, FrameKind.ACKED)
    assert list(solo.owed(ids.pairs)) == ids.roots[1:2] and solo.task.runner.pending == 0


@BOTH
def test_rows_are_as_they_were_when_they_were_put_out(delivery: str) -> None:
    class Reusing(Repeated):
        def put(self, key: Any, window: Any, result: Any, put: Any) -> None:
            row: dict[str, Any] = {}
            for number in range(result):
                row["n"] = number
                put((key, 0, row))

    solo = between(repeated(Reusing()), delivery=delivery)
    put(solo, [("a", 3), ("b", 1)], [1, 1])
    time(solo, 10)
    assert solo.rows() == [("a", 0, {"n": 0}), ("a", 0, {"n": 1}), ("a", 0, {"n": 2}), ("b", 0, {"n": 0})]
