"""A topology of many components in one worker, for `page.py`: a slow spout, and rows of bolts behind it. Imports topo alone."""

from __future__ import annotations

from typing import Any

from topo import BasicBolt, BasicCollector, Spout, SpoutCollector, TaskContext, Topology, TopologyBuilder, Tuple

_IN_A_ROW = 5


class Numbers(Spout):
    """Emits twenty numbers a second."""

    outputs = ("number",)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.collector, self.number = collector, 0

    def next_tuple(self) -> None:
        self.number += 1
        self.collector.emit((self.number,), message_id=self.number)
        self.collector.nothing_before(0.05)


class Pass(BasicBolt):
    outputs = ("number",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(tup.values)


def many(components: int = 30) -> Topology:
    """Return a topology of that number of components."""
    builder = TopologyBuilder("many").config(delivery="at_least_once", workers=1)
    builder.set_spout("numbers", Numbers())
    names: list[Any] = ["numbers"]
    for number in range(components - 1):
        source = names[-1] if number % _IN_A_ROW else "numbers"
        names.append(f"row{number // _IN_A_ROW}-step{number % _IN_A_ROW}")
        builder.set_bolt(names[-1], Pass()).shuffle_grouping(source)
    return builder.build()
