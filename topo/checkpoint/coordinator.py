"""Decides when checkpoints are taken and complete, and what follows from a failed one.

Knows the tasks of the plan, the checkpoint under way, the last complete one. Must not know workers, sockets or
files: its driver performs its steps and answers them.

| phase      | meaning                                                                   | left when                             |
| ---------- | ------------------------------------------------------------------------- | ------------------------------------- |
| IDLE       | nothing is under way                                                      | one is due while the epoch runs       |
| UNDER_WAY  | spouts emit barriers; parts are being stored                              | every barrier tree is acked and every |
|            |                                                                           | part durable: COMMITTING; time is up, |
|            |                                                                           | a part failed, epoch broken: IDLE     |
| COMMITTING | the manifest is being written; its existence is not known yet             | the store answers: IDLE               |
| SEARCHING  | the last complete checkpoint cannot be read; an earlier one is looked for | the store answers: IDLE               |

- One checkpoint at a time. A number is never used twice: it is in the master's record before the barrier is out.
- While COMMITTING or SEARCHING no epoch begins (`holds_epoch`): its routes name the checkpoint to restore, and once
  tasks have restored one, a later one of an older epoch must not become complete.
- `completed` is what tasks restore, and what their sinks may publish. Tasks get it when it is stored, and with every Routes.
- The final checkpoint begins after the topology is still, and the topology may close when every task has published it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Any

from topo.checkpoint.assignment import manifest_of, stateful_tasks
from topo.checkpoint.attempt import CheckpointAttempt, Phase
from topo.checkpoint.manifest import Manifest
from topo.checkpoint.pace import CheckpointPace
from topo.checkpoint.rows import REMEMBERED, CheckpointRow, Savepoint, forget_settled
from topo.checkpoint.steps import Problem, Step, ToAll, ToSources
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
from topo.plan.physical import PhysicalPlan
from topo.wire import control

RESEND_S = 1.0
"""Interval at which CheckpointComplete is resent to tasks that have not published yet: a sink may have failed to publish."""


class Finding(Enum):
    """The result of the search for a checkpoint that a task could not read."""

    NOTHING = "no search was asked for, or there is none"
    WHOLE = "it is whole: the task's worker cannot read it"
    EARLIER = "it is damaged, and an earlier one takes its place"


class CheckpointCoordinator:
    """Checkpoints of one run.

    Args:
        plan: the topology, with its settings.
        last: the highest number that may have been used.
        completed: the checkpoint to restore; None: from the beginning.
        folder: where its parts are, if not with this topology's checkpoints.

    Attributes:
        last: the highest number used.
        completed: the last complete checkpoint.
        folder: where the parts of `completed` are; empty: with this topology's checkpoints.
        lost: why the topology cannot continue: no checkpoint can be restored, or taken, any more; "" while it can.
        unreadable: the last report of a task that could not read its part.
        restores: epochs that restored a checkpoint.
        savepoints: those asked for, by folder; of those that are settled the last ones.
    """

    def __init__(self, plan: PhysicalPlan, last: int = 0, completed: Manifest | None = None, folder: str = "") -> None:
        config = plan.config
        self._plan = plan
        self._spouts = frozenset(plan.spouts)
        self._tasks = stateful_tasks(plan)
        self._pace = CheckpointPace(config.checkpoint_interval_s, config.checkpoint_pause_s)
        self._timeout_s = config.checkpoint_timeout_s
        self.last = last
        self.completed = completed
        self.folder, self.lost = folder, ""
        self.unreadable: control.RestoreFailed | None = None
        self.restores = 0
        self.savepoints: dict[str, Savepoint] = {}
        self._at_end: set[str] = set()
        self.phase = Phase.IDLE
        self._attempt: CheckpointAttempt | None = None
        self._epoch: Epoch | None = None
        """The epoch that runs; None while none does."""
        self._completed_at: float | None = None
        self._is_wanted = self._is_final_wanted = self._is_final_done = self._has_ended = self._parts_have_ended = False
        self._unpublished: set[TaskId] = set()
        self._resend_at = 0.0
        self._steps: list[Step] = []
        self._rows: deque[CheckpointRow] = deque(maxlen=REMEMBERED)
        self._parts: deque[tuple[int, tuple[control.SnapshotTaken, ...]]] = deque(maxlen=REMEMBERED)
        self._complete = self._failed = self._aborted = 0

    # -- what happens ----------------------------------------------------------------------------------------------------

    def epoch_runs(self, epoch: Epoch, now: float) -> None:
        """Every task of the epoch is ready and spouts emit. A repeated call changes nothing."""
        if self._epoch != epoch:
            self._epoch = epoch
            self._resend_at = now + RESEND_S
            self._pace.epoch_runs(now)

    def epoch_broken(self, now: float) -> None:
        """The epoch is over; every task restores the last complete checkpoint. A repeated call changes nothing."""
        self._epoch = None
        self._pace.epoch_broken(now)
        if self._is_final_done:
            # The next epoch may publish more before it ends, and a run from this checkpoint would publish that again.
            self.savepoints.update((folder, Savepoint(folder)) for folder in self._at_end)
        self._is_final_wanted = self._is_final_done = self._parts_have_ended = False
        if self.phase is Phase.UNDER_WAY:
            self._give_up("a recovery began", now, state="aborted")
            # Else workers that die faster than the interval passes would keep any from being taken.
            self._is_wanted = True

    def restored(self) -> None:
        """Routes that name the last complete checkpoint go out: each task is to publish it again."""
        self.restores += self.completed is not None
        self._unpublished = set(self._tasks) if self.completed is not None else set()

    def advance(self, now: float) -> None:
        """Give up, begin or resend as deadlines require."""
        attempt = self._attempt
        if attempt is not None and self.phase is Phase.UNDER_WAY and now >= attempt.deadline:
            self._give_up(f"not complete after {self._timeout_s:g} s: {self._waiting_for(attempt)}", now, state="failed")
        due_at = self._due_at()
        if due_at is not None and now >= due_at:
            self._begin(now)
        if self._may_resend and now >= self._resend_at and self.completed is not None:
            self._resend_at = now + RESEND_S
            self._steps.append(ToAll(control.CheckpointComplete(self.completed.checkpoint)))

    def next_deadline(self) -> float | None:
        """When `advance` has something to do, unless something happens."""
        deadline = self._due_at()
        if self._attempt is not None:
            deadline = self._attempt.deadline if self.phase is Phase.UNDER_WAY else None
        again = self._resend_at if self._may_resend else None
        return min((at for at in (deadline, again) if at is not None), default=None)

    def barrier_acked(self, message: control.BarrierAcked, now: float) -> None:
        """The barrier of a spout has gone through."""
        if (attempt := self._matching(message)) is not None and message.task in self._spouts:
            attempt.acked.add(message.task)
            self._look(attempt, now)

    def snapshot_taken(self, message: control.SnapshotTaken, now: float) -> None:
        """A part is durable."""
        if (attempt := self._matching(message)) is not None and message.task in self._tasks:
            attempt.taken[message.task] = message
            self._look(attempt, now)

    def snapshot_failed(self, message: control.SnapshotFailed, now: float) -> None:
        """A part could not be made or stored: there is no point in waiting for the others."""
        if self._matching(message) is not None:
            component = self._plan.task(message.task).component
            self._give_up(f"task {message.task} ({component}): {message.why}", now, state="failed")

    def wanted(self, message: control.CheckpointWanted) -> None:
        """A spout cannot run for long without a checkpoint: the next begins as soon as it may."""
        if message.epoch == self._epoch:
            self._is_wanted = True

    def published(self, message: control.CheckpointPublished) -> None:
        """A task has published all that the last complete checkpoint covers."""
        if self.completed is not None and message.checkpoint == self.completed.checkpoint:
            self._unpublished.discard(message.task)

    def ending(self, is_ending: bool) -> None:
        """Every input has ended, so that a checkpoint is only the next best to the final one; or not any more.

        A task that is busy between any two checkpoints has reported it with its part alone.
        """
        self._has_ended = is_ending or self._parts_have_ended

    def want_final(self) -> None:
        """Nothing moves any more: a last checkpoint is to hold all of it. A repeated call changes nothing."""
        self._is_final_wanted = True

    def want_savepoint(self, folder: str, *, at_end: bool = False) -> None:
        """The next checkpoint, or the final one, is to be copied there. Of two requests both wait for that of the second.

        A savepoint that was requested before, and is not written yet, does not count as that of the end.
        """
        known, attempt, is_of_end = self.savepoints.get(folder), self._attempt, folder in self._at_end
        if attempt is not None and folder in attempt.savepoints and not is_of_end:
            # It lacks all that has come since it began. At the end nothing has.
            attempt.savepoints.remove(folder)
        is_open = known is not None and (known.state == "waiting" or (known.state == "copying" and is_of_end))
        if not is_open or (at_end and not is_of_end):
            self.savepoints[folder] = Savepoint(folder)
        forget_settled(self.savepoints)
        if at_end:
            # A run from an earlier savepoint would publish the output of the final checkpoint a second time.
            self._at_end.add(folder)

    def give_up_end(self, why: str) -> None:
        """The topology continues after all: no savepoint is that of the end, and no checkpoint the final one."""
        for one in self.savepoints.values():
            if one.folder in self._at_end and not one.is_settled:
                self._fail(one, why)
        if self._attempt is not None:
            self._attempt.is_final = False
            self._attempt.savepoints = [folder for folder in self._attempt.savepoints if folder not in self._at_end]
        self._at_end.clear()
        self._is_final_wanted = self._is_final_done = False

    @property
    def failed_end(self) -> str:
        """Why the savepoints of the end were not written, when none was; "" before it is known."""
        asked = [one for one in self.savepoints.values() if one.folder in self._at_end]
        return asked[-1].why if asked and all(one.state == "failed" for one in asked) else ""

    @property
    def is_settled(self) -> bool:
        """Whether the final checkpoint is complete, published or not, and every savepoint settled."""
        return self._is_final_done and all(savepoint.is_settled for savepoint in self.savepoints.values())

    @property
    def may_close(self) -> bool:
        """Whether everything that the final checkpoint covers is published, and every savepoint settled."""
        return self.is_settled and not self._unpublished

    @property
    def holds_epoch(self) -> bool:
        """Whether no epoch may begin, because the checkpoint that it would restore is not decided."""
        return self.phase in (Phase.COMMITTING, Phase.SEARCHING) or bool(self.lost)

    @property
    def problem(self) -> str:
        """Why the latest checkpoint failed, in words; "" when it did not."""
        return self._rows[-1].problem if self._rows else ""

    @property
    def unfinished(self) -> str:
        """Why the final checkpoint still keeps the topology from closing, in words; "" when it does not, or is not wanted."""
        if not self._is_final_wanted or self.may_close:
            return ""
        return self.problem or "its last checkpoint was not complete and published"

    # -- answers of the store ------------------------------------------------------------------------------------------

    def stored(self, event: CheckpointStored, now: float) -> None:
        """The commit attempt is settled: the manifest exists or the write failed."""
        attempt = self._attempt
        if attempt is None or self.phase is not Phase.COMMITTING or event.manifest.checkpoint != attempt.number:
            return
        if event.problem:
            self._give_up(f"it could not be committed: {event.problem}", now, state="failed")
            return
        self._settle(now)
        self._pace.complete(now)
        self.completed, self.folder, self._completed_at = event.manifest, "", now
        self._complete += 1
        figures = event.manifest.figures
        costs = figures.bytes, figures.alignment_ms, figures.pause_ms
        self._rows.append(CheckpointRow(attempt.number, "complete", now - attempt.began_at, *costs))
        # Sinks publish only now: before the manifest exists a recovery could still go back behind their output.
        self._unpublished, self._resend_at = set(self._tasks), now + RESEND_S
        # After a recovery that began meanwhile the topology is no longer still: another final checkpoint has to follow.
        self._is_final_done = attempt.is_final and self._epoch == attempt.epoch
        self._steps.append(ToAll(control.CheckpointComplete(attempt.number)))
        for folder in attempt.savepoints:
            # A savepoint at the end is a copy of the final checkpoint, not of another that was under way at the request.
            if folder in self._at_end and not self._is_final_done:
                continue
            savepoint = self.savepoints[folder]
            savepoint.state, savepoint.checkpoint = "copying", attempt.number
            self._steps.append(CopyCheckpoint(attempt.number, folder))

    def savepoint_stored(self, event: SavepointStored) -> None:
        """A savepoint has been copied, or cannot be."""
        savepoint = self.savepoints.get(event.folder)
        if savepoint is not None and savepoint.state == "copying":
            savepoint.state = "written"
            if event.problem:
                self._fail(savepoint, event.problem)

    def restore_failed(self, message: control.RestoreFailed, now: float) -> None:
        """A task cannot read its part of the last complete checkpoint: it is damaged, or out of the worker's reach."""
        if self.completed is None or message.checkpoint != self.completed.checkpoint or self.holds_epoch:
            return
        if self.phase is Phase.UNDER_WAY:
            self._give_up("a recovery began", now, state="aborted")
        self.unreadable, self.phase = message, Phase.SEARCHING
        self._steps.append(FindCheckpoint(message.checkpoint, self.folder))

    def found(self, event: CheckpointFound) -> Finding:
        """The store was searched for the last whole checkpoint, that of `unreadable` or one before it."""
        failed = self.unreadable
        if self.phase is not Phase.SEARCHING or failed is None:
            return Finding.NOTHING
        self.phase = Phase.IDLE
        if event.manifest is not None and event.manifest.checkpoint == failed.checkpoint:
            return Finding.WHOLE
        self._record("CheckpointDamaged", f"checkpoint {failed.checkpoint} cannot be restored: {failed.why}")
        if event.manifest is None:
            self.lost = event.problem or "no checkpoint can be restored"
            return Finding.NOTHING
        self.completed, self.folder = event.manifest, ""
        self._record("CheckpointDamaged", f"checkpoint {event.manifest.checkpoint}, an earlier one, is restored instead")
        return Finding.EARLIER

    # -- for the driver -------------------------------------------------------------------------------------------

    def take_steps(self) -> list[Step]:
        """Return the steps to perform, in order; they then count as performed."""
        steps = self._steps[:]
        self._steps.clear()
        return steps

    def describe(self, now: float) -> dict[str, Any]:
        """Return what `topo status` and `topo checkpoints` show, as plain values."""
        attempt = self._attempt
        return {
            "phase": self.phase.value,
            "last_complete": 0 if self.completed is None else self.completed.checkpoint,
            "age_s": None if self._completed_at is None else now - self._completed_at,
            "complete": self._complete,
            "failed": self._failed,
            "aborted": self._aborted,
            "restores": self.restores,
            "under_way": attempt
            and {
                "checkpoint": attempt.number,
                "since_s": now - attempt.began_at,
                "waiting_for": self._waiting_for(attempt) if self.phase is Phase.UNDER_WAY else "the store",
            },
            "latest": [{name: getattr(row, name) for name in CheckpointRow.__struct_fields__} for row in self._rows],
            "savepoints": [{name: getattr(one, name) for name in Savepoint.__slots__} for one in self.savepoints.values()],
        }

    def parts_of(self, checkpoint: int) -> tuple[control.SnapshotTaken, ...]:
        """Return the parts that tasks have stored for one of the last checkpoints; none for any other."""
        return next((parts for number, parts in self._parts if number == checkpoint), ())

    def validate(self) -> None:
        """Assert the invariants."""
        assert (self._attempt is not None) == (self.phase in (Phase.UNDER_WAY, Phase.COMMITTING)), self.phase
        assert self.completed is None or self.folder or self.completed.checkpoint <= self.last
        if self._attempt is not None:
            assert self._attempt.number == self.last
            assert self.phase is Phase.COMMITTING or self._attempt.epoch == self._epoch
        assert not self._unpublished or self.completed is not None

    # -- inside ----------------------------------------------------------------------------------------------------------

    @property
    def _may_resend(self) -> bool:
        return bool(self._unpublished) and self._epoch is not None and self.phase is not Phase.SEARCHING

    def _due_at(self) -> float | None:
        pace = self._pace
        if self.phase is not Phase.IDLE or self._epoch is None or pace.began_at is None or self.lost:
            return None
        earliest = pace.earliest()
        if self._waiting(is_final=self._is_final_wanted) or (self._is_final_wanted and not self._is_final_done):
            # What failed is not tried again at once; what went well need not be waited for.
            return earliest if self._rows and self._rows[-1].state != "complete" else pace.began_at
        if self._is_final_done:
            return None
        due = earliest if self._is_wanted else pace.due()
        if self._has_ended:
            return max(due, pace.rests_until())
        return due

    def _begin(self, now: float) -> None:
        assert self._epoch is not None
        self.last += 1
        self.phase = Phase.UNDER_WAY
        was_wanted = self._is_wanted
        self._is_wanted = False
        self._pace.began(now, has_ended=self._has_ended)
        self._attempt = CheckpointAttempt(
            number=self.last,
            epoch=self._epoch,
            began_at=now,
            deadline=now + self._timeout_s,
            is_final=self._is_final_wanted,
            was_wanted=was_wanted,
            savepoints=self._waiting(is_final=self._is_final_wanted),
        )
        self._steps.append(ToSources(control.BeginCheckpoint(self._epoch, self.last)))

    def _waiting(self, *, is_final: bool) -> list[str]:
        """Return the savepoints that a checkpoint serves."""
        at_end = () if is_final else self._at_end
        return [one.folder for one in self.savepoints.values() if one.state == "waiting" and one.folder not in at_end]

    def _matching(
        self, message: control.BarrierAcked | control.SnapshotTaken | control.SnapshotFailed
    ) -> CheckpointAttempt | None:
        """Return the attempt that a message is about, if it is still under way."""
        attempt = self._attempt
        if attempt is None or self.phase is not Phase.UNDER_WAY:
            return None
        return attempt if (message.checkpoint, message.epoch) == (attempt.number, attempt.epoch) else None

    def _look(self, attempt: CheckpointAttempt, now: float) -> None:
        if attempt.acked == self._spouts and attempt.taken.keys() == self._tasks:
            self._parts_have_ended = all(taken.ended for taken in attempt.taken.values())
            self.phase = Phase.COMMITTING
            self._steps.append(CommitCheckpoint(manifest_of(self._plan, attempt.number, attempt.taken, now - attempt.began_at)))

    def _give_up(self, why: str, now: float, *, state: str) -> None:
        attempt = self._attempt
        assert attempt is not None
        self._settle(now)
        # A spout asks once.
        self._is_wanted |= attempt.was_wanted
        self._rows.append(CheckpointRow(attempt.number, state, now - attempt.began_at, why=why))
        if state == "failed":
            self._failed += 1
            self._pace.failed()
            self._record("CheckpointFailed", f"checkpoint {attempt.number} was given up: {why}; the one before still holds")
        else:
            self._aborted += 1
        self._steps += [ToAll(control.CheckpointAborted(attempt.number)), DiscardCheckpoint(attempt.number)]

    def _settle(self, now: float) -> None:
        if self._attempt is not None:
            self._parts.append((self._attempt.number, tuple(self._attempt.taken.values())))
        self.phase, self._attempt = Phase.IDLE, None
        self._pace.ended(now)

    def _waiting_for(self, attempt: CheckpointAttempt) -> str:
        """Return, in words, whose part or barrier is missing."""
        missing = sorted(self._tasks - attempt.taken.keys())
        what = "the parts of" if missing else "the barriers of"
        names = [f"{task} ({self._plan.task(task).component})" for task in missing or sorted(self._spouts - attempt.acked)]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return f"{what} tasks {', '.join(names[:5])}{more}"

    def _fail(self, savepoint: Savepoint, why: str) -> None:
        savepoint.state, savepoint.why = "failed", why
        self._record("SavepointFailed", f"the savepoint in {savepoint.folder} was not written: {why}")

    def _record(self, kind: str, message: str) -> None:
        self._steps.append(Problem(kind, message))
