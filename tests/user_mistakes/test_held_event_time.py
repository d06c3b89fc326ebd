"""What users expect of event time behind a bolt that holds inputs back, and the answer that they get."""

from __future__ import annotations

from typing import Any

from topo import Bolt, IterableSpout, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.testing import ADVANCE, END, TopologyTest


class Pairs(Bolt):
    """Holds an input back until the next one of its kind comes, and emits both."""

    outputs = ("kind", "at")

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.held: dict[str, Any] = {}

    def execute(self, tup: Any) -> None:
        if tup["kind"] not in self.held:
            self.held[tup["kind"]] = tup
            return
        for one in (self.held.pop(tup["kind"]), tup):
            self.collector.emit(one.values, one)
            self.collector.ack(one)


ROWS = [("a", 0), ("b", 1_000), ("b", 20_000), ("a", 21_000), ("c", 60_000), ("c", 61_000)]


def counted(behind: WatermarkStrategy | None) -> list[tuple[Any, ...]]:
    """Return the rows of each window of 10 s behind the bolt."""
    strategy = WatermarkStrategy.monotonic_timestamps(timestamp="at")
    paced = [given for row in ROWS for given in (row, ADVANCE("1s"))]
    test = TopologyTest(lambda: topology(strategy, behind), sources={"rows": [*paced, END]})
    test.run()
    return sorted(test.emitted("count"))


def topology(strategy: WatermarkStrategy, behind: WatermarkStrategy | None) -> Topology:
    builder = TopologyBuilder("pairs").config(delivery="at_least_once", watermark_interval="1ms", max_spout_pending=100)
    builder.set_spout("rows", IterableSpout(ROWS, fields=("kind", "at")), watermarks=strategy)
    builder.set_bolt("pairs", Pairs(), watermarks=behind).global_grouping("rows")
    window = windows.TumblingEventTimeWindows.of("10s")
    count = WindowBolt(key=None, window=window, aggregate=aggregates.Count(), late_stream="late")
    builder.set_bolt("count", count).global_grouping("pairs")
    return builder.build()


def test_watermarks_wait_for_the_rows_that_a_bolt_holds() -> None:
    """The user's bolt holds rows back: watermarks stay below them, with or without its own strategy."""
    whole = [(0, 10_000, 2), (20_000, 30_000, 2), (60_000, 70_000, 2)]
    assert counted(None) == whole
    assert counted(WatermarkStrategy.bounded_out_of_orderness("1m", timestamp="at")) == whole
