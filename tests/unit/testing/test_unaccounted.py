"""The exit code rests on the sum of fates: a message that the engine forgets fails the run, whoever is to blame."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, Topology, TopologyBuilder
from topo.task.coverage import Coverage, Covered
from topo.task.fates import Fates
from topo.testing import END, TopologyTest


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def run(delivery: str) -> TopologyTest:
    def topology() -> Topology:
        builder = TopologyBuilder("sums").config(delivery=delivery)
        builder.set_spout("numbers", IterableSpout([], fields=("number",)))
        builder.set_bolt("sink", Sink()).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology, sources={"numbers": [1, 2, 3, END]})
    test.run()
    return test


def is_noticed(test: TopologyTest) -> None:
    assert test.outcome is not None and test.outcome.exit_code == 1
    assert test.outcome.reason.startswith("1 message of 'numbers' was neither acked nor given up")
    with pytest.raises(AssertionError, match="'numbers' was neither acked nor given up"):
        test.assert_all_acked()


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
def test_a_message_that_is_forgotten_fails_the_run(delivery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    completed = Fates._completed
    forgotten: list[Any] = []

    def forget(self: Fates, complete: list[Any], now: float) -> None:
        if complete and not forgotten:
            forgotten.append(complete.pop(0))
            self._book.done([forgotten[0][0]])
        completed(self, complete, now)

    assert run(delivery).outcome.exit_code == 0  # type: ignore[union-attr]
    monkeypatch.setattr(Fates, "_completed", forget)
    is_noticed(run(delivery))


def test_a_message_that_no_checkpoint_covers_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Coverage.snapshot

    def uncovered(self: Coverage, checkpoint: int) -> Covered:
        covered = snapshot(self, checkpoint)
        self._marks[-1] = (checkpoint, self.emitted - 1)
        return covered

    assert run("exactly_once").outcome.exit_code == 0  # type: ignore[union-attr]
    monkeypatch.setattr(Coverage, "snapshot", uncovered)
    is_noticed(run("exactly_once"))
