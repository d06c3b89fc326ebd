"""Inputs that are delivered at least once: the ackers follow the messages that they descend from.

For an input the task owes the acker of each root exactly one value: the input's edge XOR the edges of all rows anchored on it. An
input that raises owes a FAIL instead, and its rows are discarded; its spout replays the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from topo.checkpoint.held_inputs import HeldInputs
from topo.emission.collectors import BoltCollector, Mark, TrackedTuple
from topo.emission.emitter import StreamRows
from topo.emission.router import owners_of
from topo.errors import FrameError
from topo.hot import take
from topo.task.batch import Batch
from topo.task.bolt_output import BoltOutput
from topo.task.events import RoutesChanged
from topo.task.guarantees.inputs import Anchors, InputGuarantee
from topo.task.guarantees.window_firings import WindowFirings
from topo.task.parts import TaskParts
from topo.task.waiting_roots import WaitingRoots
from topo.tracking.acker_routes import AckerRoutes
from topo.tracking.owed_ids import OwedIds
from topo.wire.frames import Anchoring, Frame


class TrackedInputs(InputGuarantee):
    """Inputs of a topology with ackers and without checkpoints.

    Args:
        firings: of windows; None in a task without.

    Attributes:
        owed: the ids that have not been sent.
    """

    def __init__(self, parts: TaskParts, out: BoltOutput, held: HeldInputs, firings: WindowFirings | None = None) -> None:
        super().__init__(parts, out, held)
        self._firings = firings
        self._also_waiting = parts.waiting
        state = parts.state
        routes = AckerRoutes(state.plan.ackers, parts.outbound.outbox.put_ids)
        self.owed = OwedIds(routes, state.config.batch_size, state.config.flush_interval_s, parts.reports.flush_causes)
        if state.plan.ackers:
            self.queue_limit_s = state.plan.shortest_message_timeout_s
        self._causes = parts.reports.causes
        self._ids_wait = state.plan.ids_may_wait
        self._waiting = WaitingRoots(state, parts.outbound)
        self.timed = self.id_sender = self

    def fail(self, roots: Iterable[int], error: Exception) -> None:
        """Fail roots, and note why."""
        roots = list(roots)
        self.owed.fail(roots)
        self._causes.note(roots, error)

    # -- ids -------------------------------------------------------------------------------------------------------------

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget all ids: the messages are replayed."""
        self._out.begin_epoch(now)
        self.owed.clear()
        self._causes.clear()
        if self._firings is not None:
            self._firings.begin_epoch()

    @property
    def is_quiet(self) -> bool:
        """Whether no value is owed."""
        is_settled = self._firings is None or self._firings.is_quiet
        return is_settled and not self.owed.acks and not self.owed.fails

    def on_time(self, now: float) -> None:
        """Keep roots that wait here from timing out; send ids that have been owed for `flush_interval`."""
        roots = self._waiting.due(now)
        if roots is not None:
            if self._outbound.outbox.is_full:
                # A bolt that gets no input, since its output waits, may have no other occasion to ack the inputs that it holds.
                roots |= {root: None for tup in self.held.now() for root in tup.roots}
            for also_waiting in self._also_waiting:
                roots |= also_waiting(roots, now)
        if roots:
            self.owed.touch(roots)
            self.owed.flush()
        if self.owed.is_due(now):
            self.flush(now)

    def deadlines(self) -> list[float | None]:
        """Return when ids have to leave, and when to look for waiting roots."""
        return [self.owed.deadline, self._waiting.deadline]

    def flush_full(self, now: float) -> None:
        """Send ids if they are a batch, or if a fail or a touch is among them."""
        self.owed.flush_full(now)

    def on_idle(self, now: float) -> None:
        """Send ids where messages may be few; else only a batch or a failure, and the others with `flush_interval`."""
        if self._ids_wait:
            self.owed.flush_full(now)
        else:
            self.owed.flush()

    def flush(self, now: float) -> None:
        """Send all rows that are buffered, then all ids."""
        self._outbound.outbox.flush()
        self.owed.flush()

    # -- what cannot be read or sent -------------------------------------------------------------------------------------

    def frame_lost(self, frame: Frame, error: FrameError, now: float) -> None:
        """Fail the roots of a frame that cannot be read."""
        self.fail(frame.root_list(), error)
        self._count_lost_frame(error, now)

    def lose_input(self, values: Any, roots: Iterable[int], error: Exception) -> None:
        """Fail the input."""
        self.fail(roots, error)

    def lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        """Fail the messages of a row; count it where there are none."""
        if roots:
            self.fail(roots, error)
        else:
            self._counters.unsent += 1

    def _lose_anchored(self, values: Any, anchors: tuple[TrackedTuple, ...], error: Exception) -> None:
        for anchor in anchors:
            if anchor.epoch == self._state.epoch:
                self.fail(anchor.roots, error)
        if not any(anchor.roots for anchor in anchors):
            self._counters.unsent += 1
        if self._firings is not None:
            self._firings.refuse(anchors, error)

    def fail_input(self, collector: BoltCollector, tup: TrackedTuple, error: BaseException) -> None:
        """Fail an input whose call has failed, and note why."""
        self._causes.note(tup.roots, error)
        collector.fail(tup)

    def roll_back(self, collector: BoltCollector, mark: Mark, culprit: TrackedTuple | None, error: Exception) -> None:
        """Discard what a call that raised has emitted, and fail the inputs that it acked together with its own."""
        before = len(collector.failed)
        collector.roll_back(mark, culprit)
        for tup in collector.failed[before:]:
            self._causes.note(tup.roots, error)

    # -- calls whose inputs the engine acks ------------------------------------------------------------------------------

    def _fail_slice_input(self, batch: Batch, index: int, error: Exception) -> None:
        self.fail(batch.ids_at(index)[0], error)

    def _route_slice(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception]
    ) -> None:
        if batch.anchoring is Anchoring.SINGLE:
            self._route_single(streams, batch, first, last, failures)
        elif batch.anchoring is Anchoring.MULTI:
            self._route_multi(streams, batch, first, last, failures)
        else:
            self._route_untracked(streams, batch, first, last)

    def _route_single(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception]
    ) -> None:
        roots, owed = batch.packed_roots(first, last), batch.packed_edges(first, last)
        for stream in streams:
            if stream.rows:
                ends = stream.ends

                def reject(row: int, error: Exception, ends: list[int] = ends) -> None:
                    self._fail_row(batch.ids_at(first + owners_of(ends)[row])[0], error)

                self._emission.single(stream, roots, owed, reject, batch.stamps_of(first, last))
        if not failures:
            self.owed.acks.fold(roots, owed)
        elif kept := [index for index in range(last - first) if index not in failures]:
            ((_, _, _, columns),) = take([(0, kept)], batch.rows[first:last], roots, owed)
            self.owed.acks.fold(*columns)

    def _route_multi(
        self, streams: Sequence[StreamRows], batch: Batch, first: int, last: int, failures: dict[int, Exception]
    ) -> None:
        """Route a batch whose tuples have several roots, as for a bolt that names its anchors."""
        epoch = self._state.epoch
        inputs = [TrackedTuple.made(batch.rows[i], batch.origin, None, epoch, *batch.ids_at(i)) for i in range(first, last)]
        for stream in streams:
            if stream.rows:
                owners = owners_of(stream.ends)

                def reject(row: int, error: Exception, owners: list[int] = owners) -> None:
                    self._fail_row(inputs[owners[row]].roots, error)

                anchors = [(inputs[owner],) for owner in owners]
                self._emission.anchored(stream, anchors, epoch, reject, batch.stamps_of(first, last))
        for index, tup in enumerate(inputs):
            if index not in failures:
                self.owed.acks.add(tup.roots, tup.edges, tup.out)

    def _fail_row(self, roots: tuple[int, ...], error: Exception) -> None:
        for root in roots:
            self.fail((root,), error)
            self._reports.record(error, self._state.clock())

    # -- calls that name anchors and ack by themselves -------------------------------------------------------------------

    def _route_calls(self, stream: StreamRows, anchors: Anchors, now: float) -> None:
        def reject(row: int, error: Exception) -> None:
            self._lose_anchored(stream.rows[row], anchors[row], error)
            self._reports.record(error, now)

        self._emission.anchored(stream, anchors, self._state.epoch, reject)

    def _decide(self, acked: list[TrackedTuple], failed: list[TrackedTuple], touched: list[TrackedTuple], now: float) -> None:
        owed, epoch = self.owed, self._state.epoch
        for tup in acked:
            owed.acks.add(tup.roots, tup.edges, tup.out)
        for tup in failed:
            owed.fail(tup.roots)
            self._causes.note(tup.roots, None)
        for tup in touched:
            if tup.epoch == epoch:
                owed.touch(tup.roots)
        if self._firings is not None:
            self._firings.settle(owed, now)
