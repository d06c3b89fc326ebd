"""Checkpoints within the master: persisted before they are begun, named in Routes, final before the end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.unit.checkpoint.coordinator_rig import LINES, SINK, manifest
from tests.unit.master.playbook import Play, messages_in, record, routes_in, running, small_plan
from topo.checkpoint.store_messages import (
    CheckpointFound,
    CheckpointStored,
    CommitCheckpoint,
    CopyCheckpoint,
    DiscardCheckpoint,
    FindCheckpoint,
    SavepointStored,
)
from topo.ids import Epoch, Incarnation, WorkerId
from topo.master.commands import Finished, MasterCommand, MasterRecord, Persist, RecordError, StopWorker
from topo.master.events import DrainAsked, SavepointAsked, Started
from topo.master.outcome import Outcome, OutcomeKind
from topo.observability.status import describe
from topo.plan.physical import PhysicalPlan
from topo.wire.control import (
    BarrierAcked,
    BeginCheckpoint,
    CheckpointAborted,
    CheckpointComplete,
    CheckpointPublished,
    Close,
    ComponentError,
    Drain,
    PartToRead,
    RestoreFailed,
    SnapshotFailed,
    SnapshotTaken,
)


def plan(**settings: Any) -> PhysicalPlan:
    return small_plan(delivery="exactly_once", max_parallelism=8, **settings)


def taken(play: Play, checkpoint: int) -> list[MasterCommand]:
    """Report everything that a checkpoint needs; return the commands that follow the last report."""
    play.receives(0, BarrierAcked(LINES, play.epoch, checkpoint))
    play.receives(0, SnapshotTaken(LINES, play.epoch, checkpoint, f"{checkpoint}/1", 100, "c"))
    return play.receives(1, SnapshotTaken(SINK, play.epoch, checkpoint, f"{checkpoint}/2", 100, "c"))


def stored(play: Play, checkpoint: int) -> list[MasterCommand]:
    return play.do(CheckpointStored(manifest(checkpoint)))


def published(play: Play, checkpoint: int) -> list[MasterCommand]:
    play.receives(0, CheckpointPublished(LINES, play.epoch, checkpoint))
    return play.receives(1, CheckpointPublished(SINK, play.epoch, checkpoint))


def with_one_complete() -> Play:
    play = running(plan())
    play.until(11.0)
    taken(play, 1)
    stored(play, 1)
    return play


def with_checkpoints(persist: Persist, checkpoint: int, completed: int) -> Persist:
    return Persist(structs.replace(persist.record, checkpoint=checkpoint, completed=completed))


def test_a_number_is_persisted_before_its_barrier_is_out() -> None:
    play = running(plan())
    commands = play.until(11.0)
    first = with_checkpoints(record(1, 101, 102, 103), 1, 0)
    assert commands.index(first) < next(
        index for index, found in enumerate(commands) if messages_in([found]) == [(0, BeginCheckpoint(Epoch(1), 1))]
    )


def test_only_workers_with_spouts_begin_a_checkpoint_and_all_learn_its_completion() -> None:
    play = running(plan())
    begun = [(worker, message) for worker, message in messages_in(play.until(11.0)) if isinstance(message, BeginCheckpoint)]
    assert begun == [(0, BeginCheckpoint(Epoch(1), 1))]
    (commit,) = taken(play, 1)
    assert isinstance(commit, CommitCheckpoint)
    assert [part.file for part in commit.manifest.parts] == ["1/1", "1/2"]
    persist, *shown_text = stored(play, 1)
    assert persist == with_checkpoints(record(1, 101, 102, 103), 1, 1)
    assert messages_in(shown_text) == [(worker, CheckpointComplete(1)) for worker in range(3)]


def test_without_checkpoints_nothing_of_them_is_said() -> None:
    play = running()
    play.receives(0, BarrierAcked(LINES, play.epoch, 1))
    commands = play.until(100.0)
    assert not any(isinstance(message, BeginCheckpoint) for _, message in messages_in(commands))
    assert describe(play.master, play.now)["checkpoints"] is None


def test_a_crash_before_the_first_checkpoint_starts_at_the_beginning() -> None:
    play = running(plan())
    shown_text = routes_in(play.replace(1))
    assert {(routes.checkpoint, len(routes.restore)) for routes in shown_text.values()} == {(0, 0)}


def test_every_task_goes_on_from_the_last_complete_checkpoint() -> None:
    play = with_one_complete()
    shown_text = routes_in(play.replace(1))
    assert {worker: (routes.checkpoint, routes.folder) for worker, routes in shown_text.items()} == dict.fromkeys(
        range(3), (1, "")
    )
    assert shown_text[0].restore == {LINES: [PartToRead("1/1", 100, "c", "lines", LINES, 0, (0, 7), True)]}
    assert shown_text[1].restore == {SINK: [PartToRead("1/2", 100, "c", "sink", SINK, 0, (0, 7), True)]}
    assert shown_text[2].restore == {}


def test_a_second_crash_during_restore_repeats_it() -> None:
    play = with_one_complete()
    first = routes_in(play.replace(1))
    second = routes_in(play.replace(0))
    assert second[0].epoch > first[0].epoch
    assert [second[worker].restore for worker in range(3)] == [first[worker].restore for worker in range(3)]


def test_a_lost_worker_ends_the_checkpoint_under_way() -> None:
    play = running(plan())
    play.until(11.0)
    commands = play.exits(1)
    assert DiscardCheckpoint(1) in commands
    assert (0, CheckpointAborted(1)) in messages_in(commands)
    assert taken_late(play) == []


def taken_late(play: Play) -> list[MasterCommand]:
    return play.receives(0, SnapshotTaken(LINES, play.epoch, 1, "1/1", 100, "c"))


def test_no_routes_go_out_before_the_commit_is_decided() -> None:
    play = running(plan())
    play.until(11.0)
    assert len(taken(play, 1)) == 1
    assert routes_in(play.replace(1)) == {}
    assert routes_in(play.until(20.0)) == {}
    status = describe(play.master, play.now)
    assert (status["status"], status["reason"]) == ("DEGRADED", "waiting for the store of checkpoints")
    shown_text = routes_in(stored(play, 1))
    assert [shown_text[worker].checkpoint for worker in range(3)] == [1, 1, 1]


def test_a_commit_that_failed_leaves_the_one_before() -> None:
    play = with_one_complete()
    play.until(21.0)
    taken(play, 2)
    play.replace(1)
    shown_text = routes_in(play.do(CheckpointStored(manifest(2), "No space left on device")))
    assert [shown_text[worker].checkpoint for worker in range(3)] == [1, 1, 1]


def test_a_later_master_goes_on_from_what_is_stored_and_never_uses_a_number_again() -> None:
    lives = {WorkerId(worker): Incarnation(worker + 1) for worker in range(3)}
    play = Play(plan(), MasterRecord(1, Epoch(5), lives, checkpoint=9, completed=8), completed=manifest(8))
    play.do(Started())
    for worker in range(3):
        commands = play.register(worker)
    shown_text = routes_in(commands)
    assert {(routes.term, routes.epoch, routes.checkpoint) for routes in shown_text.values()} == {(2, 6, 8)}
    play.all_ready()
    begun = [message for _, message in messages_in(play.until(20.0)) if isinstance(message, BeginCheckpoint)]
    assert begun == [BeginCheckpoint(Epoch(6), 10)]


def test_a_savepoint_to_start_from_is_named_until_the_first_checkpoint_of_the_run() -> None:
    play = Play(plan(), completed=manifest(8), completed_in="/save")
    play.do(Started())
    for worker in range(3):
        commands = play.register(worker)
    assert [routes.folder for routes in routes_in(commands).values()] == ["/save"] * 3
    play.all_ready()
    begun = [command.record for command in play.until(11.0) if isinstance(command, Persist)]
    # What a later master has to find is its own; the savepoint it knows of anyway.
    assert [(record.checkpoint, record.completed) for record in begun] == [(9, 0)]
    taken(play, 9)
    kept = [command.record for command in stored(play, 9) if isinstance(command, Persist)]
    assert [(record.checkpoint, record.completed) for record in kept] == [(9, 9)]
    assert {(routes.checkpoint, routes.folder) for routes in routes_in(play.replace(1)).values()} == {(9, "")}


def test_damage_found_during_restore_leads_to_an_earlier_checkpoint_loudly() -> None:
    play = with_one_complete()
    play.until(21.0)
    taken(play, 2)
    stored(play, 2)
    play.replace(1)
    assert play.receives(1, RestoreFailed(SINK, play.epoch, 2, "2/2 is damaged")) == [FindCheckpoint(upto=2)]
    commands = play.do(CheckpointFound(manifest(1)))
    assert {routes.checkpoint for routes in routes_in(commands).values()} == {1}
    assert with_checkpoints(record(3, 101, 104, 103), 2, 1) == commands[0]
    assert any("an earlier one" in found.message for found in commands if isinstance(found, RecordError))


def test_a_checkpoint_that_cannot_be_read_now_is_tried_again_by_a_new_worker() -> None:
    play = with_one_complete()
    play.until(21.0)
    taken(play, 2)
    stored(play, 2)
    play.replace(1)
    epoch = play.epoch
    commands = play.receives(1, RestoreFailed(SINK, epoch, 2, "the disk is away", is_transient=True))
    assert StopWorker(WorkerId(1), Incarnation(104), kill=True) in commands
    (row,) = (command for command in commands if isinstance(command, RecordError))
    assert (row.kind, row.worker) == ("WorkerLost", 1) and "cannot read checkpoint 2: the disk is away" in row.message
    play.until(play.master.membership.slots[WorkerId(1)].start_at)
    commands = play.register(1)
    assert {(routes.epoch, routes.checkpoint) for routes in routes_in(commands).values()} == {(epoch + 1, 2)}


def test_a_part_that_one_host_does_not_see_costs_its_worker_and_no_checkpoint() -> None:
    play = with_one_complete()
    play.until(21.0)
    taken(play, 2)
    stored(play, 2)
    play.replace(1)
    epoch = play.epoch
    for incarnation in (104, 105):
        missing = RestoreFailed(SINK, play.epoch, 2, "2/2 is damaged: it is not there")
        assert play.receives(1, missing) == [FindCheckpoint(upto=2)]
        commands = play.do(CheckpointFound(manifest(2)))
        assert StopWorker(WorkerId(1), Incarnation(incarnation), kill=True) in commands
        (row,) = (command for command in commands if isinstance(command, RecordError))
        assert (row.kind, row.worker) == ("WorkerLost", 1)
        assert "cannot read checkpoint 2: 2/2 is damaged: it is not there; the master reads it well" in row.message
        play.until(play.master.membership.slots[WorkerId(1)].start_at)
        commands = play.register(1)
        epoch += 1
        assert {(routes.epoch, routes.checkpoint) for routes in routes_in(commands).values()} == {(epoch, 2)}


def test_a_restore_that_failed_in_an_epoch_that_is_over_ends_nobody() -> None:
    play = with_one_complete()
    play.replace(1)
    play.exits(2)
    assert play.receives(1, RestoreFailed(SINK, play.epoch, 1, "the disk is away", is_transient=True)) == []


def test_a_topology_without_a_checkpoint_that_can_be_restored_ends() -> None:
    play = with_one_complete()
    play.replace(1)
    play.receives(1, RestoreFailed(SINK, play.epoch, 1, "1/2 is damaged"))
    commands = play.do(CheckpointFound(None, "there is no checkpoint to restore"))
    assert sum(isinstance(command, StopWorker) for command in commands) == 3
    assert play.master.ending.outcome is not None
    assert play.master.ending.outcome.kind is OutcomeKind.CRASHED
    assert play.master.ending.outcome.reason == "there is no checkpoint to restore"


# -- the end -----------------------------------------------------------------------------------------------------------------


def still(play: Play) -> list[MasterCommand]:
    """Let every task end and two probe rounds agree; return what follows."""
    for task in play.plan.tasks:
        play.quiet(task.id)
    play.answer_probe(1)
    return play.answer_probe(2)


def test_a_bounded_topology_closes_after_a_final_checkpoint_that_is_published() -> None:
    play = running(plan())
    assert messages_in(still(play)) == [(0, BeginCheckpoint(Epoch(1), 1))]
    taken(play, 1)
    assert not any(isinstance(message, Close) for _, message in messages_in(stored(play, 1)))
    assert messages_in(published(play, 1)) == [(worker, Close(Epoch(1), drain=False)) for worker in range(3)]


def test_a_worker_that_dies_before_it_has_published_is_replaced_and_the_end_waits() -> None:
    play = running(plan())
    still(play)
    taken(play, 1)
    stored(play, 1)
    play.receives(0, CheckpointPublished(LINES, play.epoch, 1))
    shown_text = routes_in(play.replace(1))
    assert shown_text[1].checkpoint == 1
    play.all_ready()
    published(play, 1)
    play.until(play.now + 2.0)
    for task in play.plan.tasks:
        play.quiet(task.id)
    play.answer_probe(3)
    assert (0, BeginCheckpoint(Epoch(2), 2)) in messages_in(play.answer_probe(4))
    taken(play, 2)
    stored(play, 2)
    assert any(isinstance(message, Close) for _, message in messages_in(published(play, 2)))


def test_a_drain_takes_a_last_checkpoint_too() -> None:
    play = running(plan())
    play.do(DrainAsked(30.0))
    for number in (1, 2):
        commands = play.answer_probe(number)
    assert (0, BeginCheckpoint(Epoch(1), 1)) in messages_in(commands)
    taken(play, 1)
    stored(play, 1)
    assert (0, Close(Epoch(1), drain=True)) in messages_in(published(play, 1))


def test_a_drain_with_a_savepoint_waits_until_it_is_written() -> None:
    play = running(plan())
    commands = play.do(DrainAsked(30.0, "/save"))
    assert messages_in(commands)[0] == (0, Drain())
    assert not any(isinstance(message, BeginCheckpoint) for _, message in messages_in(commands))
    for number in (1, 2):
        play.answer_probe(number)
    taken(play, 1)
    assert CopyCheckpoint(1, "/save") in stored(play, 1)
    assert not any(isinstance(message, Close) for _, message in messages_in(published(play, 1)))
    assert (0, Close(Epoch(1), drain=True)) in messages_in(play.do(SavepointStored("/save")))


@pytest.mark.parametrize(
    ("why", "shown"),
    [("", "its last checkpoint was not complete and published"), ("no", "checkpoint 1 failed: task 2 (sink): no")],
)
def test_a_drain_that_cannot_take_its_last_checkpoint_is_cut_short(why: str, shown: str) -> None:
    play = running(plan())
    play.do(DrainAsked(5.0))
    for number in (1, 2):
        play.answer_probe(number)
    if why:
        play.receives(1, SnapshotFailed(SINK, play.epoch, 1, why))
    commands = play.until(play.now + 5.0)
    assert any(isinstance(message, Close) for _, message in messages_in(commands))
    assert play.master.ending.outcome == Outcome(OutcomeKind.CUT_SHORT, f"drained, not to the end: {shown}")


def test_a_drain_does_not_wait_for_a_right_without_which_no_checkpoint_is_taken() -> None:
    play = running(plan())
    play.until(11.0)
    play.receives(1, SnapshotFailed(SINK, play.epoch, 1, "grant it"))
    play.do(DrainAsked(30.0))
    commands: list[MasterCommand] = []
    for task in play.plan.tasks:
        commands = play.quiet(task.id, 1, refused="grant it" if task.id == SINK else "")
    assert any(isinstance(message, Close) for _, message in messages_in(commands))
    assert play.master.ending.outcome == Outcome(OutcomeKind.CUT_SHORT, f"drained, not to the end: task {SINK} (sink): grant it")


def test_a_drain_does_not_wait_for_a_right_to_publish_its_last_checkpoint() -> None:
    play = running(plan())
    play.do(DrainAsked(30.0))
    for number in (1, 2):
        for task in play.plan.tasks:
            play.quiet(task.id, number, refused="grant it" if task.id == SINK else "")
    taken(play, 1)
    commands = stored(play, 1)
    assert any(isinstance(message, Close) for _, message in messages_in(commands))
    outcome = Outcome(OutcomeKind.CUT_SHORT, f"drained, not to the end: task {SINK} (sink): grant it")
    assert play.master.ending.outcome == outcome


@pytest.mark.parametrize(("kind", "is_the_end"), [("UnsupportedStateError", True), ("UnsupportedValueError", False)])
def test_state_that_no_checkpoint_can_store_is_the_end(kind: str, is_the_end: bool) -> None:
    """A row that a sink cannot stage for the checkpoint is gone at the next one; a value of state is not."""
    play = running(plan())
    play.do(DrainAsked(5.0))
    for number in (1, 2):
        play.answer_probe(number)
    play.receives(1, ComponentError(SINK, "sink", kind, "range: not carried", "Traceback"))
    play.receives(1, SnapshotFailed(SINK, play.epoch, 1, "range: not carried"))
    ended = Outcome(OutcomeKind.CRASHED, "no checkpoint can be taken: task 2 (sink): range: not carried")
    assert play.master.ending.outcome == (ended if is_the_end else None)


def test_a_savepoint_that_is_asked_for_is_shown() -> None:
    play = running(plan())
    play.do(SavepointAsked("/save"))
    taken(play, 1)
    stored(play, 1)
    play.do(SavepointStored("/save"))
    shown = describe(play.master, play.now)["checkpoints"]
    assert (shown["last_complete"], shown["savepoints"][0]["state"]) == (1, "written")


def test_nothing_about_checkpoints_is_done_any_more_when_the_topology_ends() -> None:
    play = running(plan())
    still(play)
    taken(play, 1)
    stored(play, 1)
    published(play, 1)
    assert taken(play, 2) == []
    for worker in range(3):
        commands = play.exits(worker, "exited with 0")
    assert any(isinstance(command, Finished) for command in commands)


def test_a_failing_checkpoint_is_said_in_the_status() -> None:
    play = running(plan(checkpoint_timeout="3s"))
    play.until(15.0)
    status = describe(play.master, play.now)
    assert status["status"] == "RUNNING"
    assert status["reason"].startswith("checkpoint 1 failed: not complete after 3 s: the parts of tasks")
