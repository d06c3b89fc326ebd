"""A source whose calls raise, each time: the run ends, and does not look like a success."""

from __future__ import annotations

from topo import PrintBolt, Spout, SpoutCollector, TaskContext, Topology, TopologyBuilder
from topo.master.outcome import Outcome
from topo.testing import TopologyTest


class Raising(Spout):
    """Reads orders of which the first ones have no amount; an order that was read is not read again."""

    outputs = ("amount",)

    def __init__(self, orders: list[dict[str, int]]) -> None:
        self.orders = orders

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.collector, self.left = collector, list(self.orders)

    def next_tuple(self) -> None:
        if not self.left:
            self.collector.end_of_input()
            return
        self.collector.emit((self.left.pop(0)["amount"],), len(self.left))


def outcome_of(orders: list[dict[str, int]]) -> Outcome:
    def topology() -> Topology:
        builder = TopologyBuilder("orders")
        builder.set_spout("orders", Raising(orders))
        builder.set_bolt("print", PrintBolt()).shuffle_grouping("orders")
        return builder.build()

    test = TopologyTest(topology)
    test.run()
    test.errors()
    assert test.outcome is not None
    return test.outcome


def test_each_call_of_a_source_raises_until_it_ends() -> None:
    """`next_tuple` looks up a missing key in all orders: nothing was emitted, which is no success."""
    outcome = outcome_of([{"cents": 3}, {"cents": 4}])
    assert outcome.exit_code == 1
    assert outcome.reason == "source 'orders' raised in 2 calls and emitted nothing; see `topo errors`"


def test_a_source_raises_and_recovers() -> None:
    """The first calls raise, as where a server is not up yet, and the next one emits: a success."""
    outcome = outcome_of([{"cents": 3}, {"amount": 4}])
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed")


def test_a_source_has_nothing() -> None:
    """A source without an order: a success."""
    assert outcome_of([]).exit_code == 0
