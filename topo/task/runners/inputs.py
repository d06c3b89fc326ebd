"""What both kinds of bolt task do: a frame of input becomes calls of user code, emitted columns, and one value for each root.

For an input, its bolt owes the acker exactly one value for each root: the input's edge XOR the edges of everything anchored on
it. Values are coalesced by root over a batch, and never leave before what was emitted has been handed over. An input that
raises owes a FAIL instead, and what it emitted is discarded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from math import inf
from typing import Any

from topo.api.bolt import BasicBolt, Bolt, StatefulBolt
from topo.api.metrics import Histogram
from topo.api.streams import DEFAULT_STREAM, SYSTEM_COMPONENT, TICK_STREAM
from topo.api.tuples import Origin, Tuple
from topo.checkpoint.alignment import Aligned, Snapshot
from topo.emission.emission import Emission
from topo.emission.emitter import Emitter, StreamRows
from topo.emission.output_watermarks import OutputWatermarks, UnreadableRows
from topo.errors import FrameError, UserError
from topo.operators.state.handles import KeyContext
from topo.operators.time.watermarks import InputStatus
from topo.task.allowance import make_allowance
from topo.task.batch import Batch, Origins, read_batch
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import EdgeStatus, InEdge
from topo.task.router_factory import make_router
from topo.task.runners.user import UserTask
from topo.task.slice_size import AdaptiveSliceSize
from topo.task.task import TOUCHES
from topo.task.user_state import restore_user, snapshot_user
from topo.tracking.acker_routes import AckerRoutes
from topo.wire.frames import MAX_WATERMARK, MIN_WATERMARK, Frame, FrameKind, pack_words

END_OF_INPUT = "the end of the input"
SINGLE_STEP_TUPLES = 20_000
"""How many tuples a bolt runs one by one after a process has died with tuples in hand. Each spout tries its suspects one by one,
but those of several spouts meet in one batch, and so do suspects and what spouts without any emit: the one that kills would never
be alone in hand."""


VERDICTS = frozenset((FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED))


class BoltTask(UserTask):
    """Base of `BasicBoltTask` and `TrackingBoltTask`: slices of input, ticks, the end of input, values owed to ackers."""

    ACCEPTS = frozenset(
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

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        super().__init__(setup, ports)
        self._ackers = self.plan.ackers
        self._acker_routes = AckerRoutes(self._ackers, self.outbox.put_ids)
        self._pace = AdaptiveSliceSize(self.config.flush_interval_s, self.config.batch_size)
        if self.config.queue_time_s is not None:
            timeout = None if self._touch_interval_s is None else self._touch_interval_s * TOUCHES
            self.inbound.allowance = make_allowance(self.config, self.inbound.sender_count, timeout, self.is_checkpointed)
        self._batch: Batch | None = None
        self._single_step_budget = 0
        """So many tuples more are run one by one."""
        self._origins = Origins(self.plan)
        self._acks: dict[int, int] = {}
        self._fails: dict[int, None] = {}
        self._touches: dict[int, None] = {}
        self._owing_since: float | None = None
        """When the first of the values that have not left was acked."""
        self._ended_in_epoch = False
        self._lost_calls = 0
        self._end_raised = 0
        """1 if `end_of_input` has raised when it was last called, and is not called again in this epoch."""
        self._end_sent = False
        self._tick_at: float | None = None
        self._tick = Origin(SYSTEM_COMPONENT, 0, TICK_STREAM)
        self._execute_latency = Histogram()
        self._key_groups = KeyContext(self.plan.component(self.component_id).max_parallelism).group_of
        self._output_watermarks = OutputWatermarks(
            setup.watermarks,
            self._default_fields,
            ports.wall_ms,
            self.config.watermark_interval_s,
            self.component_id,
            lambda error: self._user_error(error, self.state.now),
        )
        streams = [stream.name for stream in self.plan.streams(self.component_id)]
        router = make_router(setup, ports.ids, self.outbox, self._emitter())
        self._emission = Emission(router, self._output_watermarks, streams, self.counters, self._send_time)

    @property
    def _default_fields(self) -> tuple[str, ...]:
        return next((stream.fields for stream in self.plan.streams(self.component_id) if stream.name == DEFAULT_STREAM), ())

    @property
    def _has_ended(self) -> bool:
        # One that reads nothing but ticks keeps nobody from ending.
        return super()._has_ended or (self._is_open and not self.inbound.edges)

    # -- for the two kinds -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _emitter(self) -> Emitter:
        """Return the collector that user code is given."""

    @abstractmethod
    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Run user code on some tuples of the batch, and route what it emits."""

    @abstractmethod
    def _run_untracked(self, call: Callable[[], object], now: float, what: str, most: float) -> None:
        """Run a callback that has no input in hand, and route what it emits.

        Args:
            call: the callback.
            now: monotonic seconds.
            what: it is, in words; with checkpoints it is tried again when it raises, and then a dead letter of this name.
            most: so many rows it may emit.
        """

    @abstractmethod
    def _user_tick(self, tup: Tuple) -> None: ...

    @abstractmethod
    def _user_end(self) -> None: ...

    @property
    @abstractmethod
    def _user(self) -> Bolt | BasicBolt: ...

    @abstractmethod
    def _user_prepare(self) -> None: ...

    # -- life ------------------------------------------------------------------------------------------------------------

    def _epoch_begins(self, now: float) -> None:
        self._output_watermarks.reset(now, forget=True)
        if self.is_checkpointed:
            letters = [part.values["letters"] for part in self.state.restored if "letters" in part.values]
            self._letters.restore(letters, self.state.restore_point)
            marks = [part.values["watermark"] for part in self.state.restored if "watermark" in part.values]
            if any("held" in part.values for part in self.state.restored) and not isinstance(self._user, Bolt):
                raise UserError(
                    f"component {self.component_id!r} was a Bolt that held inputs back, and now is none: they would be lost; "
                    f"leave it as it was, or give them up (--drop-state {self.component_id})"
                )
            # Another run that reads on from where one had ended has rows that are not late.
            if marks and (self.state.restored_ended or min(marks) < MAX_WATERMARK):
                self._output_watermarks.restore(min(marks))

    def _open(self, event: RoutesChanged, now: float) -> None:
        if self.config.tick_interval_s:
            self._tick_at = now + self.config.tick_interval_s
        self._enter_single_step(event)
        self._user_prepare()
        if self.is_checkpointed and self.state.restored:
            self._restore_user(self.state.restored)
        elif self.is_checkpointed:
            self._begin_user()

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._batch = None
        self._acks.clear()
        self._fails.clear()
        self.reports.causes.clear()
        self._touches.clear()
        self._owing_since = None
        self._ended_in_epoch = self._end_sent = False
        self._enter_single_step(event)
        if self.is_checkpointed:
            self._restore_user(self.state.restored)
        self._guard(self._user.on_reset, now)

    def _enter_single_step(self, event: RoutesChanged) -> None:
        self._single_step_budget = SINGLE_STEP_TUPLES if event.routes.suspects else 0

    def _run_user_mail(self, action: Callable[[], object]) -> None:
        self._run_untracked(action, self.state.now, "a mail", self.config.max_task_emit)

    def _close_component(self) -> None:
        self._user.cleanup()

    def _deadlines(self, now: float) -> list[float | None]:
        owed = None if self._owing_since is None else self._owing_since + self.config.flush_interval_s
        return [*super()._deadlines(now), self._tick_at, owed, self._output_watermarks.next_probe]

    def _run_due(self, now: float) -> None:
        super()._run_due(now)
        if self._owing_since is not None and now >= self._owing_since + self.config.flush_interval_s:
            self._flush(now)
        interval = self.config.tick_interval_s
        if self._tick_at is not None and interval and now >= self._tick_at:
            self._tick_at += interval
            if self._tick_at <= now:
                self._tick_at = now + interval
            tick = Tuple((), self._tick)
            self._run_untracked(lambda: self._user_tick(tick), now, "a tick", self.config.max_task_emit)
            self._flush_when_due(now)
        if self._output_watermarks.is_used:
            self._output_watermarks.probe(now)
            self._send_event_time()

    # -- event time ------------------------------------------------------------------------------------------------------

    def _pass_time(self, news: list[int | InputStatus], now: float) -> None:
        """Act on what the input as a whole says of event time."""
        for one in news:
            if isinstance(one, InputStatus):
                self._on_input_idle(one is InputStatus.IDLE, now)
            else:
                self._on_watermark(one, now)

    def _on_watermark(self, watermark: int, now: float) -> None:
        """The input is complete up to a moment: pass it on. One with watermarks of its own swallows all but the last."""
        if not self._output_watermarks.is_used:
            self._output_watermarks.watermark(watermark)
            self._send_event_time()

    def _on_input_idle(self, idle: bool, now: float) -> None:
        if not self._output_watermarks.is_used:
            self._output_watermarks.is_idle = idle
            self._send_event_time()

    def _send_event_time(self) -> None:
        """Send what is new of event time behind the rows that were emitted before it."""
        if self._output_watermarks.has_updates and not self._end_sent:
            self._send_time(self._output_watermarks.drain_updates(self._time_floor()))

    def _send_time(self, news: Sequence[int | InputStatus]) -> None:
        if not self._end_sent:
            self.outbound.send_time(news)

    def _time_floor(self) -> int | None:
        """Return the least timestamp that output may still have, although the input is past it; None without such output."""
        return None

    # -- input -----------------------------------------------------------------------------------------------------------

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        if frame.kind is FrameKind.DATA:
            return self._process_data(frame, now)
        if frame.kind is FrameKind.BARRIER:
            aligned = self.inbound.barrier(edge, frame, now)
            if aligned is not None:
                self._pass_barrier(aligned, now)
            return True
        if frame.kind is FrameKind.OPEN:
            self.inbound.opened(edge, frame)
        elif frame.kind in VERDICTS:
            self._process_verdicts(frame, now)
            return True
        if edge.sender in self._ackers:
            return True
        self._pass_time(self.inbound.event_time(edge, frame), now)
        if frame.kind in (FrameKind.OPEN, FrameKind.END) and edge.status is EdgeStatus.FINISHED:
            self._input_ended(now)
        return True

    def _process_verdicts(self, frame: Frame, now: float) -> None:
        """Process the verdicts of an acker; only window bolts accept them."""

    # -- checkpoints -----------------------------------------------------------------------------------------------------

    def _pass_barrier(self, aligned: Aligned, now: float) -> None:
        """Every input has come up to the barrier, and so has this task."""
        owed = aligned.roots

        def settle() -> None:
            for root, value in owed.items():
                self._acks[root] = self._acks.get(root, 0) ^ value ^ out
            self._flush_ids()

        # What cannot be carried is a dead letter of this checkpoint.
        self.outbox.flush_all()
        # The snapshot is finished before anything else is processed; acks wait until it is stored, the barrier does not.
        self._take_snapshot(aligned.checkpoint, aligned.waited_s, settle)
        self._flush(now)
        out = self.outbound.send_barrier(aligned.checkpoint, list(owed))

    def _snapshot(self, checkpoint: int) -> Snapshot:
        values = {"watermark": self._output_watermarks.latest, "letters": self._letters.snapshot(checkpoint)}
        state = Snapshot()
        if isinstance(self._user, StatefulBolt):
            state = snapshot_user(self.component_id, self._user, self.snapshots.store, self._key_groups)
        return Snapshot(state.keyed, values | state.values)

    def _restore_user(self, parts: list[Snapshot]) -> None:
        """Bring the user's component to where the checkpoint has it; without one, to the beginning."""
        if isinstance(self._user, StatefulBolt):
            restore_user(self.component_id, self._user, self.snapshots.store, parts)

    def _begin_user(self) -> None:
        """The user's component begins with nothing."""

    def _publish(self, checkpoint: int, now: float) -> None:
        self._letters.publish(checkpoint)

    def _on_dead_letters_stored(self, ids: Sequence[int], now: float) -> None:
        self.counters.dead_lettered += self._letters.stored(ids)

    def _opening_watermark(self) -> int:
        return self._output_watermarks.latest if self.state.restored else MIN_WATERMARK

    def _try_again(self, call: Callable[[], object], undo: Callable[[], object], error: Exception) -> Exception | None:
        """Repeat a call that has raised, as often as attempts allow. Returns the last error, None when it has gone well."""
        if self.config.on_error != "crash":
            for _ in range(self.config.attempts - 1):
                try:
                    call()
                except Exception as again:
                    undo()
                    error = again
                else:
                    return None
        return error

    def _try_call_again(self, call: Callable[[], object], undo: Callable[[], object], error: Exception, what: str) -> bool:
        """Repeat a callback without input that has raised and been undone. Returns whether it has gone well."""
        final = self._try_again(call, undo, error)
        if final is not None:
            self.counters.failed += 1
            self._give_up((what,), final)
            self._user_error(final, self.state.now)
        return final is None

    def _give_up(self, values: Any, error: BaseException) -> None:
        """Make a dead letter of a tuple."""
        self._letters.add(values, self._cause(error), self.config.attempts)

    def _process_data(self, frame: Frame, now: float) -> bool:
        batch = self._batch or self._begin_batch(frame, now)
        if batch is None:
            self._flush_when_due(now)
            return True
        first = batch.done
        last = batch.done = min(
            batch.count, first + (1 if self._single_step_budget > 0 or self._emission.runs_singly else self._pace.size)
        )
        self._single_step_budget -= last - first
        hand, clock = self.ports.in_hand, self.ports.clock
        hand.hold(self.id, batch.packed_roots(first, last))
        began = clock()
        # An exception that leaves here ends the process, and then the note says what was in hand.
        self._run(batch, first, last, now)
        hand.release()
        # A bolt whose queue is full leaves the rest of the slice for later, and so does one that was cut short.
        last = batch.done
        if last == batch.count:
            self._batch = None
        ended = clock()
        seconds = ended - began
        count = last - first
        if not count:
            return False
        if self.inbound.allowance is not None:
            self.inbound.allowance.note(count, ended - self.inbound.busy_since, self._may_act)
        self.inbound.busy_since = ended
        self._pace.note(count, seconds)
        self.counters.executed += count
        self.counters.busy_s += seconds
        self._execute_latency.record(seconds / count, count)
        self._flush_when_due(now + seconds)
        return last == batch.count

    def _begin_batch(self, frame: Frame, now: float) -> Batch | None:
        """Return the tuples of a frame that can be decoded, None when there are none. The others fail, each by itself."""
        try:
            batch, undecoded = read_batch(frame, self.ports.codec, self._origins.of(frame), self.component_id)
        except FrameError as error:
            self._drop_frame(frame, error, now)
            return None
        for roots, values, refused in undecoded:
            self.counters.failed += 1
            self._fail(roots, refused)
            # A row that failed is counted as such.
            self._lose_row(values, refused, comes_again=True)
            self._user_error(refused, now)
        self._batch = batch if batch.count else None
        return self._batch

    def _drop_frame(self, frame: Frame, error: FrameError, now: float) -> None:
        """Fail the roots of a frame that cannot be read. With checkpoints its rows are lost, so the epoch has to end."""
        self.counters.malformed_frames += 1
        self._fail(frame.root_list(), error)
        self.reports.record(error, now)
        if self.is_checkpointed:
            self.inbound.drop_unreadable(frame, error, now)

    def cut_short(self) -> None:
        """End the slice of input at hand soon, so that the worker turns; any thread may call it."""
        batch = self._batch
        if batch is not None:
            batch.cut_short()

    def _input_ended(self, now: float) -> None:
        if self._has_ended and not self._ended_in_epoch:
            self._ended_in_epoch = True
            if not self.state.restored_ended:
                # A new epoch repeats it.
                self.counters.lost_results -= self._end_raised
                before = self._lost_calls
                self._run_untracked(self._user_end, now, END_OF_INPUT, inf)
                self._end_raised = self._lost_calls - before
            self._send_end(now)

    def _lose_call(self, error: Exception, now: float) -> None:
        """Report a call without input that has raised and is not repeated: what it would have emitted is missing."""
        self._user_error(error, now)
        self._lost_calls += 1
        self.counters.lost_results += 1

    @property
    def _has_passed_end(self) -> bool:
        return self._ended_in_epoch or self.state.restored_ended

    # -- output ----------------------------------------------------------------------------------------------------------

    def _drop_unstamped(self, stream: StreamRows, refused: UnreadableRows, now: float, coming_again: Container[int] = ()) -> None:
        """Drop rows of the main stream that have no timestamp; a message fails with each of those that are `coming_again`."""
        for row, error in refused.items():
            self._lose_row(stream.rows[row], error, comes_again=row in coming_again)
        self._emission.keep(stream, [row for row in range(len(stream.rows)) if row not in refused])
        for error in refused.values():
            self._user_error(error, now)

    def _keep_waiting(self, roots: dict[int, None]) -> None:
        self._touches.update(roots)
        self._flush_ids()

    def _fail(self, roots: Iterable[int], error: Exception) -> None:
        """Have the ackers told that roots have failed, and the master why."""
        roots = list(roots)
        self._fails.update(dict.fromkeys(roots))
        self.reports.causes.note(roots, error)

    def _flush_when_due(self, now: float) -> None:
        if len(self._acks) >= self.config.batch_size or self._fails or self._touches:
            self._flush_ids()
        if self._acks and self._owing_since is None:
            self._owing_since = now
        if self.outbound.is_flush_due(now):
            self._flush(now)

    def _flush(self, now: float) -> None:
        super()._flush(now)
        self._flush_ids()

    def _flush_ids(self) -> None:
        """Send what is owed to the ackers, after the rows it stands for."""
        self._owing_since = None
        if not self._ackers:
            self._fails.clear()
            self.reports.causes.clear()
            return
        if self._acks or self._fails or self._touches:
            self.reports.flush_causes()
            acks, fails, touches = self._acks, self._fails, self._touches
            self._acks, self._fails, self._touches = {}, {}, {}
            # A failed root first: its verdict is the same whatever follows, and it comes sooner.
            self._acker_routes.send(FrameKind.FAIL, pack_words(fails))
            self._acker_routes.send(FrameKind.ACK, pack_words(acks), pack_words(acks.values()))
            self._acker_routes.send(FrameKind.RESET, pack_words(touches))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in hand, no value is owed, and everything sent has been processed by its receivers."""
        return super().is_quiet and not self._acks and not self._fails

    def _levels(self) -> dict[str, float]:
        return {**super()._levels(), **self.inbound.levels()}

    def _latencies(self) -> dict[str, Any]:
        return {"execute": self._execute_latency.snapshot()}
