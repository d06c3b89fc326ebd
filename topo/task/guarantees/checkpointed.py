"""Inputs that are delivered exactly once: checkpoints cover them, and a call that raises is undone and repeated in place.

Nothing is tracked but barriers. An input whose calls have all raised becomes a dead letter, stored when a checkpoint covers it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from topo.checkpoint.alignment import Aligned, Snapshot
from topo.checkpoint.held_inputs import HeldInputs, still_held
from topo.checkpoint.staged_output import StagedOutput
from topo.emission.collectors import BoltCollector, Mark, TrackedTuple, TupleState
from topo.emission.emitter import StreamRows
from topo.errors import FrameError, UserError
from topo.hot import pack_words
from topo.operators.state.undo_log import UndoLog
from topo.task.batch import Batch
from topo.task.bolt_output import BoltOutput
from topo.task.events import RoutesChanged
from topo.task.guarantees.base import repeated
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.guarantees.output_state import OutputState
from topo.task.parts import TaskParts
from topo.tracking.acker_routes import AckerRoutes
from topo.wire.control import CheckpointComplete
from topo.wire.frames import Frame, FrameKind

ErrorOf = Callable[[TrackedTuple], BaseException | None]


class CheckpointedInputs(InputGuarantee):
    """Inputs of a topology with checkpoints.

    Args:
        error_of: returns the error with which user code has failed an input; None if it gave none.
        staged: output of a two-phase sink, which is published when a checkpoint is complete.
        undo_log: of an operator; by default it leaves the output alone.

    Attributes:
        output: its state in checkpoints.
    """

    rewinds = True

    def __init__(
        self,
        parts: TaskParts,
        out: BoltOutput,
        held: HeldInputs,
        error_of: ErrorOf | None = None,
        staged: StagedOutput | None = None,
        undo_log: UndoLog | None = None,
    ) -> None:
        super().__init__(parts, out, held)
        self._error_of = error_of
        state = parts.state
        self.queue_limit_s = state.config.checkpoint_interval_s
        self._codec = parts.env.codec
        self._inbound = parts.inbound
        self._snapshots = parts.snapshots
        self._routes = AckerRoutes(state.plan.ackers, parts.outbound.outbox.put_ids)
        self.output = OutputState(parts, out.watermarks)
        self.undo_log = UndoLog() if undo_log is None else undo_log
        self._staged = staged
        self.barriers = self
        self.messages = {CheckpointComplete: self._on_checkpoint_complete, **self.output.messages}

    # -- dead letters ----------------------------------------------------------------------------------------------------

    def give_up(self, values: Any, error: BaseException) -> None:
        """Make a dead letter of an input, or of what a call was made for, after all attempts."""
        self._counters.failed += 1
        self.output.give_up(values, error, self._state.config.attempts)

    def lose_input(self, values: Any, roots: Iterable[int], error: Exception) -> None:
        """Make a dead letter of the input."""
        self.output.give_up(values, error)

    def lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """Make a dead letter of the row."""
        self.output.give_up(values, error)

    def _lose_anchored(self, values: Any, anchors: tuple[TrackedTuple, ...], error: Exception) -> None:
        self.output.give_up(values, error)

    def frame_lost(self, frame: Frame, error: FrameError, now: float) -> None:
        """End the epoch: the rows of the frame are lost."""
        self._count_lost_frame(error, now)
        self._inbound.drop_unreadable(frame, error, now)

    # -- calls that raise ------------------------------------------------------------------------------------------------

    def raised(self, error: Exception, call: Callable[[], object], undo: Callable[[], object]) -> Exception | None:
        """Take back a call that has raised, and repeat it as often as attempts allow."""
        undo()
        return self.repeat(error, call, undo)

    def repeat(self, error: Exception, call: Callable[[], object], undo: Callable[[], object]) -> Exception | None:
        """Repeat a call that has been taken back. Returns the last error, None when it has gone well."""
        try:
            return repeated(self._state.config, error, call, undo)
        finally:
            del error

    def input_raised(
        self,
        collector: BoltCollector,
        mark: Mark,
        tup: TrackedTuple,
        error: Exception,
        call: Callable[[], object],
        undo: Callable[[], object],
    ) -> Exception | None:
        """Repeat the call of one input; give the input up when it has used up its attempts."""
        return self._fail_finally(collector, tup, self.raised(error, call, undo))

    def _fail_finally(self, collector: BoltCollector, tup: TrackedTuple, final: Exception | None) -> Exception | None:
        if final is not None:
            self.fail_input(collector, tup, final)
        return final

    def fail_input(self, collector: BoltCollector, tup: TrackedTuple, error: BaseException) -> None:
        """Give up an input whose call has used up its attempts."""
        tup.state = TupleState.FAILED
        self.give_up(tup.values, error)

    def call_raised(
        self, error: Exception, values: Any, call: Callable[[], object], undo: Callable[[], object], abandon: Callable[[], bool]
    ) -> None:
        """Repeat a call without input; make a dead letter of its values when it has used up its attempts."""
        self._give_up_finally(values, self.raised(error, call, undo))

    def _give_up_finally(self, values: Any, final: Exception | None) -> None:
        if final is not None:
            self.give_up(values, final)
            self._reports.user_error(final, self._state.now)

    def _route_slice(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception]
    ) -> None:
        self._route_untracked(streams, batch, first, last)

    def _fail_slice_input(self, batch: Batch, index: int, error: Exception) -> None:
        self.output.give_up(batch.unchanged(index, self._codec), error, self._state.config.attempts)

    def _decide(self, acked: list[TrackedTuple], failed: list[TrackedTuple], touched: list[TrackedTuple], now: float) -> None:
        for tup in failed:
            error = None if self._error_of is None else self._error_of(tup)
            self.output.give_up(tup.values, "the bolt called fail" if error is None else error)

    # -- inputs that a bolt holds back -----------------------------------------------------------------------------------

    def settle_calls(self, collector: BoltCollector, now: float, undecided: list[TrackedTuple] | None = None) -> None:
        """Route what calls have emitted, then act on what they have acked and failed."""
        if self.held or undecided:
            for anchors in collector.anchors:
                self.held.note_anchors(anchors)
        super().settle_calls(collector, now, undecided)

    def _keep_undecided(self, undecided: list[TrackedTuple], now: float) -> None:
        self.held.keep(still_held(undecided))

    def keep_stale(self, stale: list[TrackedTuple]) -> None:
        """Refuse inputs of the epoch before that user code still holds. Empties the list."""
        if stale := still_held(stale):
            raise UserError(
                f"component {self._state.component_id!r} still holds {len(stale)} inputs of before the recovery; drop them in "
                "on_reset: they are replayed. Its process is replaced, since their results would be published twice"
            )

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Bring back the dead letters of the checkpoint, and the watermark of the output."""
        self._out.begin_epoch(now)
        # Another run that reads on from where one had ended has rows that are not late.
        self.output.restore(restores_end=self._state.restored_ended)

    def on_barrier(self, aligned: Aligned, snapshot: Callable[[], Snapshot], *, has_ended: bool) -> None:
        """Take the snapshot of a barrier that has come on all edges, and pass it on; ack it when the snapshot is stored."""
        owed, checkpoint = aligned.roots, aligned.checkpoint

        def whole() -> Snapshot:
            user = snapshot()
            return Snapshot(user.keyed, self.output.snapshot(checkpoint) | user.values)

        def ack() -> None:
            if owed:
                self._routes.send(FrameKind.ACK, pack_words(owed), pack_words([value ^ out for value in owed.values()]))

        # Packs all rows before the snapshot: a row that cannot be carried is a dead letter of this checkpoint.
        self._outbound.outbox.flush_all()
        # The snapshot is finished before anything else is processed; acks wait until it is stored, the barrier does not.
        self._snapshots.take(checkpoint, whole, has_ended=has_ended, waited_s=aligned.waited_s, then=ack)
        self._outbound.outbox.flush()
        out = self._outbound.send_barrier(checkpoint, list(owed))

    def _on_checkpoint_complete(self, event: CheckpointComplete, now: float) -> None:
        if self._snapshots.publish(event.checkpoint, self._publish, now):
            self._snapshots.report_published(event.checkpoint)

    def _publish(self, checkpoint: int) -> None:
        self.output.dead_letters.publish(checkpoint)
        if self._staged is not None:
            self._staged.complete(checkpoint)
