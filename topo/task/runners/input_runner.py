"""Runs a bolt: a frame becomes calls of user code, and the end of the input one more. The kind of bolt makes the calls.

The order for a slice of rows: mark it as in flight, call user code, settle, clear the mark. To settle is the guarantee's part:
rows are routed first, then the inputs are accounted for: a value for an acker has the edges of all its rows (`OwedIds`).
Errors of user code are reported last, since a report may end the process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from math import inf
from typing import Any, final

from topo.api.metrics import Histogram
from topo.api.streams import SYSTEM_COMPONENT, TICK_STREAM
from topo.api.tuples import Origin, Tuple
from topo.checkpoint.alignment import Aligned
from topo.errors import FrameError, TopoInternalError, UserError
from topo.task.allowance import Allowance, make_allowance
from topo.task.batch import Batch, Origins, read_batch
from topo.task.batch_rows import unbatched
from topo.task.bolt_output import BoltOutput
from topo.task.events import RoutesChanged
from topo.task.flow_control import EdgeStatus, InEdge
from topo.task.guarantees.inputs import InputGuarantee
from topo.task.parts import TaskParts
from topo.task.runners.calls import END_OF_INPUT
from topo.task.runners.input_end import InputEnd
from topo.task.runners.kind import InputKind, KindOptions, ReadyCalls
from topo.task.slice_size import SLICE_BATCHES, AdaptiveSliceSize
from topo.wire.control import BeginCheckpoint
from topo.wire.frames import MIN_WATERMARK, Frame, FrameKind, SenderStatus

INPUT_FRAMES = frozenset(
    (
        FrameKind.OPEN,
        FrameKind.DATA,
        FrameKind.END,
        FrameKind.WATERMARK,
        FrameKind.IDLE,
        FrameKind.ACTIVE,
        FrameKind.BARRIER,
    )
)
VERDICTS = frozenset((FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED))


@final
class InputRunner:
    """Runs a bolt of one kind.

    Args:
        parts: of the task.
        out: its output.
        guarantee: of its inputs.
        kind: makes the calls of user code.
        end: of the input.
        options: what else the kind has.
    """

    def __init__(
        self,
        parts: TaskParts,
        out: BoltOutput,
        guarantee: InputGuarantee,
        kind: InputKind,
        end: InputEnd,
        options: KindOptions,
    ) -> None:
        state = self._state = parts.state
        self._id = state.id
        self._config = state.config
        self._counters = state.counters
        self._env = parts.env
        self._inbound = parts.inbound
        self._outbound = parts.outbound
        self._out = out
        self._guarantee = guarantee
        self._ids = guarantee.id_sender
        self._ahead = [timed for timed in (guarantee.timed, options.firings) if timed is not None]
        """Work that is due by the clock ahead of calls of user code."""
        self.kind = kind
        self._calls = kind.calls
        self._end = end
        self._options = options
        self.messages = options.messages
        if guarantee.barriers is not None and not self._inbound.sender_count:
            # Its checkpoints begin here, as they do at a spout.
            self.messages = {**options.messages, BeginCheckpoint: self._on_begin_checkpoint}
        self._pace = AdaptiveSliceSize(self._config.flush_interval_s, SLICE_BATCHES * self._config.batch_size)
        if self._config.queue_time_s is not None:
            self._inbound.allowance = make_allowance(self._config, self._inbound.sender_count, guarantee.queue_limit_s)
        self._batch: Batch | None = None
        self._origins = Origins(state.plan)
        self._taps = parts.taps
        self._end_waits = False
        """END waits for inputs that user code still has."""
        self._end_raised = 0
        """1 if `end_of_input` has raised when it was last called, and is not called again in this epoch."""
        self._tick_at: float | None = None
        self._tick = Origin(SYSTEM_COMPONENT, 0, TICK_STREAM)
        self._slice_count, self._slice_taken, self._slice_s = 0, 0, 0.0
        """Tuples that the turn at hand has processed, those as senders count them, and the seconds that they took."""
        self._each_s = 0.0
        """Seconds that a tuple, as senders count, took in the last turn that has processed one."""
        self._blocked_s = 0.0
        """`blocked_s` of the task when its turn before began."""
        self._slice_latency = Histogram()
        self._latency = self._slice_latency if options.latency is None else options.latency
        parts.cuts.append(self._cut_short)

    # -- life ------------------------------------------------------------------------------------------------------------

    def begin_epoch(self, event: RoutesChanged, now: float, *, is_first: bool) -> None:
        """Open the user's component, or bring it back to where the epoch begins; open the edges."""
        kind, restored, component = self.kind, self._state.restored, self._state.component_id
        if not kind.holds_inputs and any("held" in part.values for part in restored):
            raise UserError(
                f"component {component!r} was a Bolt that held inputs back, and now is none: they would be lost; "
                f"leave it as it was, or give them up (--drop-state {component})"
            )
        self._batch = None
        self._end.reached_at = None
        self._end_waits = False
        if is_first:
            if self._config.tick_interval_s and self._options.tick is not None:
                self._tick_at = now + self._config.tick_interval_s
            kind.open()
        else:
            kind.begin_again(restored if self._guarantee.rewinds else None, now)
        watermark = self._out.watermarks.latest if restored else MIN_WATERMARK
        self._outbound.send_opening(SenderStatus.ACTIVE, watermark)
        # Rows that the component has emitted in its `prepare` or `on_reset`.
        self._calls.settle(now)
        if self._options.opened is not None:
            self._options.opened()

    def run_user_mail(self, action: Callable[[], object]) -> None:
        """Run a mail that user code has posted."""
        self._calls.run(action, self._state.now, "a mail", self._config.max_task_emit)

    def close(self) -> None:
        """Call the user's last callback."""
        self.kind.close()

    def _cut_short(self) -> None:
        """End the slice of input at hand soon, so that the worker turns; any thread may call it."""
        batch = self._batch
        if batch is not None:
            batch.cut_short()

    # -- time ------------------------------------------------------------------------------------------------------------

    def deadlines(self, now: float) -> list[float | None]:
        """Return when guarantee and kind want a turn, a tick is due, and the watermark strategy is to be asked."""
        kind = () if self._options.timed is None else self._options.timed.deadlines()
        ahead = [at for timed in self._ahead for at in timed.deadlines()]
        return [*ahead, self._tick_at, self._out.watermarks.next_probe, *kind]

    def on_time(self, now: float) -> None:
        """Have the guarantee do all that is due; call for a tick, ask the watermark strategy, and have the kind do its part."""
        if self._inbound.allowance is not None and self._inbound.queue:
            self._note_wait(self._inbound.allowance, self._env.clock())
        for timed in self._ahead:
            timed.on_time(now)
        if self._tick_at is not None and now >= self._tick_at:
            self._call_for_tick(now)
        self._out.on_time(now)
        if self._options.timed is not None:
            self._options.timed.on_time(now)

    def _call_for_tick(self, now: float) -> None:
        interval, call = self._config.tick_interval_s, self._options.tick
        assert self._tick_at is not None and interval and call is not None
        self._tick_at += interval
        if self._tick_at <= now:
            self._tick_at = now + interval
        self._calls.run(partial(call, Tuple((), self._tick)), now, "a tick", self._config.max_task_emit)
        self._flush_when_due(now)

    # -- state -----------------------------------------------------------------------------------------------------------

    @property
    def _may_act(self) -> bool:
        """Whether there is room for another input, and for its results."""
        return not self._outbound.outbox.is_full and (self._options.has_room is None or self._options.has_room())

    @property
    def has_work(self) -> bool:
        """Whether a frame can be processed now, or a call be made that waits for its turn."""
        waits = bool(self._inbound.queue) or (self._options.ready is not None and self._options.ready.has_ready)
        return waits and self._may_act

    @property
    def is_blocked(self) -> bool:
        """Whether a frame waits for room."""
        return bool(self._inbound.queue) and not self._may_act

    @property
    def has_ended(self) -> bool:
        """Whether all input has ended, replays aside."""
        return self._end.has_come

    @property
    def pending(self) -> int:
        """How many trees that begin at the task have no verdict."""
        return 0 if self._options.firings is None else self._options.firings.pending

    def unfinished(self) -> str:
        """Describe the inputs that user code still has; "" when there are none."""
        return "" if self._options.unfinished is None else self._options.unfinished()

    def refusal(self) -> str:
        return "" if self._options.refusal is None else self._options.refusal()

    # -- input -----------------------------------------------------------------------------------------------------------

    def act(self, now: float) -> None:
        """Do one action.

        1. a call that is ready; if none is, a slice of the next frame, or of several that are small
        2. the results of mails are routed, and ids leave that are due
        3. END, when all inputs are done that it has waited for
        4. the last step of the kind
        """
        options = self._options
        if options.ready is not None and options.ready.has_ready:
            if self._may_act:
                self._run_ready(options.ready, now)
        elif self._inbound.queue:
            self._take_frames(now)
        if options.settle_mails is not None:
            options.settle_mails(now)
            self._flush_when_due(now)
        if self._end_waits:
            self._send_end(now)
        if options.act_last is not None:
            options.act_last(now)
        if self._inbound.allowance is not None and self._inbound.queue:
            # Timers, mails, calls for batches, event time: input has waited for them, too.
            ended = self._env.clock()
            self._inbound.allowance.note(0, ended - self._inbound.busy_since, self._may_act)
            self._inbound.busy_since = ended

    def _take_frames(self, now: float) -> None:
        """Process the next frame, or a slice of it, and frames of rows behind it while all together are not more than a slice.

        With many tasks, frames are small, and each turn of a worker goes over all tasks.
        """
        inbound = self._inbound
        self._slice_count, self._slice_taken, self._slice_s = 0, 0, 0.0
        while (head := inbound.head()) is not None and self._may_act:
            edge, frame = head
            is_done = self._process(edge, frame, now)
            if is_done:
                inbound.done(edge, frame, now)
            if not is_done or frame.kind is not FrameKind.DATA or not self._joins_slice():
                break
            now = max(now, inbound.busy_since)
        if self._slice_count:
            self._pace.note(self._slice_count, self._slice_s)
        if self._slice_taken:
            self._each_s = self._slice_s / self._slice_taken

    def _note_wait(self, allowance: Allowance, now: float) -> None:
        """Have the allowance learn how long the task has waited for its turn with input at hand."""
        inbound, counters, part = self._inbound, self._counters, 1.0
        blocked_s, self._blocked_s = counters.blocked_s - self._blocked_s, counters.blocked_s
        # Of batches one call is a turn, however many tuples are at hand.
        if self._options.ready is None:
            # Many small frames may wait: a look at all of them would take longer than the turn.
            at_hand = sum(frame.count for _, frame in islice(inbound.queue, 64))
            part = self._pace.filled(at_hand, at_hand * self._each_s)
        allowance.waited(now - inbound.busy_since, blocked_s, part)
        inbound.busy_since = now

    def _joins_slice(self) -> bool:
        """Whether the next frame is of rows that the slice has room for."""
        if not self._inbound.queue or self._slice_s >= self._config.flush_interval_s:
            return False
        frame = self._inbound.queue[0][1]
        return frame.kind is FrameKind.DATA and self._slice_count + frame.count <= self._pace.size

    def _run_ready(self, ready: ReadyCalls, now: float) -> None:
        self._flush_when_due(ready.run_ready(now))

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        """Process the frame at the head of the queue, or a part of it; True when it is done."""
        if frame.kind is FrameKind.DATA:
            return self._process_data(frame, now)
        if self._options.ready is not None and self._options.ready.held and frame.kind in (FrameKind.BARRIER, FrameKind.END):
            self._options.ready.close_batches()
            self._run_ready(self._options.ready, now)
            return False
        if frame.kind is FrameKind.BARRIER:
            aligned = self._inbound.barrier(edge, frame, now)
            if aligned is not None:
                self._pass_barrier(aligned, now)
            return True
        if frame.kind is FrameKind.OPEN:
            self._inbound.opened(edge, frame)
        elif frame.kind in VERDICTS:
            if self._options.firings is None:
                raise TopoInternalError("verdicts for a task that draws no roots")
            self._options.firings.on_verdicts(frame, now)
            return True
        if edge.sender in self._state.plan.ackers:
            return True
        # A frame whose timers have not all fired is processed again, which changes no event time.
        if not self._options.pass_time(self._inbound.event_time(edge, frame), now):
            return False
        if frame.kind in (FrameKind.OPEN, FrameKind.END) and edge.status is EdgeStatus.FINISHED:
            return self._input_ended(now)
        return True

    def _process_data(self, frame: Frame, now: float) -> bool:
        batch = self._batch or self._begin_batch(frame, now)
        if batch is None:
            self._flush_when_due(now)
            return True
        first = batch.done
        is_single = batch.runs_singly or self._out.emission.runs_singly
        last = batch.done = min(batch.count, first + (1 if is_single else self._pace.size))
        if (observer := self._state.observer) is not None:
            last = batch.done = observer.slice_begins(self._id, batch, first, last)
        marker, clock = self._env.marker, self._env.clock
        marker.hold(self._id, batch.packed_roots(first, last))
        began = clock()
        # An exception that leaves here ends the process, and then the mark names the tuples in flight.
        self.kind.run(batch, first, last, now)
        marker.release()
        # A bolt leaves the rest of the slice for later when its queue is full, or when the slice was cut short.
        last = batch.done
        if last == batch.count:
            self._batch = None
        ended = clock()
        seconds = ended - began
        count = last - first
        if not count:
            return False
        inbound, counters = self._inbound, self._counters
        # Senders count a batch of columns as one tuple, however many rows this bolt is given of it.
        is_split = batch.origin.columnar and not self._options.takes_batches
        taken = count if not is_split else frame.count if last == batch.count else 0
        self._slice_taken += taken
        if inbound.allowance is not None:
            inbound.allowance.note(taken, ended - inbound.busy_since, self._may_act)
        inbound.busy_since = ended
        self._slice_count += count
        self._slice_s += seconds
        counters.executed += count
        counters.busy_s += seconds
        self._slice_latency.record(seconds / count, count)
        self._flush_when_due(now + seconds)
        return last == batch.count

    def _begin_batch(self, frame: Frame, now: float) -> Batch | None:
        """Return the tuples of a frame that can be decoded, None when there are none. Each of the others fails alone."""
        if self._options.timestamp_check is not None:
            self._options.timestamp_check.look(frame, now)
        try:
            batch, undecoded = read_batch(frame, self._env.codec, self._origins.of(frame), self._state.component_id)
        except FrameError as error:
            self._guarantee.frame_lost(frame, error, now)
            return None
        if batch.origin.columnar:
            self._counters.batch_rows_in += sum([len(one) for (one,) in batch.rows])
            if not self._options.takes_batches:
                batch, unfit = unbatched(frame, batch, self._env.codec, self._env.ids, self._state.component_id)
                undecoded += unfit
        for one in undecoded:
            self._guarantee.undecoded(one, now)
        # Suspects that are tried together, those of several spouts, and rows of messages that are none, share a batch.
        batch.runs_singly = batch.has_suspect
        if self._taps.taken is not None and batch.count:
            origin = batch.origin
            self._taps.taken(f"{origin.component}:{origin.stream}", origin.fields, batch.rows)
        self._batch = batch if batch.count else None
        return self._batch

    def _flush_when_due(self, now: float) -> None:
        """Send ids if a batch of them is owed, and rows if they have waited for `flush_interval`."""
        if self._ids is not None:
            self._ids.flush_full(now)
        if self._outbound.is_flush_due(now):
            self._guarantee.flush(now)

    # -- the end of the input --------------------------------------------------------------------------------------------

    def _input_ended(self, now: float) -> bool:
        """Call user code for the end of the input, once in an epoch, and send END; False if it has to be called again."""
        end = self._end
        if not end.has_come:
            return True
        if self._options.before_end is not None and not end.has_passed and not self._options.before_end(now):
            return False
        if end.is_reached:
            return True
        end.reached_at = now
        call = self.kind.end_of_input
        if call is not None and not self._state.restored_ended:
            # A new epoch repeats it.
            self._counters.lost_results -= self._end_raised
            before = self._guarantee.lost_calls
            self._calls.run(call, now, END_OF_INPUT, inf)
            self._end_raised = self._guarantee.lost_calls - before
        self._send_end(now)
        return True

    def _send_end(self, now: float) -> None:
        """Send END, unless user code still has inputs: it is sent behind their results."""
        self._end_waits = bool(self.unfinished())
        if not self._end_waits:
            self._guarantee.flush(now)
            self._out.send_end()

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def _on_begin_checkpoint(self, event: BeginCheckpoint, now: float) -> None:
        if event.epoch == self._state.epoch and self._state.is_working:
            self._pass_barrier(Aligned(event.checkpoint, {}, 0.0), now)

    def _pass_barrier(self, aligned: Aligned, now: float) -> None:
        """Every input has come up to the barrier, and so has this task."""
        barriers = self._guarantee.barriers
        if barriers is None:
            raise TopoInternalError("a barrier in a topology without checkpoints")
        # Before the snapshot: rows that a mail has emitted since the last slice are in no state. Sent behind the barrier, they
        # would be lost by a recovery to this checkpoint, which has their call behind it.
        self._calls.settle(now)
        barriers.on_barrier(aligned, partial(self.kind.snapshot, aligned.checkpoint), has_ended=self._end.has_passed)

    # -- watching --------------------------------------------------------------------------------------------------------

    def levels(self) -> dict[str, float]:
        """Return the rows that wait before the task, the event time of its input, and the levels of the kind."""
        firings = {} if self._options.firings is None else {"open_firings": float(self._options.firings.pending)}
        return self._inbound.levels() | ({} if self._options.levels is None else self._options.levels()) | firings

    def latencies(self) -> dict[str, Any]:
        """Return the time that user code took for a tuple."""
        return {"execute": self._latency.snapshot()}
