from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from topo import (
    BasicBolt,
    BasicCollector,
    Bolt,
    Collector,
    ConfigError,
    TaskContext,
    Tuple,
    UnsupportedValueError,
    UserError,
    WindowBolt,
    aggregates,
    direct,
    windows,
)
from topo.api.topology import CarriedType
from topo.testing import TICK, EmittedTuple, OperatorHarness, run_bolt, tuple_of


class Split(BasicBolt):
    outputs = ("word",)

    def prepare(self, context: TaskContext) -> None:
        self.lines = context.metrics.counter("lines")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.lines.add()
        for word in tup["line"].split():
            collector.emit((word,))
        if not tup["line"]:
            raise ValueError("an empty line")


class Pairs(Bolt):
    """Joins two inputs each; an odd one fails at the end."""

    outputs = {"pairs": ("first", "second"), "single": ("value",)}

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []
        self.is_closed = False

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.collector.emit((len(self.held),), stream="single")
            return
        self.held.append(tup)
        if len(self.held) == 2:
            first, second = self.held
            self.collector.emit((first["value"], second["value"]), anchors=self.held, stream="pairs")
            self.collector.ack(second)
            self.collector.ack(first)
            self.held = []

    def end_of_input(self) -> None:
        for tup in self.held:
            self.collector.fail(tup)

    def cleanup(self) -> None:
        self.is_closed = True


class Calls(BasicBolt):
    """Calls a function of the test with its input and collector."""

    outputs = {"default": ("value",), "replies": direct("value")}

    def __init__(self, action: Callable[[Tuple, BasicCollector], object]) -> None:
        self.action = action

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.action(tup, collector)


class CallsTracking(Bolt):
    outputs = ("value",)

    def __init__(self, action: Callable[[Tuple, Collector], object]) -> None:
        self.action = action

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.action(tup, self.collector)


def test_a_basic_bolts_inputs_are_acked_and_what_it_emits_is_anchored_on_them() -> None:
    run = run_bolt(Split(), [("a b",), ("c",)], fields=("line",))

    assert run.emitted == {"default": [EmittedTuple(("a",), (0,)), EmittedTuple(("b",), (0,)), EmittedTuple(("c",), (1,))]}
    assert run.values() == [("a",), ("b",), ("c",)]
    assert (run.acked, run.failed, run.unfinished) == ([0, 1], [], [])
    assert run.metrics.counters == {"lines": 2}
    run.assert_all_acked()


def test_an_input_that_raises_fails_and_the_error_names_the_line() -> None:
    run = run_bolt(Split(), [{"line": "a"}, {"line": ""}, {"line": "b"}])

    assert (run.acked, run.failed) == ([0, 2], [1])
    (error,) = run.errors
    assert error.input == 1
    assert error.file == __file__
    assert 'raise ValueError("an empty line")' in Path(__file__).read_text().splitlines()[error.line - 1]
    with pytest.raises(AssertionError, match=r"inputs \[1\] failed\n.*ValueError: an empty line"):
        run.assert_all_acked()


def test_what_a_call_has_emitted_before_it_raises_is_discarded() -> None:
    def emit_and_raise(tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["value"],))
        if tup["value"] == "bad":
            raise RuntimeError

    run = run_bolt(Calls(emit_and_raise), [tuple_of(value="good"), tuple_of(value="bad")])

    assert run.values() == [("good",)]


def test_a_bolt_may_hold_inputs_anchor_on_several_and_ack_in_its_own_order() -> None:
    bolt = Pairs()

    run = run_bolt(bolt, [tuple_of(value=1), TICK, tuple_of(value=2), tuple_of(value=3)])

    assert run.emitted["pairs"] == [EmittedTuple((1, 2), (0, 1))]
    assert run.emitted["single"] == [EmittedTuple((1,))]
    assert (run.acked, run.failed) == ([1, 0], [2])
    assert bolt.is_closed


def test_without_an_end_of_input_what_is_held_is_unfinished() -> None:
    run = run_bolt(Pairs(), [tuple_of(value=1)], end_of_input=False, ticks=2)

    assert run.unfinished == [0]
    assert run.values("single") == [(1,), (1,)]
    with pytest.raises(AssertionError, match=r"inputs \[0\] were neither acked nor failed"):
        run.assert_all_acked()


def test_what_an_execute_that_raises_has_acked_fails_instead() -> None:
    def ack_and_raise(tup: Tuple, collector: Collector) -> None:
        collector.emit((1,), anchors=tup)
        collector.ack(tup)
        raise RuntimeError

    run = run_bolt(CallsTracking(ack_and_raise), [tuple_of(value=1)])

    assert (run.values(), run.acked, run.failed) == ([], [], [0])


def test_a_second_ack_and_an_anchor_after_the_ack_raise_in_the_bolt() -> None:
    def ack_twice(tup: Tuple, collector: Collector) -> None:
        collector.ack(tup)
        collector.ack(tup)

    def ack_then_emit(tup: Tuple, collector: Collector) -> None:
        collector.ack(tup)
        collector.emit((1,), anchors=tup)

    for action in (ack_twice, ack_then_emit):
        run = run_bolt(CallsTracking(action), [tuple_of(value=1)])
        assert [type(error.exception).__name__ for error in run.errors] == ["TupleStateError"]
        assert run.failed == [0]


@pytest.mark.parametrize("value", [lambda: None, object(), 1 << 70, "\ud800", [[{"deep": {object()}}]]])
def test_a_value_that_cannot_be_carried_raises_in_the_emit_that_has_it(value: Any) -> None:
    run = run_bolt(Calls(lambda tup, collector: collector.emit((value,))), [tuple_of(x=1)])

    (error,) = run.errors
    assert isinstance(error.exception, UnsupportedValueError)
    assert "component 'bolt', stream 'default', field 'value': a value of type" in str(error.exception)
    assert error.file == __file__
    assert run.failed == [0]


def test_values_go_through_the_codec_on_their_way_in_and_out() -> None:
    seen: list[Any] = []
    price = Decimal("1.10")

    def look(tup: Tuple, collector: BasicCollector) -> None:
        seen.append(tup["value"])
        collector.emit([[price, ["x"]]])

    run = run_bolt(Calls(look), [tuple_of(value=[1, [2]])])

    assert seen == [(1, (2,))]
    assert run.values() == [((price, ("x",)),)]


def test_types_of_the_users_own_are_carried_when_they_are_given() -> None:
    carried = CarriedType(complex, 40, lambda value: str(value).encode(), lambda data: complex(data.decode()))

    run = run_bolt(Calls(lambda tup, collector: collector.emit((tup[0] * 2,))), [tuple_of(value=1j)], types=[carried])

    assert run.values() == [(2j,)]


def test_an_emit_that_the_bolt_does_not_declare_is_an_error_of_the_bolt() -> None:
    for action in (
        lambda tup, collector: collector.emit((1, 2)),
        lambda tup, collector: collector.emit("word"),
        lambda tup, collector: collector.emit((1,), stream="defualt"),
        lambda tup, collector: collector.emit_direct(9, (1,), stream="replies"),
    ):
        run = run_bolt(Calls(action), [tuple_of(value=1)], tasks={"client": (7, 8)})
        assert [type(error.exception).__name__ for error in run.errors] == ["EmitError"]


def test_a_call_that_emits_more_than_it_may_fails() -> None:
    run = run_bolt(Split(), [tuple_of(line="a b"), tuple_of(line="a b c")], max_task_emit=2)

    assert (run.acked, run.failed, run.values()) == ([0], [1], [("a",), ("b",)])
    assert "at most 2 are allowed" in str(run.errors[0])


def test_a_direct_emit_names_its_task() -> None:
    run = run_bolt(
        Calls(lambda tup, collector: collector.emit_direct(8, (tup["value"],), stream="replies")),
        [tuple_of(value=1)],
        tasks={"client": (7, 8)},
    )

    assert run.emitted["replies"] == [EmittedTuple((1,), (0,), task=8)]


def test_the_timestamp_is_the_explicit_one_or_that_of_the_input() -> None:
    def both(tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((1,))
        collector.emit((2,), timestamp=99)

    run = run_bolt(Calls(both), [tuple_of(value=0, timestamp=5)])
    tracked = run_bolt(CallsTracking(lambda tup, c: c.emit((1,), anchors=tup)), [tuple_of(value=0, timestamp=5)])

    assert [emitted.timestamp for emitted in run.emitted["default"]] == [5, 99]
    assert [emitted.timestamp for emitted in tracked.emitted["default"]] == [5]


def test_inputs_say_where_they_come_from() -> None:
    seen: list[tuple[Any, ...]] = []

    def look(tup: Tuple, collector: BasicCollector) -> None:
        seen.append((tup.component, tup.stream, tup.task, tup.fields, tup.is_tick))

    run_bolt(Calls(look), [tuple_of({"class": 1}, component="price", stream="odd", task=12), TICK])

    assert seen == [("price", "odd", 12, ("class",), False), ("__system", "__tick", 0, (), True)]


def test_a_reported_error_is_noted_and_fails_nothing() -> None:
    run = run_bolt(Calls(lambda tup, collector: collector.report_error(KeyError("gone"))), [tuple_of(value=1)])

    assert run.acked == [0]
    assert str(run.errors[0].exception) == "'gone'"
    assert run.errors[0].input == 0


def test_settings_reach_the_context_and_wrong_ones_are_refused() -> None:
    class Looks(Split):
        component_settings = {"tick_interval": "1s"}

        def prepare(self, context: TaskContext) -> None:
            super().prepare(context)
            self.context = context

    bolt = Looks()
    run_bolt(bolt, [], task_index=1, parallelism=3, message_timeout="9s")

    assert bolt.context.config.tick_interval_s == 1.0
    assert bolt.context.config.message_timeout_s == 9.0
    assert (bolt.context.task_index, bolt.context.parallelism) == (1, 3)
    with pytest.raises(ConfigError, match="mesage_timeout"):
        run_bolt(Split(), [], mesage_timeout="9s")


def test_with_on_error_crash_what_execute_raises_reaches_the_test() -> None:
    with pytest.raises(ValueError, match="an empty line"):
        run_bolt(Split(), [tuple_of(line="")], on_error="crash")


def test_what_prepare_raises_reaches_the_test() -> None:
    class Broken(Split):
        def prepare(self, context: TaskContext) -> None:
            raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        run_bolt(Broken(), [])


@pytest.mark.parametrize(
    ("item", "fields", "message"),
    [
        ("a b", ("line",), r"'a b' is no tuple; give \('a b',\)"),
        (("a b",), None, "has no field names"),
        (("a", "b"), ("line",), "has 2 values for the 1 fields"),
    ],
)
def test_an_input_that_cannot_be_one_is_refused_with_the_fix(item: Any, fields: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_bolt(Split(), [item], fields=fields)


def test_an_input_that_nobody_could_emit_is_refused() -> None:
    with pytest.raises(UnsupportedValueError, match="component 'source'"):
        run_bolt(Split(), [tuple_of(line=object())])


COUNTS = WindowBolt(key="word", window=windows.CountWindows.of(2), aggregate=aggregates.Count())


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda: run_bolt(Split, []), r"got Split: give an instance, Split\(...\)"),  # type: ignore[arg-type]
        (lambda: run_bolt(COUNTS, []), "got WindowBolt: a bolt with windows, timers or calls runs in an OperatorHarness"),  # type: ignore[arg-type]
        (lambda: OperatorHarness(Split(), ("line",)), "a Split runs without an operator; test it with run_bolt"),  # type: ignore[arg-type]
        (lambda: OperatorHarness(WindowBolt, ("line",)), "the class WindowBolt was given; give an instance"),
    ],
)
def test_a_bolt_of_another_kind_is_refused_with_what_runs_it(run: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run()


def test_an_error_without_a_line_of_the_bolt_shows_none() -> None:
    class Short(BasicBolt):
        def execute(self, tup: Tuple) -> None:  # type: ignore[override]
            raise AssertionError

    run = run_bolt(Short(), [{"word": "a"}])
    with pytest.raises(AssertionError, match=r"input 0: TypeError: .* takes 2 positional arguments but 3 were given$"):
        run.assert_all_acked()
