"""Whole topologies with windows and timers in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import (
    BasicBolt,
    ProcessBolt,
    RetryingSpout,
    Topology,
    TopologyBuilder,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.testing import ADVANCE, CRASH, END, TopologyTest

CLICKS: list[Any] = [("ann", 1000), ("bob", 4000), ("ann", 2000), ("ann", 12_000), ("bob", 3000), ("ann", 30_000)]


class Clicks(RetryingSpout):
    outputs = ("user", "at")

    def open(self, context: Any, collector: Any) -> None:
        pass

    def next_tuple(self) -> None:
        pass


class Seen(ProcessBolt):
    outputs = ("user", "count")

    def __init__(self) -> None:
        super().__init__(key="user")

    def open(self, context: Any) -> None:
        self.count = context.state.value("count")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        self.count.set((self.count.get() or 0) + 1)
        context.register_event_time_timer(100_000)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((context.key, self.count.get()))


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def topology(bolt: Callable[[], Any], tasks: int = 2) -> Callable[[], Topology]:
    def build() -> Topology:
        builder = TopologyBuilder("clicks")
        strategy = WatermarkStrategy.bounded_out_of_orderness("10s", timestamp="at")
        builder.set_spout("clicks", Clicks(), watermarks=strategy)
        builder.set_bolt("bolt", bolt(), tasks).fields_grouping("clicks", "user")
        builder.set_bolt("sink", Sink()).shuffle_grouping("bolt")
        return builder.build()

    return build


def counts() -> WindowBolt:
    return WindowBolt(key="user", window=windows.TumblingEventTimeWindows.of("10s"), aggregate=aggregates.Count())


COUNTED = [("ann", 0, 10_000, 2), ("ann", 10_000, 20_000, 1), ("ann", 30_000, 40_000, 1), ("bob", 0, 10_000, 2)]


@pytest.mark.parametrize("seed", range(4))
def test_windows_count_what_is_in_them(seed: int) -> None:
    test = TopologyTest(topology(counts), sources={"clicks": [*CLICKS, END]}, seed=seed)
    test.run()
    test.assert_all_acked()
    assert sorted(test.emitted("bolt")) == COUNTED


@pytest.mark.parametrize("seed", range(4))
def test_a_window_that_was_open_when_its_worker_died_is_filled_again(seed: int) -> None:
    script = [*CLICKS[:5], ADVANCE("2s"), CRASH("bolt"), ADVANCE("2s"), *CLICKS[5:], END]
    test = TopologyTest(topology(counts), sources={"clicks": script}, seed=seed)
    test.run()
    test.assert_all_acked()
    assert set(COUNTED) <= set(test.emitted("bolt"))


def test_timers_fire_at_the_end_of_the_input() -> None:
    test = TopologyTest(topology(Seen), sources={"clicks": [*CLICKS, END]})
    test.run()
    test.assert_all_acked()
    assert sorted(test.emitted("bolt")) == [("ann", 4), ("bob", 2)]
