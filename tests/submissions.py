"""Topologies as if they had been submitted, for tests that start no process."""

from __future__ import annotations

from typing import Any

from topo import BasicBolt, IterableSpout, TopologyBuilder
from topo.master.outcome import Outcome, OutcomeKind
from topo.observability.status import never_ran
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.storage.state_folder import TopologyFolder
from topo.storage.submitted import SubmittedTopology


class Pass(BasicBolt):
    """Does nothing."""

    def execute(self, tup: Any, collector: Any) -> None:
        """Take a tuple."""


def small_plan(name: str = "flow", bolt: str = "pass", **config: Any) -> PhysicalPlan:
    """Return the plan of a spout and a bolt."""
    builder = TopologyBuilder(name).config(**config)
    builder.set_spout("numbers", IterableSpout([1]))
    builder.set_bolt(bolt, Pass()).shuffle_grouping("numbers")
    return physical_plan(builder.build())


def submission(folder: TopologyFolder, plan: PhysicalPlan, **changes: Any) -> SubmittedTopology:
    """Return the submission of a plan."""
    facts: dict[str, Any] = {
        "name": folder.name,
        "given": "flow.py",
        "reference": "flow.py",
        "code_hash": "0",
        "parameters": {},
        "settings": {},
        "submitted_ms": 5,
        "run_ms": 5,
        "submitted_from": "/",
        "foreground": False,
        "plan": plan,
    }
    return SubmittedTopology(**(facts | changes))


def store_submission(folder: TopologyFolder, plan: PhysicalPlan, **changes: Any) -> SubmittedTopology:
    """Write the topology.json of a plan, and return its content."""
    submitted = submission(folder, plan, **changes)
    submitted.save(folder)
    return submitted


def ended_summary(name: str, **more: Any) -> dict[str, Any]:
    """Return what every summary of an ended topology has, and more."""
    ended = never_ran(name, Outcome(OutcomeKind.KILLED, "killed by the operator"))
    return {**ended, "uptime_s": 1.0, "ended_ms": 1000, **more}
