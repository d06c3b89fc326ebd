"""Messages named by a counter that restarts in each process, with `exactly_once`."""

from __future__ import annotations

from typing import Any

from topo import BasicBolt, Spout, Topology, TopologyBuilder
from topo.testing import TopologyTest

QUEUE: list[str] = []
"""The broker's."""


class Numbered(Spout):
    """Takes each value from a queue once, and counts ids from 0 in each process."""

    outputs = ("value",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.number = collector, 0

    def next_tuple(self) -> None:
        if QUEUE:
            self.collector.emit((QUEUE.pop(0),), self.number)
            self.number += 1


class Sink(BasicBolt):
    outputs = ("value",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


def test_ids_are_counted_anew_in_each_process() -> None:
    """A counter of the process names messages: a message that has the id of an acked one is a new message, and is processed."""

    def topology() -> Topology:
        builder = TopologyBuilder("counted").config(delivery="exactly_once", checkpoint_interval="1s")
        builder.set_spout("numbers", Numbered())
        builder.set_bolt("sink", Sink()).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology)
    QUEUE.extend(["tea", "oil"])
    test.advance("5s")
    test.crash("numbers")
    QUEUE.extend(["salt", "rice"])
    test.advance("10s")
    test.drain()
    assert [row[0] for row in test.emitted("sink")] == ["tea", "oil", "salt", "rice"]
    assert test.dead_letters() == []
