"""Messages of a spout that are done when a checkpoint covers them. No acker follows them, only the barriers.

After a recovery the spout continues at the checkpoint (`UncommittedMessages`).

A checkpoint behind the end of the input has all that the spout emitted, and what bolts made of the end. Restored from it, the
task passes END on and leaves the user's spout alone. Only a source without positions is still read, for as long as it may
deliver covered messages again: they are acked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from topo.api.metrics import Histogram
from topo.api.partitions import PartitionedSpout
from topo.api.spout import Spout
from topo.checkpoint.alignment import Snapshot
from topo.checkpoint.source_progress import ANY_VALUES, UncommittedMessages
from topo.dead_letters.payload import in_words
from topo.emission.emission import Emission
from topo.emission.emitter import StreamRows
from topo.emission.output_watermarks import OutputWatermarks
from topo.errors import EmitError, UnsupportedValueError
from topo.hot import Column, pack_rows, pack_words, unpack_words
from topo.task.events import RoutesChanged
from topo.task.guarantees.checkpointed_partitions import CheckpointedPartitions
from topo.task.guarantees.output_state import OutputState
from topo.task.guarantees.source import SourceGuarantee, SourceStart
from topo.task.parts import TaskParts
from topo.tracking.unresolved import UnresolvedMessages
from topo.wire.codec import Codec
from topo.wire.control import BarrierAcked, CheckpointComplete, CheckpointWanted
from topo.wire.frames import FrameKind
from topo.wire.serializers import OrderedSets


class CheckpointedSource(SourceGuarantee):
    """The messages of one spout task, until a checkpoint covers them.

    Args:
        watermarks: event time of the task's output, which a checkpoint keeps.

    Attributes:
        uncommitted: the messages that no complete checkpoint covers, and those whose `ack` waits.
        output: the state of the output in checkpoints.
    """

    opens_finished = False
    stores_ids = True

    def __init__(self, parts: TaskParts, spout: Spout, emission: Emission, watermarks: OutputWatermarks) -> None:
        super().__init__(parts, spout, emission, lambda _message: False)
        env = parts.env
        is_called_back = getattr(spout.ack, "__func__", None) is not Spout.ack
        self.uncommitted = UncommittedMessages(has_positions=self.is_retrying, keeps_ids=is_called_back, digest=self._digest)
        self._digests = Codec(OrderedSets(env.codec.registry))
        self._watermarks = watermarks
        self._snapshots = parts.snapshots
        self._ids = env.ids
        self.output = OutputState(parts, watermarks)
        self._partitions: CheckpointedPartitions | None = None
        if isinstance(spout, PartitionedSpout):
            self._partitions = CheckpointedPartitions(parts, spout, self._want_checkpoint)
        self.partitions = self._partitions
        self.checkpoints = self
        self._unresolved = UnresolvedMessages()
        self._acks_at_once = parts.spec.limits.acks_at_once
        self.messages = {CheckpointComplete: self._on_checkpoint_complete, **self.output.messages}
        self._barriers: dict[int, int] = {}
        """Checkpoints whose barrier is under way, by root."""
        self._last_begun = 0
        self._to_report = 0
        """A complete checkpoint that is to be reported as published when `ack` was called for all that it covers."""
        self._early_checkpoint_requested = False
        self._emitted_at_callback = 0
        """How many messages there were when `ack` was called last."""
        self._is_past_end = False
        """Whether the spout has emitted a new message behind the end of its input."""

    # -- life ------------------------------------------------------------------------------------------------------------

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget the barriers that are under way, and the report of a checkpoint."""
        self._barriers.clear()
        self._to_report = 0
        self._is_past_end = False

    def start(self, event: RoutesChanged, now: float) -> SourceStart | None:
        """Go back to the checkpoint: the source reads on from there, or emits the messages again that it does not cover."""
        state = self._state
        # The routes may be the first to say that it is complete.
        self._publish(state.restore_point)
        lost = self._restore(now)
        self._emitted_at_callback = self.uncommitted.emitted
        if self.is_retrying:
            # Another `open` would not know them.
            self._ack(self.uncommitted.unreported, now)
            position = self.uncommitted.position
            if self._partitions is not None:
                position = self._partitions.restore()
            return SourceStart(position, state.restored_ended)
        if not self._is_started:
            self._is_started = not state.restored_ended or self.redelivers
            return SourceStart(None, not self._is_started)
        self._counters.reset += len(lost)
        self._unresolved.failed(lost)
        for message in lost:
            self._reports.guard(self._spout.fail, now, message)
        return None

    def _restore(self, now: float) -> list[Any]:
        """Take over the checkpoint; return the messages that it does not cover."""
        self.ids.restart()
        self._watermarks.reset(self._state.clock(), forget=True)
        self.output.restore(restores_end=True)
        sources = [part.values["source"] for part in self._state.restored if "source" in part.values]
        return self.uncommitted.restore(sources, self._state.restore_point)

    def close(self, now: float) -> None:
        """Call `ack` for all covered messages."""
        for message in self.uncommitted.report(self.uncommitted.unreported):
            try:
                self._spout.ack(message)
            except Exception as error:
                # The process ends anyway: the other calls are made, and the spout is closed.
                self._reports.record(error, self._state.clock())

    # -- messages --------------------------------------------------------------------------------------------------------

    def note_order(self, messages: Sequence[Any]) -> None:
        """Take the position that the spout has come to."""
        if self._partitions is not None:
            self._partitions.emitted(messages)
        elif messages:
            self.uncommitted.reach(messages[-1])

    def pass_over(self, message: Any, record: Any, error: Exception | None) -> None:
        """Make a dead letter of the next checkpoint."""
        if self._partitions is not None:
            self._partitions.pass_over(message)
        else:
            self.uncommitted.reach(message)
        if error is not None:
            self._give_up((record,), error, message)

    def _want_checkpoint(self) -> None:
        if not self._early_checkpoint_requested:
            self._early_checkpoint_requested = True
            self._reports.to_master(CheckpointWanted(task=self._state.id, epoch=self._state.epoch))

    def admit(self, stream: StreamRows, messages: list[Any], *, first_time: bool, now: float) -> None:
        """Send messages, but for those that a checkpoint covers."""
        uncommitted = self.uncommitted
        self._unresolved.emitted(messages)
        accepted = uncommitted.accept(messages, stream.rows)
        if accepted is not None:
            for place in accepted.changed:
                self._refuse_changed(messages[place], stream.rows[place], now)
            stream.keep(accepted.sent)
        if stream.rows:
            self.admit_untracked(stream)
        if not self.is_retrying and uncommitted.uncovered * 2 >= self._limit:
            self._want_checkpoint()

    def admit_untracked(self, stream: StreamRows) -> None:
        """Send rows, unless the end of the input was restored: readers have published what they made of it."""
        state = self._state
        if not state.restored_ended or not stream.rows:
            super().admit_untracked(stream)
            return
        self._is_past_end = True
        error = EmitError(
            f"component {state.component_id!r} emitted a new message, and checkpoint {state.restore_point} is behind "
            "the end of its input; start from the beginning to have it processed (topo submit, or topo resume --from-beginning)"
        )
        self._reports.record(error, state.now)
        for row in stream.rows:
            self._lose_row(row, (), error)

    def _refuse_changed(self, message: Any, values: Any, now: float) -> None:
        """Give up a message whose id a covered one has: it is another message, or the same one with other values."""
        error = EmitError(
            f"component {self._state.component_id!r} emitted message id {in_words(message)} with other values than in checkpoint "
            f"{self._state.restore_point}, which covers that id. With exactly_once an id names one message of the source, in "
            "every process: use the source's own ids, not a counter, or a RetryingSpout with positions; keep the time of reading "
            "out of the values; or set delivery=at_least_once"
        )
        self._reports.record(error, now)
        self._lose_row(values, (), error)

    def _digest(self, values: Any) -> int:
        try:
            return crc32(pack_rows(values) or self._digests.pack_value(values)) or 1
        except UnsupportedValueError:
            return ANY_VALUES

    def _lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        self._give_up(values, error)

    def _give_up(self, values: Any, error: Exception, position: Any = None) -> None:
        """Make a dead letter of the next checkpoint. With too many of them the source waits, so that one is to come soon."""
        self.output.give_up(values, error, self._emission.attempts, position)
        if self.output.dead_letters.fullness >= 0.5:
            self._want_checkpoint()

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def begin_checkpoint(self, checkpoint: int, *, has_ended: bool) -> None:
        """Take a snapshot, and send the barrier behind all rows that were emitted. An order that arrives twice does so once."""
        if checkpoint <= self._last_begun:
            return
        self._last_begun = checkpoint
        # Packs all rows before the snapshot: a row that cannot be carried is a dead letter of this checkpoint.
        self._outbound.outbox.flush_all()
        self._snapshots.take(checkpoint, lambda: self._snapshot(checkpoint), has_ended=has_ended, waited_s=0.0, then=lambda: None)
        root = self._ids.roots(1)[0]
        owed = self._outbound.send_barrier(checkpoint, [root])
        if not self._outbound.consumers:
            self._barrier_acked(checkpoint)
            return
        self._barriers[root] = checkpoint
        self._acker_routes.send(FrameKind.INIT, pack_words([root]), pack_words([owed]))

    def _snapshot(self, checkpoint: int) -> Snapshot:
        output, source = self.output.snapshot(checkpoint), self.uncommitted.snapshot(checkpoint)
        if self._partitions is not None:
            marks = self._watermarks.partitions
            source |= self._partitions.snapshot(checkpoint, None if marks is None else marks.reached)
        # In this order, so that the bytes of a part stay what they were.
        return Snapshot(values={"watermark": output["watermark"], "source": source, **output})

    def on_verdicts(self, kind: FrameKind, roots: Column, now: float) -> None:
        """Barriers have come through."""
        if kind is FrameKind.ACKED:
            for root in unpack_words(roots):
                checkpoint = self._barriers.pop(root, None)
                if checkpoint is not None:
                    self._barrier_acked(checkpoint)

    def _barrier_acked(self, checkpoint: int) -> None:
        self._reports.to_master(BarrierAcked(task=self._state.id, epoch=self._state.epoch, checkpoint=checkpoint))

    def _on_checkpoint_complete(self, event: CheckpointComplete, now: float) -> None:
        if self._snapshots.publish(event.checkpoint, self._publish, now):
            self._to_report = event.checkpoint
            self._report_published()

    def _report_published(self) -> None:
        """Report the checkpoint when `ack` was called for all of its messages: the topology, and the process, may end then."""
        if not self.uncommitted.unreported:
            self._snapshots.report_published(self._to_report)
            self._to_report = 0

    def _publish(self, checkpoint: int) -> None:
        """A checkpoint is complete: the messages that it covers are done."""
        self._early_checkpoint_requested = False
        before = self.uncommitted.covered
        self.uncommitted.complete(checkpoint)
        self._counters.acked += self.uncommitted.covered - before
        self.output.dead_letters.publish(checkpoint)
        if self._partitions is not None:
            self._partitions.publish(checkpoint)

    def call_back(self, now: float) -> None:
        """Call `ack` for a part of the covered messages."""
        emitted = self.uncommitted.emitted - self._emitted_at_callback
        self._emitted_at_callback += emitted
        # A checkpoint covers tens of thousands; what waits must not become more.
        self._ack(max(self._acks_at_once, 2 * emitted), now)
        if self._to_report:
            self._report_published()

    def _ack(self, most: int, now: float) -> None:
        for message in self.uncommitted.report(most):
            self._reports.guard(self._spout.ack, now, message)

    # -- what there is ---------------------------------------------------------------------------------------------------

    @property
    def has_callbacks(self) -> bool:
        """Whether `ack` is to be called for covered messages."""
        return self.uncommitted.unreported > 0

    @property
    def pending(self) -> int:
        """None: what only waits for a checkpoint keeps no topology from ending."""
        return 0

    @property
    def room(self) -> int:
        """How many messages the spout may emit. Those of a source with positions are not kept; its bad records are."""
        if self.is_retrying:
            return self._limit if self.output.dead_letters.fullness < 1 else 0
        return self._limit - self.uncommitted.uncovered - self.uncommitted.unreported

    @property
    def redelivers(self) -> bool:
        """Whether the source may deliver messages again that a checkpoint covers."""
        return self.uncommitted.has_known and not self._is_past_end

    @property
    def _unaccounted(self) -> int:
        """Messages that were taken and that no checkpoint covers."""
        return self.uncommitted.emitted - self.uncommitted.covered

    def _levels(self) -> dict[str, float]:
        unresolved = self._counters.finally_failed = len(self._unresolved)
        uncovered = float(self.uncommitted.uncovered)
        return {"in_flight": 0.0, "finally_failed": float(unresolved), "suspects": 0.0, "uncovered": uncovered}

    def latencies(self) -> dict[str, Any]:
        """Return an empty histogram: no message is followed to its end."""
        return {"complete": Histogram().snapshot()}
