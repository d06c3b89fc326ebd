"""What every kind of task does with frames, numbers, epochs and confirmations."""

from __future__ import annotations

from tests.tasks.components import Plain, Scripted, Sink, chain, fan
from tests.tasks.solo import Solo
from topo.hot import pack_words
from topo.ids import Epoch, Incarnation, TaskId
from topo.task.events import FrameArrived
from topo.task.inbound import KEEP_ALIVE_S
from topo.wire.control import EdgeLost, Go, Probe, Quiet, TaskReady
from topo.wire.frames import FrameKind, SenderStatus, columns_frame, confirm_frame, encode, open_frame


def relay(**settings: object) -> Solo:
    """The bolt in the middle of spout a, bolt b, sink c, with the acker as task 4."""
    return Solo(chain(Scripted(), Plain(), Sink(), **settings), "b")


def unopened(**settings: object) -> Solo:
    return Solo(chain(Scripted(), Plain(), Sink(), **settings), "b", is_open=False)


# -- opening


def test_every_out_edge_begins_with_an_opening_frame() -> None:
    task = unopened()
    task.adopt(1)
    assert [(f.kind, f.target, f.number, f.epoch) for f in task.frames()] == [
        (FrameKind.OPEN, 3, 0, 1),
        (FrameKind.OPEN, 4, 0, 1),
    ]


def test_a_task_is_ready_when_all_its_in_edges_are_open() -> None:
    task = unopened()
    task.adopt(1)
    assert task.messages(TaskReady) == []
    task.open_inputs()
    assert task.messages(TaskReady) == [TaskReady(task=TaskId(2), epoch=Epoch(1))]


def test_a_task_reports_that_it_is_ready_once_in_each_epoch() -> None:
    task = unopened()
    for epoch in (1, 2):
        task.adopt(epoch)
        task.open_inputs()
        task.feed("x")
        task.run()
    assert [ready.epoch for ready in task.messages(TaskReady)] == [1, 2]


# -- confirmations


def test_a_processed_frame_is_confirmed_within_ten_milliseconds() -> None:
    task = relay(queue_time="off")
    task.wait(1)
    task.out.clear()
    task.feed("x")
    task.run()
    assert task.frames(FrameKind.CONFIRM) == []
    task.wait(0.01)
    assert [(f.target, f.number) for f in task.frames(FrameKind.CONFIRM)] == [(1, 1)]


def test_frames_that_are_not_processed_yet_are_not_confirmed() -> None:
    task = relay()
    task.wait(1)
    task.out.clear()
    task.feed("x")
    assert task.frames(FrameKind.CONFIRM) == []


def test_a_quarter_of_the_window_is_confirmed_at_once_by_one_frame() -> None:
    task = relay(edge_window=16, queue_time="off")
    task.wait(1)
    task.out.clear()
    for value in range(5):
        task.feed(value)
    task.run()
    assert [f.number for f in task.frames(FrameKind.CONFIRM)] == [4]


def test_frames_that_come_one_by_one_are_confirmed_by_the_half_window() -> None:
    task = relay(edge_window=16, queue_time="off")
    task.wait(1)
    task.out.clear()
    for value in range(17):
        task.feed(value)
        task.run()
    assert [f.number for f in task.frames(FrameKind.CONFIRM)] == [8, 16]


def test_a_stream_of_frames_is_confirmed_in_passing_before_the_time_is_up() -> None:
    task = relay(edge_window=1000, queue_time="off")
    task.wait(1)
    task.out.clear()
    confirmed_at = []
    for value in range(100):
        task.feed(value)
        task.run()
        confirmed_at += [value] * len(task.frames(FrameKind.CONFIRM))
        task.out.clear()
        due = task.task.next_deadline(task.clock.now)
        assert due is None or due > task.clock.now
        task.clock.now += 0.004
    # The first frame of each row waits for 32 ms, and the worker is not woken for it.
    assert confirmed_at == [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96]


def test_with_a_window_of_one_every_frame_is_confirmed_at_once() -> None:
    task = relay(edge_window=1)
    for value in range(3):
        task.feed(value)
    task.run()
    assert [f.number for f in task.frames(FrameKind.CONFIRM)] == [1, 2, 3]


def test_a_receiver_that_is_held_up_sends_signs_of_life() -> None:
    task = relay(edge_window=1, outbox_limit=1, batch_size=1)
    for value in range(6):
        task.feed(value)
        task.turn()
    assert task.task.inbound.queue and not task.task.has_work
    task.wait(0.5)
    task.out.clear()
    task.wait(3.0)
    assert [f.target for f in task.frames(FrameKind.CONFIRM)] == [1, 1, 1]


def test_a_receiver_with_nothing_to_do_is_silent() -> None:
    task = relay()
    task.confirm_all()
    task.wait(1)
    task.out.clear()
    task.wait(100)
    assert task.out == []


# -- losses


def test_a_gap_is_reported_at_once_and_then_every_second_until_the_next_epoch() -> None:
    task = relay()
    task.feed("lost", number=2)
    assert [(lost.sender, lost.epoch) for lost in task.messages(EdgeLost)] == [(1, 1)]
    task.wait(3.5)
    assert len(task.messages(EdgeLost)) == 4
    task.adopt(2)
    task.out.clear()
    task.wait(3.5)
    assert task.messages(EdgeLost) == []


def test_frames_before_a_gap_are_processed_and_none_after_it() -> None:
    task = relay()
    task.feed("before")
    task.feed("after", number=5)
    task.feed("missing", number=2)
    task.feed("too late", number=6)
    task.run()
    assert task.values() == ["before"]
    assert task.task.counters.gaps == 3
    assert len(task.messages(EdgeLost)) == 1


def test_a_receiver_that_confirms_nothing_for_too_long_is_reported_again_and_again() -> None:
    task = relay(progress_timeout="30s")
    task.feed("x")
    task.run()
    task.confirm(4)
    task.wait(30.5)
    assert task.messages(EdgeLost) == []
    task.wait(1.0)
    assert [lost.sender for lost in task.messages(EdgeLost)] == [3]
    task.confirm(4)
    task.wait(31.5)
    assert [lost.sender for lost in task.messages(EdgeLost)].count(3) == 2


def test_without_a_progress_timeout_a_receiver_may_be_silent_for_long() -> None:
    task = relay(progress_timeout="off")
    task.feed("x")
    task.run()
    task.confirm(4)
    task.wait(1800.0)
    assert task.messages(EdgeLost) == []


def test_a_receiver_that_sends_signs_of_life_is_not_reported() -> None:
    task = relay(progress_timeout="30s")
    task.feed("x")
    task.run()
    for _ in range(60):
        task.wait(1.0)
        task.confirm(3, 0)
        task.confirm(4)
    assert task.messages(EdgeLost) == []


def test_a_duplicate_is_dropped_and_counted() -> None:
    task = relay()
    ids = task.feed("x")
    task.feed("x", ids=ids, number=1)
    task.run()
    assert task.values() == ["x"]
    assert task.task.counters.duplicate_frames == 1


# -- epochs and incarnations


def test_a_frame_of_an_older_epoch_is_dropped() -> None:
    task = relay()
    task.adopt(2)
    task.open_inputs()
    task.feed("old", epoch=1)
    task.run()
    assert task.values() == []
    assert task.task.counters.stale_frames == 1


def test_a_frame_of_a_newer_epoch_waits_until_that_epoch_is_adopted() -> None:
    task = relay()
    task.deliver(open_frame((2, 1, 77), 2, SenderStatus.ACTIVE))
    task.feed("new", epoch=2, number=1)
    task.run()
    assert task.values() == []
    task.adopt(2)
    task.run()
    assert task.values() == ["new"]


def test_a_frame_of_an_epoch_that_was_skipped_is_stale_when_it_is_looked_at() -> None:
    task = relay()
    task.deliver(open_frame((2, 1, 77), 2, SenderStatus.ACTIVE))
    task.adopt(3)
    assert task.task.counters.stale_frames == 1


def test_a_frame_of_another_incarnation_is_fenced_off() -> None:
    task = relay()
    task.feed("zombie", incarnation=666)
    task.run()
    assert task.values() == []
    assert task.task.counters.fenced_frames == 1
    task.numbers[1] = 1
    task.feed("living")
    task.run()
    assert task.values() == ["living"]


def test_after_a_replacement_only_the_new_incarnation_is_received() -> None:
    task = relay()
    task.adopt(2, incarnations={TaskId(1): Incarnation(88)})
    task.deliver(open_frame((2, 1, 77), 2, SenderStatus.ACTIVE))
    assert task.task.counters.fenced_frames == 1
    task.deliver(open_frame((2, 1, 88), 2, SenderStatus.ACTIVE))
    task.turn()
    assert [ready.epoch for ready in task.messages(TaskReady)] == [2]


def test_frames_of_strangers_and_for_others_are_fenced_off() -> None:
    task = relay()
    task.feed("of a task that is no sender of this one", sender=3)
    task.feed("of a task that does not exist", sender=99)
    frame = open_frame(task.stamp(1), 3, SenderStatus.ACTIVE)
    task.handle(FrameArrived(encode(frame)))
    assert task.task.counters.fenced_frames == 3


def test_frames_of_strangers_are_not_held_for_the_epoch_to_come_that_they_name() -> None:
    task = relay()
    task.deliver(open_frame((9, 99, 1), 2, SenderStatus.ACTIVE))
    task.deliver(open_frame((9, 1, 77), 3, SenderStatus.ACTIVE))
    assert task.task.inbound.is_empty
    assert task.task.counters.fenced_frames == 2


def test_a_frame_of_a_foreign_kind_is_malformed_and_leaves_the_edge_open() -> None:
    task = relay()
    task.deliver(columns_frame(FrameKind.ACKED, task.stamp(1), 2, 1, pack_words([5])))
    assert task.task.counters.malformed_frames == 1
    task.feed("next")
    task.run()
    assert task.values() == ["next"]


def test_rows_of_an_unknown_stream_fail_their_roots_and_leave_the_edge_open() -> None:
    task = relay()
    ids = task.fresh(1)
    task.feed(1, ids=ids)
    task.task.inbound.queue[-1][1].stream = 7
    task.run()
    assert task.roots(FrameKind.FAIL) == ids.roots
    assert task.task.counters.malformed_frames == 1
    task.feed("next")
    task.run()
    assert task.values() == ["next"]


def test_bytes_that_are_no_frame_are_counted_and_dropped() -> None:
    task = relay()
    for junk in (b"", b"x" * 100, encode(open_frame(task.stamp(1), 2, SenderStatus.ACTIVE))[:-1]):
        task.handle(FrameArrived(junk))
    assert task.task.counters.malformed_frames == 3


def test_unreadable_values_fail_their_roots_and_leave_the_edge_open() -> None:
    task = relay()
    ids = task.fresh(1)
    good = len(task.out)
    task.feed(1, ids=ids)
    frame = task.task.inbound.queue[-1][1]
    frame.payload = b"\xc1" * 8
    task.run()
    assert task.roots(FrameKind.FAIL) == ids.roots
    assert task.task.counters.malformed_frames == 1
    assert len(task.out) > good
    task.feed("next")
    task.run()
    assert task.values() == ["next"]


def test_routes_of_an_epoch_that_is_adopted_already_change_nothing() -> None:
    task = relay()
    task.feed("x")
    task.adopt(1)
    task.numbers[1] = 2
    task.feed("y")
    task.run()
    assert task.values() == ["x", "y"]


def test_a_confirmation_of_an_older_epoch_confirms_nothing() -> None:
    task = relay()
    task.adopt(2)
    task.deliver(confirm_frame(task.stamp(3, epoch=1), 2, 0))
    assert not task.task.outbound.outbox.edges[TaskId(3)].is_confirmed


def test_frames_that_open_edges_may_wait_for_a_slow_call_of_another_task() -> None:
    task = unopened()
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


# -- back-pressure


def test_the_time_without_room_is_counted() -> None:
    task = relay(edge_window=1, outbox_limit=1, batch_size=1)
    for value in range(6):
        task.feed(value)
        task.turn()
    task.wait(2.0)
    assert task.task.statistics().counters.blocked_s == 2.0
    while task.task.inbound.queue:
        task.confirm_all()
        task.run()
    task.confirm_all()
    task.wait(5.0)
    assert task.task.statistics().counters.blocked_s == 2.0


def test_a_slow_target_of_a_shuffle_does_not_stop_the_others() -> None:
    task = Solo(fan(Sink, 3, edge_window=2, batch_size=1), "b")
    slow, *others = task.plan.tasks_of("c")
    for value in range(30):
        task.feed(value)
        task.run()
        for target in others:
            task.confirm(target)
    task.confirm_all()
    assert len(task.values(to=slow)) <= 2
    assert sorted(task.values()) == list(range(30))


# -- quiet facts


def test_a_probe_is_answered_with_the_counts_of_this_moment() -> None:
    task = relay()
    task.feed("x")
    task.run()
    task.out.clear()
    task.handle(Probe(7, Epoch(1)))
    (quiet,) = task.messages(Quiet)
    assert (quiet.probe, quiet.epoch, quiet.ended, quiet.quiet) == (7, 1, False, False)
    assert (quiet.sent, quiet.received) == (4, 2)
    assert quiet.why == "frames not confirmed by their receivers"


def test_a_task_that_has_ended_and_is_quiet_reports_it_once() -> None:
    task = relay()
    task.end_inputs()
    task.confirm_all()
    task.run()
    task.run()
    assert [(quiet.probe, quiet.ended, quiet.quiet, quiet.why) for quiet in task.messages(Quiet)] == [(0, True, True, "")]


def test_a_task_reports_when_it_is_no_longer_quiet_and_when_it_is_again() -> None:
    task = relay()
    task.end_inputs()
    task.confirm_all()
    task.run()
    task.feed("a replay")
    task.run()
    task.confirm_all()
    task.run()
    assert [quiet.quiet for quiet in task.messages(Quiet)] == [True, False, True]


def test_frames_count_as_received_where_they_are_taken() -> None:
    task = relay()
    task.feed("x")
    task.feed("y", number=1)
    task.feed("z", epoch=9)
    task.run()
    task.out.clear()
    task.handle(Probe(1, Epoch(1)))
    (quiet,) = task.messages(Quiet)
    assert quiet.received == 2
    assert not quiet.quiet


def test_go_of_another_epoch_is_ignored() -> None:
    task = relay()
    assert task.handle(Go(Epoch(5))) == []
