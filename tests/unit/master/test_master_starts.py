"""From the first event to the first Go."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.master.playbook import (
    ACKER,
    LINES,
    SINK,
    Play,
    messages_in,
    record,
    register_message,
    routes,
    routes_in,
    running,
    small_plan,
    started_in,
)
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.commands import Finished, MasterRecord, RecordError, SendTo, StartWorker, StopWorker
from topo.master.events import LaunchFailed, Started, Tick, WorkerLaunched, WorkerMessage
from topo.master.outcome import Outcome, OutcomeKind
from topo.master.positions import SpoutProgress
from topo.observability.status import describe
from topo.plan.outline import outline
from topo.wire.control import Deactivate, Go, Heartbeat, Stop, TaskReady


def test_nothing_happens_before_started() -> None:
    play = Play()
    assert play.do(Tick()) == []
    assert play.master.next_deadline() is None


def test_every_worker_is_started_under_a_persisted_incarnation() -> None:
    play = Play()
    assert play.do(Started()) == [
        record(0, 101, 102, 103, has_run=False),
        StartWorker(WorkerId(0), Incarnation(101)),
        StartWorker(WorkerId(1), Incarnation(102)),
        StartWorker(WorkerId(2), Incarnation(103)),
    ]


def test_the_routes_go_out_to_all_when_the_last_worker_has_registered() -> None:
    play = Play()
    play.do(Started())
    assert play.register(0) == []
    assert play.register(2) == []
    first = routes(1, 101, 102, 103)
    assert play.register(1) == [
        record(1, 101, 102, 103, has_run=False),
        SendTo(WorkerId(0), Incarnation(101), first),
        SendTo(WorkerId(1), Incarnation(102), first),
        SendTo(WorkerId(2), Incarnation(103), first),
    ]


def test_go_is_sent_to_the_spouts_when_the_last_task_is_ready() -> None:
    play = Play()
    play.do(Started())
    for worker in (0, 1, 2):
        play.register(worker)
    assert play.ready(LINES) == []
    assert play.ready(ACKER) == []
    assert play.ready(SINK) == [record(1, 101, 102, 103), SendTo(WorkerId(0), Incarnation(101), Go(Epoch(1)))]
    assert play.ready(SINK) == []


@pytest.mark.parametrize(("worker", "epoch", "misdirected"), [(1, 7, 0), (0, 1, 1)])
def test_ready_counts_in_its_epoch_and_from_its_own_worker_alone(worker: int, epoch: int, misdirected: int) -> None:
    play = Play()
    play.do(Started())
    for one in (0, 1, 2):
        play.register(one)
    play.ready(LINES)
    play.ready(ACKER)
    assert play.receives(worker, TaskReady(SINK, Epoch(epoch))) == []
    assert play.master.counts.misdirected == misdirected


def test_a_worker_that_does_not_register_in_time_is_killed_and_started_again() -> None:
    play = Play(small_plan(start_timeout="3s"))
    play.do(Started())
    play.register(0)
    play.register(2)
    play.until(2.0)
    play.do(WorkerLaunched(WorkerId(1), Incarnation(102)))  # the launcher took its time; the worker's own begins now
    assert StopWorker(WorkerId(1), Incarnation(102), kill=True) not in play.until(4.9)
    commands = play.until(5.0)
    assert commands == [
        StopWorker(WorkerId(1), Incarnation(102), kill=True),
        RecordError("WorkerLost", "did not register within 3 s; it is restarted in 0.2 s", "sink", None, WorkerId(1)),
    ]
    assert play.until(5.2) == [record(0, 101, 104, 103, has_run=False), StartWorker(WorkerId(1), Incarnation(104))]


def test_a_topology_that_cannot_be_started_has_crashed() -> None:
    play = Play()
    play.do(Started())
    play.register(0)
    play.do(LaunchFailed(WorkerId(1), play.life(1), "no slot is free"))
    play.until(0.3)
    play.do(LaunchFailed(WorkerId(1), play.life(1), "no slot is free"))
    play.until(0.8)
    commands = play.do(LaunchFailed(WorkerId(1), play.life(1), "no slot is free"))
    stopped = [command for command in commands if isinstance(command, StopWorker)]
    assert stopped == [StopWorker(WorkerId(0), Incarnation(101), True), StopWorker(WorkerId(2), Incarnation(103), True)]
    play.exits(0)
    reason = "worker 1 (sink) could not be started, tried 3 times: could not be launched: no slot is free"
    assert play.exits(2) == [Finished(Outcome(OutcomeKind.CRASHED, reason))]
    assert describe(play.master, play.now)["status"] == "FAILED"
    assert play.do(Tick()) == []


def test_a_topology_that_has_run_under_an_earlier_master_is_restarted_endlessly() -> None:
    play = Play(previous=MasterRecord(3, Epoch(7), {}, has_run=True))
    play.do(Started())
    play.register(0)
    play.register(2)
    for _ in range(10):
        play.do(LaunchFailed(WorkerId(1), play.life(1), "no slot is free"))
        assert describe(play.master, play.now)["status"] == "STARTING"
        assert "no slot is free" in describe(play.master, play.now)["reason"]
        play.until(play.master.membership.slots[WorkerId(1)].start_at)
    assert routes_in(play.register(1))


def test_a_worker_that_has_built_another_plan_is_not_taken() -> None:
    play = Play()
    play.do(Started())
    commands = play.receives(0, register_message(play.plan, 0, play.life(0), digest="of other code"))
    assert commands[0] == StopWorker(WorkerId(0), Incarnation(101), kill=True)
    assert "another plan" in next(command.message for command in commands if isinstance(command, RecordError))


def test_the_first_difference_of_another_plan_is_named() -> None:
    play = Play()
    play.do(Started())
    theirs = [*outline(play.plan)[:1], "Filter (bolt sink x1)"]
    message = msgspec.structs.replace(register_message(play.plan, 0, play.life(0), digest="other"), outline=theirs)
    message_text = next(one.message for one in play.receives(0, message) if isinstance(one, RecordError))
    assert (
        "the first difference is Sink (bolt sink x1) in the master, Filter (bolt sink x1) in the worker; keep chance"
        in message_text
    )


def test_a_handshake_that_hangs_is_repeated_and_names_the_missing_tasks() -> None:
    play = Play(small_plan(start_timeout="3s"))
    play.do(Started())
    for worker in (0, 1, 2):
        play.register(worker)
    play.ready(LINES)
    commands = play.until(3.0)
    assert commands[:2] == [
        record(2, 101, 102, 103, has_run=False),
        RecordError("TasksNotReady", "epoch 1 is opened again: not ready in time: 2 (sink), 3 (__acker)"),
    ]
    assert messages_in(commands) == [(worker, routes(2, 101, 102, 103)) for worker in (0, 1, 2)]
    assert play.until(8.9) == []  # twice the time
    assert play.until(9.0)[0] == record(3, 101, 102, 103, has_run=False)


def test_a_new_master_takes_the_next_term_and_epoch_and_adopts_no_worker() -> None:
    before = MasterRecord(3, Epoch(7), {WorkerId(k): Incarnation(k + 1) for k in range(3)}, active=False)
    progress = {LINES: SpoutProgress(b"\x2a", b"")}
    play = Play(previous=before, progress=progress)
    assert play.do(Started())[0] == record(7, 101, 102, 103, term=4, active=False, has_run=False)
    zombie = WorkerMessage(WorkerId(1), Incarnation(2), Heartbeat(WorkerId(1), Incarnation(2), 3, Epoch(7)))
    assert play.do(zombie) == [
        SendTo(WorkerId(1), Incarnation(2), Stop("another worker has taken this one's place")),
    ]
    assert play.master.counts.fenced == 1
    for worker in (0, 1):
        play.register(worker)
    assert messages_in(play.register(2)) == [
        (0, routes(8, 101, 102, 103, term=4, positions={LINES: b"\x2a"})),
        (1, routes(8, 101, 102, 103, term=4)),
        (2, routes(8, 101, 102, 103, term=4)),
        (0, Deactivate()),
    ]


def test_what_a_stranger_says_is_fenced() -> None:
    play = running()
    stranger = WorkerMessage(WorkerId(9), Incarnation(5), TaskReady(TaskId(1), Epoch(1)))
    assert [type(message) for _, message in messages_in(play.do(stranger))] == [Stop]
    assert play.master.counts.fenced == 1


def test_packed_tasks_are_started_and_routed_together() -> None:
    play = Play(small_plan(workers=2))
    assert started_in(play.do(Started())) == [0, 1]
    play.register(0)
    sent = messages_in(play.register(1))
    assert [(worker, [found.worker for found in message.routes]) for worker, message in sent] == [  # type: ignore[union-attr]
        (0, [play.plan.worker_of(task) for task in (1, 2, 3)]),
        (1, [play.plan.worker_of(task) for task in (1, 2, 3)]),
    ]
