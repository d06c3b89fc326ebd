"""Runs of topologies with slow bolts and all defaults, in virtual time, and their figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.simulator.external_world import FIELDS, ExternalWorld, PositionedSpout
from tests.simulator.simulation import Simulation
from topo.api.bolt import BasicBolt
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.master.outcome import OutcomeKind
from topo.task.task import Task
from topo.wire.statistics import Counters

MODES = ("at_least_once", "exactly_once")
SAMPLE_S = 0.25
Service = Callable[[int, float], float]
"""The virtual seconds that a tuple takes, given how many the task has had before it and the time."""


def constant(seconds: float) -> Service:
    """Return the service time of a bolt that is always as fast."""
    return lambda _seen, _now: seconds


@dataclass
class Stage:
    """A bolt of the chain.

    Attributes:
        service: how long its tuples take.
        copies: how often it emits each input.
        make: returns the bolt.
        key: a field; tuples go to the task of its value.
    """

    service: Service = field(default_factory=lambda: constant(0.0))
    copies: int = 1
    parallelism: int = 1
    make: Callable[[SlowRun, Stage], Any] = field(default=lambda run, stage: Timed(run, stage))
    key: str = ""


class Timed(BasicBolt):
    """Takes the service time of its stage."""

    outputs = FIELDS

    def __init__(self, run: SlowRun, stage: Stage) -> None:
        self.run, self.stage, self.seen = run, stage, 0

    def execute(self, tup: Any, collector: Any) -> None:
        simulation = self.run.simulation
        self.run.outside.work(self.stage.service(self.seen, simulation.now))
        self.seen += 1
        if self.stage is self.run.stages[-1]:
            self.run.note(tup)
            return
        for _ in range(self.stage.copies):
            collector.emit(tup.values)


class SlowRun:
    """A chain of bolts behind a spout that always has a message, and its figures while it runs.

    Attributes:
        done: messages that the last bolt got, and how often.
        completed_at: virtual seconds of the begin and of each complete checkpoint.
        most_pending: messages in flight at the spout, at most.
    """

    def __init__(self, mode: str, total: int, *stages: Stage, **settings: Any) -> None:
        self.outside = ExternalWorld()
        self.done: dict[str, int] = {}
        self.total, self.stages = total, stages
        self.settings = {"delivery": mode, **settings}
        self.simulation = Simulation(self._topology, 1)
        # The times are judged here: connections take all that the windows allow.
        self.simulation.network.most_in_flight = self.simulation.most_orders = self.simulation.most_reports = 1_000
        self.outside.work, self.outside.kill = self.simulation.work, self.simulation.kill
        self.completed_at = [0.0]
        self.most_pending = 0
        self._completed = 0

    def _topology(self) -> Topology:
        builder = TopologyBuilder("slow").config(**self.settings)
        builder.set_spout("a", PositionedSpout(self.outside, "a", self.total, 0.000_01))
        source = "a"
        for number, stage in enumerate(self.stages):
            name = f"b{number}"
            bolt = builder.set_bolt(name, stage.make(self, stage), stage.parallelism)
            if stage.key:
                bolt.fields_grouping(source, stage.key)
            else:
                bolt.shuffle_grouping(source)
            source = name
        return builder.build()

    def note(self, tup: Any) -> None:
        """The last bolt has a tuple."""
        self.done[tup.values[0]] = self.done.get(tup.values[0], 0) + 1

    def go(self, most_s: float) -> SlowRun:
        """Run to the end, which has to come within a number of virtual seconds."""
        self.simulation.quiet_s, self.simulation.most_events = most_s, 20_000_000
        self.simulation.at(SAMPLE_S, self._sample)
        self.simulation.run()
        return self

    def _sample(self) -> None:
        master = self.simulation.master.master
        checkpoints = None if master is None else master.checkpoints
        manifest = None if checkpoints is None else checkpoints.completed
        if manifest is not None and manifest.checkpoint != self._completed:
            self._completed = manifest.checkpoint
            self.completed_at.append(self.simulation.now)
        if self.simulation.all_processes:
            self.most_pending = max(self.most_pending, self._spout().statistics().levels["pending"])
        self.simulation.at(self.simulation.now + SAMPLE_S, self._sample)

    def _spout(self) -> Task:
        return next(task for process in self.simulation.all_processes for task in process.tasks if task.id in task.plan.spouts)

    @property
    def counters(self) -> Counters:
        """The counters of the spout."""
        return self._spout().counters

    @property
    def longest_without_checkpoint_s(self) -> float:
        """The longest time between two complete checkpoints, or from the begin to the first."""
        return max(after - before for before, after in pairwise([*self.completed_at, self.simulation.now]))

    def assert_healthy(self) -> None:
        """Every message was processed once, and none of them was taken for lost."""
        assert self.simulation.violations == []
        outcome = self.simulation.master.outcome
        assert outcome is not None and outcome.kind is OutcomeKind.DONE and not outcome.dead_letters
        counted = self.counters
        assert (counted.timed_out, counted.replayed, counted.dead_lettered, counted.reset) == (0, 0, 0, 0)
        copies = 1
        for stage in self.stages[:-1]:
            copies *= stage.copies
        assert len(self.done) == self.total and set(self.done.values()) == {copies}
        assert len(self.simulation.all_processes) == len(self.stages) + 2, "a worker was replaced"
