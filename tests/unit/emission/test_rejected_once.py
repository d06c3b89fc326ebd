"""A row without ids that several groupings refuse is lost once."""

from __future__ import annotations

from typing import Any

from tests.tasks.components import Plain, Scripted, Sink
from topo import TopologyBuilder
from topo.testing import END, TopologyTest


def refused_twice(delivery: str, source: list[Any]) -> TopologyTest:
    """Rows of the source, and of a bolt behind it, each have two readers that group by them."""
    builder = TopologyBuilder("twice").config(delivery=delivery)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", Plain()).shuffle_grouping("a")
    for name in ("c", "d"):
        builder.set_bolt(name, Sink(), parallelism=2).fields_grouping("b", "value")
    for name in ("e", "f"):
        builder.set_bolt(name, Sink(), parallelism=2).fields_grouping("a", "value")
    test = TopologyTest(builder.build(), sources={"a": [*source, END]})
    test.run()
    return test


def test_a_row_that_two_groupings_refuse_is_one_dead_letter() -> None:
    test = refused_twice("exactly_once", [{"n": 1}, "usable", {"n": 2}])
    found = sorted((dead.component, dead.values[0]["n"]) for dead in test.dead_letters())
    assert found == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert test.outcome is not None and test.outcome.dead_letters == 4


def test_a_row_that_two_groupings_refuse_counts_once_as_unsent() -> None:
    test = refused_twice("at_most_once", [{"n": 1}, "usable"])
    assert test.outcome is not None and "2 rows could not be sent" in test.outcome.reason
