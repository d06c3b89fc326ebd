"""Window functions that change the elements they are given in place: other windows and firings see them as they arrived."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.testing import OperatorHarness, TopologyTest

SLIDING = windows.SlidingEventTimeWindows.of("4s", "1s")
SUMS = [1, 3, 6, 10, 9, 7, 4]
"""Of 1, 2, 3 and 4, a second apart."""


def add_up(first: Any, second: Any) -> Any:
    """Add to the first record, instead of making a new one."""
    first[1]["n"] += second[1]["n"]
    return first


class Total(aggregates.AggregateFunction):
    """Uses the first record as the accumulator."""

    fields = ("total",)

    def create_accumulator(self) -> Any:
        return {}

    def add(self, value: Any, accumulator: Any) -> Any:
        if not accumulator:
            return value[1]
        accumulator["n"] += value[1]["n"]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator["n"]


class Summed(windows.ProcessWindowFunction):
    """Adds up in the first record; shows what `rows`, `new` and `expired` are, too, where the last firing is kept."""

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        first = elements[0][1]
        for _, record in elements[1:]:
            first["n"] += record["n"]
        collector.emit((key, first["n"]))


class Differences(windows.ProcessWindowFunction):
    keeps_previous = "1h"

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        seen = []
        for records in (context.rows, context.new, context.expired):
            seen.append(tuple(row["record"]["n"] for row in records))
            for row in records:
                row["record"]["n"] = 0
        collector.emit((key, *seen))


def window(**options: Any) -> WindowBolt:
    return WindowBolt(key="key", **options)


def sums_of(harness: OperatorHarness, numbers: Any = (1, 2, 3, 4)) -> list[Any]:
    for n in numbers:
        harness.process(("k", {"n": n}), timestamp=n * 1000)
    harness.end_of_input()
    return [row[-1]["n"] if isinstance(row[-1], dict) else row[-1] for row in harness.values]


FUNCTIONS: list[dict[str, Any]] = [
    {"reduce": add_up, "result_fields": ("name", "record")},
    {"aggregate": Total()},
    {"aggregate": aggregates.Together(total=Total())},
    {"process": Summed(), "outputs": ("key", "sum")},
]
NAMES = ["reduce", "aggregate", "together", "process"]


@pytest.mark.parametrize("options", FUNCTIONS, ids=NAMES)
@pytest.mark.parametrize("evictor", [None, windows.CountEvictor(100)])
def test_a_function_that_changes_its_elements_changes_them_for_one_window_alone(options: Any, evictor: Any) -> None:
    """The user adds up in the first record of a sliding window, which is in the next window, too."""
    assert sums_of(OperatorHarness(window(window=SLIDING, evictor=evictor, **options), ("key", "record"))) == SUMS


def test_a_function_that_changes_its_elements_changes_them_for_one_firing_alone() -> None:
    """The user adds up in the first record of a window that fires at each of its elements."""
    bolt = window(window=windows.GlobalWindows(), trigger=windows.CountTrigger(1), process=Summed(), outputs=("key", "sum"))
    assert sums_of(OperatorHarness(bolt, ("key", "record"))) == [1, 3, 6, 10]


def test_a_function_that_changes_what_an_aggregate_gave_changes_no_accumulator() -> None:
    """The user changes the one record that `reduce` has made of the elements."""

    class Doubles(windows.ProcessWindowFunction):
        def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
            (element,) = elements
            element[1]["n"] *= 2
            collector.emit((key, element[1]["n"]))

    bolt = window(
        window=windows.GlobalWindows(), trigger=windows.CountTrigger(1), reduce=add_up, process=Doubles(), outputs=("key", "sum")
    )
    assert sums_of(OperatorHarness(bolt, ("key", "record"))) == [2, 6, 12, 20]


def test_changed_rows_do_not_show_in_the_next_firings_differences() -> None:
    """The user changes rows, new and expired ones, of a window that slides by number."""
    bolt = window(window=windows.CountWindows.of(2, 1), process=Differences(), outputs=("key", "rows", "new", "expired"))
    harness = OperatorHarness(bolt, ("key", "record"))
    for n in (1, 2, 3):
        harness.process(("k", {"n": n}))
    assert harness.values == [("k", (1,), (1,), ()), ("k", (1, 2), (2,), ()), ("k", (2, 3), (3,), (1,))]


@pytest.mark.parametrize("options", FUNCTIONS, ids=NAMES)
def test_elements_stay_apart_behind_a_restore(options: Any) -> None:
    """The user continues from a savepoint in the middle of the windows."""
    bolt = window(window=SLIDING, **options)
    harness = OperatorHarness(bolt, ("key", "record"))
    for n in (1, 2):
        harness.process(("k", {"n": n}), timestamp=n * 1000)
    again = OperatorHarness(bolt, ("key", "record"), restore=harness.snapshot())
    assert sums_of(again, (3, 4)) == SUMS


class RaisesAtFirst:
    """Calls a function, and raises behind the first call for each sum."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def __call__(self, first: Any, second: Any) -> Any:
        total = add_up(first, second)
        second[1]["n"] += 1000
        if total[1]["n"] not in self.seen:
            self.seen.add(total[1]["n"])
            raise ConnectionError("try again")
        return total


@pytest.mark.parametrize("size", [SLIDING, windows.TumblingEventTimeWindows.of("4s")], ids=["sliding", "tumbling"])
def test_a_reduce_that_is_repeated_gets_its_elements_as_they_arrived(size: Any) -> None:
    """The user's reduce raises when it has changed both records."""
    options: dict[str, Any] = {"result_fields": ("name", "record"), "reduce": RaisesAtFirst()}
    harness = OperatorHarness(window(window=size, **options), ("key", "record"), attempts=10)
    assert sums_of(harness) == (SUMS if size is SLIDING else [6, 4])


class Records(BasicBolt):
    outputs = ("key", "record")

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(("k", {"n": tup[0]}), timestamp=tup[0] * 1000)


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once", "exactly_once"])
@pytest.mark.parametrize("options", FUNCTIONS, ids=NAMES)
def test_the_elements_of_a_tasks_windows_stay_apart(options: Any, delivery: str) -> None:
    """The user adds up in the first record of a sliding window, in a topology."""
    builder = TopologyBuilder("records").config(delivery=delivery)
    builder.set_spout("numbers", IterableSpout([1, 2, 3, 4]))
    late = WatermarkStrategy.bounded_out_of_orderness("10s")
    builder.set_bolt("records", Records(), watermarks=late).shuffle_grouping("numbers")
    builder.set_bolt("sums", window(window=SLIDING, **options)).fields_grouping("records", "key")
    test = TopologyTest(builder.build())
    test.run()
    sums = [row[-1]["n"] if isinstance(row[-1], dict) else row[-1] for row in test.emitted("sums")]
    assert sums == SUMS
