"""Mistakes in a topology are named with the line that declares the component."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from topo import BasicBolt, TopologyBuilder, TopologyError


class Printer(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        print(tup)


def here() -> str:
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    return f"test_places.py:{frame.f_back.f_lineno}"


def test_each_problem_of_a_component_ends_with_the_line_that_declares_it() -> None:
    """A bolt that reads nothing, a bolt that reads from a component that is not there, and an id that is used twice."""
    builder = TopologyBuilder("mistakes")
    builder.set_bolt("first", Printer()), (first := here())
    builder.set_bolt("second", Printer()).shuffle_grouping("nowhere"), (second := here())
    builder.set_bolt("second", Printer(), parallelism=0).shuffle_grouping("first"), (third := here())
    with pytest.raises(TopologyError) as refused:
        builder.copied().build()
    places = {problem.rpartition(" (")[2].rstrip(")") for problem in refused.value.problems if "no spout" not in problem}
    assert places == {first, f"{second}, {third}"}
    assert len(refused.value.problems) >= 6
