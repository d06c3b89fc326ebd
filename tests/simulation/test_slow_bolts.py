"""Bolts of any speed with all defaults, in virtual time: nothing is replayed, no message is given up, checkpoints are in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from topo.api.bolt import BasicBolt
from topo.api.topology import Topology, TopologyBuilder
from topo.master.outcome import OutcomeKind
from topo.task.spout_task import SpoutTask
from topo.testing.outside import FIELDS, Outside, PositionedSpout
from topo.testing.simulation import Simulation
from topo.wire.statistics import Counters

MODES = ("at_least_once", "exactly_once")
SAMPLE_S = 0.25
Service = Callable[[int, float], float]
"""The virtual seconds that a tuple takes, given how many the task has had before it and the time."""


@dataclass
class Stage:
    """A bolt of the chain; it emits each input `copies` times. The last one notes what it gets."""

    service: Service
    copies: int = 1
    parallelism: int = 1


def constant(seconds: float) -> Service:
    return lambda _seen, _now: seconds


class Timed(BasicBolt):
    """Takes as long as its stage says."""

    outputs = FIELDS

    def __init__(self, run: SlowRun, stage: Stage) -> None:
        self.run, self.stage, self.seen = run, stage, 0

    def execute(self, tup: Any, collector: Any) -> None:
        simulation = self.run.simulation
        self.run.outside.work(self.stage.service(self.seen, simulation.now))
        self.seen += 1
        if self.stage is self.run.stages[-1]:
            self.run.done[tup.values[0]] = self.run.done.get(tup.values[0], 0) + 1
            return
        for _ in range(self.stage.copies):
            collector.emit(tup.values)


class SlowRun:
    """A chain of bolts behind a spout that always has a message, and what is seen of it while it runs.

    Attributes:
        done: messages that the last bolt got, and how often.
        completed_at: virtual seconds of the begin and of each complete checkpoint.
        most_pending: messages in flight at the spout, at most.
    """

    def __init__(self, mode: str, total: int, *stages: Stage, **settings: Any) -> None:
        self.outside = Outside()
        self.done: dict[str, int] = {}
        self.total, self.stages = total, stages
        self.settings = {"delivery": mode, **settings}
        self.simulation = Simulation(self._topology, 1)
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
            builder.set_bolt(name, Timed(self, stage), stage.parallelism).shuffle_grouping(source)
            source = name
        return builder.build()

    def go(self, most_s: float) -> SlowRun:
        """Run to the end, which has to come within so many virtual seconds."""
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

    def _spout(self) -> SpoutTask:
        return next(task for process in self.simulation.all_processes for task in process.tasks if isinstance(task, SpoutTask))

    @property
    def counters(self) -> Counters:
        """What the spout has counted."""
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("service_ms", [0.01, 1, 10, 100, 1000])
def test_any_service_time_with_all_defaults(service_ms: float, mode: str) -> None:
    total = 9_000 if service_ms <= 10 else int(90_000 / service_ms)
    run = SlowRun(mode, total, Stage(constant(service_ms / 1000))).go(200.0)
    run.assert_healthy()
    ideal_s = total * service_ms / 1000
    assert run.simulation.now <= ideal_s * 1.2 + 1.0
    if mode == "exactly_once":
        assert run.longest_without_checkpoint_s <= 20.0
    elif service_ms >= 1:
        assert run.most_pending <= max(10.0, 3 * 0.5 / (service_ms / 1000)), "the spout follows the service time"


@pytest.mark.parametrize("mode", MODES)
def test_slow_bolts_in_a_row(mode: str) -> None:
    slow = constant(0.1)
    run = SlowRun(mode, 400, Stage(slow), Stage(slow), Stage(constant(0.11)), Stage(slow), Stage(constant(0.12))).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 400 * 0.12 * 1.1 + 2.0
    if mode == "exactly_once":
        assert run.longest_without_checkpoint_s <= 20.0


@pytest.mark.parametrize("mode", MODES)
def test_a_message_that_becomes_a_thousand_tuples_of_a_slow_bolt(mode: str) -> None:
    run = SlowRun(mode, 10, Stage(constant(0.000_1), copies=1000), Stage(constant(0.01))).go(300.0)
    run.assert_healthy()
    if mode == "exactly_once":
        # A message is ten seconds of work; at each of the two bolts one is being worked on, and one waits before the first.
        assert run.longest_without_checkpoint_s <= 50.0


@pytest.mark.parametrize("mode", MODES)
def test_a_task_that_is_slower_than_its_siblings(mode: str) -> None:
    def skewed(seen: int, _now: float) -> float:
        return 0.05 if seen % 4 else 0.8

    run = SlowRun(mode, 600, Stage(constant(0.000_1)), Stage(skewed, parallelism=4)).go(300.0)
    assert run.simulation.violations == []
    assert run.counters.timed_out == run.counters.replayed == 0
    if mode == "exactly_once":
        assert run.longest_without_checkpoint_s <= 20.0


@pytest.mark.parametrize("mode", MODES)
def test_a_first_call_that_loads_a_model_for_a_minute(mode: str) -> None:
    settings = {"progress_timeout": "5m", "worker_timeout": "5m", "master_timeout": "5m"}
    run = SlowRun(mode, 9_000, Stage(lambda seen, _now: 0.0001 if seen else 60.0), **settings).go(200.0)
    run.assert_healthy()
    assert run.simulation.now < 64.0, "nothing is left of the first call in the bounds"


@pytest.mark.parametrize("mode", MODES)
def test_a_service_time_that_jumps_to_a_second_and_back(mode: str) -> None:
    def jumps(seen: int, now: float) -> float:
        return 1.0 if 20_000 <= seen < 20_300 else 0.000_05

    run = SlowRun(mode, 60_000, Stage(jumps)).go(900.0)
    run.assert_healthy()
    assert run.simulation.now < 330.0
