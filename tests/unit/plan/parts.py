"""Spouts, bolts and topologies that the tests of the plan share."""

from __future__ import annotations

from topo.api.bolt import BasicBolt, BasicCollector, Bolt
from topo.api.groupings import CustomGrouping
from topo.api.spout import Spout
from topo.api.streams import direct
from topo.api.topology import Topology
from topo.api.tuples import Tuple
from topo.builder import TopologyBuilder


class Lines(Spout):
    outputs = ("line",)

    def next_tuple(self) -> None:
        """Emit nothing."""


class Split(BasicBolt):
    outputs = {"default": ("word", "length"), "replies": direct("answer")}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in tup["line"].split():
            collector.emit((word, len(word)))


class Sink(Bolt):
    def execute(self, tup: Tuple) -> None:
        """Take it."""


class ByLength(CustomGrouping):
    def choose(self, values: tuple[object, ...]) -> list[int]:
        return [int(str(values[1])) % 2]


def word_count(**settings: object) -> TopologyBuilder:
    builder = TopologyBuilder("word-count").config(**settings)
    builder.set_spout("lines", Lines(), max_spout_pending=7)
    builder.set_bolt("split", Split(), 2).shuffle_grouping("lines")
    builder.set_bolt("count", Sink(), 3, tick_interval="1s").fields_grouping("split", "word")
    return builder


def diamond(**settings: object) -> Topology:
    builder = word_count(**settings)
    builder.set_bolt("audit", Sink, 2).all_grouping("lines").direct_grouping("split", "replies").custom_grouping(
        "split", ByLength()
    )
    return builder.build()
