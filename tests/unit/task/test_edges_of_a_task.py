"""What every kind of task does with opening frames, numbers and confirmations."""

from __future__ import annotations

import pytest

from tests.tasks.bolts import between
from tests.tasks.components import Sink, fan
from tests.tasks.solo import Solo
from topo.ids import Epoch, TaskId
from topo.wire.control import EdgeLost, Go, Probe, Quiet, TaskReady
from topo.wire.frames import FrameKind

# -- opening


def test_every_out_edge_begins_with_an_opening_frame() -> None:
    task = between(is_open=False)
    task.adopt(1)
    assert [(f.kind, f.target, f.number, f.epoch) for f in task.frames()] == [
        (FrameKind.OPEN, 3, 0, 1),
        (FrameKind.OPEN, 4, 0, 1),
    ]


def test_a_task_is_ready_when_all_its_in_edges_are_open() -> None:
    task = between(is_open=False)
    task.adopt(1)
    assert task.messages(TaskReady) == []
    task.open_inputs()
    assert task.messages(TaskReady) == [TaskReady(task=TaskId(2), epoch=Epoch(1))]


def test_a_task_reports_that_it_is_ready_once_in_each_epoch() -> None:
    task = between(is_open=False)
    for epoch in (1, 2):
        task.adopt(epoch)
        task.open_inputs()
        task.feed("x")
        task.run()
    assert [ready.epoch for ready in task.messages(TaskReady)] == [1, 2]


# -- confirmations


def test_a_processed_frame_is_confirmed_within_ten_milliseconds() -> None:
    task = between(queue_time="off")
    task.wait(1)
    task.out.clear()
    task.feed("x")
    task.run()
    assert task.frames(FrameKind.CONFIRM) == []
    task.wait(0.01)
    assert [(f.target, f.number) for f in task.frames(FrameKind.CONFIRM)] == [(1, 1)]


def test_frames_that_are_not_processed_yet_are_not_confirmed() -> None:
    task = between()
    task.wait(1)
    task.out.clear()
    task.feed("x")
    assert task.frames(FrameKind.CONFIRM) == []


def test_a_quarter_of_the_window_is_confirmed_at_once_by_one_frame() -> None:
    task = between(edge_window=16, queue_time="off")
    task.wait(1)
    task.out.clear()
    for value in range(5):
        task.feed(value)
    task.run()
    assert [f.number for f in task.frames(FrameKind.CONFIRM)] == [4]


def test_frames_that_come_one_by_one_are_confirmed_by_the_half_window() -> None:
    task = between(edge_window=16, queue_time="off")
    task.wait(1)
    task.out.clear()
    for value in range(17):
        task.feed(value)
        task.run()
    assert [f.number for f in task.frames(FrameKind.CONFIRM)] == [8, 16]


def test_a_stream_of_frames_is_confirmed_in_passing_before_the_time_is_up() -> None:
    task = between(edge_window=1000, queue_time="off")
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
    task = between(edge_window=1)
    for value in range(3):
        task.feed(value)
    task.run()
    assert [f.number for f in task.frames(FrameKind.CONFIRM)] == [1, 2, 3]


def test_a_receiver_that_is_held_up_sends_signs_of_life() -> None:
    task = between(edge_window=1, outbox_limit=1, batch_size=1)
    for value in range(6):
        task.feed(value)
        task.turn()
    assert task.task.inbound.queue and not task.task.has_work
    task.wait(0.5)
    task.out.clear()
    task.wait(3.0)
    assert [f.target for f in task.frames(FrameKind.CONFIRM)] == [1, 1, 1]


def test_a_receiver_with_nothing_to_do_is_silent() -> None:
    task = between()
    task.confirm_all()
    task.wait(1)
    task.out.clear()
    task.wait(100)
    assert task.out == []


# -- losses


def test_a_gap_is_reported_at_once_and_then_every_second_until_the_next_epoch() -> None:
    task = between()
    task.feed("lost", number=2)
    assert [(lost.sender, lost.epoch) for lost in task.messages(EdgeLost)] == [(1, 1)]
    task.wait(3.5)
    assert len(task.messages(EdgeLost)) == 4
    task.adopt(2)
    task.out.clear()
    task.wait(3.5)
    assert task.messages(EdgeLost) == []


def test_frames_before_a_gap_are_processed_and_none_after_it() -> None:
    task = between()
    task.feed("before")
    task.feed("after", number=5)
    task.feed("missing", number=2)
    task.feed("too late", number=6)
    task.run()
    assert task.values() == ["before"]
    assert task.task.counters.gaps == 3
    assert len(task.messages(EdgeLost)) == 1


@pytest.mark.parametrize(
    ("progress_timeout", "worker_timeout", "heartbeat", "noticed_s"),
    [("30s", "15s", "3s", 33.0), ("4s", "20s", "1s", 21.0), ("4s", "5s", "4s", 12.0)],
)
def test_a_receiver_that_confirms_nothing_is_reported_again_and_again_after_the_master_has_replaced_it_at_the_latest(
    progress_timeout: str, worker_timeout: str, heartbeat: str, noticed_s: float
) -> None:
    task = between(progress_timeout=progress_timeout, worker_timeout=worker_timeout, heartbeat=heartbeat)
    task.feed("x")
    task.run()
    task.confirm(4)
    task.wait(noticed_s + 0.5)
    assert task.messages(EdgeLost) == []
    task.wait(1.0)
    assert [lost.sender for lost in task.messages(EdgeLost)] == [3]
    task.confirm(4)
    task.wait(noticed_s + 1.5)
    assert [lost.sender for lost in task.messages(EdgeLost)].count(3) == 2


def test_without_a_progress_timeout_a_receiver_may_be_silent_for_long() -> None:
    task = between(progress_timeout="off")
    task.feed("x")
    task.run()
    task.confirm(4)
    task.wait(1800.0)
    assert task.messages(EdgeLost) == []


def test_a_receiver_that_sends_signs_of_life_is_not_reported() -> None:
    task = between(progress_timeout="30s")
    task.feed("x")
    task.run()
    for _ in range(60):
        task.wait(1.0)
        task.confirm(3, 0)
        task.confirm(4)
    assert task.messages(EdgeLost) == []


def test_a_duplicate_is_dropped_and_counted() -> None:
    task = between()
    ids = task.feed("x")
    task.feed("x", ids=ids, number=1)
    task.run()
    assert task.values() == ["x"]
    assert task.task.counters.duplicate_frames == 1


# -- back-pressure


def test_the_time_without_room_is_counted() -> None:
    task = between(edge_window=1, outbox_limit=1, batch_size=1)
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
    task = between()
    task.feed("x")
    task.run()
    task.out.clear()
    task.handle(Probe(7, Epoch(1)))
    (quiet,) = task.messages(Quiet)
    assert (quiet.probe, quiet.epoch, quiet.ended, quiet.quiet) == (7, 1, False, False)
    assert (quiet.sent, quiet.received) == (4, 2)
    assert quiet.why == "frames not confirmed by their receivers"


def test_a_task_that_has_ended_and_is_quiet_reports_it_once() -> None:
    task = between()
    task.end_inputs()
    task.confirm_all()
    task.run()
    task.run()
    assert [(quiet.probe, quiet.ended, quiet.quiet, quiet.why) for quiet in task.messages(Quiet)] == [(0, True, True, "")]


def test_a_task_reports_when_it_is_no_longer_quiet_and_when_it_is_again() -> None:
    task = between()
    task.end_inputs()
    task.confirm_all()
    task.run()
    task.feed("a replay")
    task.run()
    task.confirm_all()
    task.run()
    assert [quiet.quiet for quiet in task.messages(Quiet)] == [True, False, True]


def test_frames_count_as_received_where_they_are_taken() -> None:
    task = between()
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
    task = between()
    assert task.handle(Go(Epoch(5))) == []
