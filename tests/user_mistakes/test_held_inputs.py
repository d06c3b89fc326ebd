"""Mistakes with inputs that a bolt holds back, in a topology that a window has switched to exactly_once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import Bolt, IterableSpout, Topology, TopologyBuilder
from topo.testing import ADVANCE, CRASH, END, TopologyTest

VALUES = [("v1",), ("v2",), ("v3",), ("v4",), ("v5",)]


class Batch(Bolt):
    """Emits three inputs as one row, and the rest at the end."""

    outputs = ("values",)

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector
        self.held: list[Any] = []

    def execute(self, tup: Any) -> None:
        self.held.append(tup)
        if len(self.held) == 3:
            self.flush()

    def flush(self) -> None:
        if self.held:
            self.collector.emit((tuple(tup["value"] for tup in self.held),), self.held)
        for tup in self.held:
            self.collector.ack(tup)
        self.held = []

    def end_of_input(self) -> None:
        self.flush()

    def on_reset(self) -> None:
        self.held = []


class NoFlush(Batch):
    end_of_input = Bolt.end_of_input


class EmitsFirst(Batch):
    def execute(self, tup: Any) -> None:
        self.collector.emit(((tup["value"],),), tup)
        self.held.append(tup)

    def flush(self) -> None:
        for tup in self.held:
            self.collector.ack(tup)
        self.held = []


class NeverDrops(Batch):
    on_reset = Bolt.on_reset


def topology(bolt: Callable[[], Bolt]) -> Callable[[], Topology]:

    def build() -> Topology:
        builder = TopologyBuilder("held").config(delivery="exactly_once", checkpoint_interval="1s", checkpoint_pause="100ms")
        builder.set_spout("values", IterableSpout([], fields=("value",)))
        builder.set_bolt("batch", bolt()).shuffle_grouping("values")
        return builder.build()

    return build


def ran(bolt: Callable[[], Bolt], *script: Any) -> TopologyTest:
    test = TopologyTest(topology(bolt), sources={"values": list(script)})
    test.run()
    return test


def script(crash: str) -> list[Any]:

    return [*VALUES[:2], ADVANCE("3s"), CRASH(crash), *VALUES[2:], END]


@pytest.mark.parametrize("crash", ["batch", "values"])
@pytest.mark.parametrize("bolt", [Batch, NeverDrops])
def test_inputs_are_held_over_a_checkpoint(bolt: type[Batch], crash: str) -> None:
    """A bolt that holds inputs back is used with exactly_once: it works, and if it forgets on_reset its process is replaced."""
    test = ran(bolt, *script(crash))
    assert sorted(value for (values,) in test.emitted("batch") for value in values) == [value for (value,) in VALUES]
    stale = [row.message for row in test.errors() if "drop them in on_reset" in row.message]
    assert bool(stale) is (bolt is NeverDrops and crash == "values")


def test_what_is_held_is_not_emitted_at_the_end() -> None:
    """A batching bolt has no end_of_input: inputs that it still holds become dead letters that name the cause."""
    test = ran(NoFlush, *VALUES, END)
    assert [dead_letter.values for dead_letter in test.dead_letters()] == [("v4",), ("v5",)]
    assert "in end_of_input, emit the results of all held inputs, and ack them" in test.dead_letters()[0].why
    assert test.outcome is not None and test.outcome.exit_code == 1


def test_an_input_is_emitted_for_and_held() -> None:
    """A bolt emits at once and acks later: no checkpoint can hold that, and the error names the bolt and the ways out."""
    test = ran(EmitsFirst, *script("values"))
    row = next(row for row in test.errors() if row.kind == "UserError")
    assert row.component == "batch" and "has emitted for" in row.message and "use a ProcessBolt or a BatchBolt" in row.message
