"""A message that the engine forgets fails the run: the exit code counts the messages of every outcome."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, Topology, TopologyBuilder
from topo.checkpoint.source_progress import Covered, UncommittedMessages
from topo.master.outcome import OutcomeKind
from topo.testing import END, TopologyTest
from topo.tracking.source_messages import SourceMessages


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def run(delivery: str, *, is_drained: bool = False) -> TopologyTest:
    def topology() -> Topology:
        builder = TopologyBuilder("sums").config(delivery=delivery)
        builder.set_spout("numbers", IterableSpout([], fields=("number",)))
        builder.set_bolt("sink", Sink()).shuffle_grouping("numbers")
        return builder.build()

    test = TopologyTest(topology, sources={"numbers": [1, 2, 3, *[END][is_drained:]]})
    if is_drained:
        test.advance("1s")
        test.drain()
    else:
        test.run()
    return test


def is_noticed(test: TopologyTest) -> None:
    assert test.outcome is not None and test.outcome.exit_code == 1
    before = "drained; nothing was left in flight; " if test.outcome.kind is OutcomeKind.DRAINED else ""
    assert test.outcome.reason.startswith(f"{before}1 message of 'numbers' was neither acked nor given up")
    with pytest.raises(AssertionError, match="'numbers' was neither acked nor given up"):
        test.assert_all_acked()


def is_well(test: TopologyTest) -> bool:
    outcome = test.outcome
    assert outcome is not None
    return outcome.exit_code == 0 or outcome.reason == "drained; nothing was left in flight"


@pytest.mark.parametrize("is_drained", [False, True])
@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
def test_a_message_that_is_forgotten_is_told(delivery: str, is_drained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    completed = SourceMessages._completed
    forgotten: list[Any] = []

    def forget(self: SourceMessages, complete: list[Any], emitted: list[tuple[float, int]], now: float) -> None:
        if complete and not forgotten:
            forgotten.append(complete.pop(0))
            self._book.done(forgotten)
        completed(self, complete, emitted, now)

    assert is_well(run(delivery, is_drained=is_drained))
    monkeypatch.setattr(SourceMessages, "_completed", forget)
    is_noticed(run(delivery, is_drained=is_drained))


@pytest.mark.parametrize("is_drained", [False, True])
def test_a_message_that_no_checkpoint_covers_is_told(is_drained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = UncommittedMessages.snapshot

    def uncovered(self: UncommittedMessages, checkpoint: int) -> Covered:
        covered = snapshot(self, checkpoint)
        self._marks[-1] = (checkpoint, self.emitted - 1)
        return covered

    assert is_well(run("exactly_once", is_drained=is_drained))
    monkeypatch.setattr(UncommittedMessages, "snapshot", uncovered)
    is_noticed(run("exactly_once", is_drained=is_drained))
