"""What every kind of task does with frames of other epochs, incarnations and tasks, and with those that it cannot read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.bolts import between
from tests.tasks.components import Plain, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.hot import pack_words
from topo.ids import Incarnation, TaskId
from topo.task.events import FrameArrived
from topo.task.inbound import KEEP_ALIVE_S
from topo.wire.control import TaskReady
from topo.wire.frames import FrameKind, SenderStatus, columns_frame, confirm_frame, encode, open_frame


def test_a_frame_of_an_older_epoch_is_dropped() -> None:
    task = between()
    task.adopt(2)
    task.open_inputs()
    task.feed("old", epoch=1)
    task.run()
    assert task.values() == []
    assert task.task.counters.stale_frames == 1


def test_a_frame_of_a_newer_epoch_waits_until_that_epoch_is_adopted() -> None:
    task = between()
    task.deliver(open_frame((2, 1, 77), 2, SenderStatus.ACTIVE))
    task.feed("new", epoch=2, number=1)
    task.run()
    assert task.values() == []
    task.adopt(2)
    task.run()
    assert task.values() == ["new"]


def test_a_frame_of_an_epoch_that_was_skipped_is_stale_when_it_is_looked_at() -> None:
    task = between()
    task.deliver(open_frame((2, 1, 77), 2, SenderStatus.ACTIVE))
    task.adopt(3)
    assert task.task.counters.stale_frames == 1


def test_a_frame_of_another_incarnation_is_fenced_off() -> None:
    task = between()
    task.feed("zombie", incarnation=666)
    task.run()
    assert task.values() == []
    assert task.task.counters.fenced_frames == 1
    task.numbers[1] = 1
    task.feed("living")
    task.run()
    assert task.values() == ["living"]


def test_after_a_replacement_only_the_new_incarnation_is_received() -> None:
    task = between()
    task.adopt(2, incarnations={TaskId(1): Incarnation(88)})
    task.deliver(open_frame((2, 1, 77), 2, SenderStatus.ACTIVE))
    assert task.task.counters.fenced_frames == 1
    task.deliver(open_frame((2, 1, 88), 2, SenderStatus.ACTIVE))
    task.turn()
    assert [ready.epoch for ready in task.messages(TaskReady)] == [2]


def test_frames_of_strangers_and_for_others_are_fenced_off() -> None:
    task = between()
    task.feed("of a task that is no sender of this one", sender=3)
    task.feed("of a task that does not exist", sender=99)
    frame = open_frame(task.stamp(1), 3, SenderStatus.ACTIVE)
    task.handle(FrameArrived(encode(frame)))
    assert task.task.counters.fenced_frames == 3


def test_frames_of_strangers_are_not_held_for_the_epoch_to_come_that_they_name() -> None:
    task = between()
    task.deliver(open_frame((9, 99, 1), 2, SenderStatus.ACTIVE))
    task.deliver(open_frame((9, 1, 77), 3, SenderStatus.ACTIVE))
    assert task.task.inbound.is_empty
    assert task.task.counters.fenced_frames == 2


def test_a_frame_of_a_foreign_kind_is_malformed_and_leaves_the_edge_open() -> None:
    task = between()
    task.deliver(columns_frame(FrameKind.ACKED, task.stamp(1), 2, 1, pack_words([5])))
    assert task.task.counters.malformed_frames == 1
    task.feed("next")
    task.run()
    assert task.values() == ["next"]


@pytest.mark.parametrize(("part", "wrong"), [("stream", 7), ("payload", b"\xc1" * 8)])
def test_rows_of_an_unknown_stream_and_unreadable_values_fail_their_roots_and_leave_the_edge_open(part: str, wrong: Any) -> None:
    task = between()
    ids = task.fresh(1)
    good = len(task.out)
    task.feed(1, ids=ids)
    setattr(task.task.inbound.queue[-1][1], part, wrong)
    task.run()
    assert task.roots(FrameKind.FAIL) == ids.roots
    assert task.task.counters.malformed_frames == 1
    assert len(task.out) > good
    task.feed("next")
    task.run()
    assert task.values() == ["next"]


def test_bytes_that_are_no_frame_are_counted_and_dropped() -> None:
    task = between()
    for junk in (b"", b"x" * 100, encode(open_frame(task.stamp(1), 2, SenderStatus.ACTIVE))[:-1]):
        task.handle(FrameArrived(junk))
    assert task.task.counters.malformed_frames == 3


def test_routes_of_an_epoch_that_is_adopted_already_change_nothing() -> None:
    task = between()
    task.feed("x")
    task.adopt(1)
    task.numbers[1] = 2
    task.feed("y")
    task.run()
    assert task.values() == ["x", "y"]


def test_a_confirmation_of_an_older_epoch_confirms_nothing() -> None:
    task = between()
    task.adopt(2)
    task.deliver(confirm_frame(task.stamp(3, epoch=1), 2, 0))
    assert not task.task.outbound.outbox.edges[TaskId(3)].is_confirmed


def test_frames_that_open_edges_may_wait_for_a_slow_call_of_another_task() -> None:
    task = between(is_open=False)
    task.adopt(1)
    for sender in task.senders():
        task.deliver(open_frame(task.stamp(sender), task.id, SenderStatus.ACTIVE))
    task.out.clear()
    task.clock.now += 2 * KEEP_ALIVE_S
    task.turn()
    assert {frame.number for frame in task.frames(FrameKind.CONFIRM)} == {0}


def test_a_new_epoch_drops_frames_in_flight() -> None:
    bolt = Plain()
    task = Solo(chain(Scripted(), bolt, Sink(), edge_window=1, batch_size=1), "b")
    for value in range(50):
        task.feed(value)
    task.turn()
    task.turn()
    assert task.task.inbound.queue and task.task.outbound.outbox.waiting
    task.out.clear()
    task.adopt(2)
    assert not task.task.inbound.queue and not task.task.outbound.outbox.waiting
    task.confirm_all()
    task.run()
    assert [f.kind for f in task.frames()] == [FrameKind.OPEN, FrameKind.OPEN]
    assert bolt.calls == ["prepare", "on_reset"]
