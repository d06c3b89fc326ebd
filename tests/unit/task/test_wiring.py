"""What tasks are given: their context, and the groupings that are the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo import BasicBolt, CustomGrouping, IterableSpout, TopologyBuilder
from topo.ids import TaskId
from topo.plan.physical import physical_plan
from topo.task.context import make_context
from topo.task.router_factory import custom_groupings


class First(CustomGrouping):
    def choose(self, values: Sequence[Any]) -> Sequence[int]:
        return [0]


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def test_groupings_of_the_users_own_are_found_by_reader_and_input() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", IterableSpout(range(3)))
    builder.set_bolt("sink", Sink()).custom_grouping("numbers", First())
    built = builder.build()
    assert list(custom_groupings(built, "numbers")) == [("sink", 0)]
    assert custom_groupings(built, "sink") == {}


def test_a_context_has_the_index_of_the_task_within_its_component() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", IterableSpout(range(3)))
    builder.set_bolt("sink", Sink, 2, tick_interval="3s").shuffle_grouping("numbers")
    plan = physical_plan(builder.build())
    second = plan.tasks_of("sink")[1]
    context = make_context(plan, TaskId(second))
    assert (context.topology, context.component, context.task) == ("t", "sink", second)
    assert (context.task_index, context.parallelism) == (1, 2)
    assert (context.config.tick_interval_s, context.tasks_of("sink")) == (3.0, plan.tasks_of("sink"))
