"""Inputs whose values a call changes in place before it raises: the repeated call gets them as they arrived."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, Bolt, IterableSpout, ProcessBolt, TopologyBuilder
from topo.testing import TopologyTest


class Records(BasicBolt):
    """Emits records."""

    outputs = ("key", "record")

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(("a", {"n": tup[0]}))


def count_up(bolt: Any, tup: Any) -> int:
    """Change the record in place, and raise at each first call for it."""
    record = tup["record"]
    record["n"] += 100
    seen = bolt.__dict__.setdefault("seen", set())
    if tup["record"]["n"] % 100 not in seen:
        seen.add(tup["record"]["n"] % 100)
        raise ConnectionError("try again")
    return int(record["n"])


class Basic(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((count_up(self, tup),))


class Acking(Bolt):
    outputs = ("n",)

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Any) -> None:
        self.collector.emit((count_up(self, tup),), tup)
        self.collector.ack(tup)


class Process(ProcessBolt):
    outputs = ("n",)

    def __init__(self) -> None:
        super().__init__(key="key")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        collector.emit((count_up(self, tup),))


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("bolt", [Basic, Acking, Process])
def test_a_repeated_call_gets_the_values_as_they_arrived(bolt: Any, delivery: str) -> None:
    builder = TopologyBuilder("records").config(delivery=delivery, back_off="1ms")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("records", Records()).shuffle_grouping("numbers")
    builder.set_bolt("bolt", bolt()).fields_grouping("records", "key")
    test = TopologyTest(builder.build())
    test.run()
    assert sorted(test.emitted("bolt")) == [(101,), (102,), (103,)]
