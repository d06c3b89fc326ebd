"""Building a topology refuses mistakes in window, process and async bolts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.plan.parts import Lines
from topo import aggregates
from topo.api.evictors import DeltaEvictor
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, ProcessBolt, WindowBolt
from topo.api.spout import Spout
from topo.api.triggers import CountTrigger, DeltaTrigger
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import (
    CountWindows,
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessWindowFunction,
    ReduceFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.builder import BoltDeclarer, TopologyBuilder
from topo.errors import TopologyError, UserError
from topo.plan.parallelism import with_overrides
from topo.plan.physical import physical_plan
from topo.plan.validation import problems_of


class Events(Spout):
    outputs: Any = ("user", "country", "value")

    def next_tuple(self) -> None:
        """Nothing."""


class Others(Events):
    outputs: Any = ("user", "amount")


class Keep(ProcessBolt):
    outputs = ("user",)

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        """Nothing."""


class Ask(AsyncBolt):
    outputs = ("user",)

    async def call(self, tup: Any) -> Any:
        return None


class Give(ProcessWindowFunction):
    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        """Nothing."""


TEN_SECONDS = TumblingEventTimeWindows.of("10s")
EMITTED = WatermarkStrategy.emitted()


def sums(**more: Any) -> WindowBolt:
    return WindowBolt(**{"key": "user", "window": TEN_SECONDS, "aggregate": aggregates.Sum("value"), **more})


def builder(bolt: Any, by: Any = ("user",), parallelism: int = 1, spout: Spout | None = None, **settings: Any) -> TopologyBuilder:
    made = TopologyBuilder("t").config(delivery="at_least_once")
    made.set_spout("events", spout or Events(), watermarks=EMITTED)
    declarer: BoltDeclarer = made.set_bolt("b", bolt, parallelism=parallelism, **settings)
    if by is None:
        declarer.global_grouping("events")
    else:
        declarer.fields_grouping("events", *by)
    return made


def problems(made: TopologyBuilder) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        made.build()
    return list(caught.value.problems)


@pytest.mark.parametrize(
    "bolt",
    [
        sums(),
        sums(key=("user",)),
        Keep("user"),
        sums(late_stream="late", allowed_lateness="5s"),
        sums(aggregate=None, reduce=lambda a, b: a),
        sums(aggregate=None, process=Give(), outputs=("n",)),
        sums(window=CountWindows.of(3)),
        sums(window=EventTimeSessionWindows.with_gap("10s"), trigger=CountTrigger(5)),
    ],
)
def test_a_good_bolt_is_built(bolt: OperatorBolt) -> None:
    assert builder(bolt, parallelism=3).build().component("b").component is bolt


@pytest.mark.parametrize("bolt", [sums(), Keep("user")])
def test_a_key_that_is_not_the_groupings_is_refused_and_both_are_named(bolt: OperatorBolt) -> None:
    (problem,) = problems(builder(bolt, by=("country",)))
    assert problem.rpartition(" (")[0] == (
        "bolt 'b': its key is 'user', but the tuples of 'events' come by fields 'country'; "
        "use fields_grouping('events', 'user'), or change the key"
    )


def test_the_order_of_the_key_is_that_of_the_grouping() -> None:
    (problem,) = problems(builder(sums(key=("user", "country")), by=("country", "user")))
    assert "its key is 'user', 'country'" in problem and "by fields 'country', 'user'" in problem


def test_a_keyed_bolt_needs_a_fields_grouping() -> None:
    (problem,) = problems(builder(sums(), by=None))
    assert "come by global grouping; use fields_grouping('events', 'user')" in problem


def test_windows_over_everything_are_one_task() -> None:
    assert builder(sums(key=None), by=None).build()
    (problem,) = problems(builder(sums(key=None), by=None, parallelism=2))
    assert "key=None takes everything in one task, but its parallelism is 2; set it to 1" in problem


def test_a_key_field_that_does_not_exist_is_refused_once() -> None:
    (problem,) = problems(builder(sums(key="usr"), by=("usr",)))
    assert "the fields grouping names 'usr', which stream 'default' of 'events' does not have; did you mean 'user'?" in problem


def test_a_field_to_aggregate_that_does_not_exist_is_refused() -> None:
    (problem,) = problems(builder(sums(aggregate=aggregates.Sum("vale"))))
    assert problem.startswith("bolt 'b': ") and "'vale'" in problem
    (problem,) = problems(builder(sums(aggregate=aggregates.Sum(3))))
    assert "Sum of position 3: the input has the fields user, country, value" in problem
    assert builder(sums(aggregate=aggregates.Sum(-1))).build()


def test_a_window_bolt_is_given_as_an_instance() -> None:
    made = builder(WindowBolt, kwargs={"key": "user", "window": TEN_SECONDS})
    assert any("the class WindowBolt was given; give an instance" in problem for problem in problems(made))


def test_inputs_of_a_window_bolt_have_the_same_fields() -> None:
    made = TopologyBuilder("t")
    made.set_spout("events", Events(), watermarks=EMITTED)
    made.set_spout("others", Others(), watermarks=EMITTED)
    made.set_bolt("b", sums()).fields_grouping("events", "user").fields_grouping("others", "user")
    (problem,) = problems(made)
    assert "different fields: 'events' with 'user', 'country', 'value' and 'others' with 'user', 'amount'" in problem


def test_one_bolt_under_two_names_has_one_late_stream() -> None:
    def made(first: WindowBolt, second: WindowBolt) -> TopologyBuilder:
        made = TopologyBuilder("t")
        for name, spout, bolt in (("events", Events(), first), ("others", Others(), second)):
            made.set_spout(name, spout, watermarks=EMITTED)
            made.set_bolt(f"of-{name}", bolt).fields_grouping(name, "user")
        return made

    bolts = [sums(aggregate=aggregates.Count(), late_stream="late") for _ in range(2)]
    made(*bolts).build()
    (problem,) = problems(made(bolts[0], bolts[0]))
    assert "bolt 'of-events': its late stream has the fields 'user', 'amount' of another input" in problem


@pytest.mark.parametrize(
    ("bolt", "expected"),
    [
        (
            sums(window=EventTimeSessionWindows.with_gap("10s"), trigger=DeltaTrigger(1.0, lambda a, b: 0.0)),
            "cannot merge windows, which session windows need",
        ),
        (sums(reduce=lambda a, b: a), "windows take reduce= or aggregate=, not both"),
        (sums(aggregate=None), "windows need one of reduce=, aggregate= and process="),
        (sums(window=CountWindows.of(3), trigger=CountTrigger(2)), "count windows have a trigger and an evictor of their own"),
        (sums(allowed_lateness="-1s"), "allowed lateness is zero or more"),
        (sums(aggregate=aggregates.Count), "aggregate= takes an instance; got <class 'topo.api.aggregates.Count'>: give Count()"),
        (sums(aggregate=None, process=Give, outputs=("n",)), "process= takes an instance; got <class "),
        (
            sums(aggregate=None, process=lambda key, rows, context, out: None, outputs=("n",)),
            "give one of a ProcessWindowFunction",
        ),
        (sums(aggregate=max), "got <built-in function max>: give one of an AggregateFunction"),
        (sums(aggregate="sum"), "aggregate= takes an instance; got 'sum': give one of an AggregateFunction"),
        (sums(aggregate=None, reduce="max"), "reduce= takes an instance; got 'max': give a function of two elements"),
        (sums(aggregate=None, reduce=ReduceFunction), "ReduceFunction'>: give ReduceFunction()"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(bolt: WindowBolt, expected: str) -> None:
    (problem,) = problems(builder(bolt))
    assert problem.startswith("bolt 'b': ") and expected in problem


def test_parts_that_no_element_could_use_are_refused_when_they_are_declared() -> None:
    wrong: Any = 5
    with pytest.raises(UserError, match="a delta trigger needs a function of two elements; got 5"):
        DeltaTrigger(1.0, wrong)
    with pytest.raises(UserError, match="a delta evictor needs a function of two elements; got 5"):
        DeltaEvictor(1.0, wrong)
    with pytest.raises(UserError, match=r"a dynamic gap is a function of the element; got '5s': write with_gap\('5s'\)"):
        EventTimeSessionWindows.with_dynamic_gap("5s")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"Together takes instances; got <class .*Count'>: give Count\(\)"):
        aggregates.Together(count=aggregates.Count)  # type: ignore[arg-type]


def test_one_name_of_a_result_may_be_text() -> None:
    assert sums(result_fields="total").outputs == ("user", "window_start", "window_end", "total")


BOTH = aggregates.Together(sum=aggregates.Sum("value"), count=aggregates.Count())


@pytest.mark.parametrize(
    ("more", "emitted", "declared"),
    [
        ({"outputs": ("user", "sum")}, "4 values ('user', start, end, 1 of the result)", "2 fields, 'user', 'sum'"),
        ({"outputs": {"default": ("sum",)}, "late_stream": "late"}, "4 values", "1 fields, 'sum'"),
        ({"aggregate": aggregates.Count(), "result_fields": ("n", "m")}, "4 values", "5 fields, "),
        ({"aggregate": BOTH, "result_fields": ("n", "m", "o")}, "5 values ('user', start, end, 2 of the result)", "6 fields, "),
        ({"aggregate": None, "reduce": max, "outputs": ("user", "from", "to", "value", "n")}, "4 values", "5 fields, "),
    ],
)  # fmt: skip
def test_outputs_that_no_result_has_are_refused(more: dict[str, Any], emitted: str, declared: str) -> None:
    (problem,) = problems(builder(sums(**more)))
    assert f"it emits {emitted}" in problem and f"and its outputs are {declared}" in problem and "result_fields=" in problem


@pytest.mark.parametrize(
    "more",
    [
        {"outputs": ("user", "from", "to", "total")},
        {"aggregate": BOTH, "result_fields": "both"},
        {"aggregate": BOTH, "outputs": ("user", "from", "to", "total", "n")},
        {"aggregate": aggregates.Max("value"), "result_fields": ("first", "second")},
        {"aggregate": None, "reduce": max, "result_fields": ("one", "value")},
        {"process": Give(), "outputs": ("n",)},
    ],
)
def test_outputs_that_results_may_have_are_taken(more: dict[str, Any]) -> None:
    builder(sums(**more)).build()


@pytest.mark.parametrize(
    ("window", "held"),
    [
        (TumblingEventTimeWindows.of("1h"), "1h"),
        (TumblingProcessingTimeWindows.of("31s"), "31s"),
        (SlidingEventTimeWindows.of("1m", "10s"), "1m"),
        (EventTimeSessionWindows.with_gap("45s"), "45s"),
        (EventTimeSessionWindows.with_gap("30s"), "30s"),
    ],
)
def test_windows_that_message_timeout_cannot_cover_are_refused_with_the_remedy(window: Any, held: str) -> None:
    (problem,) = problems(builder(sums(window=window)))
    assert f"hold their inputs for {held}, but message_timeout of 'events' is 30s" in problem
    assert f"set message_timeout to more than {held}" in problem and "max_wait=" in problem


def test_lateness_counts_for_event_time_alone() -> None:
    (problem,) = problems(builder(sums(allowed_lateness="25s")))
    assert "for 35s" in problem
    assert builder(sums(window=TumblingProcessingTimeWindows.of("10s"), allowed_lateness="25s")).build()


def test_the_least_message_timeout_of_the_spouts_above_decides() -> None:
    made = TopologyBuilder("t").config(message_timeout="10m", delivery="at_least_once")
    made.set_spout("events", Events(), watermarks=EMITTED)
    made.set_spout("quick", Events(), message_timeout="5s", watermarks=EMITTED)
    made.set_spout("elsewhere", Events(), message_timeout="1s", watermarks=EMITTED)
    made.set_bolt("pass", Keep("user")).fields_grouping("quick", "user")
    made.set_bolt("b", sums()).fields_grouping("events", "user")
    made.build()
    made.set_bolt("c", WindowBolt(key="user", window=TEN_SECONDS, aggregate=aggregates.Count())).fields_grouping("pass", "user")
    (problem,) = problems(made)
    assert "bolt 'c'" in problem and "message_timeout of 'quick' is 5s" in problem


@pytest.mark.parametrize(
    "settings", [{"message_timeout": "2h"}, {"message_timeout": None, "max_spout_pending": None}, {"delivery": "at_most_once"}]
)
def test_long_windows_are_built_where_the_settings_cover_them(settings: dict[str, Any]) -> None:
    made = builder(sums(window=TumblingEventTimeWindows.of("1h")))
    assert made.config(**settings).build()


def test_long_windows_of_history_say_how_long_they_take_in_fact() -> None:
    assert builder(sums(window=TumblingEventTimeWindows.of("1h"), max_wait="10s")).build()
    (problem,) = problems(builder(sums(max_wait="31s")))
    assert "for 31s" in problem


def test_settings_from_outside_are_checked_with_the_windows() -> None:
    topology = builder(sums()).build()
    assert problems_of(topology) == []
    (problem,) = problems_of(with_overrides(topology, {"message_timeout": "5s"}, {}))
    assert "message_timeout of 'events' is 5s" in problem


@pytest.mark.parametrize("window", [GlobalWindows.at_end_of_stream(), CountWindows.of(5)])
def test_windows_without_a_length_are_built(window: Any) -> None:
    assert builder(sums(window=window)).build()


@pytest.mark.parametrize("bolt", [Keep("user"), Ask()])
def test_ticks_are_refused_where_there_are_timers(bolt: OperatorBolt) -> None:
    (problem,) = problems(builder(bolt, tick_interval="1s"))
    assert "tick_interval is set, but a" in problem and "use timers" in problem


def test_an_async_bolt_takes_any_grouping() -> None:
    made = TopologyBuilder("t")
    made.set_spout("lines", Lines())
    made.set_bolt("b", Ask(), parallelism=2).shuffle_grouping("lines")
    assert made.build()


def test_with_checkpoints_windows_may_be_longer_than_any_message_timeout() -> None:
    assert builder(sums(window=TumblingEventTimeWindows.of("1h"))).config(delivery="exactly_once").build()


@pytest.mark.parametrize(("bolt", "mode"), [(sums(), "exactly_once"), (Keep("user"), "exactly_once"), (Ask(), "at_least_once")])
def test_the_mode_is_exactly_once_where_the_engine_keeps_state(bolt: OperatorBolt, mode: str) -> None:
    by = None if isinstance(bolt, AsyncBolt) else ("user",)
    assert physical_plan(builder(bolt, by=by).config(delivery="auto").build()).config.delivery == mode
