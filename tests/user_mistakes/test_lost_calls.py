"""Mistakes in calls that have no input: a tick, an action, a timer. A call that raised is not repeated, so the run has failed."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, Bolt, IterableSpout, ProcessBolt, Spout, Topology, TopologyBuilder
from topo.testing import ADVANCE, END, TopologyTest

MISSING = (
    "1 call without input (tick, timer, action of an executor, call from another thread, end_of_input, cleanup, close) failed"
)


class Rate(BasicBolt):
    """Divides by zero until the first input."""

    outputs = ("rate",)
    component_settings = {"tick_interval": "1s"}

    def prepare(self, context: Any) -> None:
        self.ticks = 0

    def execute(self, tup: Any, collector: Any) -> None:
        if tup.is_tick:
            self.ticks += 1
            collector.emit((1 / (self.ticks - 2),))


class Acts(BasicBolt):
    """Has an action run between two inputs."""

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["number"] == 1:
            self.context.executor.execute(lambda: 1 // 0)


class Alarm(ProcessBolt):
    """Looks up a missing key in a timer."""

    outputs = ("alarm",)

    def __init__(self) -> None:
        super().__init__("number")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        if tup["number"] == 1:
            context.register_processing_time_timer(context.current_processing_time + 500)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit(({}["missing"],))


def run_of(bolt: Any) -> TopologyTest:
    def topology() -> Topology:
        builder = TopologyBuilder("lost").config(delivery="at_least_once")
        builder.set_spout("numbers", IterableSpout([], fields=("number",)))
        connected = builder.set_bolt("bolt", bolt())
        connected.fields_grouping("numbers", "number") if bolt is Alarm else connected.shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology, sources={"numbers": [1, ADVANCE("2500ms"), 2, END]})
    test.run()
    assert test.outcome is not None
    return test


@pytest.mark.parametrize("bolt", [Rate, Acts, Alarm])
def test_a_call_without_input_raises(bolt: Any) -> None:
    """A tick, an action or a timer raises without checkpoints: the run reports that results may be missing, and where."""
    test = run_of(bolt)
    assert test.outcome is not None and test.outcome.exit_code == 1
    assert test.outcome.reason.startswith(MISSING) and "results may be missing; see `topo errors`" in test.outcome.reason
    (row,) = test.errors()
    assert row.component == "bolt" and row.file == __file__


class Flushes(Bolt):
    """Writes its rows at a tick, to a database that hangs up the first time."""

    component_settings = {"tick_interval": "1s"}

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector, self.held, self.hung_up = collector, list[Any](), False

    def execute(self, tup: Any) -> None:
        if not tup.is_tick:
            self.held.append(tup)
        elif self.held:
            if not self.hung_up:
                self.hung_up = True
                raise ConnectionResetError
            for held in self.held:
                self.collector.ack(held)
            self.held.clear()


def test_a_tick_of_a_bolt_that_holds_its_inputs_raises_once() -> None:
    """A Bolt acks its written rows at the next tick: nothing is missing, and the run is done."""
    test = run_of(Flushes)
    test.assert_all_acked()
    assert test.outcome is not None and test.outcome.exit_code == 0
    assert [row.kind for row in test.errors()] == ["ConnectionResetError"]


class Totals(Bolt):
    """Emits, at a tick, sums of inputs that it has acked; the second row raises."""

    outputs = ("total",)
    component_settings = {"tick_interval": "1s"}

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector, self.totals = collector, list[int]()

    def execute(self, tup: Any) -> None:
        if not tup.is_tick:
            self.totals += [tup["number"], 0][: 2 * (tup["number"] == 1)]
            self.collector.ack(tup)
        while self.totals and tup.is_tick:
            self.collector.emit((1 // self.totals.pop(0),))


def test_a_tick_of_a_bolt_raises_that_has_emitted_rows_without_anchors() -> None:
    """A Bolt's tick raises behind rows that no input stands for any more: they are gone, and the run has failed."""
    test = run_of(Totals)
    assert test.outcome is not None and test.outcome.exit_code == 1
    assert test.outcome.reason.startswith(MISSING)


class Pushed(Spout):
    """Emits, in an action, what another thread has handed over; the action raises."""

    outputs = ("number",)

    def open(self, context: Any, collector: Any) -> None:
        self.collector, self.steps = collector, [lambda: context.executor.execute(lambda: 1 // 0), collector.end_of_input]

    def next_tuple(self) -> None:
        if self.steps:
            self.steps.pop(0)()


def test_an_action_of_a_spout_raises() -> None:
    """What a spout was to emit in an action that raised is nowhere: the run has failed."""

    def topology() -> Topology:
        builder = TopologyBuilder("pushed")
        builder.set_spout("numbers", Pushed())
        builder.set_bolt("bolt", Acts()).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology)
    test.run()
    assert test.outcome is not None and test.outcome.exit_code == 1
    assert test.outcome.reason.startswith(MISSING)
