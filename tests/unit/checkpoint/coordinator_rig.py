"""A checkpoint coordinator under test, with a clock that the test sets. Tasks: 1 lines, 2 sink, 3 acker."""

from __future__ import annotations

from typing import Any

from tests.unit.master.playbook import small_plan
from topo.checkpoint.assignment import shapes_of
from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.checkpoint.manifest import ComponentFigures, Manifest, Part
from topo.checkpoint.steps import Step, ToSources
from topo.checkpoint.store_messages import (
    CheckpointStored,
)
from topo.ids import Epoch, TaskId
from topo.wire.control import (
    BarrierAcked,
    BeginCheckpoint,
    CheckpointPublished,
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

    def taken(self, checkpoint: int, task: TaskId, *, ended: bool = False) -> list[Step]:
        waited_ms = 7.0 if task == SINK else 0.0
        report = SnapshotTaken(task, self.epoch, checkpoint, f"{checkpoint}/{task}", 100, "c", waited_ms, 3.0, ended=ended)
        self.it.snapshot_taken(report, self.now)
        return self.steps()

    def stored(self, checkpoint: int, problem: str = "") -> list[Step]:
        self.it.stored(CheckpointStored(manifest(checkpoint), problem), self.now)
        return self.steps()

    def published(self, checkpoint: int, *tasks: TaskId) -> None:
        for task in tasks or (LINES, SINK):
            self.it.published(CheckpointPublished(task, self.epoch, checkpoint))

    def steps(self) -> list[Step]:
        self.it.ending(False)
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
    assert checkpoints.until(110.0) == [ToSources(BeginCheckpoint(Epoch(1), 1))]
    return checkpoints
