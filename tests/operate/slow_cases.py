"""Topologies that are slow for one known reason each, run in virtual time by the real master, workers and tasks."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from tests.simulator.simulation import Simulation
from topo import BasicBolt, Bolt, Spout, TopologyBuilder, WatermarkStrategy
from topo.api.topology import Topology
from topo.observability.overview import Figures, overview
from topo_cli.main import topo

RUN_S = 40.0
"""Virtual seconds."""


def problem_of(command: str) -> str:
    """Return why `topo` would not take a command line that a finding names; "" when it would."""
    _, name, *arguments = shlex.split(command)
    try:
        found = topo.get_command(click.Context(topo), name)
        assert found is not None, command
        found.make_context(name, arguments)
    except click.UsageError as error:
        return f"{command}: {error.message}"
    return ""


class Case:
    """A run of a topology: what its components take is virtual time."""

    def __init__(self, build: Callable[[Case, TopologyBuilder], None], **settings: Any) -> None:
        self._build, self._settings = build, settings
        self.simulation = Simulation(self._topology, 1)
        self.simulation.network.most_in_flight = self.simulation.most_orders = self.simulation.most_reports = 1_000
        self.simulation.quiet_s, self.simulation.most_events = 2 * RUN_S, 20_000_000

    def _topology(self) -> Topology:
        builder = TopologyBuilder("case").config(**{"max_spout_pending": 2000, **self._settings})
        self._build(self, builder)
        return builder.build()

    def go(self, until_s: float = RUN_S) -> Figures:
        """Return the overview at a moment."""
        found: list[Figures] = []

        def look() -> None:
            master = self.simulation.master.master
            assert master is not None
            master.figures.validate()
            found.append(overview(master, self.simulation.now))

        self.simulation.at(until_s, look)
        self.simulation.run(until=lambda: bool(found))
        return found[0]


class Numbers(Spout):
    """Emits a number every `every_s` seconds of virtual time, as fast as it may with 0; `until_s`: then nothing more."""

    outputs = ("key", "at_ms")

    def __init__(self, case: Case, every_s: float = 0.0, keys: int = 1000, until_s: float = 1e9, work_s: float = 0.0) -> None:
        self.case, self.every_s, self.keys, self.until_s, self.work_s = case, every_s, keys, until_s, work_s

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.number, self.due_s = collector, 0, 0.0

    def next_tuple(self) -> None:
        now = self.case.simulation.now
        if now < self.due_s or now > self.until_s:
            self.collector.nothing_before(0.01)
            return
        self.due_s = now + self.every_s
        self.case.simulation.work(max(0.000_05, self.work_s))
        row = (self.number % self.keys, self.case.simulation.wall_ms())
        self.collector.emit(row, message_id=self.number)
        self.number += 1


class Work(BasicBolt):
    """Takes the same time for each tuple, or that of its key."""

    outputs = ("key", "at_ms")

    def __init__(self, case: Case, service_s: float = 0.000_05) -> None:
        self.case, self.service_s = case, service_s

    def execute(self, tup: Any, collector: Any) -> None:
        self.case.simulation.work(self.service_s)
        collector.emit(tup.values)


class Holds(Bolt):
    """Acks an input when it holds more than `count`, or after a time."""

    outputs = ("key",)

    def __init__(self, case: Case, count: int = 1 << 30, for_s: float = 1e9) -> None:
        self.case, self.count, self.for_s = case, count, for_s

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector, self.held = collector, list[tuple[float, Any]]()

    def execute(self, tup: Any) -> None:
        now = self.case.simulation.now
        self.held.append((now, tup))
        while self.held and (len(self.held) > self.count or now - self.held[0][0] > self.for_s):
            self.collector.ack(self.held.pop(0)[1])


def bottleneck(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case))
    builder.set_bolt("parse", Work(case)).shuffle_grouping("numbers")
    builder.set_bolt("score", Work(case, 0.05), 2).shuffle_grouping("parse")
    builder.set_bolt("store", Work(case)).shuffle_grouping("score")


def hot_key(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case, keys=1))
    builder.set_bolt("count", Work(case, 0.02), 4).fields_grouping("numbers", "key")
    builder.set_bolt("store", Work(case)).shuffle_grouping("count")


def messages_held(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case))
    builder.set_bolt("parse", Work(case)).shuffle_grouping("numbers")
    builder.set_bolt("hold", Holds(case)).shuffle_grouping("parse")


def slow_source(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case, work_s=0.05))
    builder.set_bolt("parse", Work(case)).shuffle_grouping("numbers")


def late_acks(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case, every_s=0.1))
    builder.set_bolt("parse", Work(case)).shuffle_grouping("numbers")
    builder.set_bolt("call", Holds(case, for_s=15.0)).shuffle_grouping("parse")


def event_time(case: Case, builder: TopologyBuilder) -> None:
    strategy = WatermarkStrategy.bounded_out_of_orderness("1s", timestamp="at_ms")
    builder.set_spout("orders", Numbers(case, every_s=0.1), watermarks=strategy)
    builder.set_spout("prices", Numbers(case, every_s=0.1, until_s=20.0), watermarks=strategy)
    builder.set_bolt("join", Work(case)).shuffle_grouping("orders").shuffle_grouping("prices")


def slow_checkpoint(case: Case, builder: TopologyBuilder) -> None:
    builder.set_spout("numbers", Numbers(case))
    builder.set_bolt("parse", Work(case)).shuffle_grouping("numbers")
    builder.set_bolt("train", Work(case, 1.5)).shuffle_grouping("parse")
