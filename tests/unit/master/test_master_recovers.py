"""Losses of every kind, and what follows."""

from __future__ import annotations

import pytest

from tests.unit.master.playbook import (
    ACKER,
    LINES,
    SINK,
    Play,
    messages_in,
    record,
    routes,
    routes_in,
    running,
    small_plan,
    started_in,
)
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.commands import RecordError, SendTo, StartWorker, StopWorker, StorePositions
from topo.master.events import (
    ActivateAsked,
    DeactivateAsked,
    DrainAsked,
    ReplayAsked,
    RestartAsked,
    Started,
    Tick,
    WorkerExited,
    WorkerMessage,
)
from topo.master.positions import SpoutProgress
from topo.master.recovery import STOP_S
from topo.observability.status import describe
from topo.tracking.suspects import InFlightTuples
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.control import Activate, Deactivate, EdgeLost, Go, LetterToReplay, PositionReport, Probe, ReplayLetters, Stuck

pack = Codec().pack_value


def status(play: Play) -> tuple[str, str]:
    found = describe(play.master, play.now)
    return found["status"], found["reason"]


def test_the_epoch_rises_when_the_replacement_of_a_dead_worker_has_registered() -> None:
    play = running()
    assert play.exits(1) == [
        record(1, 101, 104, 103),
        RecordError("WorkerLost", "killed by SIGKILL; it is restarted at once", "sink", None, WorkerId(1)),
        StartWorker(WorkerId(1), Incarnation(104)),
    ]
    assert status(play) == ("DEGRADED", "worker 1 (sink) is being replaced: killed by SIGKILL")
    second = routes(2, 101, 104, 103)
    assert play.register(1) == [
        record(2, 101, 104, 103),
        SendTo(WorkerId(0), Incarnation(101), second),
        SendTo(WorkerId(1), Incarnation(104), second),
        SendTo(WorkerId(2), Incarnation(103), second),
    ]
    assert play.all_ready() == [SendTo(WorkerId(0), Incarnation(101), Go(Epoch(2)))]
    assert status(play) == ("RUNNING", "")


def test_only_processes_lost_after_registration_leave_counts_unreported() -> None:
    play = running()
    play.exits(1)
    assert describe(play.master, play.now)["unreported"] == 1
    play.exits(1)
    assert play.master.counts.losses == 2
    assert describe(play.master, play.now)["unreported"] == 1


def test_a_topology_that_has_never_run_has_no_counts_to_miss() -> None:
    play = Play(small_plan())
    play.do(Started())
    for worker in range(len(play.plan.workers)):
        play.register(worker)
    play.exits(1)
    assert play.master.counts.losses == 1
    assert describe(play.master, play.now)["unreported"] == 0


def test_several_losses_at_once_raise_the_epoch_once() -> None:
    play = running()
    assert [started_in(play.exits(worker)) for worker in range(3)] == [[0], [1], [2]]
    assert play.register(0) == play.register(2) == []
    assert routes_in(play.register(1)).keys() == {0, 1, 2}
    assert play.epoch == 2


def test_a_loss_during_the_handshake_restarts_it_under_a_further_epoch() -> None:
    play = running()
    play.replace(1)
    play.ready(LINES)
    assert play.epoch == 2
    play.replace(2)
    assert play.epoch == 3
    assert play.receives(1, control.TaskReady(SINK, Epoch(2))) == []
    assert play.ready(SINK) == play.ready(ACKER) == []
    assert [message for _, message in messages_in(play.ready(LINES))] == [Go(Epoch(3))]


def test_a_silent_worker_is_killed_and_replaced_and_fenced_when_it_wakes() -> None:
    play = running()
    assert play.until(5.9, silent=(1,)) == []
    commands = play.until(6.0, silent=(1,))
    assert commands == [
        StopWorker(WorkerId(1), Incarnation(102), kill=True),
        RecordError("WorkerLost", "was silent for 5.0 s; it is restarted in 0.2 s", "sink", None, WorkerId(1)),
    ]
    awake = WorkerMessage(WorkerId(1), Incarnation(102), control.TaskReady(SINK, Epoch(1)))
    assert [type(message) for _, message in messages_in(play.do(awake))] == [control.Stop]


@pytest.mark.parametrize(("timeout", "stop_s"), [("5s", 20.0), ("500ms", 0.8)])
def test_a_master_that_stalled_does_not_take_its_silence_for_its_workers(timeout: str, stop_s: float) -> None:
    play = running(worker_timeout=timeout, heartbeat="100ms")
    play.now += stop_s
    for worker in range(3):
        assert play.beat(worker) == []
    assert play.master.counts.losses == 0


def test_a_short_silence_has_no_consequence() -> None:
    play = running()
    assert play.until(3.0, silent=(1,)) == []
    play.beat(1)
    assert play.until(7.5, silent=(1,)) == []


def test_the_masters_own_pause_is_not_held_against_workers() -> None:
    play = running()
    play.now = 100.0
    assert play.do(Tick()) == []
    play.beat(0)
    play.beat(2)
    assert StopWorker(WorkerId(1), Incarnation(102), kill=True) in play.until(106.0, silent=(1,))


def test_stuck_user_code_is_reported_and_beyond_the_limit_its_worker_replaced() -> None:
    play = running()
    early = Stuck(WorkerId(1), SINK, "sink", 10.0, "File sink.py, line 3", "sink.py", 3)
    row = RecordError("TaskStuck", "stuck in sink for 10 s", "sink", SINK, WorkerId(1), "File sink.py, line 3", "sink.py", 3)
    assert play.receives(1, early) == [row]
    late = Stuck(WorkerId(1), SINK, "sink", 30.0, "File sink.py, line 3")
    assert StopWorker(WorkerId(1), Incarnation(102), kill=True) in play.receives(1, late)
    assert status(play) == ("DEGRADED", "worker 1 (sink) is being replaced: stuck in sink for 30 s")


def stuck(play: Play) -> str:
    """Have the sink's worker be stuck once and come back; return how its row explains it."""
    rows = [one for one in play.receives(1, Stuck(WorkerId(1), SINK, "sink", 30.0, "")) if isinstance(one, RecordError)]
    play.do(WorkerExited(WorkerId(1), play.master.recovery.lives[WorkerId(1)], "killed by SIGKILL"))
    play.until(play.now + 30.0, silent=())
    play.register(1)
    play.all_ready()
    return next(row.message for row in rows if row.kind == "TaskStuck")


def test_code_that_is_stuck_again_at_the_same_place_is_reported_with_what_helps() -> None:
    play = running()
    assert [stuck(play) for _ in range(2)] == ["stuck in sink for 30 s"] * 2

    third = stuck(play)

    assert "3 times in a row without having emitted or processed anything in between" in third
    assert "context.progress()" in third
    play.beat(1, executed=1)
    assert stuck(play) == "stuck in sink for 30 s"


def test_without_a_progress_timeout_stuck_code_is_only_reported() -> None:
    play = running(progress_timeout=None)
    commands = play.receives(1, Stuck(WorkerId(1), SINK, "sink", 3600.0, ""))
    assert [type(command) for command in commands] == [RecordError]


def test_a_crash_loop_backs_off_and_leaves_the_others_alone() -> None:
    play = running()
    waits = []
    for _ in range(9):
        lost_at = play.now
        commands = play.exits(1)
        start_at = play.master.membership.slots[WorkerId(1)].start_at
        waits.append(start_at - lost_at)
        commands += play.until(start_at)
        assert started_in(commands) == [1]
        assert not [command for command in commands if isinstance(command, StopWorker)]
    assert waits == pytest.approx([0.0, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0])
    play.register(1)
    play.all_ready()
    assert status(play) == ("DEGRADED", "worker 1 (sink) was lost 9 times: killed by SIGKILL")
    play.until(play.now + 60.0)
    assert status(play) == ("RUNNING", "")
    assert started_in(play.exits(1)) == [1]


def test_an_operators_restart_waits_for_nothing_and_accuses_nobody() -> None:
    play = running()
    assert play.do(RestartAsked(WorkerId(1))) == [
        record(1, 101, 104, 103),
        StopWorker(WorkerId(1), Incarnation(102), kill=False),
        StartWorker(WorkerId(1), Incarnation(104)),
    ]
    play.do(WorkerExited(WorkerId(1), Incarnation(102), "exited with 0", InFlightTuples((7,))))
    assert routes_in(play.register(1))[0].suspects == []
    assert play.master.counts.losses == 0


@pytest.mark.parametrize("ends", [False, True])
def test_a_worker_that_does_not_end_when_it_is_asked_to_for_a_restart_is_killed(ends: bool) -> None:
    play = running()
    old = StopWorker(WorkerId(1), Incarnation(102), kill=True)
    play.do(RestartAsked(WorkerId(1)))
    play.register(1)
    play.all_ready()
    begun = play.now
    assert old not in play.until(begun + STOP_S - 0.1)
    if ends:
        play.do(WorkerExited(WorkerId(1), Incarnation(102), "exited with 0", None))
    assert play.until(begun + STOP_S + 1.0).count(old) == (0 if ends else 1)
    play.do(WorkerExited(WorkerId(1), Incarnation(102), "killed by SIGKILL", InFlightTuples((7,))))
    assert play.master.counts.losses == 0
    assert old not in play.until(begun + 3 * STOP_S)


def test_a_dead_edge_between_two_living_workers_raises_the_epoch_and_restarts_nobody() -> None:
    play = running()
    lost = EdgeLost(SINK, Epoch(1), LINES, "expected 3, got 5")
    row = RecordError("EdgeLost", "from task 1: expected 3, got 5", "sink", SINK, WorkerId(1))
    assert play.receives(1, lost) == [row]
    assert play.receives(1, lost) == []
    commands = play.until(1.2)
    assert commands[0] == record(2, 101, 102, 103)
    assert routes_in(commands).keys() == {0, 1, 2}
    assert not started_in(commands)


def test_a_dead_edge_that_a_dead_worker_explains_raises_no_epoch_of_its_own() -> None:
    play = running()
    play.receives(1, EdgeLost(SINK, Epoch(1), LINES, "a gap"))
    assert started_in(play.exits(0)) == [0]
    play.register(0)
    assert play.epoch == 2


def test_reports_of_a_dead_edge_of_an_older_epoch_are_too_late() -> None:
    play = running()
    play.receives(1, EdgeLost(SINK, Epoch(1), LINES, "a gap"))
    play.until(1.2)
    play.all_ready()
    assert play.receives(1, EdgeLost(SINK, Epoch(1), LINES, "a gap")) == []
    assert play.until(3.0) == []
    assert play.epoch == 2


def test_an_edge_that_dies_in_epoch_after_epoch_costs_its_sender_the_worker() -> None:
    play = running()
    for epoch in (1, 2):
        play.receives(1, EdgeLost(SINK, Epoch(epoch), LINES, "a gap"))
        assert not started_in(play.until(play.now + 0.15))
        play.all_ready()
    play.receives(1, EdgeLost(SINK, Epoch(3), LINES, "a gap"))
    assert StopWorker(WorkerId(0), Incarnation(101), kill=True) in play.until(play.now + 0.15)


def test_what_a_dead_worker_had_in_flight_goes_out_with_the_next_routes_once() -> None:
    play = running()
    sent = routes_in(play.replace(1, InFlightTuples((7, 8))))
    assert [(found.suspects, found.alone) for found in sent.values()] == [([7, 8], False)] * 3
    play.all_ready()
    sent = routes_in(play.replace(2))
    assert [(found.suspects, found.alone) for found in sent.values()] == [([], False)] * 3


def test_the_note_of_a_stuck_worker_counts_when_its_process_is_gone() -> None:
    play = running()
    play.receives(1, Stuck(WorkerId(1), SINK, "sink", 30.0, ""))
    play.do(WorkerExited(WorkerId(1), Incarnation(102), "killed by SIGKILL", InFlightTuples((7,))))
    play.until(1.2)
    sent = routes_in(play.register(1))
    assert (sent[0].suspects, sent[0].alone) == ([7], True)
    assert play.master.counts.losses == 1


def test_a_suspect_whose_spout_died_is_stored_first_and_given_to_the_next_life() -> None:
    play = running(small_plan(workers=1))
    play.receives(0, PositionReport(LINES, Epoch(1), pack(41), b""))
    play.until(1.5)
    commands = play.exits(0, in_flight=InFlightTuples((7,), ((LINES, pack(42)),)))
    kept = SpoutProgress(pack(41), pack([(42, 1)]))
    assert commands[-1] == StorePositions({LINES: kept})
    play.until(1.8)
    sent = routes_in(play.register(0))[0]
    assert (sent.positions, sent.attempts) == ({LINES: kept.position}, {LINES: kept.attempts})


def test_positions_are_stored_at_most_once_a_second_and_given_to_replacements() -> None:
    play = running()
    assert play.receives(0, PositionReport(LINES, Epoch(1), pack(1), b"")) == [StorePositions({LINES: SpoutProgress(pack(1))})]
    for position in (2, 3, 4):
        assert play.receives(0, PositionReport(LINES, Epoch(1), pack(position), b"")) == []
    assert play.until(1.9) == []
    assert play.until(2.0) == [StorePositions({LINES: SpoutProgress(pack(4))})]
    assert routes_in(play.replace(0))[0].positions == {LINES: pack(4)}


def test_a_fenced_life_commits_nothing() -> None:
    play = running()
    play.replace(0)
    late = PositionReport(LINES, Epoch(1), pack(99), b"")
    play.do(WorkerMessage(WorkerId(0), Incarnation(101), late))
    assert play.master.positions.of(LINES) is None


def test_pausing_is_remembered_and_holds_for_replacements() -> None:
    play = running()
    assert play.do(DeactivateAsked()) == [
        record(1, 101, 102, 103, active=False),
        SendTo(WorkerId(0), Incarnation(101), Deactivate()),
    ]
    assert play.do(DeactivateAsked()) == []
    assert status(play) == ("INACTIVE", "deactivated")
    assert messages_in(play.replace(0))[-1] == (0, Deactivate())
    play.all_ready()
    assert play.do(ActivateAsked()) == [
        record(2, 104, 102, 103),
        SendTo(WorkerId(0), Incarnation(104), Activate()),
    ]
    assert status(play) == ("RUNNING", "")


def test_dead_letters_of_a_paused_topology_wait_and_hold_up_no_drain() -> None:
    play = running()
    play.do(DeactivateAsked())
    dead_letter = LetterToReplay(3, "default", None, b"")
    assert play.do(ReplayAsked("lines", (dead_letter,))) == []
    assert play.do(Tick()) == []
    assert play.do(ActivateAsked())[-1] == SendTo(WorkerId(0), Incarnation(101), ReplayLetters(LINES, [dead_letter]))
    play.do(DeactivateAsked())
    assert any(isinstance(command.message, Probe) for command in play.do(DrainAsked(30.0)) if isinstance(command, SendTo))


def test_the_exit_of_a_life_that_nobody_knows_changes_nothing() -> None:
    play = running()
    assert play.do(WorkerExited(WorkerId(1), Incarnation(999), "exited with 1", InFlightTuples((7,)))) == []
    assert play.do(WorkerExited(WorkerId(9), Incarnation(999), "exited with 1")) == []


def test_user_errors_are_recorded_as_they_come() -> None:
    play = running()
    error = control.ComponentError(SINK, "sink", "ValueError", "no number", "Traceback ...", "sink.py", 12, 3, 1_000)
    assert play.receives(1, error) == [
        RecordError("ValueError", "no number", "sink", SINK, WorkerId(1), "Traceback ...", "sink.py", 12, 3, 1_000)
    ]


def test_a_dead_edge_from_a_task_that_does_not_exist_is_ignored() -> None:
    play = running()
    assert play.receives(1, EdgeLost(SINK, Epoch(1), TaskId(99), "forged")) == []


@pytest.mark.parametrize("stall_s", [4.0, 4.5, 5.0, 5.3, 5.9, 8.0])
def test_however_long_the_master_stood_still_nobody_is_lost_whose_beats_wait_for_it(stall_s: float) -> None:
    play = running()
    play.until(3.5)
    play.now += stall_s
    for worker in range(3):
        play.beat(worker)
    assert play.do(Tick()) == []
    assert play.master.counts.losses == 0
