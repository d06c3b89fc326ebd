"""What Storm's windows have: rows with names and sources, new and expired ones, windows per task, mixed counts and times."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, Topology, TopologyBuilder, WindowBolt
from topo.api.windows import (
    CountWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.testing import ADVANCE, CRASH, END, OperatorHarness, TopologyTest

MODES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])


class Call(ProcessWindowFunction):
    """Emits what a function makes of each firing."""

    def __init__(self, make: Any, keeps: str | None = None) -> None:
        self.make = make
        self.keeps_previous = keeps  # type: ignore[misc]

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit((self.make(key, elements, context),))


def windows(make: Any, window: Any, key: str | None = "user", keeps: str | None = None, **more: Any) -> WindowBolt:
    return WindowBolt(key=key, window=window, process=Call(make, keeps), outputs=("result",), **more)


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def results(harness: OperatorHarness) -> list[Any]:
    return [values[0] for values, _ in harness.outputs]


# Rows


def test_rows_have_the_names_of_their_fields() -> None:
    def make(key: Any, elements: Any, context: Any) -> Any:
        assert list(elements) == [row.values for row in context.rows]
        return [(row["item"], row.component, row.stream) for row in context.rows]

    with OperatorHarness(windows(make, CountWindows.of(2)), ("user", "item")) as harness:
        harness.process(("u", "tea"))
        harness.process(("u", "salt"))
        assert results(harness) == [(("tea", "source", "default"), ("salt", "source", "default"))]


def test_rows_of_an_aggregate_are_an_error_that_says_so() -> None:
    from topo import aggregates

    bolt = windows(lambda key, elements, context: context.rows, CountWindows.of(1), aggregate=aggregates.Count())
    with OperatorHarness(bolt, ("user",)) as harness, pytest.raises(Exception, match="keep no rows"):
        harness.process(("u",))


def joined(delivery: str, **more: Any) -> Topology:
    """Orders and payments, which have different fields, in one window for each order."""

    def make(key: Any, elements: Any, context: Any) -> Any:
        found = {row.component: row for row in context.rows}
        return key, found["orders"]["item"], found["payments"]["cents"], sorted(map(len, elements))

    builder = TopologyBuilder("joined").config(delivery=delivery, message_timeout="1m")
    builder.set_spout("orders", IterableSpout([(0, "")], fields=("order", "item")))
    builder.set_spout("payments", IterableSpout([(0, 0, 0)], fields=("cents", "order", "at")))
    bolt = windows(make, CountWindows.of(2), "order", **{"sources": True, **more})
    builder.set_bolt("join", bolt, 2).fields_grouping("orders", "order").fields_grouping("payments", "order")
    builder.set_bolt("sink", Sink()).shuffle_grouping("join")
    return builder.build()


@MODES
def test_streams_of_different_fields_meet_in_a_window(delivery: str) -> None:
    sources = {
        "orders": [(1, "tea"), (2, "salt"), ADVANCE("1s"), CRASH("join"), (3, "oil"), END],
        "payments": [(450, 2, 7), ADVANCE("2s"), (90, 1, 8), (700, 3, 9), END],
    }
    test = TopologyTest(lambda: joined(delivery), sources=sources)
    test.run()
    test.assert_all_acked()
    assert set(test.emitted("join")) == {
        ((1, "tea", 90, (2, 3)),),
        ((2, "salt", 450, (2, 3)),),
        ((3, "oil", 700, (2, 3)),),
    }


# New and expired


def test_a_sliding_window_knows_what_is_new_and_what_has_left_since_the_last_firing() -> None:
    def make(key: Any, elements: Any, context: Any) -> Any:
        return [row["n"] for row in context.new], [row["n"] for row in context.expired]

    bolt = windows(make, SlidingEventTimeWindows.of("20ms", "10ms"), keeps="1h")
    with OperatorHarness(bolt, ("user", "n")) as harness:
        for n, at in ((1, 1), (2, 2), (3, 12), (3, 13), (4, 25)):
            harness.process(("u", n), at)
        harness.end_of_input()
        assert results(harness) == [((1, 2), ()), ((3, 3), ()), ((4,), (1, 2)), ((), (3, 3))]


def test_new_and_expired_survive_a_snapshot() -> None:
    def make(key: Any, elements: Any, context: Any) -> Any:
        return [row["n"] for row in context.new], [row["n"] for row in context.expired]

    bolt = windows(make, CountWindows.of(3, 1), keeps="1h")
    with OperatorHarness(bolt, ("user", "n")) as harness:
        for n in range(3):
            harness.process(("u", n))
        again = harness.restore(harness.snapshot())
        again.process(("u", 3))
        assert results(again) == [((3,), (0,))]
        again.process(("other", 9))
        assert results(again)[-1] == ((9,), ())


def test_without_keeps_previous_new_is_an_error_that_names_it() -> None:
    with (
        OperatorHarness(windows(lambda key, elements, context: context.new, CountWindows.of(1)), ("user",)) as harness,
        pytest.raises(Exception, match="set keeps_previous in the class"),
    ):
        harness.process(("u",))


# Counts and times


def test_the_last_elements_are_looked_at_as_often_as_the_clock_says() -> None:
    bolt = windows(lambda key, elements, context: [n for _, n in elements], CountWindows.of(2, "10s"))
    with OperatorHarness(bolt, ("user", "n")) as harness:
        for n in range(4):
            harness.process(("u", n))
        assert results(harness) == []
        harness.advance_clock(10_001)
        assert results(harness) == [(2, 3)]
        harness.process(("u", 4))
        harness.advance_clock("10s")
        assert results(harness) == [(2, 3), (3, 4)]


@pytest.mark.parametrize("has_timestamps", [True, False])
def test_each_few_elements_those_of_the_last_time_are_looked_at(has_timestamps: bool) -> None:
    bolt = windows(lambda key, elements, context: [n for _, n in elements], CountWindows.every(2, over="10s"))
    with OperatorHarness(bolt, ("user", "n")) as harness:
        for n, at in ((0, 1_000), (1, 5_000), (2, 9_000), (3, 12_000), (4, 40_000), (5, 41_000)):
            harness.set_clock(at)
            harness.process(("u", n), at if has_timestamps else None)
        assert results(harness) == [(0, 1), (1, 2, 3), (4, 5)]


def test_a_time_of_zero_is_refused() -> None:
    for make in (lambda: CountWindows.of(2, "0s"), lambda: CountWindows.every(2, "0s"), lambda: CountWindows.every(0, "1s")):
        with pytest.raises(Exception, match="above zero"):
            make()


# Windows per task


def per_task(delivery: str) -> Topology:
    def make(key: Any, elements: Any, context: Any) -> Any:
        assert key is None
        return [n for (n,) in elements]

    builder = TopologyBuilder("tasks").config(delivery=delivery, message_timeout="1m", checkpoint_interval="200ms")
    builder.set_spout("numbers", IterableSpout([0], fields=("n",)))
    bolt = windows(make, CountWindows.of(4), None, per_task=True)
    builder.set_bolt("windows", bolt, 3).shuffle_grouping("numbers")
    builder.set_bolt("sink", Sink()).shuffle_grouping("windows")
    return builder.build()


@MODES
@pytest.mark.parametrize("seed", range(3))
def test_each_task_has_windows_of_its_own(delivery: str, seed: int) -> None:
    crashes = [ADVANCE("1s"), *(CRASH("windows", index) for index in range(3)), ADVANCE("3s")]
    script = [*range(10), *crashes, *range(10, 37), END]
    test = TopologyTest(lambda: per_task(delivery), sources={"numbers": script}, seed=seed)
    test.run()
    test.assert_all_acked()
    found = [numbers for (numbers,) in test.emitted("windows")]
    assert {len(numbers) for numbers in found} == {4}
    in_windows = [n for numbers in found for n in numbers]
    if delivery == "exactly_once":
        assert len(set(in_windows)) == len(in_windows) >= 37 - 3 * 3


def test_each_task_has_time_windows_of_its_own() -> None:
    builder = TopologyBuilder("tasks").config(delivery="exactly_once")
    builder.set_spout("numbers", IterableSpout([0], fields=("n",)))
    bolt = windows(lambda key, elements, context: len(elements), TumblingProcessingTimeWindows.of("10s"), None, per_task=True)
    builder.set_bolt("windows", bolt, 2).shuffle_grouping("numbers")
    builder.set_bolt("sink", Sink()).shuffle_grouping("windows")
    test = TopologyTest(builder.build(), sources={"numbers": [*range(8), ADVANCE("11s"), END]})
    test.run()
    first, second = (count for (count,) in test.emitted("windows"))
    # Each burst of the spout is shared evenly.
    assert first + second == 8 and min(first, second) >= 3


# Refused declarations


@pytest.mark.parametrize(
    ("more", "stated"),
    [
        ({"sources": False}, "its inputs have different fields: .* or set sources=True and read context.rows by field"),
        ({"late_stream": "late"}, "sources=True is for process= alone"),
        ({"per_task": True}, r"per_task=True does not go with a key \('order'\)"),
    ],
)
def test_what_does_not_go_together_is_said(more: dict[str, Any], stated: str) -> None:
    with pytest.raises(Exception, match=stated):
        joined("exactly_once", **more)


def test_keeping_the_last_firing_of_an_aggregate_is_refused() -> None:
    from topo import aggregates

    bolt = windows(print, TumblingEventTimeWindows.of("1s"), keeps="1h", aggregate=aggregates.Count())
    with pytest.raises(Exception, match="sets keeps_previous, but reduce= or aggregate= keeps no rows"):
        OperatorHarness(bolt, ("user",))
