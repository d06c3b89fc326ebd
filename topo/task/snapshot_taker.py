"""Snapshots of one task: read when an epoch begins, taken at a barrier, stored in the background, reported to the master."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress

from topo.checkpoint.alignment import Snapshot, SnapshotStore, StoredPart
from topo.errors import (
    CheckpointDamagedError,
    SinkBlockedError,
    TopoEnvironmentError,
    TopoError,
    TopoInternalError,
    UnsupportedStateError,
)
from topo.operators.mailbox.mailbox import RejectedExecution
from topo.task.environment import TaskEnvironment
from topo.task.error_reports import Reports
from topo.task.process_faults import is_process_fault
from topo.task.state import TaskState
from topo.user_errors import blame, message_of
from topo.wire.control import CheckpointPublished, RestoreFailed, Routes, SnapshotFailed, SnapshotTaken


class SnapshotTaker:
    """Takes and reads the snapshots of one task.

    Args:
        state: of the task.
        reports: of the task.
        env: has the store of snapshots.
        post: has the task's thread run a function soon; the second argument describes it.
        keeper: the user's function that fills the state: the place of a value in it that cannot be stored.
    """

    def __init__(
        self,
        state: TaskState,
        reports: Reports,
        env: TaskEnvironment,
        post: Callable[[Callable[[], None], str], object],
        keeper: Callable[..., object] | None = None,
    ) -> None:
        self._state = state
        self._reports = reports
        self._env = env
        self._post = post
        self._keeper = keeper

    @property
    def store(self) -> SnapshotStore:
        """The place of snapshots."""
        if self._env.snapshots is None:
            raise TopoInternalError("a checkpoint without a place to store it")
        return self._env.snapshots

    def load(self, routes: Routes) -> bool:
        """Read the parts to restore into the state. Returns False, and reports why to the master, if that fails."""
        state = self._state
        state.restore_point = routes.checkpoint
        state.restored_ended = state.id in routes.ended
        state.restored = []
        parts = routes.restore.get(state.id, [])
        if parts:
            try:
                state.restored = self.store.read(routes.folder, routes.checkpoint, parts)
            except TopoError as error:
                is_transient = isinstance(error, TopoEnvironmentError) and not isinstance(error, CheckpointDamagedError)
                self._reports.to_master(RestoreFailed(state.id, state.epoch, routes.checkpoint, str(error), is_transient))
                return False
        return True

    def take(
        self, checkpoint: int, make: Callable[[], Snapshot], *, has_ended: bool, waited_s: float, then: Callable[[], None]
    ) -> None:
        """Take the snapshot of a checkpoint; when it is stored, report it to the master and call `then`.

        Args:
            checkpoint: its number.
            make: makes the snapshot; the task stands still meanwhile.
            has_ended: whether the task has sent on the end of its input.
            waited_s: seconds from the first barrier to the last.
            then: called on the task's thread, in the same epoch only.
        """
        state = self._state
        if state.observer is not None:
            state.observer.snapshot_taken(state.id, checkpoint)
        began = state.clock()
        collects = gc.isenabled()
        gc.disable()  # the copies are garbage only when they are written, and looking for it doubles the pause
        try:
            snapshot = make()
        except SinkBlockedError:
            raise
        except Exception as error:
            self._failed(checkpoint, error)
            return
        finally:
            if collects:
                gc.enable()
        pause_s, epoch = state.clock() - began, state.epoch

        def settle(part: StoredPart | None, error: Exception | None) -> None:
            if state.epoch != epoch:
                return
            if part is None:
                self._failed(checkpoint, error or TopoInternalError("a snapshot was stored nowhere"))
                return
            self._reports.to_master(
                SnapshotTaken(
                    task=state.id,
                    epoch=epoch,
                    checkpoint=checkpoint,
                    file=part.file,
                    length=part.length,
                    checksum=part.checksum,
                    alignment_ms=waited_s * 1000,
                    pause_ms=pause_s * 1000,
                    duration_ms=(state.clock() - began) * 1000,
                    ended=has_ended,
                )
            )
            then()

        def stored(part: StoredPart | None, error: Exception | None) -> None:
            with suppress(RejectedExecution):
                self._post(lambda: settle(part, error), "a snapshot is stored")

        self.store.write(checkpoint, snapshot, stored)

    def publish(self, checkpoint: int, publish: Callable[[int], None], now: float) -> bool:
        """Do everything that waited for a complete checkpoint. Returns whether it is done, and can be reported."""
        state = self._state
        if not state.is_working:
            return False
        if state.observer is not None:
            state.observer.checkpoint_published(state.id, checkpoint)
        try:
            publish(checkpoint)
        except Exception as error:
            # Without an answer the master sends the message again.
            self._reports.record(error, now)
            return False
        return True

    def report_published(self, checkpoint: int) -> None:
        """Report to the master that nothing waits for a complete checkpoint any more."""
        self._reports.to_master(CheckpointPublished(task=self._state.id, epoch=self._state.epoch, checkpoint=checkpoint))

    def _failed(self, checkpoint: int, error: Exception) -> None:
        if is_process_fault(error):
            # No later snapshot of this process would fare better.
            raise error
        state = self._state
        if isinstance(error, UnsupportedStateError) and self._keeper is not None:
            blame(error, self._keeper)
        # Why the storage failed is in the master's report of the checkpoint, if that has not been given up already.
        if not isinstance(error, TopoEnvironmentError):
            self._reports.record(error, state.clock())
        self._reports.to_master(SnapshotFailed(task=state.id, epoch=state.epoch, checkpoint=checkpoint, why=message_of(error)))
