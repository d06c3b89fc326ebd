"""Values that topo does not carry are reported with the place that emits them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, Spout, TopologyBuilder
from topo.testing import TopologyTest


class Point:
    """Travels nowhere: it is not registered."""


class Emits(BasicBolt):
    outputs = ("point",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((1,))
        collector.emit((Point(),))


class Source(Spout):
    outputs = ("point",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.left = 1

    def next_tuple(self) -> None:
        if not self.left:
            self.collector.end_of_input()
            return
        self.left -= 1
        self.collector.emit((Point(),), 1)


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("component", ["bolt", "spout"])
def test_value_that_is_not_carried_has_file_and_line_of_its_emit(component: str, delivery: str) -> None:
    """A bolt and a spout emit an object of a class that no serializer is registered for."""
    builder = TopologyBuilder("points").config(delivery=delivery, attempts=1)
    if component == "spout":
        builder.set_spout("source", Source())
    else:
        builder.set_spout("numbers", IterableSpout([1]))
        builder.set_bolt("source", Emits()).shuffle_grouping("numbers")
    builder.set_bolt("sink", Sink()).shuffle_grouping("source")
    test = TopologyTest(builder.build())
    test.run()

    found = next(error for error in test.errors() if error.kind == "ValueNotCarried")

    function = Source.next_tuple if component == "spout" else Emits.execute
    assert (found.file, found.line) == (__file__, line_of(function, "Point()"))
    assert "component 'source', stream 'default', field 'point': a value of type Point" in found.message
