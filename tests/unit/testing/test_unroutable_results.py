"""Results of windows whose values the grouping behind them cannot use."""

from __future__ import annotations

from typing import Any

from topo import BasicBolt, IterableSpout, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, windows
from topo.testing import TopologyTest


class Named(windows.ProcessWindowFunction):
    """Gives the first window a key that cannot be hashed."""

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        collector.emit(({"a": key} if context.window.start == 0 else key, len(elements)))


class Nothing(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def topology() -> Topology:
    builder = TopologyBuilder("named").config(delivery="at_least_once", attempts=1)
    rows = [("k", 1), ("k", 2), ("k", 20), ("k", 5_000)]
    builder.set_spout(
        "events", IterableSpout(rows, ("key", "at")), watermarks=WatermarkStrategy.monotonic_timestamps(timestamp="at")
    )
    window = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("10ms"), process=Named(), outputs=("key", "n"))
    builder.set_bolt("window", window).fields_grouping("events", "key")
    builder.set_bolt("counts", Nothing(), parallelism=2).fields_grouping("window", "key")
    return builder.build()


def test_the_inputs_of_a_window_fail_whose_only_result_cannot_be_routed() -> None:
    test = TopologyTest(topology)
    test.run()
    assert [lost.values for lost in test.dead_letters()] == [("k", 1), ("k", 2)]
    assert [lost for lost in test.dead_letters() if "EmitError" not in str(lost)] == []
