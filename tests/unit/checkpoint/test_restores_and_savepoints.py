"""Which parts tasks restore, the final checkpoint, and savepoints."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.checkpoint.coordinator_rig import ACKER, LINES, PLAN, SINK, Checkpoints, manifest, running, under_way
from topo.checkpoint.assignment import parts_to_read, shapes_of
from topo.checkpoint.coordinator import Finding
from topo.checkpoint.manifest import ComponentShape
from topo.checkpoint.rows import REMEMBERED
from topo.checkpoint.steps import Problem, ToAll, ToSources
from topo.checkpoint.store_messages import (
    CheckpointFound,
    CopyCheckpoint,
    FindCheckpoint,
    SavepointStored,
)
from topo.ids import Epoch, TaskId
from topo.wire.control import (
    BeginCheckpoint,
    CheckpointComplete,
    PartToRead,
    RestoreFailed,
    SnapshotFailed,
)


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
    shown_text = ToAll(CheckpointComplete(1))
    assert checkpoints.until(checkpoints.now + 3.0) == [shown_text] * 3
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
    assert isinstance(goes_on, Problem) and "checkpoint 6, an earlier one, is restored" in goes_on.message
    assert checkpoints.it.completed == manifest(6)
    assert not checkpoints.it.holds_epoch
    checkpoints.runs()
    checkpoints.published(6)
    assert checkpoints.until(110.0)[-1] == ToSources(BeginCheckpoint(Epoch(1), 8))


def test_when_no_checkpoint_can_be_restored_the_topology_is_lost() -> None:
    checkpoints = Checkpoints(last=7, completed=manifest(7))
    checkpoints.it.restore_failed(RestoreFailed(SINK, Epoch(1), 7, "gone"), checkpoints.now)
    assert checkpoints.it.found(CheckpointFound(None, "there is no checkpoint to continue from")) is Finding.NOTHING
    assert checkpoints.it.lost == "there is no checkpoint to continue from"
    assert checkpoints.it.holds_epoch


def test_a_whole_checkpoint_that_a_task_cannot_read_stays_the_last_one() -> None:
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


def test_the_final_one_begins_at_once_and_the_end_waits_until_all_have_published_it() -> None:
    checkpoints = running()
    assert not checkpoints.it.may_close
    checkpoints.it.want_final()
    assert checkpoints.steps() == [ToSources(BeginCheckpoint(Epoch(1), 1))]
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
    assert checkpoints.until(101.0) == [ToSources(BeginCheckpoint(Epoch(1), 2))]


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
    assert checkpoints.steps() == [ToSources(BeginCheckpoint(Epoch(2), 2))]


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
    assert checkpoints.steps() == [ToSources(BeginCheckpoint(Epoch(1), 1))]
    assert checkpoints.done(1) == [ToAll(CheckpointComplete(1)), CopyCheckpoint(1, "/save")]
    checkpoints.it.savepoint_stored(SavepointStored("/save"))
    assert checkpoints.steps() == []
    assert checkpoints.it.describe(0)["savepoints"] == [{"folder": "/save", "state": "written", "checkpoint": 1, "why": ""}]


def test_a_savepoint_asked_for_while_one_is_under_way_is_the_one_after() -> None:
    checkpoints = under_way()
    checkpoints.it.want_savepoint("/save")
    assert checkpoints.done(1) == [ToAll(CheckpointComplete(1)), ToSources(BeginCheckpoint(Epoch(1), 2))]
    assert checkpoints.done(2)[-1] == CopyCheckpoint(2, "/save")


@pytest.mark.parametrize("is_copied", [False, True])
def test_a_savepoint_asked_for_again_is_a_checkpoint_that_begins_behind_the_second_request(is_copied: bool) -> None:
    checkpoints = running()
    checkpoints.it.want_savepoint("/save")
    checkpoints.steps()
    first = checkpoints.done(1) if is_copied else []
    checkpoints.it.want_savepoint("/save")
    if not is_copied:
        first = checkpoints.done(1)
    assert (CopyCheckpoint(1, "/save") in first) is is_copied
    checkpoints.it.savepoint_stored(SavepointStored("/save"))
    assert checkpoints.it.describe(0)["savepoints"][0]["state"] == "waiting", "that of the first request is older than the second"
    checkpoints.steps()
    assert checkpoints.done(2)[-1] == CopyCheckpoint(2, "/save")
    checkpoints.it.savepoint_stored(SavepointStored("/save"))
    assert checkpoints.it.describe(0)["savepoints"][0]["state"] == "written"


def test_a_savepoint_survives_a_recovery_and_a_failure_is_said() -> None:
    checkpoints = running()
    checkpoints.it.want_savepoint("/save")
    checkpoints.steps()
    checkpoints.breaks()
    checkpoints.now = 105.0
    assert checkpoints.runs() == [ToSources(BeginCheckpoint(Epoch(2), 2))]
    checkpoints.done(2)
    checkpoints.it.savepoint_stored(SavepointStored("/save", "No space left on device"))
    (row,) = checkpoints.steps()
    assert isinstance(row, Problem) and "/save was not written: No space left on device" in row.message


def test_only_the_last_settled_savepoints_are_remembered() -> None:
    checkpoints = running()
    for number in range(1, REMEMBERED + 3):
        checkpoints.it.want_savepoint(f"/save/{number}")
        checkpoints.steps()
        checkpoints.done(number)
        checkpoints.it.savepoint_stored(SavepointStored(f"/save/{number}"))
    checkpoints.it.want_savepoint("/save/waiting")
    states = {row["folder"]: row["state"] for row in checkpoints.it.describe(0)["savepoints"]}
    assert len(states) == REMEMBERED + 1
    assert states["/save/waiting"] == "waiting" and states[f"/save/{REMEMBERED + 2}"] == "written" and "/save/1" not in states


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
    assert checkpoints.until(110.0) == [ToSources(BeginCheckpoint(Epoch(1), 1))]
    assert checkpoints.done(1) == [ToAll(CheckpointComplete(1))]
    checkpoints.it.want_final()
    assert checkpoints.steps() == [ToSources(BeginCheckpoint(Epoch(1), 2))]
    checkpoints.breaks()
    checkpoints.now += 5.0
    assert checkpoints.runs() == [ToSources(BeginCheckpoint(Epoch(2), 3))]
    assert checkpoints.done(3) == [ToAll(CheckpointComplete(3))]
    checkpoints.it.want_final()
    assert checkpoints.steps() == [ToSources(BeginCheckpoint(Epoch(2), 4))]
    assert checkpoints.done(4) == [ToAll(CheckpointComplete(4)), CopyCheckpoint(4, "/save")]


@pytest.mark.parametrize("moment", ["committing", "copying", "written"])
def test_a_savepoint_of_the_end_is_that_of_the_epoch_that_ends(moment: str) -> None:
    checkpoints = running()
    checkpoints.it.want_savepoint("/save", at_end=True)
    checkpoints.it.want_final()
    checkpoints.steps()
    checkpoints.acked(1)
    for task in (LINES, SINK):
        checkpoints.taken(1, task)
    if moment == "committing":
        checkpoints.breaks()
        assert checkpoints.stored(1) == [ToAll(CheckpointComplete(1))]
    else:
        assert checkpoints.stored(1) == [ToAll(CheckpointComplete(1)), CopyCheckpoint(1, "/save")]
        if moment == "written":
            checkpoints.it.savepoint_stored(SavepointStored("/save"))
        checkpoints.breaks()
    checkpoints.it.savepoint_stored(SavepointStored("/save"))
    checkpoints.it.restored()
    checkpoints.now += 5.0
    checkpoints.runs()
    checkpoints.it.want_final()
    checkpoints.steps()
    assert checkpoints.done(2) == [ToAll(CheckpointComplete(2)), CopyCheckpoint(2, "/save")]
    checkpoints.published(2)
    assert not checkpoints.it.may_close
    checkpoints.it.savepoint_stored(SavepointStored("/save"))
    assert checkpoints.it.may_close
    assert checkpoints.it.describe(0)["savepoints"] == [{"folder": "/save", "state": "written", "checkpoint": 2, "why": ""}]


def test_a_savepoint_under_way_does_not_stand_for_that_of_the_end() -> None:
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
        assert [type(step) for step in checkpoints.steps()] == [ToSources]
        last = checkpoints.it.last
        assert checkpoints.done(last) == [ToAll(CheckpointComplete(last)), CopyCheckpoint(last, "/save")]
        checkpoints.published(last)
        assert not checkpoints.it.may_close
        checkpoints.it.savepoint_stored(SavepointStored("/save"))
        assert checkpoints.it.may_close
        assert checkpoints.it.describe(0)["savepoints"][0]["checkpoint"] == last
