"""Messages that were being processed when a worker died: tried alone, counted, given up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Replaying, Sink, chain
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from tests.unit.task.spouts import replaying
from topo.ids import SUSPECT_BIT, Epoch
from topo.wire.control import DeadLetter, Go, PositionReport
from topo.wire.frames import FrameKind


def attempts(task: Solo) -> list[Any]:
    """The records of attempts reported."""
    return [dict(CODEC.unpack_value(r.attempts)) if r.attempts else {} for r in task.messages(PositionReport)]


def suspected(task: Solo, *values: Any, epoch: int = 2, alone: bool = False) -> None:
    """A worker died while it processed these messages."""
    task.begin_epoch(epoch, suspects=[task.root_of(value) for value in values], alone=alone)
    task.run()


def test_suspects_are_tried_one_at_a_time_before_all_others() -> None:
    _, task = replaying(*range(6), max_spout_pending=5)
    task.run()
    suspected(task, 1, 3)
    assert task.values() == [1]
    task.wait(0.1)
    assert task.values() == [1]
    task.verdict(FrameKind.ACKED, 1)
    assert task.values() == [1, 3]
    task.verdict(FrameKind.ACKED, 3)
    assert task.values() == [1, 3, 0, 2, 4, 5]


def test_suspects_that_a_bolt_holds_do_not_wait_for_their_verdicts() -> None:
    """A sink acks its inputs when its file is full: with one of them at a time the next would wait for each file."""
    _, task = replaying(*range(8), max_spout_pending=8)
    task.run()
    suspected(task, 1, 2, 3, 5)
    assert task.values() == [1]
    task.wait(1.0)
    assert task.values() == [1, 2, 3]
    task.wait(1.0)
    assert task.values() == [1, 2, 3, 5]
    task.wait(1.0)
    assert task.values() == [1, 2, 3, 5, 0, 4, 6, 7]
    assert all(task.root_of(value) & SUSPECT_BIT for value in (1, 2, 3, 5)), "bolts run them one by one"


def test_a_trial_leaves_at_once() -> None:
    _, task = replaying(*range(3))
    task.run()
    task.begin_epoch(2, suspects=[task.root_of(1)])
    task.turn()
    assert task.values() == [1]


def test_a_message_that_kills_alone_as_often_as_it_may_is_given_up_and_no_other_is() -> None:
    _, task = replaying("innocent", "the guilty one", attempts=2)
    task.run()
    suspected(task, "innocent", "the guilty one")
    assert task.values() == ["innocent"]
    task.verdict(FrameKind.ACKED, "innocent")
    assert task.values() == ["innocent", "the guilty one"]
    suspected(task, "the guilty one", epoch=3, alone=True)
    assert task.messages(DeadLetter) == [] and task.values() == ["the guilty one"]
    task.adopt(4, suspects=[task.root_of("the guilty one")], alone=True)
    (dead,) = task.messages(DeadLetter)
    assert dead.errors == ["ended the process that worked on it, alone, 2 times"]
    task.open_inputs()
    task.go()
    task.run()
    assert task.values() == ["the guilty one"]


def test_a_new_dead_letter_is_sent_once_in_the_epoch_that_gives_it_up() -> None:
    _, task = replaying("guilty", attempts=1)
    task.run()
    task.adopt(2, suspects=[task.root_of("guilty")], alone=True)
    assert len(task.messages(DeadLetter)) == 1


def test_kills_are_reported_until_the_message_is_done() -> None:
    _, task = replaying("x", "y")
    task.run()
    task.adopt(2, suspects=[task.root_of("x")], alone=True)
    task.open_inputs()
    task.handle(Go(Epoch(2)))
    task.wait(1.0)
    assert attempts(task)[-1] == {"x": 1}
    task.adopt(3, suspects=[task.root_of("x")], alone=True)
    task.open_inputs()
    task.handle(Go(Epoch(3)))
    task.wait(1.0)
    assert attempts(task)[-1] == {"x": 2}, "reported though no position has moved"
    task.verdict(FrameKind.ACKED, "x")
    task.wait(1.0)
    assert attempts(task)[-1] == {}


def test_a_restarted_spout_tries_the_reported_suspects_alone() -> None:
    spout = Replaying(["x", "y", "z"], ends=False)
    task = Solo(chain(spout, Sink()), "a", attempts=CODEC.pack_value([["y", 1]]))
    task.run()
    assert task.values() == ["x", "z"]
    task.verdict(FrameKind.ACKED, "x", "z")
    assert task.values() == ["x", "z", "y"]


@pytest.mark.parametrize("count", [3, 5])
def test_a_restarted_spout_gives_up_a_message_that_has_killed_often_enough(count: int) -> None:
    spout = Replaying(["x", "y"], ends=False)
    task = Solo(chain(spout, Sink(), attempts=3), "a", attempts=CODEC.pack_value([["y", count]]))
    task.run()
    assert task.values() == ["x"]
    assert [CODEC.unpack_value(dead.position) for dead in task.messages(DeadLetter)] == ["y"]
