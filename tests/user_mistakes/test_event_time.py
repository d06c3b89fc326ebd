"""Mistakes with timestamps and watermarks, and what topo answers."""

from __future__ import annotations

from typing import Any

from topo import RetryingSpout, Spout, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows
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
