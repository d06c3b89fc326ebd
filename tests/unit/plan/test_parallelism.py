"""Overrides of the numbers of tasks in the code."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, StatefulBolt, Topology, TopologyBuilder
from topo.errors import NotFoundError
from topo.plan.parallelism import Move, moves, unsplittable, with_parallelism
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.plan.validation import problems_of


class Pass(BasicBolt):
    outputs = ("number",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((tup["number"],))


class Keyed(StatefulBolt):
    key = "number"

    def execute(self, tup: Any, collector: Any) -> None: ...

    def snapshot(self) -> Any:
        return {}

    def restore(self, state: Any) -> None: ...


class Whole(Keyed):
    key = None


def topology(**settings: Any) -> Topology:
    builder = TopologyBuilder("flow")
    builder.set_spout("numbers", IterableSpout(range(3)))
    builder.set_bolt("pass", Pass(), 2).shuffle_grouping("numbers")
    builder.set_bolt("keyed", Keyed(), 2, **settings).fields_grouping("pass", "number")
    builder.set_bolt("whole", Whole()).global_grouping("pass")
    return builder.build()


def plan(parallelism: dict[str, int], **settings: Any) -> PhysicalPlan:
    built = topology(**settings)
    return physical_plan(with_parallelism(built, parallelism, built.config))


def test_components_have_the_numbers_of_tasks_that_are_given() -> None:
    made = plan({"keyed": 3, "pass": 1})
    assert [len(made.tasks_of(name)) for name in ("numbers", "pass", "keyed", "whole")] == [1, 1, 3, 1]
    assert plan({}).to_json() == plan({"keyed": 2}).to_json() == physical_plan(topology()).to_json()


@pytest.mark.parametrize(("declared", "groups"), [({}, 128), ({"max_parallelism": 12}, 12)])
def test_key_groups_stay_what_the_declaration_says(declared: dict[str, int], groups: int) -> None:
    assert plan({"keyed": 7}, **declared).component("keyed").max_parallelism == groups


def test_more_tasks_than_key_groups_are_a_problem() -> None:
    built = topology()
    (problem,) = problems_of(with_parallelism(built, {"keyed": 129}, built.config))
    assert problem.startswith("component 'keyed': parallelism 129 is more than max_parallelism 128")


def test_an_unknown_component_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(NotFoundError, match=r"flow has no component 'keyd'; it has numbers, .*Did you mean 'keyed'\?"):
        plan({"keyd": 2})


def test_what_moves_are_the_key_groups_that_get_another_owner() -> None:
    assert moves(plan({"keyed": 1}), plan({"keyed": 2})) == [Move("keyed", 1, 2, 128, 64)]
    # 43 to 63 leave the first task, and 86 to 127 the second.
    (move,) = moves(plan({"keyed": 2}), plan({"keyed": 3}))
    assert (move.before, move.after, move.moved) == (2, 3, 63)
    assert moves(plan({}), plan({"keyed": 2})) == []


def test_spouts_and_state_without_keys_cannot_be_split() -> None:
    spout, whole = unsplittable(topology(), {"numbers": 1, "keyed": 1, "pass": 1, "whole": 1})
    assert "'numbers' is a spout: what each of its tasks has read cannot be split, so its parallelism stays 1;" in spout
    assert "'whole': the state of Whole goes by no key, so it cannot be split and its parallelism stays 1" in whole
    assert "then it begins with nothing: submit it with --from and --drop-state whole" in whole
