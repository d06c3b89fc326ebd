"""Joins the coordinator of checkpoints to the workers: gives it their reports, and performs its steps."""

from __future__ import annotations

from typing import assert_never

from topo.checkpoint.coordinator import CheckpointCoordinator, Finding
from topo.checkpoint.steps import Problem, ToAll, ToSources
from topo.checkpoint.store_messages import CheckpointFound, CheckpointStored, SavepointStored, StoreAnswer
from topo.master.commands import MasterCommand, RecordError
from topo.master.epochs import EpochState
from topo.master.events import SavepointAsked
from topo.master.recovery import Recovery
from topo.plan.physical import PhysicalPlan
from topo.wire import control

CheckpointMessage = (
    control.SnapshotTaken
    | control.SnapshotFailed
    | control.RestoreFailed
    | control.BarrierAcked
    | control.CheckpointWanted
    | control.CheckpointPublished
)
"""Messages of tasks about checkpoints."""

CheckpointReport = CheckpointMessage | StoreAnswer | SavepointAsked
"""Facts about checkpoints: messages of tasks, answers of the store, a request of the operator."""


class CheckpointDriver:
    """Drives the coordinator of a topology that is served.

    Args:
        coordinator: decides about checkpoints.
        recovery: sends messages to workers, and replaces those that cannot read a checkpoint.
        commands: where commands are appended.
    """

    def __init__(
        self, coordinator: CheckpointCoordinator, plan: PhysicalPlan, recovery: Recovery, commands: list[MasterCommand]
    ) -> None:
        self._coordinator = coordinator
        self._plan = plan
        self._recovery = recovery
        self._commands = commands

    def take(self, report: CheckpointReport, now: float) -> None:
        """Give a report to the coordinator, or replace the worker that cannot read a checkpoint. `now`: monotonic seconds."""
        coordinator = self._coordinator
        match report:
            case control.SnapshotTaken():
                coordinator.snapshot_taken(report, now)
            case control.SnapshotFailed():
                coordinator.snapshot_failed(report, now)
                if self._recovery.unstorable.get(report.task) == report.why:
                    # The value stays where it is: the next would fail, too, and the run publish nothing more, and never end.
                    component = self._plan.task(report.task).component
                    coordinator.lost = f"no checkpoint can be taken: task {report.task} ({component}): {report.why}"
            case control.BarrierAcked():
                coordinator.barrier_acked(report, now)
            case control.CheckpointWanted():
                coordinator.wanted(report)
            case control.CheckpointPublished():
                coordinator.published(report)
            case control.RestoreFailed() if report.is_transient:
                self._cannot_read(report, report.why, now)
            case control.RestoreFailed():
                coordinator.restore_failed(report, now)
            case CheckpointStored():
                coordinator.stored(report, now)
            case SavepointStored():
                coordinator.savepoint_stored(report)
            case CheckpointFound():
                self._found(report, now)
            case SavepointAsked():
                coordinator.want_savepoint(report.folder)
            case _:
                assert_never(report)

    def advance(self, now: float, *, is_ending: bool) -> None:
        """Report to the coordinator how the epoch stands, and perform its steps.

        Args:
            now: monotonic seconds.
            is_ending: whether no task expects any more input.
        """
        coordinator, epochs = self._coordinator, self._recovery.epochs
        if epochs.state is EpochState.RUNNING:
            coordinator.epoch_runs(epochs.epoch, now)
        else:
            coordinator.epoch_broken(now)
        coordinator.ending(is_ending)
        coordinator.advance(now)
        for step in coordinator.take_steps():
            if isinstance(step, ToSources | ToAll):
                everyone = isinstance(step, ToAll)
                for slot in self._recovery.membership.live() if everyone else self._recovery.live_sources():
                    self._recovery.send(slot, step.message)
            elif isinstance(step, Problem):
                self._commands.append(RecordError(step.kind, step.message))
            else:
                self._commands.append(step)

    def _found(self, event: CheckpointFound, now: float) -> None:
        finding, failed = self._coordinator.found(event), self._coordinator.unreadable
        if finding is Finding.EARLIER:
            self._recovery.reset_run()
        elif finding is Finding.WHOLE and failed is not None:
            why = f"{failed.why}; the master reads it well, so storage that the worker's host reaches differs"
            self._cannot_read(failed, why, now)

    def _cannot_read(self, failed: control.RestoreFailed, why: str, now: float) -> None:
        slot = self._recovery.membership.slots[self._plan.worker_of(failed.task)]
        self._recovery.cannot_read(slot, failed, now, why)
