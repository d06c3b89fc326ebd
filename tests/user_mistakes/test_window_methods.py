"""Mistakes with the methods of window functions, triggers, evictors and aggregates."""

from __future__ import annotations

from typing import Any

import pytest

from topo import (
    IterableSpout,
    TopologyBuilder,
    WindowBolt,
    aggregates,
    windows,
)
from topo.errors import TopologyError, UserError
from topo.testing import OperatorHarness
from topo.user_errors import place_of


class FlinksOrder(windows.ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any, collector: Any) -> None:
        collector.emit((key, len(elements)))


class Yields(windows.ProcessWindowFunction):
    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> Any:
        yield (key, len(elements))


class ReturnsRow(windows.ProcessWindowFunction):
    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> Any:
        return (key, len(elements))


def window_bolt(function: Any) -> WindowBolt:
    window = windows.TumblingProcessingTimeWindows.of("1s")
    return WindowBolt(key="n", window=window, process=function, outputs=("n", "count"))


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (FlinksOrder(), "but it is called as process(key, elements, context, collector)"),
        (Yields(), "Yields.process is a generator, which nothing would run; call collector.emit(...) instead of yield"),
    ],
)
def test_a_window_function_that_cannot_be_called_is_refused(function: Any, problem: str) -> None:
    """The user writes a window function in Flink's order of arguments, or yields its rows: nothing would come out."""
    builder = TopologyBuilder("methods")
    builder.set_spout("numbers", IterableSpout([1, 2, 3], fields=("n",)))
    builder.set_bolt("mine", window_bolt(function)).fields_grouping("numbers", "n")
    with pytest.raises(TopologyError) as caught:
        builder.build()
    (found,) = caught.value.problems
    assert problem in found and __file__ in found


class FlinksTrigger(windows.Trigger):
    def on_element(self, element: Any, window: Any, context: Any) -> Any:  # type: ignore[override]
        return windows.TriggerResult.FIRE

    def on_event_time(self, time: int, window: Any, context: Any) -> Any:
        return windows.TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, context: Any) -> Any:
        return windows.TriggerResult.FIRE

    def clear(self, window: Any, context: Any) -> None:
        pass


class FlinksEvictor(windows.Evictor):
    def evict_before(self, elements: Any, size: int, window: Any, context: Any, more: Any) -> None:  # type: ignore[override]
        pass


class YieldingResult(aggregates.Count):
    def get_result(self, accumulator: int) -> Any:
        yield accumulator


class FlinksAdd(aggregates.Count):
    def add(self, value: Any, accumulator: int, key: Any) -> int:  # type: ignore[override]
        return accumulator + 1


class AwaitingReduce(windows.ReduceFunction):
    async def reduce(self, first: Any, second: Any) -> Any:
        return first


class NoAccumulator(aggregates.Collect):
    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value)

    def get_result(self, accumulator: Any) -> Any:
        raise NotImplementedError


class NoMerge(aggregates.Collect):
    def merge(self, first: Any, second: Any) -> Any:
        if second:
            first.extend(second)
            return


def no_reduction(first: Any, second: Any) -> Any:
    max(first, second)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"aggregate": NoAccumulator()}, "NoAccumulator.add returns nothing; return the accumulator"),
        ({"aggregate": aggregates.Together(a=NoAccumulator())}, "NoAccumulator.add returns nothing"),
        ({"aggregate": NoMerge()}, "NoMerge.merge returns nothing; return the accumulator"),
        ({"reduce": no_reduction}, "no_reduction returns nothing; return the combination of both"),
        ({"trigger": FlinksTrigger()}, "but it is called as on_element(value, timestamp, window, context)"),
        ({"trigger": windows.PurgingTrigger.of(FlinksTrigger())}, "FlinksTrigger.on_element is defined as"),
        ({"evictor": FlinksEvictor()}, "but it is called as evict_before(elements, window, watermark, clock)"),
        ({"aggregate": YieldingResult()}, "YieldingResult.get_result is a generator, which nothing would run; return its result"),
        (
            {"aggregate": aggregates.Together(total=YieldingResult(), all=aggregates.Count())},
            "YieldingResult.get_result is a generator",
        ),
        ({"aggregate": FlinksAdd()}, "but it is called as add(value, accumulator)"),
        ({"reduce": AwaitingReduce()}, "AwaitingReduce.reduce is async def, and nothing would await it"),
    ],
)
def test_a_part_of_a_window_that_cannot_be_called_is_refused(more: Any, problem: str) -> None:
    """The user writes a trigger, an evictor or an aggregate with another engine's signature, or yields its result."""
    bolt = WindowBolt(key="n", window=windows.TumblingProcessingTimeWindows.of("1s"), **{"aggregate": aggregates.Count(), **more})
    if "reduce" in more:
        bolt.aggregate = None
    builder = TopologyBuilder("methods")
    builder.set_spout("numbers", IterableSpout([1, 2, 3], fields=("n",)))
    builder.set_bolt("mine", bolt).fields_grouping("numbers", "n")
    with pytest.raises(TopologyError) as caught:
        builder.build()
    (found,) = caught.value.problems
    assert problem in found and __file__ in found


class NoResult(windows.Trigger):
    def on_element(self, value: Any, timestamp: int, window: Any, context: Any) -> Any:
        context.register_processing_time_timer(window.max_timestamp)

    def on_event_time(self, time: int, window: Any, context: Any) -> Any:
        pass

    on_processing_time = on_event_time

    def clear(self, window: Any, context: Any) -> None:
        pass


class NewList(windows.Evictor):
    def evict_before(self, elements: Any, window: Any, watermark: int, clock: int) -> Any:
        return elements[-1:]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"process": ReturnsRow()}, r"process returned \(1, 1\) \(tuple\), which is not used; use collector.emit"),
        ({"trigger": NoResult()}, r"on_element returned None \(NoneType\).*; return a TriggerResult"),
        ({"evictor": NewList()}, r"evict_before returned \[.*\] \(list\), which is not used; change the list in place"),
    ],
)
def test_a_wrong_result_of_a_part_of_a_window_is_an_error_at_its_line(more: Any, problem: str) -> None:
    """The user returns a row or a list that nothing takes, or forgets to return the trigger's answer."""
    aggregate = {} if "process" in more else {"aggregate": aggregates.Count()}
    window = windows.TumblingProcessingTimeWindows.of("1s")
    bolt = WindowBolt(key="n", window=window, outputs=("n", "a", "b", "count"), **aggregate, **more)
    harness = OperatorHarness(bolt, fields=("n",))
    with pytest.raises(UserError, match=problem) as caught:
        harness.process((1,))
        harness.advance_clock("2s")
    file, line = place_of(caught.value)
    assert file == __file__ and line > 0
