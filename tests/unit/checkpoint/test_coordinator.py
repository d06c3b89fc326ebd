"""When checkpoints are taken, when one is complete, and what becomes of it. Tasks: 1 lines, 2 sink, 3 acker."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.master.playbook import small_plan
from topo.checkpoint.assignment import parts_to_read, shapes_of, stateful_tasks
from topo.checkpoint.coordinator import CheckpointCoordinator, Finding, Phase
from topo.checkpoint.manifest import ComponentFigures, ComponentShape, Manifest, Part
from topo.checkpoint.steps import Problem, Step, ToAll, ToSpouts
from topo.checkpoint.store_messages import (
    CheckpointFound,
    CheckpointStored,
    CommitCheckpoint,
    CopyCheckpoint,
    DiscardCheckpoint,
    FindCheckpoint,
    SavepointStored,
)
from topo.ids import Epoch, TaskId
from topo.wire.control import (
    BarrierAcked,
    BeginCheckpoint,
    CheckpointAborted,
    CheckpointComplete,
    CheckpointPublished,
    CheckpointWanted,
    PartToRead,
    RestoreFailed,
    SnapshotFailed,
    SnapshotTaken,
)

LINES, SINK, ACKER = TaskId(1), TaskId(2), TaskId(3)
PLAN = small_plan(
    delivery="exactly_once", checkpoint_interval="10s", checkpoint_pause="1s", checkpoint_timeout="60s", max_parallelism=8
)


def manifest(checkpoint: int) -> Manifest:
    parts = [
        Part(file=f"{checkpoint}/{task}", length=100, checksum="c", component=component, task=TaskId(task), index=0)
        for task, component in ((1, "lines"), (2, "sink"))
    ]
    return Manifest(
        topology="small",
        checkpoint=checkpoint,
        components=shapes_of(PLAN),
        parts=tuple(parts),
        figures=ComponentFigures(bytes=200, duration_ms=2000.0, alignment_ms=7.0, pause_ms=3.0),
    )


class Checkpoints:
    """A coordinator with a hand on the clock. Every call returns the steps that follow, and checks the invariants."""

    def __init__(self, **fields: Any) -> None:
        self.it = CheckpointCoordinator(PLAN, **fields)
        self.now = 100.0
        self.epoch = Epoch(1)

    def runs(self) -> list[Step]:
        self.it.epoch_runs(self.epoch, self.now)
        return self.steps()

    def breaks(self) -> list[Step]:
        self.it.epoch_broken(self.now)
        self.epoch = Epoch(self.epoch + 1)
        return self.steps()

    def until(self, moment: float) -> list[Step]:
        found: list[Step] = []
        while (at := self.it.next_deadline()) is not None and at <= moment:
            self.now = max(self.now, at)
            found += self.steps()
        self.now = moment
        return found + self.steps()

    def acked(self, checkpoint: int, task: TaskId = LINES) -> list[Step]:
        self.it.barrier_acked(BarrierAcked(task, self.epoch, checkpoint), self.now)
        return self.steps()

    def taken(self, checkpoint: int, task: TaskId) -> list[Step]:
        self.it.snapshot_taken(
            SnapshotTaken(task, self.epoch, checkpoint, f"{checkpoint}/{task}", 100, "c", 7.0 if task == SINK else 0.0, 3.0),
            self.now,
        )
        return self.steps()

    def stored(self, checkpoint: int, problem: str = "") -> list[Step]:
        self.it.stored(CheckpointStored(manifest(checkpoint), problem), self.now)
        return self.steps()

    def published(self, checkpoint: int, *tasks: TaskId) -> None:
        for task in tasks or (LINES, SINK):
            self.it.published(CheckpointPublished(task, self.epoch, checkpoint))

    def steps(self) -> list[Step]:
        self.it.advance(self.now)
        self.it.validate()
        return self.it.take_steps()

    def done(self, checkpoint: int) -> list[Step]:
        """Let everything about a checkpoint that has begun happen; return what its commit brings about."""
        self.acked(checkpoint)
        self.taken(checkpoint, LINES)
        self.taken(checkpoint, SINK)
        return self.stored(checkpoint)


def running() -> Checkpoints:
    checkpoints = Checkpoints()
    assert checkpoints.runs() == []
    return checkpoints


def under_way() -> Checkpoints:
    checkpoints = running()
    assert checkpoints.until(110.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 1))]
    return checkpoints


# -- when one begins ---------------------------------------------------------------------------------------------------------


def test_the_first_checkpoint_begins_an_interval_after_the_spouts() -> None:
    checkpoints = running()
    assert checkpoints.until(109.9) == []
    assert checkpoints.until(110.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 1))]


def test_the_next_one_begins_an_interval_after_the_last_began() -> None:
    checkpoints = under_way()
    checkpoints.until(114.0)
    checkpoints.done(1)
    checkpoints.published(1)
    assert checkpoints.until(119.9) == []
    assert checkpoints.until(120.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 2))]


def test_after_a_slow_one_there_is_a_pause() -> None:
    checkpoints = under_way()
    checkpoints.until(140.0)
    checkpoints.done(1)
    checkpoints.published(1)
    assert checkpoints.until(140.9) == []
    assert checkpoints.until(141.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 2))]


def test_one_is_under_way_at_a_time() -> None:
    checkpoints = under_way()
    assert checkpoints.until(169.0) == []
    checkpoints.it.wanted(CheckpointWanted(LINES, Epoch(1)))
    checkpoints.it.want_savepoint("/save")
    assert checkpoints.steps() == []


def test_none_begins_before_the_epoch_runs() -> None:
    checkpoints = Checkpoints()
    checkpoints.it.want_savepoint("/save")
    assert checkpoints.it.next_deadline() is None
    assert checkpoints.until(500.0) == []


def test_a_spout_that_is_nearly_full_gets_one_early_but_after_the_pause() -> None:
    checkpoints = under_way()
    checkpoints.done(1)
    checkpoints.published(1)
    checkpoints.it.wanted(CheckpointWanted(LINES, Epoch(1)))
    assert checkpoints.until(110.9) == []
    assert checkpoints.until(111.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 2))]
    checkpoints.done(2)
    checkpoints.published(2)
    assert checkpoints.until(120.9) == []


def test_one_that_a_spout_wanted_and_that_failed_is_tried_again_after_the_pause() -> None:
    checkpoints = running()
    checkpoints.until(101.0)
    checkpoints.it.wanted(CheckpointWanted(LINES, Epoch(1)))
    assert ToSpouts(BeginCheckpoint(Epoch(1), 1)) in checkpoints.steps()
    checkpoints.it.snapshot_failed(SnapshotFailed(SINK, Epoch(1), 1, "disk full"), checkpoints.now)
    assert ToSpouts(BeginCheckpoint(Epoch(1), 2)) not in checkpoints.until(101.9)
    assert ToSpouts(BeginCheckpoint(Epoch(1), 2)) in checkpoints.until(102.0)
    checkpoints.done(2)
    assert ToSpouts(BeginCheckpoint(Epoch(1), 3)) not in checkpoints.until(111.9)


def test_what_a_spout_of_an_earlier_epoch_wanted_does_not_count() -> None:
    checkpoints = running()
    checkpoints.it.wanted(CheckpointWanted(LINES, Epoch(0)))
    assert checkpoints.until(109.9) == []


def test_numbers_go_on_where_an_earlier_master_stopped() -> None:
    checkpoints = Checkpoints(last=41)
    checkpoints.runs()
    assert checkpoints.until(110.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 42))]


# -- when one is complete ----------------------------------------------------------------------------------------------------


def test_it_is_committed_when_every_barrier_is_acked_and_every_part_stored() -> None:
    checkpoints = under_way()
    checkpoints.now = 112.0
    assert checkpoints.taken(1, LINES) == []
    assert checkpoints.acked(1) == []
    assert checkpoints.taken(1, SINK) == [CommitCheckpoint(manifest(1))]
    assert checkpoints.it.completed is None
    assert checkpoints.stored(1) == [ToAll(CheckpointComplete(1))]
    assert checkpoints.it.completed == manifest(1)


def test_the_barrier_may_be_acked_last() -> None:
    checkpoints = under_way()
    checkpoints.now = 112.0
    checkpoints.taken(1, SINK)
    assert checkpoints.taken(1, LINES) == []
    assert checkpoints.acked(1) == [CommitCheckpoint(manifest(1))]


def test_ackers_have_no_part_and_only_spouts_have_barriers() -> None:
    assert stateful_tasks(PLAN) == {LINES, SINK}
    checkpoints = under_way()
    checkpoints.acked(1, SINK)
    checkpoints.taken(1, LINES)
    checkpoints.taken(1, ACKER)
    assert checkpoints.taken(1, SINK) == []
    assert checkpoints.it.phase is Phase.UNDER_WAY


@pytest.mark.parametrize(("checkpoint", "epoch"), [(2, 1), (1, 0), (1, 2)])
def test_what_is_said_of_another_checkpoint_or_in_another_epoch_does_not_count(checkpoint: int, epoch: int) -> None:
    checkpoints = under_way()
    checkpoints.taken(1, LINES)
    checkpoints.acked(1)
    checkpoints.it.snapshot_taken(SnapshotTaken(SINK, Epoch(epoch), checkpoint, "f", 1, "c"), checkpoints.now)
    assert checkpoints.steps() == []


def test_a_commit_that_failed_is_no_checkpoint() -> None:
    checkpoints = under_way()
    checkpoints.acked(1)
    checkpoints.taken(1, LINES)
    checkpoints.taken(1, SINK)
    row, aborted, discard = checkpoints.stored(1, problem="No space left on device")
    assert isinstance(row, Problem) and "No space left on device" in row.message
    assert (aborted, discard) == (ToAll(CheckpointAborted(1)), DiscardCheckpoint(1))
    assert checkpoints.it.completed is None
    assert "No space left" in checkpoints.it.problem
    assert checkpoints.until(120.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 2))]
    checkpoints.done(2)
    assert checkpoints.it.completed == manifest(2)
    assert checkpoints.it.problem == ""


# -- when one is not ---------------------------------------------------------------------------------------------------------


def test_one_that_takes_too_long_is_given_up_and_its_number_not_used_again() -> None:
    checkpoints = under_way()
    checkpoints.taken(1, LINES)
    checkpoints.acked(1)
    row, *rest = checkpoints.until(170.0)
    assert row == Problem(
        "CheckpointFailed",
        "checkpoint 1 was given up: not complete after 60 s: the parts of tasks 2 (sink); the one before still holds",
    )
    assert rest == [ToAll(CheckpointAborted(1)), DiscardCheckpoint(1)]
    assert checkpoints.taken(1, SINK) == []
    assert checkpoints.until(171.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 2))]


def test_it_is_said_when_barriers_alone_are_missing() -> None:
    checkpoints = under_way()
    checkpoints.taken(1, LINES)
    checkpoints.taken(1, SINK)
    row = checkpoints.until(170.0)[0]
    assert isinstance(row, Problem) and "the barriers of tasks 1 (lines)" in row.message


def test_a_part_that_cannot_be_stored_ends_it_at_once() -> None:
    checkpoints = under_way()
    checkpoints.it.snapshot_failed(SnapshotFailed(SINK, Epoch(1), 1, "range: not carried"), checkpoints.now)
    row, *rest = checkpoints.steps()
    assert isinstance(row, Problem) and "task 2 (sink): range: not carried" in row.message
    assert rest == [ToAll(CheckpointAborted(1)), DiscardCheckpoint(1)]
    assert checkpoints.it.describe(checkpoints.now)["failed"] == 1


def test_a_recovery_ends_the_one_under_way_and_the_next_begins_soon() -> None:
    checkpoints = under_way()
    checkpoints.now = 112.0
    assert checkpoints.breaks() == [ToAll(CheckpointAborted(1)), DiscardCheckpoint(1)]
    checkpoints.now = 115.0
    # The first began at 110; the next would be due at 120 only.
    assert checkpoints.runs() == [ToSpouts(BeginCheckpoint(Epoch(2), 2))]
    found = checkpoints.it.describe(115.0)
    assert (found["aborted"], found["failed"]) == (1, 0)


def test_recoveries_do_not_put_checkpoints_off() -> None:
    checkpoints = running()
    checkpoints.until(103.0)
    checkpoints.breaks()
    checkpoints.runs()
    assert checkpoints.until(110.0) == [ToSpouts(BeginCheckpoint(Epoch(2), 1))]


def test_processes_that_die_faster_than_the_interval_passes_get_a_checkpoint_early() -> None:
    checkpoints = running()
    for moment in (103.0, 106.0):
        checkpoints.until(moment)
        checkpoints.breaks()
        checkpoints.runs()
    assert checkpoints.until(106.3) == []
    assert checkpoints.until(106.375) == [ToSpouts(BeginCheckpoint(Epoch(3), 1))]
    checkpoints.done(1)
    checkpoints.published(1)
    began = [checkpoints.now]
    while checkpoints.now < 118.0:
        checkpoints.until(checkpoints.it.next_deadline() or 0)
        began.append(checkpoints.now)
        checkpoints.done(checkpoints.it.last)
        checkpoints.published(checkpoints.it.last)
    # A pause of one second lies between them. The epoch began at 106: from 116 on it has lasted for an interval.
    assert began == [*(106.375 + pause for pause in range(11)), 126.375]


def test_checkpoints_that_fail_one_after_the_other_back_off() -> None:
    checkpoints = running()
    began = []
    for number in range(1, 6):
        at = checkpoints.it.next_deadline()
        assert at is not None
        checkpoints.until(at)
        began.append(checkpoints.now)
        checkpoints.it.snapshot_failed(SnapshotFailed(SINK, checkpoints.epoch, number, "no space"), checkpoints.now)
        checkpoints.steps()
    assert [after - before for before, after in pairwise(began)] == [10.0, 10.0, 20.0, 40.0]
    checkpoints.until(200.0)
    checkpoints.until(checkpoints.it.next_deadline() or 0)
    checkpoints.done(6)
    checkpoints.published(6)
    assert checkpoints.it.next_deadline() == checkpoints.now + 10.0, "one that is complete ends the back-off"


def test_no_epoch_begins_while_it_is_not_known_whether_one_is_complete() -> None:
    checkpoints = under_way()
    assert not checkpoints.it.holds_epoch
    checkpoints.acked(1)
    checkpoints.taken(1, LINES)
    checkpoints.taken(1, SINK)
    assert checkpoints.it.holds_epoch
    assert checkpoints.breaks() == []
    assert checkpoints.until(1000.0) == []
    assert checkpoints.it.holds_epoch
    assert checkpoints.stored(1) == [ToAll(CheckpointComplete(1))]
    assert not checkpoints.it.holds_epoch


# -- what tasks go on from ---------------------------------------------------------------------------------------------------


def test_each_task_reads_its_own_part() -> None:
    assert parts_to_read(PLAN, manifest(3), [LINES, SINK, ACKER]) == {
        LINES: [PartToRead("3/1", 100, "c", "lines", LINES, 0, (0, 7), True)],
        SINK: [PartToRead("3/2", 100, "c", "sink", SINK, 0, (0, 7), True)],
    }


def test_a_plan_with_more_tasks_reads_the_part_by_key_groups() -> None:
    wider = msgspec.structs.replace(
        PLAN,
        components=tuple(msgspec.structs.replace(c, parallelism=2) if c.id == "sink" else c for c in PLAN.components),
        tasks=(*PLAN.tasks, type(PLAN.tasks[0])(TaskId(4), "sink", 1)),
    )
    found = parts_to_read(wider, manifest(3), [SINK, TaskId(4)])
    assert [(part.groups, part.takes_values) for part in found[SINK]] == [((0, 3), True)]
    assert [(part.groups, part.takes_values) for part in found[TaskId(4)]] == [((4, 7), False)]


def test_the_shapes_of_a_plan_leave_out_ackers_and_say_what_inputs_are_grouped_by() -> None:
    assert shapes_of(PLAN) == {
        "lines": ComponentShape(kind="spout", parallelism=1, max_parallelism=8, state="message ids"),
        "sink": ComponentShape(kind="bolt", parallelism=1, max_parallelism=8, state="nothing"),
    }


def test_tasks_that_could_not_publish_are_told_again_until_they_have() -> None:
    checkpoints = under_way()
    checkpoints.done(1)
    checkpoints.published(1, LINES)
    told = ToAll(CheckpointComplete(1))
    assert checkpoints.until(checkpoints.now + 3.0) == [told] * 3
    checkpoints.published(1, SINK)
    assert checkpoints.until(119.0) == []


def test_when_a_part_cannot_be_restored_an_earlier_checkpoint_is_looked_for() -> None:
    checkpoints = Checkpoints(last=7, completed=manifest(7))
    checkpoints.it.restored()
    checkpoints.it.restore_failed(RestoreFailed(SINK, Epoch(1), 7, "7/2 is damaged"), checkpoints.now)
    assert checkpoints.steps() == [FindCheckpoint(upto=7)]
    assert checkpoints.it.holds_epoch
    checkpoints.it.restore_failed(RestoreFailed(LINES, Epoch(1), 7, "7/1 is damaged"), checkpoints.now)
    assert checkpoints.steps() == []
    assert checkpoints.it.found(CheckpointFound(manifest(6))) is Finding.EARLIER
    row, goes_on = checkpoints.steps()
    assert isinstance(row, Problem) and "checkpoint 7 cannot be restored: 7/2 is damaged" in row.message
    assert isinstance(goes_on, Problem) and "going on from checkpoint 6" in goes_on.message
    assert checkpoints.it.completed == manifest(6)
    assert not checkpoints.it.holds_epoch
    checkpoints.runs()
    checkpoints.published(6)
    assert checkpoints.until(110.0)[-1] == ToSpouts(BeginCheckpoint(Epoch(1), 8))


def test_when_no_checkpoint_can_be_restored_the_topology_is_lost() -> None:
    checkpoints = Checkpoints(last=7, completed=manifest(7))
    checkpoints.it.restore_failed(RestoreFailed(SINK, Epoch(1), 7, "gone"), checkpoints.now)
    assert checkpoints.it.found(CheckpointFound(None, "there is no checkpoint to go on from")) is Finding.NOTHING
    assert checkpoints.it.lost == "there is no checkpoint to go on from"
    assert checkpoints.it.holds_epoch


def test_a_checkpoint_that_is_whole_stays_the_last_one_although_a_task_cannot_read_it() -> None:
    checkpoints = Checkpoints(last=7, completed=manifest(7))
    checkpoints.it.restore_failed(RestoreFailed(SINK, Epoch(1), 7, "7/2 is not there"), checkpoints.now)
    checkpoints.steps()
    assert checkpoints.it.found(CheckpointFound(manifest(7))) is Finding.WHOLE
    assert checkpoints.it.completed == manifest(7) and checkpoints.it.unreadable is not None
    assert checkpoints.steps() == [] and not checkpoints.it.holds_epoch


def test_a_failed_restore_of_an_earlier_checkpoint_is_out_of_date() -> None:
    checkpoints = Checkpoints(last=7, completed=manifest(7))
    checkpoints.it.restore_failed(RestoreFailed(SINK, Epoch(1), 6, "gone"), checkpoints.now)
    assert checkpoints.steps() == []


# -- the end, and savepoints -------------------------------------------------------------------------------------------------


def test_the_final_one_begins_at_once_and_the_end_waits_until_all_have_published_it() -> None:
    checkpoints = running()
    assert not checkpoints.it.may_close
    checkpoints.it.want_final()
    assert checkpoints.steps() == [ToSpouts(BeginCheckpoint(Epoch(1), 1))]
    checkpoints.done(1)
    assert not checkpoints.it.may_close
    checkpoints.published(1, LINES)
    assert not checkpoints.it.may_close
    checkpoints.published(1, SINK)
    assert checkpoints.it.may_close
    assert checkpoints.until(500.0) == []


def test_one_that_began_before_all_was_still_is_not_the_final_one() -> None:
    checkpoints = under_way()
    checkpoints.it.want_final()
    checkpoints.done(1)
    checkpoints.published(1)
    assert not checkpoints.it.may_close
    assert checkpoints.it.last == 2


def test_a_final_one_that_failed_is_taken_again_after_a_pause() -> None:
    checkpoints = running()
    checkpoints.it.want_final()
    checkpoints.steps()
    checkpoints.it.snapshot_failed(SnapshotFailed(SINK, Epoch(1), 1, "disk full"), checkpoints.now)
    checkpoints.steps()
    assert checkpoints.until(100.9) == []
    assert checkpoints.until(101.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 2))]


def test_a_recovery_before_the_end_makes_another_final_one_necessary() -> None:
    checkpoints = running()
    checkpoints.it.want_final()
    checkpoints.steps()
    checkpoints.done(1)
    checkpoints.breaks()
    checkpoints.it.restored()
    checkpoints.runs()
    checkpoints.published(1)
    assert not checkpoints.it.may_close
    checkpoints.it.want_final()
    assert checkpoints.steps() == [ToSpouts(BeginCheckpoint(Epoch(2), 2))]


def test_restored_tasks_publish_again_before_the_end() -> None:
    checkpoints = Checkpoints(last=3, completed=manifest(3))
    checkpoints.it.restored()
    checkpoints.runs()
    checkpoints.it.want_final()
    checkpoints.steps()
    checkpoints.done(4)
    checkpoints.published(3)
    assert not checkpoints.it.may_close
    checkpoints.published(4)
    assert checkpoints.it.may_close


def test_a_savepoint_is_the_next_checkpoint_copied() -> None:
    checkpoints = running()
    checkpoints.it.want_savepoint("/save")
    assert checkpoints.steps() == [ToSpouts(BeginCheckpoint(Epoch(1), 1))]
    assert checkpoints.done(1) == [ToAll(CheckpointComplete(1)), CopyCheckpoint(1, "/save")]
    checkpoints.it.savepoint_stored(SavepointStored("/save"))
    assert checkpoints.steps() == []
    assert checkpoints.it.describe(0)["savepoints"] == [{"folder": "/save", "state": "written", "checkpoint": 1, "why": ""}]


def test_a_savepoint_asked_for_while_one_is_under_way_is_the_one_after() -> None:
    checkpoints = under_way()
    checkpoints.it.want_savepoint("/save")
    assert checkpoints.done(1) == [ToAll(CheckpointComplete(1)), ToSpouts(BeginCheckpoint(Epoch(1), 2))]
    assert checkpoints.done(2)[-1] == CopyCheckpoint(2, "/save")


def test_a_savepoint_survives_a_recovery_and_a_failure_is_said() -> None:
    checkpoints = running()
    checkpoints.it.want_savepoint("/save")
    checkpoints.steps()
    checkpoints.breaks()
    checkpoints.now = 105.0
    assert checkpoints.runs() == [ToSpouts(BeginCheckpoint(Epoch(2), 2))]
    checkpoints.done(2)
    checkpoints.it.savepoint_stored(SavepointStored("/save", "No space left on device"))
    (row,) = checkpoints.steps()
    assert isinstance(row, Problem) and "/save was not written: No space left on device" in row.message


def test_the_end_waits_for_a_savepoint() -> None:
    checkpoints = running()
    checkpoints.it.want_final()
    checkpoints.it.want_savepoint("/save")
    checkpoints.steps()
    checkpoints.done(1)
    checkpoints.published(1)
    assert not checkpoints.it.may_close
    checkpoints.it.savepoint_stored(SavepointStored("/save"))
    assert checkpoints.it.may_close


def test_a_savepoint_of_the_end_is_the_final_checkpoint_also_after_a_recovery() -> None:
    checkpoints = running()
    checkpoints.it.want_savepoint("/save", at_end=True)
    assert checkpoints.steps() == []
    assert checkpoints.until(110.0) == [ToSpouts(BeginCheckpoint(Epoch(1), 1))]
    assert checkpoints.done(1) == [ToAll(CheckpointComplete(1))]
    checkpoints.it.want_final()
    assert checkpoints.steps() == [ToSpouts(BeginCheckpoint(Epoch(1), 2))]
    checkpoints.breaks()
    checkpoints.now += 5.0
    assert checkpoints.runs() == [ToSpouts(BeginCheckpoint(Epoch(2), 3))]
    assert checkpoints.done(3) == [ToAll(CheckpointComplete(3))]
    checkpoints.it.want_final()
    assert checkpoints.steps() == [ToSpouts(BeginCheckpoint(Epoch(2), 4))]
    assert checkpoints.done(4) == [ToAll(CheckpointComplete(4)), CopyCheckpoint(4, "/save")]


def test_a_savepoint_that_waits_or_is_copied_does_not_stand_for_that_of_the_end_in_the_same_folder() -> None:
    for moment in ("waiting", "under way", "copying"):
        checkpoints = running()
        checkpoints.it.want_savepoint("/save")
        if moment != "waiting":
            checkpoints.steps()
        if moment == "copying":
            checkpoints.done(1)
        checkpoints.it.want_savepoint("/save", at_end=True)
        if moment == "under way":
            assert checkpoints.done(1) == [ToAll(CheckpointComplete(1))]
        checkpoints.it.savepoint_stored(SavepointStored("/save"))
        assert checkpoints.it.describe(0)["savepoints"][0]["state"] == "waiting"
        checkpoints.it.want_final()
        assert [type(step) for step in checkpoints.steps()] == [ToSpouts]
        last = checkpoints.it.last
        assert checkpoints.done(last) == [ToAll(CheckpointComplete(last)), CopyCheckpoint(last, "/save")]
        checkpoints.published(last)
        assert not checkpoints.it.may_close
        checkpoints.it.savepoint_stored(SavepointStored("/save"))
        assert checkpoints.it.may_close
        assert checkpoints.it.describe(0)["savepoints"][0]["checkpoint"] == last


# -- what is shown -----------------------------------------------------------------------------------------------------------


def test_what_is_shown_of_checkpoints_is_plain() -> None:
    checkpoints = under_way()
    checkpoints.now = 112.0
    checkpoints.done(1)
    checkpoints.until(120.5)
    shown = checkpoints.it.describe(120.5)
    assert shown == {
        "phase": "under way",
        "last_complete": 1,
        "age_s": 8.5,
        "complete": 1,
        "failed": 0,
        "aborted": 0,
        "restores": 0,
        "under_way": {"checkpoint": 2, "since_s": 0.5, "waiting_for": "the parts of tasks 1 (lines), 2 (sink)"},
        "latest": [
            {
                "checkpoint": 1,
                "state": "complete",
                "duration_s": 2.0,
                "bytes": 200,
                "alignment_ms": 7.0,
                "pause_ms": 3.0,
                "why": "",
            }
        ],
        "savepoints": [],
    }


# -- anything in any order ---------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_happens_a_checkpoint_is_complete_only_with_all_its_parts_in_one_epoch(seed: int) -> None:
    draws = random.Random(seed)
    checkpoints = Checkpoints()
    is_running = False
    numbers: list[int] = []
    said: dict[int, set[tuple[str, TaskId, Epoch]]] = {}
    begun_in: dict[int, Epoch] = {}
    committing: CommitCheckpoint | None = None
    complete: list[int] = []
    for _ in range(120):
        found: list[Step] = []
        action = draws.choice(["run", "break", "ack", "take", "take", "fail", "store", "time", "want", "final", "wild"])
        checkpoint = checkpoints.it.last if action != "wild" else draws.randint(0, checkpoints.it.last + 1)
        task = draws.choice((LINES, SINK))
        epoch = checkpoints.epoch
        if action == "run" and not checkpoints.it.holds_epoch:
            is_running = True
            found = checkpoints.runs()
        elif action == "break":
            if is_running:
                found = checkpoints.breaks()
            is_running = False
        elif action in ("ack", "wild"):
            said.setdefault(checkpoint, set()).add(("ack", LINES, epoch))
            found = checkpoints.acked(checkpoint)
        elif action == "take":
            said.setdefault(checkpoint, set()).add(("part", task, epoch))
            found = checkpoints.taken(checkpoint, task)
        elif action == "fail" and draws.random() < 0.2:
            checkpoints.it.snapshot_failed(SnapshotFailed(task, epoch, checkpoint, "why"), checkpoints.now)
            found = checkpoints.steps()
        elif action == "store" and committing is not None:
            is_well = draws.random() < 0.8
            number = committing.manifest.checkpoint
            found = checkpoints.stored(number, "" if is_well else "no room")
            committing = None
            assert (ToAll(CheckpointComplete(number)) in found) == is_well
            if is_well:
                complete.append(number)
        elif action == "time":
            found = checkpoints.until(checkpoints.now + draws.choice((0.1, 1.0, 10.0, 70.0)))
        elif action == "want":
            checkpoints.it.wanted(CheckpointWanted(LINES, epoch))
            found = checkpoints.steps()
        elif action == "final" and is_running:
            checkpoints.it.want_final()
            found = checkpoints.steps()
        for step in found:
            if isinstance(step, ToSpouts):
                assert is_running and committing is None
                assert step.message.checkpoint not in numbers and step.message.checkpoint == max(numbers, default=0) + 1
                numbers.append(step.message.checkpoint)
                begun_in[step.message.checkpoint] = step.message.epoch
            elif isinstance(step, CommitCheckpoint):
                assert committing is None
                committing = step
                number = step.manifest.checkpoint
                own = {(kind, task) for kind, task, of in said[number] if of == begun_in[number]}
                assert own == {("ack", LINES), ("part", LINES), ("part", SINK)}
            elif isinstance(step, DiscardCheckpoint):
                assert step.checkpoint not in complete
        assert checkpoints.it.holds_epoch == (committing is not None)
        restored = checkpoints.it.completed
        assert (0 if restored is None else restored.checkpoint) == (complete[-1] if complete else 0)
