"""Mistakes with timestamps and watermarks, and what topo answers."""

from __future__ import annotations

from typing import Any

import pytest

from topo import (
    IterableSpout,
    ProcessBolt,
    RetryingSpout,
    Spout,
    Topology,
    TopologyBuilder,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.testing import TopologyTest


def count_by_second(spout: Spout, watermarks: WatermarkStrategy | None = None, **settings: Any) -> Topology:
    builder = TopologyBuilder("counts").config(**settings)
    builder.set_spout("source", spout, watermarks=watermarks)
    bolt = WindowBolt(key=None, window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
    builder.set_bolt("counts", bolt).global_grouping("source")
    return builder.build()


class PromisesBeforeItReads(RetryingSpout):
    """Says the watermark of a row, or the end, and then fails to read the row, each time once."""

    outputs = ("at",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.at, self.has_failed = collector, 0, False

    def next_tuple(self) -> None:
        self.collector.emit((self.at,), message_id=self.at, timestamp=self.at)
        self.collector.emit_watermark(self.at)
        if self.at == 2500:
            self.collector.end_of_input()
        if not self.has_failed:
            self.has_failed = True
            raise ConnectionError("the source is away for a moment")
        self.has_failed = False
        self.at += 500


def test_a_spout_that_says_a_watermark_and_then_raises_loses_no_row() -> None:
    """`emit_watermark` or `end_of_input` comes before something that raises: the rows come again and are not late."""
    test = TopologyTest(lambda: count_by_second(PromisesBeforeItReads()))
    test.run()
    assert test.emitted("counts") == [(0, 1000, 2), (1000, 2000, 2), (2000, 3000, 2)]
    test.assert_all_acked()


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_early_results_of_rows_without_timestamps_come_to_an_end(delivery: str) -> None:
    """A `ContinuousEventTimeTrigger` over rows without a timestamp fires a few times, not in each interval of all time."""
    builder = TopologyBuilder("early").config(delivery=delivery)
    builder.set_spout("source", IterableSpout([1, 2], fields=("n",)))
    trigger = windows.ContinuousEventTimeTrigger.of("1s")
    bolt = WindowBolt(key=None, window=windows.GlobalWindows(), trigger=trigger, process=Total(), outputs=("total",))
    builder.set_bolt("total", bolt).global_grouping("source")
    test = TopologyTest(builder.build())
    test.run()
    assert 1 <= len(test.emitted("total")) <= 2
    assert set(test.emitted("total")) == {(3,)}


class Total(windows.ProcessWindowFunction):
    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit((sum(row[0] for row in elements),))


def test_a_timer_that_arms_itself_for_ever_does_not_keep_the_run_from_ending() -> None:
    """A process function that registers the next event-time timer in each timer: at the end of the input that is an error."""

    class EverySecond(ProcessBolt):
        outputs = ("at",)

        def process(self, tup: Any, context: Any, collector: Any) -> None:
            context.register_event_time_timer(1000)

        def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
            context.register_event_time_timer(timestamp + 1000)

    builder = TopologyBuilder("timers")
    builder.set_spout("source", IterableSpout(["a"], fields=("key",)))
    builder.set_bolt("every", EverySecond(key="key")).fields_grouping("source", "key")
    test = TopologyTest(builder.build())
    test.run()
    (error,) = test.errors()
    assert "since the input ended" in error.message and "register none when current_watermark is" in error.message
    assert error.file.endswith("test_event_time.py")
