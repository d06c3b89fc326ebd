"""The simulated broker when two lives of a spout take from it: one was left behind by a master that died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.simulator.external_world import BrokerSpout, ExternalWorld
from topo.api.context import TaskContext
from topo.api.spout import SpoutCollector

ATTEMPTS = 1


class Emitted:
    """A collector that notes the numbers that were emitted, and the end."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.has_ended = False

    def emit(self, values: tuple[Any, ...], message_id: int) -> None:
        self.numbers.append(message_id)

    def end_of_input(self) -> None:
        self.has_ended = True


def life_of(outside: ExternalWorld, *, replays_in_fail: bool = False) -> tuple[BrokerSpout, Emitted]:
    """Return another life of a spout of one message, which it has emitted."""
    spout, emitted = BrokerSpout(outside, "spout0", 1, 0.0, ATTEMPTS, replays_in_fail, untracked=False), Emitted()
    spout.open(cast(TaskContext, SimpleNamespace(task_index=0)), cast(SpoutCollector, emitted))
    spout.next_tuple()
    return spout, emitted


def test_a_broker_spout_ends_when_another_life_has_given_up_what_fails() -> None:
    outside = ExternalWorld()
    old, new = life_of(outside), life_of(outside)
    for _ in range(ATTEMPTS + 1):
        old[0].fail(0)
    new[0].fail(0)
    new[0].next_tuple()
    assert list(outside.given_up) == ["spout0.0.0"]
    assert new[1].has_ended


@pytest.mark.parametrize("replays_in_fail", [False, True])
def test_a_broker_spout_replays_what_fails_here_and_was_acked_to_another_life(replays_in_fail: bool) -> None:
    outside = ExternalWorld()
    (old, _), (new, emitted) = (life_of(outside, replays_in_fail=replays_in_fail) for _ in range(2))
    old.ack(0)
    for _ in range(ATTEMPTS + 1):
        new.fail(0)
        new.next_tuple()
    assert emitted.numbers == [0] * (ATTEMPTS + 2)
    new.ack(0)
    new.next_tuple()
    assert emitted.has_ended
    assert not outside.given_up
