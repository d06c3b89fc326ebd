"""When checkpoints are taken, when one is complete, and what becomes of it. Tasks: 1 lines, 2 sink, 3 acker."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.checkpoint.coordinator_rig import ACKER, LINES, PLAN, SINK, Checkpoints, manifest, running, under_way
from topo.checkpoint.assignment import stateful_tasks
from topo.checkpoint.attempt import Phase
from topo.checkpoint.steps import Problem, Step, ToAll, ToSources
from topo.checkpoint.store_messages import (
    CommitCheckpoint,
    DiscardCheckpoint,
)
from topo.ids import Epoch, TaskId
from topo.wire.control import (
    BeginCheckpoint,
    CheckpointAborted,
    CheckpointComplete,
    CheckpointWanted,
    SnapshotFailed,
    SnapshotTaken,
)

# -- when one begins ---------------------------------------------------------------------------------------------------------


def test_the_first_checkpoint_begins_an_interval_after_the_spouts() -> None:
    checkpoints = running()
    assert checkpoints.until(109.9) == []
    assert checkpoints.until(110.0) == [ToSources(BeginCheckpoint(Epoch(1), 1))]


@pytest.mark.parametrize(("stored", "begins"), [(114.0, 120.0), (140.0, 141.0)])
def test_the_next_one_begins_an_interval_after_the_last_began_and_a_pause_after_a_slow_one(stored: float, begins: float) -> None:
    checkpoints = under_way()
    checkpoints.until(stored)
    checkpoints.done(1)
    checkpoints.published(1)
    assert checkpoints.until(begins - 0.1) == []
    assert checkpoints.until(begins) == [ToSources(BeginCheckpoint(Epoch(1), 2))]


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
    assert checkpoints.until(111.0) == [ToSources(BeginCheckpoint(Epoch(1), 2))]
    checkpoints.done(2)
    checkpoints.published(2)
    assert checkpoints.until(120.9) == []


def test_one_that_a_spout_wanted_and_that_failed_is_tried_again_after_the_pause() -> None:
    checkpoints = running()
    checkpoints.until(101.0)
    checkpoints.it.wanted(CheckpointWanted(LINES, Epoch(1)))
    assert ToSources(BeginCheckpoint(Epoch(1), 1)) in checkpoints.steps()
    checkpoints.it.snapshot_failed(SnapshotFailed(SINK, Epoch(1), 1, "disk full"), checkpoints.now)
    assert ToSources(BeginCheckpoint(Epoch(1), 2)) not in checkpoints.until(101.9)
    assert ToSources(BeginCheckpoint(Epoch(1), 2)) in checkpoints.until(102.0)
    checkpoints.done(2)
    assert ToSources(BeginCheckpoint(Epoch(1), 3)) not in checkpoints.until(111.9)


def test_what_a_spout_of_an_earlier_epoch_wanted_does_not_count() -> None:
    checkpoints = running()
    checkpoints.it.wanted(CheckpointWanted(LINES, Epoch(0)))
    assert checkpoints.until(109.9) == []


def test_numbers_go_on_where_an_earlier_master_stopped() -> None:
    checkpoints = Checkpoints(last=41)
    checkpoints.runs()
    assert checkpoints.until(110.0) == [ToSources(BeginCheckpoint(Epoch(1), 42))]


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
    assert checkpoints.until(120.0) == [ToSources(BeginCheckpoint(Epoch(1), 2))]
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
    assert checkpoints.until(171.0) == [ToSources(BeginCheckpoint(Epoch(1), 2))]


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
    assert checkpoints.runs() == [ToSources(BeginCheckpoint(Epoch(2), 2))]
    found = checkpoints.it.describe(115.0)
    assert (found["aborted"], found["failed"]) == (1, 0)


def test_recoveries_do_not_put_checkpoints_off() -> None:
    checkpoints = running()
    checkpoints.until(103.0)
    checkpoints.breaks()
    checkpoints.runs()
    assert checkpoints.until(110.0) == [ToSources(BeginCheckpoint(Epoch(2), 1))]


def test_processes_that_die_faster_than_the_interval_passes_get_a_checkpoint_early() -> None:
    checkpoints = running()
    for moment in (103.0, 106.0):
        checkpoints.until(moment)
        checkpoints.breaks()
        checkpoints.runs()
    assert checkpoints.until(106.3) == []
    assert checkpoints.until(106.375) == [ToSources(BeginCheckpoint(Epoch(3), 1))]
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
    assert checkpoints.it.next_deadline() == checkpoints.now + 10.0, "a complete checkpoint ends the back-off"


def test_after_one_that_is_behind_the_end_of_all_input_tasks_have_time_to_become_quiet() -> None:
    checkpoints = under_way()
    checkpoints.now = 115.0
    checkpoints.acked(1)
    for task in (LINES, SINK):
        checkpoints.taken(1, task, ended=True)
    checkpoints.stored(1)
    checkpoints.published(1)
    assert checkpoints.until(134.9) == [], "not after the interval: it took 5 s, and a task may be busy with it for as long"
    assert checkpoints.until(135.0) == [ToSources(BeginCheckpoint(Epoch(1), 2))]
    checkpoints.breaks()
    checkpoints.runs()
    assert checkpoints.until(136.0) == [ToSources(BeginCheckpoint(Epoch(2), 3))], "inputs of another epoch have not ended"


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


# -- statistics --------------------------------------------------------------------------------------------------------------


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
def test_a_checkpoint_is_complete_only_with_all_its_parts_in_one_epoch(seed: int) -> None:
    draws = random.Random(seed)
    checkpoints = Checkpoints()
    is_running = False
    numbers: list[int] = []
    reported: dict[int, set[tuple[str, TaskId, Epoch]]] = {}
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
            reported.setdefault(checkpoint, set()).add(("ack", LINES, epoch))
            found = checkpoints.acked(checkpoint)
        elif action == "take":
            reported.setdefault(checkpoint, set()).add(("part", task, epoch))
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
            if isinstance(step, ToSources):
                assert is_running and committing is None
                assert step.message.checkpoint not in numbers and step.message.checkpoint == max(numbers, default=0) + 1
                numbers.append(step.message.checkpoint)
                begun_in[step.message.checkpoint] = step.message.epoch
            elif isinstance(step, CommitCheckpoint):
                assert committing is None
                committing = step
                number = step.manifest.checkpoint
                own = {(kind, task) for kind, task, of in reported[number] if of == begun_in[number]}
                assert own == {("ack", LINES), ("part", LINES), ("part", SINK)}
            elif isinstance(step, DiscardCheckpoint):
                assert step.checkpoint not in complete
        assert checkpoints.it.holds_epoch == (committing is not None)
        restored = checkpoints.it.completed
        assert (0 if restored is None else restored.checkpoint) == (complete[-1] if complete else 0)
