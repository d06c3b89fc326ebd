"""A spout whose messages are done when a checkpoint covers them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.task.harness import Scripted, Sink, Solo, chain
from topo.task.events import BeginCheckpoint, CheckpointComplete, Close

MESSAGES = 1_000


class Storing:
    """A store that stores at once, and keeps nothing."""

    def write(self, checkpoint: int, snapshot: Any, stored: Any) -> None:
        stored(None, None)


def spout_with_messages(covered: int, more: int) -> tuple[Solo, Scripted]:
    """A spout that has emitted so many messages before a checkpoint that is complete now, and has more to emit."""
    source = Scripted(range(covered + more), ends=False)
    solo = Solo(chain(source, Sink(), delivery="exactly_once"), "a")
    store: Any = Storing()
    solo.task.ports = replace(solo.task.ports, snapshots=store)
    while len(source.steps) > more:
        solo.turn()
        solo.confirm_all()
    solo.handle(BeginCheckpoint(solo.epoch, 1))
    return solo, source


def test_of_many_covered_messages_a_part_is_told_and_the_spout_emits_in_between() -> None:
    solo, spout = spout_with_messages(MESSAGES, 10_000)
    emitted = solo.task.counters.emitted
    solo.handle(CheckpointComplete(1))
    seen = []
    while len(spout.told("ack")) < emitted:
        assert solo.task.has_work
        before = len(spout.told("ack"))
        solo.turn()
        solo.confirm_all()
        seen.append(len(spout.told("ack")) - before)
    assert spout.told("ack") == list(range(emitted))
    assert len(seen) > 2 and max(seen) < emitted / 2
    assert solo.task.counters.emitted > emitted


def test_a_spout_that_is_closed_is_told_the_rest_before() -> None:
    solo, spout = spout_with_messages(MESSAGES, 0)
    solo.handle(CheckpointComplete(1))
    solo.handle(Close())
    assert spout.told("ack") == list(range(MESSAGES))
    assert spout.calls[-1] == ("close",)


def test_what_was_covered_and_not_told_is_told_after_a_recovery_and_does_not_fail() -> None:
    solo, spout = spout_with_messages(MESSAGES, 0)
    solo.handle(CheckpointComplete(1))
    solo.adopt(2, checkpoint=1)
    solo.open_inputs()
    solo.run()
    assert spout.told("fail") == []
    assert spout.told("ack") == list(range(MESSAGES))
