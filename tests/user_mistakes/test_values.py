"""Mistakes with values: what cannot travel, and what cannot be read where it arrives."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.launch.cluster import LocalCluster
from topo.master.outcome import Outcome, OutcomeKind
from topo.testing.fixtures import local_cluster

__all__ = ["local_cluster"]

MONEY = """
from topo import BasicBolt, IterableSpout, JsonLinesSink, TopologyBuilder

class Money:
    def __init__(self, cents):
        self.cents = cents

def read(data):
    if data == b"500":
        raise ValueError("this one has no money")
    return Money(int(data))

class Pay(BasicBolt):
    outputs = ("money",)
    def execute(self, tup, collector):
        collector.emit((Money(tup[0]),))

class Count(BasicBolt):
    outputs = ("cents",)
    def execute(self, tup, collector):
        collector.emit((tup[0].cents,))

def topology():
    builder = TopologyBuilder("money")
    builder.register_type(Money, 40, lambda money: str(money.cents).encode(), read)
    builder.set_spout("numbers", IterableSpout(list(range(1000))))
    builder.set_bolt("pay", Pay()).shuffle_grouping("numbers")
    builder.set_bolt("count", Count()).shuffle_grouping("pay")
    builder.set_bolt("out", JsonLinesSink("{out}")).shuffle_grouping("count")
    return builder.build()
"""


def run(cluster: LocalCluster, folder: Path, **settings: object) -> tuple[Outcome, int]:
    """Run the topology; return how it ended and how many rows came out."""
    file = folder / "money.py"
    file.write_text(MONEY.replace("{out}", str(folder / "out.jsonl")))
    running = cluster.submit(str(file), settings={"workers": 4, **settings})
    outcome = running.wait(timeout_s=60)
    return outcome, sum(len(part.read_text().splitlines()) for part in folder.glob("out*") if part.is_file())


@pytest.mark.integration
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_serializer_that_cannot_read_one_value_costs_one_dead_letter(
    local_cluster: LocalCluster, tmp_path: Path, delivery: str
) -> None:
    """The user's `decode` raises for one value of a thousand: the others arrive, and that one is a dead letter, exit code 1."""
    outcome, rows = run(local_cluster, tmp_path, delivery=delivery)
    assert (outcome.kind, outcome.dead_letters, outcome.exit_code) == (OutcomeKind.DEAD_LETTERS, 1, 1)
    assert rows == 999


@pytest.mark.integration
def test_a_serializer_that_cannot_read_one_value_is_told_at_most_once_too(local_cluster: LocalCluster, tmp_path: Path) -> None:
    """Untracked, the row is lost, as `at_most_once` allows, and the run says so."""
    outcome, rows = run(local_cluster, tmp_path, delivery="at_most_once")
    assert (outcome.reason, rows) == (
        "every source has ended; nothing was tracked (ackers=0), and 1 tuple failed and was lost; see `topo errors`",
        999,
    )
