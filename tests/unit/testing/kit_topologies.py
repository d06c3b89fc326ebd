"""Topologies that several files about `TopologyTest` run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo import (
    BasicBolt,
    BasicCollector,
    Bolt,
    IterableSpout,
    Spout,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)


class Split(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in tup["line"].split():
            collector.emit((word,))


class Count(BasicBolt):
    outputs = {"default": ("word", "count"), "totals": ("total",)}

    def prepare(self, context: TaskContext) -> None:
        self.counts: dict[str, int] = {}
        self.is_closed = False

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.is_tick:
            collector.emit((sum(self.counts.values()),), stream="totals")
            return
        word = tup["word"]
        self.counts[word] = self.counts.get(word, 0) + 1
        collector.emit((word, self.counts[word]))

    def cleanup(self) -> None:
        self.is_closed = True


class Each(BasicBolt):
    """Calls a function with each input."""

    outputs = ("value",)

    def __init__(self, action: Callable[[Tuple, BasicCollector], object]) -> None:
        self.action = action

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.action(tup, collector)


class Forgets(Bolt):
    """Acks nothing."""

    def execute(self, tup: Tuple) -> None:
        pass


def word_count(splits: int = 2, counts: int = 2, **settings: Any) -> Topology:
    builder = TopologyBuilder("word-count").config(**settings)
    builder.set_spout("lines", IterableSpout(["real input"], fields=("line",)))
    builder.set_bolt("split", Split(), splits).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), counts, tick_interval="1s").fields_grouping("split", "word")
    return builder.build()


def one_bolt(bolt: BasicBolt | Bolt, spout: Spout | None = None, tasks: int = 1, **settings: Any) -> Topology:
    builder = TopologyBuilder("one-bolt").config(**settings)
    builder.set_spout("numbers", spout or IterableSpout(range(3)), tasks)
    builder.set_bolt("bolt", bolt).shuffle_grouping("numbers")
    return builder.build()
