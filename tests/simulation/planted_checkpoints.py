"""Faults planted into how checkpoints are taken and restored, one at a time. Undone by `monkeypatch`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from topo.checkpoint.alignment import Aligned, Alignment, Snapshot, StoredCallback, StoredPart
from topo.checkpoint.encoding import TaskSnapshot, encode_snapshot, pack
from topo.checkpoint.source_progress import Covered, UncommittedMessages
from topo.checkpoint.staged_output import StagedOutput
from topo.emission.output_watermarks import OutputWatermarks
from topo.operators.time.timers import TimerServices
from topo.operators.windows.scope import UndoingWindowScope
from topo.storage.snapshots import TaskSnapshots
from topo.task.flow_control import InEdge
from topo.task.guarantees.checkpointed_spout import CheckpointedSpoutTask
from topo.task.outbound import Outbound
from topo.task.runners.bolt import AnchoringTask
from topo.task.runners.inputs import BoltTask
from topo.wire.frames import Frame, barrier_frame, pack_words

Plant = Callable[[pytest.MonkeyPatch], None]


def barrier_overtakes_a_tuple(patch: pytest.MonkeyPatch) -> None:
    """A barrier leaves before the rows that were emitted ahead of it."""

    def send_barrier(outbound: Outbound, checkpoint: int, roots: Sequence[int]) -> int:
        outbox, owed = outbound.outbox, 0
        for target in outbound.consumers:
            edge = outbound._state.ids.roots(1)[0]
            owed ^= edge
            make = partial(barrier_frame, checkpoint=checkpoint, roots=pack_words(roots), edges=pack_words([edge] * len(roots)))
            way = outbox.edges[target]
            outbox._offer(way, make(outbox._stamp, target, way.next_number))
        return owed

    def pass_barrier(self: BoltTask, aligned: Aligned, now: float) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(self, "_flush", lambda _now: None)
            meanwhile.setattr(self.outbox, "flush_all", lambda: None)
            meanwhile.setattr(self.outbound, "send_barrier", partial(send_barrier, self.outbound))
            whole(self, aligned, now)

    whole = BoltTask._pass_barrier
    patch.setattr(BoltTask, "_pass_barrier", pass_barrier)


def alignment_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """What follows a barrier is processed while the barrier of another edge has not come."""

    def arrived(self: Any, edge: InEdge, frame: Frame, edges: Iterable[InEdge], now: float) -> Aligned | None:
        if not self._roots:
            self.checkpoint, self._began, self.come = frame.mark, now, set()
        for root, value in zip(frame.root_list(), frame.edge_list(), strict=True):
            self._roots[root] = self._roots.get(root, 0) ^ value
        self.come.add(edge.sender)
        if any(one.sender not in self.come for one in edges):
            return None
        roots, self._roots = self._roots, {}
        return Aligned(frame.mark, roots, now - self._began)

    patch.setattr(Alignment, "arrived", arrived)


def snapshot_after_the_barrier_went_on(patch: pytest.MonkeyPatch) -> None:
    """A bolt passes the barrier on, and takes its snapshot when it has processed more."""
    pass_barrier, process_data, on_idle = BoltTask._pass_barrier, BoltTask._process_data, BoltTask._on_idle

    def later(self: Any, aligned: Aligned, now: float) -> None:
        self.late = aligned

    def catch_up(self: Any, now: float) -> None:
        late, self.late = getattr(self, "late", None), None
        if late is not None:
            pass_barrier(self, late, now)

    def data(self: BoltTask, frame: Frame, now: float) -> bool:
        is_done = process_data(self, frame, now)
        if is_done:
            catch_up(self, now)
        return is_done

    def idle(self: BoltTask, now: float) -> None:
        catch_up(self, now)
        on_idle(self, now)

    patch.setattr(BoltTask, "_pass_barrier", later)
    patch.setattr(BoltTask, "_process_data", data)
    patch.setattr(BoltTask, "_on_idle", idle)


def manifest_first(patch: pytest.MonkeyPatch) -> None:
    """Parts are reported before they are durable, so that the manifest may be there first."""

    def write(self: TaskSnapshots, checkpoint: int, snapshot: Snapshot, stored: StoredCallback) -> None:
        spec = self._plan.task(self._task)
        groups = {group: pack(data, self._types) for group, data in snapshot.keyed().items()}
        parallelism = self._plan.component(spec.component).parallelism
        part = encode_snapshot(
            TaskSnapshot(spec.component, self._task, spec.index, parallelism, groups, snapshot.values),
            self._plan.name,
            checkpoint,
            self._types,
        )
        file = f"{checkpoint:010d}/task-{self._task:05d}.part"
        stored(StoredPart(file, part.length, part.checksum), None)
        self._submit(lambda: _written(self._store.write_part, checkpoint, self._task, part))

    patch.setattr(TaskSnapshots, "write", write)


def _written(write: Callable[..., Any], *arguments: Any) -> None:
    try:
        write(*arguments)
    except Exception:
        return


def position_is_one_ahead(patch: pytest.MonkeyPatch) -> None:
    """A spout's snapshot names the position after the last that it has emitted."""
    snapshot = UncommittedMessages.snapshot

    def ahead(self: UncommittedMessages, checkpoint: int) -> Covered:
        covered = snapshot(self, checkpoint)
        if covered.get("position") is not None:
            covered["position"] += 1
        return covered

    patch.setattr(UncommittedMessages, "snapshot", ahead)


def timers_are_left_out(patch: pytest.MonkeyPatch) -> None:
    """Snapshots have state and no timers."""
    freeze = TimerServices.freeze

    def without(self: TimerServices) -> Callable[[], Any]:
        whole = freeze(self)
        return lambda: {group: {name: ([], []) for name in timers} for group, timers in whole().items()}

    patch.setattr(TimerServices, "freeze", without)


def commit_before_complete(patch: pytest.MonkeyPatch) -> None:
    """A sink publishes with its snapshot."""

    def snapshot(self: StagedOutput, checkpoint: int) -> Any:
        token = self._sink.pre_commit()
        if token is not None:
            self._sink.commit(token)
        self._sink.begin()
        return []

    patch.setattr(StagedOutput, "snapshot", snapshot)


def restore_of_part_of_the_tasks(patch: pytest.MonkeyPatch) -> None:
    """Bolts whose process lives on keep the state that they have."""

    def reset(self: BoltTask, event: Any, now: float) -> None:
        restore = self._restore_user
        self._restore_user = lambda parts: None  # type: ignore[method-assign]
        try:
            whole(self, event, now)
        finally:
            self._restore_user = restore  # type: ignore[method-assign]

    whole = BoltTask._reset
    patch.setattr(BoltTask, "_reset", reset)


def output_of_a_mail_follows_the_barrier(patch: pytest.MonkeyPatch) -> None:
    """What a timer or an asynchronous call has put out is routed behind a barrier that was passed on meanwhile."""
    patch.setattr(AnchoringTask, "_pass_barrier", BoltTask._pass_barrier)


def what_fail_emits_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A recovery drops what a spout has emitted in the one before it."""
    reset = CheckpointedSpoutTask._reset

    def forgetful(self: CheckpointedSpoutTask, event: Any, now: float) -> None:
        self._collector.clear()
        reset(self, event, now)

    patch.setattr(CheckpointedSpoutTask, "_reset", forgetful)


def a_failed_call_takes_back_another_one(patch: pytest.MonkeyPatch) -> None:
    """A failed call undoes the whole log, changes of earlier calls included."""

    def undo(self: UndoingWindowScope, position: int) -> None:
        self._log.undo()

    patch.setattr(UndoingWindowScope, "undo_element", undo)


def restored_watermark_runs_ahead(patch: pytest.MonkeyPatch) -> None:
    """A task resumes with a later watermark than that of its checkpoint."""
    restore = OutputWatermarks.restore
    patch.setattr(OutputWatermarks, "restore", lambda self, watermark: restore(self, watermark + 200))


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    barrier_overtakes_a_tuple: ({3, 7}, (10,)),
    alignment_is_skipped: ({7}, (6, 8)),
    snapshot_after_the_barrier_went_on: ({7}, (0, 2)),
    manifest_first: ({3}, (0, 1)),
    position_is_one_ahead: ({7}, (2, 5)),
    timers_are_left_out: ({7}, (0, 7)),
    commit_before_complete: ({7}, (1, 3)),
    restored_watermark_runs_ahead: ({13}, (7, 17)),
    restore_of_part_of_the_tasks: ({7}, (0, 1)),
    output_of_a_mail_follows_the_barrier: ({7}, (62, 84)),
    what_fail_emits_is_forgotten: ({7}, (285,)),
    a_failed_call_takes_back_another_one: ({7}, (157, 411)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
