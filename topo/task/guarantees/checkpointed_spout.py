"""A spout in a topology with checkpoints: it emits barriers, and its messages are done when a checkpoint covers them.

No message is followed by ackers; only barriers are. After a recovery the spout goes on from the checkpoint
(`UncommittedMessages`).

A checkpoint behind the end of the input has all that the spout emitted, and what bolts made of the end. Restored from it, the
task passes END on and leaves the user's spout alone. Only a source without positions is still read, for as long as it may
deliver covered messages again: they are acked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from topo.api.spout import Spout
from topo.checkpoint.alignment import Snapshot
from topo.checkpoint.source_progress import ANY_VALUES, UncommittedMessages
from topo.emission.emitter import StreamRows
from topo.errors import EmitError, ValueNotCarried
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import InEdge
from topo.task.runners.spout import SpoutTask
from topo.wire.control import BarrierAcked, BeginCheckpoint, CheckpointWanted
from topo.wire.frames import MIN_WATERMARK, Frame, FrameKind, pack_words

_LAST_POLLS = 250
"""Polls without a message, 5 s in all, after which an ended source is not expected to deliver covered messages again."""


class CheckpointedSpoutTask(SpoutTask):
    """One task of a spout.

    Attributes:
        coverage: the messages that no checkpoint covers yet.
    """

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        super().__init__(setup, ports)
        is_told = getattr(self._spout.ack, "__func__", None) is not Spout.ack
        self.uncommitted = UncommittedMessages(has_positions=self.is_retrying, keeps_ids=is_told, digest=self._digest)
        self._acks_at_once = setup.limits.acks_at_once
        self._barriers: dict[int, int] = {}
        """Checkpoints whose barrier is under way, by root."""
        self._early_checkpoint_requested = False
        self._emitted_at_telling = 0
        """How many messages there were when the spout was last told."""
        self._is_user_open = False

    # -- life ------------------------------------------------------------------------------------------------------------

    def _open(self, event: RoutesChanged, now: float) -> None:
        self._restore_source()
        self._end_sent = False
        self._go_on(self.uncommitted.has_known)

    def _go_on(self, may_deliver_again: bool) -> None:
        """Open the user's spout at the checkpoint's position, unless that is the end."""
        if not self.state.restored_ended or may_deliver_again:
            self._is_user_open = True
            self._open_user(self.uncommitted.position)
        self._collector.ended |= self.state.restored_ended and not may_deliver_again

    def _activate_if_wanted(self, now: float) -> None:
        if self._is_user_open:
            super()._activate_if_wanted(now)

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._barriers.clear()
        self._early_checkpoint_requested = False
        self._init_roots, self._init_values, self._fails = bytearray(), bytearray(), []
        if self.is_retrying:
            self._collector.clear()
        # Else what `fail` has emitted in a recovery before this one has not been sent, and is in no checkpoint.
        self._end_sent = False
        # The routes may be the first to say that it is complete.
        self._publish(self.state.restore_point, now)
        lost = self._restore_source()
        self._emitted_at_telling = self.uncommitted.emitted
        if self.is_retrying:
            # Another `open` would not know them.
            self._ack_done(self.uncommitted.untold, now)
            # It reads on from the checkpoint, as a new process would.
            if self._is_active:
                self._is_active = False
                self._guard(self._spout.deactivate, now)
            self._collector.ended = False
            if self._is_user_open:
                self._is_user_open = False
                self._guard(self._spout.close, now)
            self._go_on(may_deliver_again=False)
            return
        self.counters.reset += len(lost)
        self.source_messages.leave_to_spout(lost)
        for message in lost:
            self._guard(lambda message=message: self._spout.fail(message), now)  # type: ignore[misc]

    def _restore_source(self) -> list[Any]:
        """Take over what the checkpoint says; return the messages that it does not cover."""
        states = [part.values["source"] for part in self.state.restored if "source" in part.values]
        marks = [part.values["watermark"] for part in self.state.restored if "watermark" in part.values]
        letters = [part.values["letters"] for part in self.state.restored if "letters" in part.values]
        self._letters.restore(letters, self.state.restore_point)
        self.source_messages.ids.restart()
        self._output_watermarks.reset(self.ports.clock(), forget=True)
        if marks:
            self._output_watermarks.restore(min(marks))
        return self.uncommitted.restore(states, self.state.restore_point)

    def _opening_watermark(self) -> int:
        return self._output_watermarks.latest if self.state.restored else MIN_WATERMARK

    def _close_component(self) -> None:
        for message in self.uncommitted.tell(self.uncommitted.untold):
            try:
                self._spout.ack(message)
            except Exception as error:
                # The process ends anyway: the others are told, and the spout is closed.
                self.reports.record(error, self.ports.clock())
        if self._is_user_open:
            super()._close_component()

    @property
    def has_work(self) -> bool:
        """Whether a Turn would do something now."""
        return (self.uncommitted.untold > 0 and self.state.is_working) or super().has_work

    def _act(self, now: float) -> None:
        emitted = self.uncommitted.emitted - self._emitted_at_telling
        self._emitted_at_telling += emitted
        # A checkpoint covers tens of thousands; what waits must not become more.
        self._ack_done(max(self._acks_at_once, 2 * emitted), now)
        if self.state.restored_ended and (not self.uncommitted.has_known or self._idle_polls > _LAST_POLLS):
            self._collector.ended = True
        super()._act(now)

    @property
    def _pending(self) -> int:
        """Rows that wait to be sent. What only waits for a checkpoint keeps nobody from ending."""
        return self._collector.count()

    @property
    def _may_emit(self) -> bool:
        return super()._may_emit and self.uncommitted.uncovered + self.uncommitted.untold < self._uncovered_limit

    @property
    def _uncovered_limit(self) -> int:
        return 1 << 60 if self.is_retrying else self._limit

    # -- emitting --------------------------------------------------------------------------------------------------------

    def _note_order(self, messages: Sequence[Any]) -> None:
        if messages:
            self.uncommitted.reach(messages[-1])

    def _send_tracked(self, stream: StreamRows, messages: list[Any], now: float, first_time: bool) -> None:
        self.source_messages.reemitted(messages)
        accepted = self.uncommitted.accept(messages, stream.rows)
        if accepted is not None:
            for place in accepted.changed:
                self._refuse_changed(messages[place], stream.rows[place], now)
            stream.keep(accepted.sent)
        if stream.rows:
            self._send_untracked(stream)
        if self.uncommitted.uncovered * 2 >= self._uncovered_limit and not self._early_checkpoint_requested:
            self._early_checkpoint_requested = True
            self.reports.to_master(CheckpointWanted(task=self.id, epoch=self.epoch))

    def _send_untracked(self, stream: StreamRows) -> None:
        if self.state.restored_ended and stream.rows:
            # Its readers have published what they made of the end.
            self._collector.ended = True
            error = EmitError(
                f"component {self.component_id!r} emitted a new message, and checkpoint {self.state.restore_point} is behind "
                "the end of its input; begin anew to have it processed (topo submit, or topo resume --from-beginning)"
            )
            self.reports.record(error, self.state.now)
            for row in stream.rows:
                self._lose_row(row, error)
            return
        super()._send_untracked(stream)

    def _refuse_changed(self, message: Any, values: Any, now: float) -> None:
        """Give up a message whose id a covered one has: it is another message, or the same one with other values."""
        error = EmitError(
            f"component {self.component_id!r} emitted message id {message!r} with other values than in checkpoint "
            f"{self.state.restore_point}, which covers that id. With exactly_once an id names one message of the source, in "
            "every process: use the source's own ids, not a counter, or a RetryingSpout with positions; keep the time of reading "
            "out of the values; or set delivery=at_least_once"
        )
        self.reports.record(error, now)
        self._lose_row(values, error)

    def _digest(self, values: Any) -> int:
        try:
            return crc32(self.ports.codec.pack_value(values)) or 1
        except ValueNotCarried:
            return ANY_VALUES

    @property
    def _has_passed_end(self) -> bool:
        return self._end_sent

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def _on_begin_checkpoint(self, event: BeginCheckpoint, now: float) -> None:
        if event.epoch != self.epoch or not self._is_going or self.is_closed:
            return
        checkpoint = event.checkpoint
        if self._observer is not None:
            self._observer.checkpoint_begun(self.id, checkpoint)
        # What has been emitted is before the barrier, wherever it waits.
        self._send(now, first_time=True)
        self._flush(now)
        # What cannot be carried is a dead letter of this checkpoint.
        self.outbox.flush_all()
        self._take_snapshot(checkpoint, 0.0, lambda: None)
        root = self.ports.ids.roots(1)[0]
        owed = self.outbound.send_barrier(checkpoint, [root])
        if not self.outbound.consumers:
            self.reports.to_master(BarrierAcked(task=self.id, epoch=self.epoch, checkpoint=checkpoint))
            return
        self._barriers[root] = checkpoint
        self._acker_routes.send(FrameKind.INIT, pack_words([root]), pack_words([owed]))

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        if frame.kind is FrameKind.ACKED:
            for root in frame.root_list():
                checkpoint = self._barriers.pop(root, None)
                if checkpoint is not None:
                    self.reports.to_master(BarrierAcked(task=self.id, epoch=self.epoch, checkpoint=checkpoint))
            return True
        return super()._process(edge, frame, now)

    def _snapshot(self, checkpoint: int) -> Snapshot:
        source, letters = self.uncommitted.snapshot(checkpoint), self._letters.snapshot(checkpoint)
        return Snapshot(values={"watermark": self._output_watermarks.latest, "source": source, "letters": letters})

    def _publish(self, checkpoint: int, now: float) -> None:
        self._early_checkpoint_requested = False
        before = self.uncommitted.covered
        self.uncommitted.complete(checkpoint)
        self.counters.acked += self.uncommitted.covered - before
        self._letters.publish(checkpoint)

    def _on_dead_letters_stored(self, ids: Sequence[int], now: float) -> None:
        self.counters.dead_lettered += self._letters.stored(ids)

    def _ack_done(self, most: int, now: float) -> None:
        for message in self.uncommitted.tell(most):
            self._guard(lambda message=message: self._spout.ack(message), now)  # type: ignore[misc]

    def _unaccounted(self) -> int:
        return self.uncommitted.emitted - self.uncommitted.covered

    def _levels(self) -> dict[str, float]:
        return {**super()._levels(), "uncovered": float(self.uncommitted.uncovered)}
