"""Scripts whose sources emit watermarks and fall silent."""

from __future__ import annotations

from topo import IterableSpout, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.testing import IDLE, WATERMARK, TopologyTest, message


def topology() -> Topology:
    builder = TopologyBuilder("windows")
    for name in ("first", "second"):
        builder.set_spout(name, IterableSpout([]), watermarks=WatermarkStrategy.emitted())
    window = windows.TumblingEventTimeWindows.of("10ms")
    bolt = builder.set_bolt("count", WindowBolt(key=None, window=window, aggregate=aggregates.Count()))
    bolt.global_grouping("first").global_grouping("second")
    return builder.build()


def fired(*second: object) -> list[tuple[object, ...]]:
    test = TopologyTest(topology, sources={"first": [message(1, timestamp=3), WATERMARK(20)], "second": [*second]})
    test.run()
    assert test.errors() == []
    return test.emitted("count")


def test_a_window_waits_for_the_watermarks_of_all_sources() -> None:
    assert fired() == []
    assert fired(WATERMARK(5)) == []
    assert fired(WATERMARK(9)) == [(0, 10, 1)]


def test_a_window_does_not_wait_for_an_idle_source() -> None:
    assert fired(IDLE) == [(0, 10, 1)]
