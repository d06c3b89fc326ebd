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


class Ours(TopologyBuilder):
    def set_bolt(self, *arguments: Any, **settings: Any) -> Any:
        return super().set_bolt(*arguments, **settings)


def test_a_builder_of_the_users_own_is_not_the_place() -> None:
    """A subclass of the builder, and a loop that declares one id again and again."""
    builder = Ours("mistakes")
    for _ in range(3):
        builder.set_bolt("a'b\"c", Printer()), (place := here())
    with pytest.raises(TopologyError) as refused:
        builder.build()
    problems = [problem for problem in refused.value.problems if "no spout" not in problem]
    assert problems and all(problem.endswith(f" ({place})") for problem in problems)


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
