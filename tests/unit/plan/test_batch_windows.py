"""Which windows take batches whole, and which emit them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Scripted, Sink
from topo import ColumnBolt, ColumnSpout, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.api import evictors, triggers
from topo.builder import TopologyBuilder
from topo.plan.describe import as_text
from topo.plan.physical import PhysicalPlan, physical_plan


class Batches(ColumnSpout):
    outputs = ("key", "n")

    def next_batch(self) -> None:
        raise AssertionError("nothing runs")


class Pairs(Scripted):
    outputs = ("key", "n")


class BatchSink(ColumnBolt):
    def execute_batch(self, batch: Any, collector: Any) -> None:
        raise AssertionError("nothing runs")


class Own(aggregates.Sum):
    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator


class OwnColumns(Own):
    def add_columns(self, batch: Any, accumulator: Any) -> Any:
        return accumulator


TEN = windows.TumblingEventTimeWindows.of("10ms")


def bolt(**options: Any) -> WindowBolt:
    return WindowBolt(**({"key": "key", "window": TEN, "aggregate": aggregates.Sum("n")} | options))


def plan(window: Any, *sinks: Any, sources: Any = (Batches,), **options: Any) -> PhysicalPlan:
    builder = TopologyBuilder("t").config(delivery="exactly_once")
    reads = builder.set_bolt("w", window, **options)
    for number, source in enumerate(sources):
        builder.set_spout(f"s{number}", source(), watermarks=WatermarkStrategy.emitted())
        reads.fields_grouping(f"s{number}", "key")
    for number, sink in enumerate(sinks):
        builder.set_bolt(f"b{number}", sink()).shuffle_grouping("w")
    return physical_plan(builder.build())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": windows.SlidingEventTimeWindows.of("30ms", "10ms"), "aggregate": aggregates.Mean(1)},
        {"aggregate": aggregates.Together(n=aggregates.Count(), most=aggregates.Max("n")), "late_stream": "late"},
        {"aggregate": OwnColumns(1)},
        {"trigger": triggers.EventTimeTrigger()},
    ],
)
def test_windows_that_take_batches_whole(options: Any) -> None:
    assert plan(bolt(**options)).component("w").takes_columns
    assert not plan(bolt(**options), sources=(Pairs,)).component("w").takes_columns
    assert not plan(bolt(**options), sources=(Batches, Pairs)).component("w").takes_columns


@pytest.mark.parametrize(
    "options",
    [
        {"window": windows.TumblingProcessingTimeWindows.of("10ms")},
        {"window": windows.EventTimeSessionWindows.with_gap("10ms")},
        {"window": windows.CountWindows.of(3)},
        {"trigger": triggers.CountTrigger(3)},
        {"evictor": evictors.CountEvictor(3)},
        {"allowed_lateness": "1s"},
        {"aggregate": aggregates.Collect("n")},
        {"aggregate": aggregates.Sum(lambda row: row[1])},
        {"aggregate": Own(1)},
        {"aggregate": aggregates.Together(n=aggregates.Count(), own=Own(1))},
        {"aggregate": None, "reduce": max},
    ],
)
def test_windows_that_are_given_the_rows(options: Any) -> None:
    assert not plan(bolt(**options), BatchSink).component("w").takes_columns
    assert not plan(bolt(**options), BatchSink).is_columnar("w", "default")


def test_windows_emit_batches_where_all_that_reads_them_takes_batches() -> None:
    assert plan(bolt(), BatchSink).is_columnar("w", "default")
    assert plan(bolt(), BatchSink, lambda: bolt(key=None, aggregate=aggregates.Count())).is_columnar("w", "default")
    assert not plan(bolt()).is_columnar("w", "default")
    assert not plan(bolt(), BatchSink, Sink).is_columnar("w", "default")
    assert not plan(bolt(), BatchSink, sources=(Pairs,)).is_columnar("w", "default")
    strategy = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="window_end")
    assert not plan(bolt(), BatchSink, watermarks=strategy).is_columnar("w", "default")


def test_one_window_after_the_other_takes_batches_whole() -> None:
    builder = TopologyBuilder("t").config(delivery="exactly_once")
    builder.set_bolt("third", BatchSink()).shuffle_grouping("second")
    again = WindowBolt(key="window_end", window=TEN, aggregate=aggregates.Max("sum"), outputs=("end", "start", "until", "most"))
    builder.set_bolt("second", again).fields_grouping("first", "window_end")
    builder.set_bolt("first", bolt()).fields_grouping("s", "key")
    builder.set_spout("s", Batches(), watermarks=WatermarkStrategy.emitted())
    made = physical_plan(builder.build())
    assert [made.component(name).takes_columns for name in ("first", "second")] == [True, True]
    assert [made.is_columnar(name, "default") for name in ("first", "second")] == [True, True]


def test_a_bolt_that_is_built_again_has_the_output_of_the_last_topology() -> None:
    window = bolt()
    assert plan(window, BatchSink).is_columnar("w", "default")
    assert not plan(window, Sink).is_columnar("w", "default")


def test_a_partial_key_grouping_gets_rows() -> None:
    builder = TopologyBuilder("t").config(delivery="exactly_once")
    builder.set_spout("s", Batches(), watermarks=WatermarkStrategy.emitted())
    builder.set_bolt("w", bolt()).fields_grouping("s", "key")
    builder.set_bolt("b", BatchSink()).partial_key_grouping("w", "key")
    assert not physical_plan(builder.build()).is_columnar("w", "default")


def test_the_graph_says_so() -> None:
    text = as_text(plan(bolt(), BatchSink))
    assert "bolt w x1 (WindowBolt)" in text
    assert "    windows take whole batches\n    emits batches (key, window_start, window_end, sum)\n" in text
    assert "whole batches" not in as_text(plan(bolt(), sources=(Pairs,)))
