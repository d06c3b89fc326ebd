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
from topo.hot import pack_words
from topo.operators.state.undo_log import UndoLog
from topo.operators.time.timers import TimerServices
from topo.storage.snapshots import TaskSnapshots
from topo.task.flow_control import InEdge
from topo.task.guarantees.checkpointed import CheckpointedInputs
from topo.task.outbound import Outbound
from topo.task.runners.input_runner import InputRunner
from topo.task.runners.spout import SpoutRunner
from topo.wire.frames import MIN_WATERMARK, Frame, barrier_frame

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

    def on_barrier(self: CheckpointedInputs, aligned: Aligned, snapshot: Any, *, has_ended: bool) -> None:
        outbound = self._outbound
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(outbound.outbox, "flush", lambda: None)
            meanwhile.setattr(outbound.outbox, "flush_all", lambda: None)
            meanwhile.setattr(outbound, "send_barrier", partial(send_barrier, outbound))
            whole(self, aligned, snapshot, has_ended=has_ended)

    whole = CheckpointedInputs.on_barrier
    patch.setattr(CheckpointedInputs, "on_barrier", on_barrier)


def alignment_is_skipped(patch: pytest.MonkeyPatch) -> None:
    """What follows a barrier is processed while the barrier of another edge has not come."""

    def arrived(self: Any, edge: InEdge, frame: Frame, edges: Iterable[InEdge], now: float) -> Aligned | None:
        come, roots = self.__dict__.setdefault("come", set()), self.__dict__.setdefault("roots", {})
        if not self._come:
            come.clear()
            roots.clear()
            self.checkpoint, self._began, self._come = frame.mark, now, 1
        for root, value in zip(frame.root_list(), frame.edge_list(), strict=True):
            roots[root] = roots.get(root, 0) ^ value
        come.add(edge.sender)
        if any(one.sender not in come for one in edges):
            return None
        self._come = 0
        return Aligned(frame.mark, dict(roots), now - self._began)

    patch.setattr(Alignment, "arrived", arrived)


def snapshot_after_the_barrier_went_on(patch: pytest.MonkeyPatch) -> None:
    """A bolt takes its snapshot, and passes the barrier on, when it has processed one more frame."""
    pass_barrier, act = InputRunner._pass_barrier, InputRunner.act

    def later(self: Any, aligned: Aligned, now: float) -> None:
        self.late = (self._state.epoch, aligned)

    def act_and_catch_up(self: Any, now: float) -> None:
        has_waited = getattr(self, "late", None) is not None
        act(self, now)
        late = getattr(self, "late", None)
        # At once where no frame follows: the checkpoint would never be complete.
        if late is not None and self._batch is None and (has_waited or not self._inbound.queue):
            self.late = None
            epoch, aligned = late
            if epoch == self._state.epoch:
                pass_barrier(self, aligned, now)

    patch.setattr(InputRunner, "_pass_barrier", later)
    patch.setattr(InputRunner, "act", act_and_catch_up)


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

    patch.setattr(CheckpointedInputs, "rewinds", False)


class Unsettled:
    """Calls that settle nothing."""

    def settle(self, now: float) -> None: ...


def output_of_a_mail_follows_the_barrier(patch: pytest.MonkeyPatch) -> None:
    """What a timer or an asynchronous call has put out is routed behind a barrier that was passed on meanwhile."""

    pass_barrier = InputRunner._pass_barrier

    def unsettled(self: InputRunner, aligned: Aligned, now: float) -> None:
        calls, self._calls = self._calls, Unsettled()  # type: ignore[assignment]
        pass_barrier(self, aligned, now)
        self._calls = calls

    patch.setattr(InputRunner, "_pass_barrier", unsettled)


def what_fail_emits_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A recovery drops what a spout has emitted in the one before it."""
    begin_epoch = SpoutRunner.begin_epoch

    def forgetful(self: SpoutRunner, event: Any, now: float, *, is_first: bool) -> None:
        self._output.collector.clear()
        begin_epoch(self, event, now, is_first=is_first)

    patch.setattr(SpoutRunner, "begin_epoch", forgetful)


def a_failed_call_takes_back_another_one(patch: pytest.MonkeyPatch) -> None:
    """A failed call undoes the whole log, changes of earlier calls included."""

    def begin(self: UndoLog) -> None:
        if self._output is not None:
            self._mark = self._output.mark()

    patch.setattr(UndoLog, "begin", begin)


def restored_watermark_runs_ahead(patch: pytest.MonkeyPatch) -> None:
    """A task resumes with a later watermark than that of its checkpoint."""
    restore = OutputWatermarks.restore
    patch.setattr(OutputWatermarks, "restore", lambda self, watermark: restore(self, watermark + 200))


def restored_watermark_is_too_low(patch: pytest.MonkeyPatch) -> None:
    """A task resumes with an earlier watermark than that of its checkpoint, so that late rows count as in time."""
    restore = OutputWatermarks.restore
    patch.setattr(OutputWatermarks, "restore", lambda self, watermark: restore(self, max(watermark - 200, MIN_WATERMARK)))


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    barrier_overtakes_a_tuple: ({3, 7}, (24,)),
    alignment_is_skipped: ({7}, (8,)),
    snapshot_after_the_barrier_went_on: ({7}, (1,)),
    manifest_first: ({3}, (0,)),
    position_is_one_ahead: ({7}, (2,)),
    timers_are_left_out: ({7}, (0,)),
    commit_before_complete: ({16}, (0,)),
    restored_watermark_runs_ahead: ({13}, (7,)),
    restored_watermark_is_too_low: ({13}, (5,)),
    restore_of_part_of_the_tasks: ({7}, (0,)),
    output_of_a_mail_follows_the_barrier: ({7}, (62,)),
    what_fail_emits_is_forgotten: ({7}, (71,)),
    a_failed_call_takes_back_another_one: ({7}, (3,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
