from __future__ import annotations

import pytest

from tests.tasks.components import Scripted, Sink, chain
from tests.tasks.environment import INCARNATION
from tests.tasks.solo import Solo
from topo.builder import TopologyBuilder
from topo.ids import Epoch, Incarnation, TaskId
from topo.wire.control import Probe, Quiet, TaskReady
from topo.wire.frames import Frame, FrameKind, confirm_frame, open_frame

SPOUT, BOLT = 1, 2
INIT, ACK, FAIL, RESET = FrameKind.INIT, FrameKind.ACK, FrameKind.FAIL, FrameKind.RESET
ACKED, FAILED, TOUCHED = FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED


def acker(**settings: object) -> Solo:
    return Solo(chain(Scripted(), Sink(), **settings))


def test_a_verdict_goes_to_the_control_inbox_of_its_spout() -> None:
    task = acker()
    task.feed_ids(INIT, [7], [5], SPOUT)
    task.feed_ids(ACK, [7], [5], BOLT)
    task.run()
    (frame,) = task.frames()
    assert (frame.kind, frame.target, frame.number, frame.root_list()) == (ACKED, SPOUT, 1, [7])


def test_fails_are_sent_before_acks() -> None:
    task = acker()
    task.feed_ids(INIT, [1, 2], [5, 6], SPOUT)
    task.feed_ids(ACK, [1], [5], BOLT)
    task.feed_ids(FAIL, [2], [], BOLT)
    task.run()
    assert [frame.kind for frame in task.frames()] == [FAILED, ACKED]


def test_verdicts_of_many_frames_leave_as_one() -> None:
    task = acker()
    task.feed_ids(INIT, [1, 2, 3], [5, 6, 7], SPOUT)
    for root, value in ((1, 5), (2, 6), (3, 7)):
        task.feed_ids(ACK, [root], [value], BOLT)
    task.run()
    assert [frame.root_list() for frame in task.frames()] == [[1, 2, 3]]


def test_verdicts_do_not_wait_for_an_idle_moment_longer_than_flush_interval() -> None:
    task = acker(flush_interval="5ms")
    task.feed_ids(INIT, [7], [5], SPOUT)
    task.feed_ids(ACK, [7], [5], BOLT)
    task.turn()
    assert task.frames() == []
    task.clock.now += 0.005
    assert task.task.next_deadline(task.clock.now) == task.clock.now
    task.turn()
    assert task.roots(ACKED) == [7]


def test_a_full_batch_of_verdicts_leaves_at_once() -> None:
    task = acker(batch_size=4)
    task.feed_ids(INIT, [1, 2], [5, 6], SPOUT)
    task.feed_ids(ACK, [1, 2], [5, 6], BOLT)
    task.turn()
    assert task.roots(ACKED) == [1, 2]


def test_each_spout_gets_the_verdicts_on_its_own_messages_alone() -> None:
    builder = TopologyBuilder("two")
    builder.set_spout("a1", Scripted())
    builder.set_spout("a2", Scripted())
    builder.set_bolt("b", Sink()).shuffle_grouping("a1").shuffle_grouping("a2")
    task = Solo(builder.build())
    task.feed_ids(INIT, [1], [5], 1)
    task.feed_ids(INIT, [2], [6], 2)
    task.feed_ids(ACK, [1, 2], [5, 6], 3)
    task.run()
    assert {frame.target: frame.root_list() for frame in task.frames()} == {1: [1], 2: [2]}


def test_an_acker_never_stops_for_want_of_room() -> None:
    task = acker(edge_window=1, outbox_limit=1, batch_size=1)
    for root in range(1, 200):
        task.feed_ids(INIT, [root], [5], SPOUT)
        task.feed_ids(ACK, [root], [5], BOLT)
        task.turn()
    assert task.roots(ACKED) == list(range(1, 200))


def test_an_acker_outlives_the_longest_timeout_of_all_spouts() -> None:
    builder = TopologyBuilder("two")
    builder.set_spout("a1", Scripted(), message_timeout="10s")
    builder.set_spout("a2", Scripted(), message_timeout="50s")
    builder.set_bolt("b", Sink()).shuffle_grouping("a1").shuffle_grouping("a2")
    task = Solo(builder.build())
    task.confirm_all()
    task.feed_ids(INIT, [7], [5], 1)
    task.wait(99.9)
    task.feed_ids(ACK, [7], [5], 3)
    task.run()
    assert task.roots(ACKED) == [7]


def test_trees_that_expire_are_counted() -> None:
    task = acker(message_timeout="10s")
    task.confirm_all()
    task.feed_ids(INIT, [7, 8], [5, 6], SPOUT)
    task.wait(30.0)
    assert task.task.statistics().counters.expired_trees == 2
    assert task.task.statistics().levels["trees"] == 0


def test_the_level_of_expired_trees_is_that_of_the_last_rotation() -> None:
    task = acker(message_timeout="10s")
    task.confirm_all()
    task.feed_ids(INIT, [7, 8], [5, 6], SPOUT)
    task.wait(10.0)
    task.feed_ids(INIT, [9], [5], SPOUT)
    task.wait(20.0)
    assert task.task.statistics().levels["expired_last"] == 2
    task.wait(10.0)
    assert task.task.statistics().levels["expired_last"] == 1


def test_without_a_message_timeout_no_tree_expires() -> None:
    task = acker(delivery="exactly_once")
    task.confirm_all()
    task.feed_ids(INIT, [7], [5], SPOUT)
    task.wait(1e6)
    assert task.task.statistics().levels["trees"] == 1


def test_ids_that_arrive_with_a_late_rotation_are_not_aged_by_it() -> None:
    task = acker(message_timeout="10s")
    task.clock.now += 100.0
    task.feed_ids(INIT, [7], [5], SPOUT)
    task.run()
    task.wait(20.0)
    task.feed_ids(ACK, [7], [5], BOLT)
    task.run()
    assert task.roots(ACKED) == [7]


def test_a_new_epoch_forgets_trees_and_verdicts() -> None:
    task = acker()
    task.feed_ids(INIT, [7, 8], [5, 6], SPOUT)
    task.feed_ids(ACK, [8], [6], BOLT)
    task.turn()
    task.adopt(2)
    task.open_inputs()
    task.out.clear()
    task.feed_ids(ACK, [7], [5], BOLT)
    task.run()
    assert task.frames() == []


def test_an_acker_opens_edges_to_all_spouts_and_is_ready_when_its_inputs_are_open() -> None:
    task = Solo(chain(Scripted(), Sink()), is_open=False)
    task.adopt(1)
    assert [(frame.kind, frame.target) for frame in task.frames()] == [(FrameKind.OPEN, SPOUT)]
    assert task.messages(TaskReady) == []
    task.open_inputs()
    assert len(task.messages(TaskReady)) == 1


def test_an_acker_is_quiet_when_its_verdicts_have_arrived() -> None:
    task = acker()
    task.confirm_all()
    task.feed_ids(INIT, [7], [5], SPOUT)
    task.feed_ids(ACK, [7], [5], BOLT)
    task.turn()
    task.handle(Probe(1, Epoch(1)))
    task.run()
    task.handle(Probe(2, Epoch(1)))
    task.confirm(SPOUT)
    task.handle(Probe(3, Epoch(1)))
    answers = {quiet.probe: (quiet.ended, quiet.quiet) for quiet in task.messages(Quiet)}
    assert answers[1] == answers[2] == (True, False)
    assert answers[3] == (True, True)


def test_a_repeated_frame_of_the_acker_is_dropped_before_it_can_cancel_anything() -> None:
    task = acker()
    task.feed_ids(INIT, [7], [5], SPOUT)
    task.numbers[TaskId(SPOUT)] = 1
    task.feed_ids(INIT, [7], [5], SPOUT)
    task.run()
    assert task.frames() == []
    assert task.task.counters.duplicate_frames == 1


@pytest.mark.parametrize("kind", [ACKED, FAILED, TOUCHED])
def test_a_frame_of_verdicts_to_an_acker_is_malformed(kind: FrameKind) -> None:
    task = acker()
    task.feed_ids(kind, [7], [], SPOUT)
    task.run()
    assert task.task.counters.malformed_frames == 1


def test_a_confirmation_of_a_zombie_confirms_nothing() -> None:
    task = acker()
    frame: Frame = confirm_frame(task.stamp(SPOUT, incarnation=Incarnation(INCARNATION + 1)), task.id, 0)
    task.deliver(frame)
    assert not task.task.outbound.outbox.is_quiet
    task.deliver(open_frame(task.stamp(SPOUT, incarnation=Incarnation(INCARNATION + 1)), task.id, 0))  # type: ignore[arg-type]
    assert task.task.counters.fenced_frames == 2
