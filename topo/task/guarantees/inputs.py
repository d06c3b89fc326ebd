"""Delivery of the inputs of a task: the consequences of a call that raises, for its input and for the rows that it emitted.

The runner makes the calls of user code and leaves what they emit in collectors; a guarantee takes it from there. Rows are routed
first; acks and fails of the inputs follow. Errors are reported last, since a report may end the process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from topo.api.streams import DEFAULT_STREAM
from topo.checkpoint.alignment import Aligned, Snapshot
from topo.checkpoint.held_inputs import HeldInputs, still_held
from topo.emission.collectors import BoltCollector, Mark, TrackedTuple, TupleState
from topo.emission.emitter import StreamRows
from topo.emission.output_watermarks import UnreadableRows
from topo.emission.router import Reject, owners_of
from topo.errors import FrameError, TupleStateError
from topo.operators.state.undo_log import UndoLog
from topo.task.batch import Batch, Undecoded
from topo.task.bolt_output import BoltOutput
from topo.task.events import RoutesChanged
from topo.task.guarantees.base import IdSender
from topo.task.parts import TaskParts
from topo.task.runners.base import MessageHandlers, Timed
from topo.wire.frames import Frame

Anchors = list[tuple[TrackedTuple, ...]]
_FORGOTTEN = "execute() has neither acked nor failed its input, and kept no reference to it; it fails after message_timeout"


class InputIds(IdSender, Protocol):
    """The ids that a task owes for its inputs."""

    def flush_full(self, now: float) -> None:
        """Send them if they are a batch, or if a fail or a touch is among them."""


class Barriers(Protocol):
    """Passes the barriers of checkpoints through one task."""

    def on_barrier(self, aligned: Aligned, snapshot: Callable[[], Snapshot], *, has_ended: bool) -> None:
        """Take the snapshot of a barrier that has come on all edges, and pass it on.

        Args:
            aligned: the barrier.
            snapshot: returns the state of the user's component.
            has_ended: whether the task has sent on the end of its input.
        """


class InputGuarantee(ABC):
    """Delivery of the inputs of one task.

    Args:
        parts: of the task.
        out: its output.
        held: inputs that a bolt holds back.

    Attributes:
        messages: the master's messages that this guarantee acts on.
        queue_limit_s: how long messages or barriers may take through the topology; None where nothing depends on that.
        undo_log: notes the changes of a call, where calls are undone and repeated.
        timed: the guarantee itself, where it has work that is due by the clock; else None.
        id_sender: the guarantee itself, where ids are owed for inputs; None where rows carry none.
        barriers: the guarantee itself, where there are checkpoints; else None.
        rewinds: whether user code goes back to a checkpoint when a later epoch begins. Else its state lives on, and the inputs
            that it holds are replayed.
        lost_calls: how many calls without input have raised, and are not repeated.
    """

    queue_limit_s: float | None = None
    timed: Timed | None = None
    id_sender: InputIds | None = None
    barriers: Barriers | None = None
    rewinds = False

    def __init__(self, parts: TaskParts, out: BoltOutput, held: HeldInputs) -> None:
        self._state = parts.state
        self._counters = parts.state.counters
        self._reports = parts.reports
        self._outbound = parts.outbound
        self._out = out
        self._emission = out.emission
        self.held = held
        self.messages: MessageHandlers = {}
        self.undo_log: UndoLog | None = None
        self.lost_calls = 0

    # -- the modes -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def lose_input(self, values: Any, roots: Iterable[int], error: Exception) -> None:
        """An input is not processed."""

    @abstractmethod
    def lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """A row that was emitted for these roots is not sent."""

    @abstractmethod
    def _lose_anchored(self, values: Any, anchors: tuple[TrackedTuple, ...], error: Exception) -> None:
        """A row that is anchored on these inputs is not sent."""

    @abstractmethod
    def _fail_slice_input(self, batch: Batch, index: int, error: Exception) -> None:
        """The last attempt for an input of a batch has raised."""

    @abstractmethod
    def _decide(self, acked: list[TrackedTuple], failed: list[TrackedTuple], touched: list[TrackedTuple], now: float) -> None:
        """Account for inputs, behind the rows that their calls emitted."""

    # -- calls that raise ------------------------------------------------------------------------------------------------

    def raised(self, error: Exception, call: Callable[[], object], undo: Callable[[], object]) -> Exception | None:
        """Take back a call that has raised, and repeat it where calls are repeated.

        Args:
            error: raised by it.
            call: makes it again.
            undo: takes back its effects.

        Returns:
            The last error; None when a repetition has gone well.
        """
        undo()
        return error

    def input_raised(
        self,
        collector: BoltCollector,
        mark: Mark,
        tup: TrackedTuple,
        error: Exception,
        call: Callable[[], object],
        undo: Callable[[], object],
    ) -> Exception | None:
        """Do the same for the call of one input, and fail the input when no attempt is left.

        Args:
            collector: the call emitted, acked and failed with it.
            mark: how far the collector had come before.
            tup: the input.
            error: raised by the call.
            call: makes it again.
            undo: takes back all that the call did.
        """
        self.roll_back(collector, mark, tup, error)
        return error

    @abstractmethod
    def fail_input(self, collector: BoltCollector, tup: TrackedTuple, error: BaseException) -> None:
        """Fail an input whose call has failed, with no attempt left."""

    def roll_back(self, collector: BoltCollector, mark: Mark, culprit: TrackedTuple | None, error: Exception) -> None:
        """Discard what a call that raised has emitted, and fail the inputs that it acked together with its own."""
        collector.roll_back(mark, culprit)

    def call_raised(
        self, error: Exception, values: Any, call: Callable[[], object], undo: Callable[[], object], abandon: Callable[[], bool]
    ) -> None:
        """Act on a call without input that has raised, and report its error if it is final.

        Args:
            error: raised by it.
            values: name the call in a dead letter.
            call: makes it again.
            undo: takes back its effects, so that it can be made again.
            abandon: discards its effects; returns whether its results are lost.
        """
        is_lost = abandon()
        self._reports.user_error(error, self._state.now)
        if is_lost:
            self.lost_calls += 1
            self._counters.lost_results += 1

    # -- life ------------------------------------------------------------------------------------------------------------

    @abstractmethod
    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget the epoch before, that of the output included."""

    def flush(self, now: float) -> None:
        """Send all rows that are buffered."""
        self._outbound.outbox.flush()

    # -- what cannot be read or sent -------------------------------------------------------------------------------------

    def undecoded(self, one: Undecoded, now: float) -> None:
        """Fail an input that has arrived and cannot be decoded."""
        self._counters.failed += 1
        self.lose_input(one.values, one.roots, one.error)
        self._reports.user_error(one.error, now)

    @abstractmethod
    def frame_lost(self, frame: Frame, error: FrameError, now: float) -> None:
        """Drop a frame that cannot be read."""

    def _count_lost_frame(self, error: FrameError, now: float) -> None:
        self._counters.malformed_frames += 1
        self._reports.record(error, now)

    def reject_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """Drop a row that cannot be carried."""
        self._reports.record(error, self._state.clock())
        self.lose_row(values, roots, error)

    def reject_untracked(self, stream: StreamRows) -> Reject:
        """Return a callback that drops rows that cannot be routed."""
        return lambda row, error: self.reject_row(stream.rows[row], (), error)

    def _drop_unstamped(self, stream: StreamRows, refused: UnreadableRows, anchors: Anchors | None, now: float) -> None:
        """Drop rows of the main stream that have no timestamp."""
        for row, error in refused.items():
            self._lose_anchored(stream.rows[row], () if anchors is None else anchors[row], error)
        self._emission.keep(stream, [row for row in range(len(stream.rows)) if row not in refused])
        for error in refused.values():
            self._reports.user_error(error, now)

    # -- calls whose inputs the engine acks ------------------------------------------------------------------------------

    def settle_slice(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception], now: float
    ) -> None:
        """Route the rows of a slice, and account for its inputs.

        Args:
            streams: rows, with the number of rows there were after each input.
            batch: has the inputs.
            first, last: the slice of it.
            failures: final errors, by the input's index from `first`. Rows of these inputs are gone already.
            now: monotonic seconds.
        """
        if self._state.observer is not None:
            self._state.observer.rows_emitted(self._state.id, streams)
            acked = (batch.ids_at(index) for index in range(first, last) if index - first not in failures)
            self._state.observer.inputs_acked(self._state.id, acked)
            self._state.observer.inputs_failed(self._state.id, (batch.ids_at(first + index) for index in failures))
        if refused := self._emission.begin(streams):
            self._fail_unstamped(streams, refused, failures)
        # Rows before inputs: routing folds the rows' fresh edges into the values that the inputs owe.
        self._route_slice(streams, batch, first, last, failures)
        self._emission.finish()
        for stream in streams:
            stream.clear()
        # Reports last: one may end the process, and then the rows of the other inputs have been routed.
        for index, error in failures.items():
            self._fail_slice_input(batch, first + index, error)
            self._reports.user_error(error, now)
        self._counters.failed += len(failures)
        self._counters.acked += last - first - len(failures)

    @abstractmethod
    def _route_slice(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception]
    ) -> None:
        """Route the rows of a slice, and account for those of its inputs that have not failed."""

    def _route_untracked(self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int) -> None:
        for stream in streams:
            if stream.rows:
                self._emission.untracked(stream, self.reject_untracked(stream), batch.stamps_of(first, last))

    def _fail_unstamped(self, streams: Sequence[StreamRows], refused: UnreadableRows, failures: dict[int, Exception]) -> None:
        """Have the inputs fail whose rows on the main stream have no timestamp: nothing that they emitted goes out."""
        main = next(stream for stream in streams if stream.declaration.name == DEFAULT_STREAM)
        owners = owners_of(main.ends)
        failed = {owners[row]: error for row, error in reversed(refused.items())}
        failures.update(failed)
        for stream in streams:
            owners = owners_of(stream.ends)
            self._emission.keep(stream, [row for row, owner in enumerate(owners) if owner not in failed])
            start = kept = 0
            for at, end in enumerate(stream.ends):
                kept += 0 if at in failed else end - start
                start, stream.ends[at] = end, kept

    def settle_rows(self, streams: Sequence[StreamRows], now: float) -> None:
        """Route what a call without input has emitted."""
        if self._state.observer is not None:
            self._state.observer.rows_emitted(self._state.id, streams)
        refused = self._emission.begin(streams)
        for stream in streams:
            if refused and stream.declaration.name == DEFAULT_STREAM:
                self._drop_unstamped(stream, refused, None, now)
            if stream.rows:
                self._emission.untracked(stream, self.reject_untracked(stream))
        self._emission.finish()
        for stream in streams:
            stream.clear()

    # -- calls that name anchors and ack by themselves -------------------------------------------------------------------

    def settle_calls(self, collector: BoltCollector, now: float, undecided: list[TrackedTuple] | None = None) -> None:
        """Route what calls have emitted, then act on what they have acked, failed and touched.

        Args:
            collector: took all that; it is empty afterwards.
            now: monotonic seconds.
            undecided: inputs that their calls have neither acked nor failed. Becomes empty.
        """
        state, epoch = self._state, self._state.epoch
        acked = [tup for tup in collector.acked if tup.epoch == epoch]
        failed = [tup for tup in collector.failed if tup.epoch == epoch]
        stale = len(collector.acked) - len(acked)
        if state.observer is not None:
            state.observer.rows_emitted(state.id, collector.streams)
            state.observer.inputs_acked(state.id, ((tup.roots, tup.edges) for tup in acked), stale)
            state.observer.inputs_failed(state.id, ((tup.roots, tup.edges) for tup in failed))
        refused = self._emission.begin(collector.streams)
        for stream, anchors in zip(collector.streams, collector.anchors, strict=True):
            if refused and stream.declaration.name == DEFAULT_STREAM:
                self._drop_unstamped(stream, refused, anchors, now)
                anchors[:] = [on for row, on in enumerate(anchors) if row not in refused]
            if stream.rows:
                self._route_calls(stream, anchors, now)
        self._emission.finish()
        self._counters.stale_tuples += stale + len(collector.failed) - len(failed)
        self._counters.acked += len(acked)
        self._counters.failed += len(failed)
        self._decide(acked, failed, collector.touched, now)
        collector.clear()
        if undecided:
            self._keep_undecided(undecided, now)

    def _route_calls(self, stream: StreamRows, anchors: Anchors, now: float) -> None:
        self._emission.untracked(stream, self.reject_untracked(stream))

    # -- inputs that a bolt holds back -----------------------------------------------------------------------------------

    def _keep_undecided(self, undecided: list[TrackedTuple], now: float) -> None:
        """Keep the inputs that calls have left undecided and that user code holds. Empties the list.

        Inputs that user code holds no longer, so that it can neither ack nor fail them, are reported.
        """
        # An input that a later call of the batch has acked was not forgotten.
        undecided[:] = [tup for tup in undecided if tup.state == TupleState.OPEN]
        tracked = sum([bool(tup.roots) for tup in undecided])
        held = still_held(undecided)
        for _ in range(tracked - sum([bool(tup.roots) for tup in held])):
            self._reports.record(TupleStateError(_FORGOTTEN), now)
        # An input that is tracked is waited for by its spout, too: only those downstream have to know that it is held.
        self.held.keep(held if self._outbound.consumers else [tup for tup in held if not tup.roots])

    def keep_stale(self, stale: list[TrackedTuple]) -> None:
        """Keep, when an epoch has begun, those held inputs of the one before that are not replayed."""
        self.held.keep([tup for tup in stale if not tup.roots])
