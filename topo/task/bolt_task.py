"""Bolts: a frame of input becomes calls of user code, emitted columns, and one acked value for each root.

For an input, its bolt owes the acker exactly one value for each root: the input's edge XOR the edges of everything anchored on
it. Values are coalesced by root over a batch, and never leave before what was emitted has been handed over. An input that
raises owes a FAIL instead, and what it emitted is discarded.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from topo.api.bolt import BasicBolt, Bolt
from topo.api.metrics import Histogram
from topo.api.streams import DEFAULT_STREAM, SYSTEM_COMPONENT, TICK_STREAM
from topo.api.tuples import Origin, Tuple
from topo.errors import EmitError, FrameError, FrameworkBug
from topo.ids import TaskId
from topo.operators.watermarks import InputStatus, WatermarkCombiner
from topo.task.base import Ports, Task, TaskSetup, unexpected
from topo.task.batch import Batch
from topo.task.collectors import AnchoringCollector, BoltCollector, Emitter, StreamRows, TrackedTuple, TupleState
from topo.task.emission_time import EmissionTime, send_time
from topo.task.events import RoutesChanged
from topo.task.flow_control import EdgeStatus, InEdge
from topo.task.pace import Pace
from topo.task.routing import Stamps, owners_of
from topo.task.wiring import make_router
from topo.wire.frames import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    Anchoring,
    Frame,
    FrameKind,
    pack_words,
    signal_frame,
)


def fold(acks: dict[int, int], roots: Sequence[int], values: Sequence[int]) -> None:
    """XOR values into `acks` by root. Tuples of one message mostly come in a row: runs are folded before they are looked up."""
    get = acks.get
    last = value = 0
    for root, edge in zip(roots, values, strict=True):
        if root == last:
            value ^= edge
        else:
            if last:
                acks[last] = get(last, 0) ^ value
            last, value = root, edge
    if last:
        acks[last] = get(last, 0) ^ value


class BoltTask(Task):
    """What both kinds of bolt share: origins, ticks, the end of input, values owed to ackers."""

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

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        super().__init__(setup, ports)
        self._router = make_router(setup, ports.ids, self.outbox, self._emitter())
        self._ackers = self.plan.ackers
        self._pace = Pace(self.config.flush_interval_s, self.config.batch_size)
        self._batch: Batch | None = None
        self._origins: dict[tuple[int, int], Origin] = {}
        self._acks: dict[int, int] = {}
        self._fails: dict[int, None] = {}
        self._touches: dict[int, None] = {}
        self._owing_since: float | None = None
        """When the first of the values that have not left was acked."""
        self._ended_in_epoch = False
        self._end_told = False
        self._tick_at: float | None = None
        self._tick = Origin(SYSTEM_COMPONENT, 0, TICK_STREAM)
        self._execute_latency = Histogram()
        self._time = WatermarkCombiner(())
        self._emission_time = EmissionTime(
            setup.watermarks, self._default_fields, ports.wall_ms, self.config.watermark_interval_s
        )

    @property
    def _default_fields(self) -> tuple[str, ...]:
        return next((stream.fields for stream in self.plan.streams(self.component_id) if stream.name == DEFAULT_STREAM), ())

    # -- for the two kinds -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _emitter(self) -> Emitter:
        """Return the collector that user code is given."""

    @abstractmethod
    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        """Run user code on some tuples of the batch, and route what it emits."""

    @abstractmethod
    def _run_untracked(self, call: Any, now: float) -> None:
        """Run a callback that has no input in hand, and route what it emits."""

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
        self._time = WatermarkCombiner([sender for sender in self.inputs if sender not in self._ackers])
        self._emission_time.reset(now, forget=True)

    def _open(self, event: RoutesChanged, now: float) -> None:
        if self.config.tick_interval_s:
            self._tick_at = now + self.config.tick_interval_s
        self._user_prepare()

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._batch = None
        self._acks.clear()
        self._fails.clear()
        self._touches.clear()
        self._owing_since = None
        self._ended_in_epoch = self._end_told = False
        self._guard(self._user.on_reset, now)

    def _guard(self, call: Any, now: float) -> None:
        try:
            call()
        except Exception as error:
            self._user_error(error, now)

    def _user_error(self, error: Exception, now: float) -> None:
        self._record_error(error, now)
        if self.config.on_error == "crash":
            raise error

    def _close_component(self) -> None:
        self._user.cleanup()

    def _deadlines(self, now: float) -> list[float | None]:
        owed = None if self._owing_since is None else self._owing_since + self.config.flush_interval_s
        return [*super()._deadlines(now), self._tick_at, owed, self._emission_time.next_probe]

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
            self._run_untracked(lambda: self._user_tick(tick), now)
            self._flush_when_due(now)
        if self._emission_time.is_used:
            self._emission_time.probe(now)
            self._tell_time()

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
        if not self._emission_time.is_used:
            self._emission_time.watermark(watermark)
            self._tell_time()

    def _on_input_idle(self, idle: bool, now: float) -> None:
        if not self._emission_time.is_used:
            self._emission_time.is_idle = idle
            self._tell_time()

    def _tell_time(self) -> None:
        """Send what is new of event time behind the rows that were emitted before it."""
        if self._emission_time.has_news and not self._end_told:
            send_time(self.outbox, self.consumers, self._emission_time.take_news())

    # -- input -----------------------------------------------------------------------------------------------------------

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        if frame.kind is FrameKind.DATA:
            return self._process_data(frame, now)
        if frame.kind is FrameKind.OPEN:
            self._opened(edge, frame)
            if edge.sender not in self._ackers:
                if frame.mark > MIN_WATERMARK:
                    self._pass_time(self._time.watermark(edge.sender, frame.mark), now)
                if edge.status is EdgeStatus.IDLE:
                    self._pass_time(self._time.idle(edge.sender), now)
                elif edge.status is EdgeStatus.FINISHED:
                    self._edge_ended(edge, now)
        elif frame.kind is FrameKind.END:
            edge.status = EdgeStatus.FINISHED
            self._edge_ended(edge, now)
        elif frame.kind is FrameKind.WATERMARK:
            edge.watermark = frame.mark
            self._pass_time(self._time.watermark(edge.sender, frame.mark), now)
        elif frame.kind is FrameKind.IDLE:
            edge.status = EdgeStatus.IDLE
            self._pass_time(self._time.idle(edge.sender), now)
        elif frame.kind is FrameKind.ACTIVE:
            edge.status = EdgeStatus.ACTIVE
            self._pass_time(self._time.active(edge.sender), now)
        else:
            self._process_other(edge, frame, now)
        return True

    def _process_other(self, edge: InEdge, frame: Frame, now: float) -> None:
        """Process a frame of a kind that only some bolts are sent."""
        raise unexpected(self, frame)

    def _edge_ended(self, edge: InEdge, now: float) -> None:
        self._pass_time(self._time.finish(edge.sender), now)
        self._input_ended(now)

    def _process_data(self, frame: Frame, now: float) -> bool:
        batch = self._batch
        if batch is None:
            try:
                origin, rows = self._origin(frame), frame.decode_rows(self.ports.codec)
            except FrameError as error:
                self.counters.malformed_frames += 1
                self._fails.update(dict.fromkeys(frame.root_list()))
                self._record_error(error, now)
                return True
            batch = self._batch = Batch(frame, rows, origin)
        first = batch.done
        last = batch.done = min(batch.count, first + self._pace.size)
        hand, clock = self.ports.in_hand, self.ports.clock
        hand.hold(self.id, batch.packed_roots(first, last))
        began = clock()
        # An exception that leaves here ends the process, and then the note says what was in hand.
        self._run(batch, first, last, now)
        hand.release()
        # A bolt whose queue is full leaves the rest of the slice for later.
        last = batch.done
        if last == batch.count:
            self._batch = None
        seconds = clock() - began
        count = last - first
        self._pace.note(count, seconds)
        self.counters.executed += count
        self.counters.busy_s += seconds
        self._execute_latency.record(seconds / count, count)
        self._flush_when_due(now + seconds)
        return last == batch.count

    def _origin(self, frame: Frame) -> Origin:
        key = (frame.sender, frame.stream)
        origin = self._origins.get(key)
        if origin is None:
            component = self.plan.task(TaskId(frame.sender)).component
            streams = self.plan.streams(component)
            if frame.stream >= len(streams):
                raise FrameError(f"{frame!r} is of a stream that {component!r} does not have")
            stream = streams[frame.stream]
            origin = self._origins[key] = Origin(component, frame.sender, stream.name, stream.fields)
        return origin

    def _input_ended(self, now: float) -> None:
        if self._has_ended and not self._ended_in_epoch:
            self._ended_in_epoch = True
            self._run_untracked(self._user_end, now)
            self._tell_end(now)

    def _tell_end(self, now: float) -> None:
        self._end_told = True
        self._flush(now)
        for target in self.consumers:
            self.outbox.signal(target, lambda stamp, to, number: signal_frame(FrameKind.END, stamp, to, number))

    # -- output ----------------------------------------------------------------------------------------------------------

    def _stamps(self, stream: StreamRows, inherited: list[int | None] | None, ends: list[int]) -> Stamps:
        """Return the timestamps of a stream's rows: the explicit one, else that of the input, else what a strategy reads."""
        explicit = stream.stamps
        stamps: Stamps = None
        if inherited is not None:
            stamps = [explicit.get(row, inherited[owner]) for row, owner in enumerate(owners_of(ends))]
        elif explicit:
            stamps = [explicit.get(row) for row in range(len(stream.rows))]
        return self._stamped(stream, stamps)

    def _stamped(self, stream: StreamRows, stamps: Stamps) -> Stamps:
        """Have a strategy read timestamps of the main stream, and learn from them."""
        if self._emission_time.is_used and stream.declaration.name == DEFAULT_STREAM:
            return self._emission_time.stamps(stream.rows, None if self._emission_time.reads else stamps)
        return stamps

    def _reject_rows(self, stream: int, roots: Any, error: Exception) -> None:
        name = self.plan.streams(self.component_id)[stream].name
        self._fails.update(dict.fromkeys(roots))
        wrapped = type(error)(f"component {self.component_id!r}, stream {name!r}: {error}")
        self._record_error(wrapped, self.ports.clock())

    def _flush_when_due(self, now: float) -> None:
        if len(self._acks) >= self.config.batch_size or self._fails or self._touches:
            self._flush_ids()
        if self._acks and self._owing_since is None:
            self._owing_since = now
        oldest = self.outbox.oldest
        if oldest is not None and now >= oldest + self.config.flush_interval_s:
            self._flush(now)

    def _flush(self, now: float) -> None:
        super()._flush(now)
        self._flush_ids()

    def _flush_ids(self) -> None:
        """Send what is owed to the ackers, after the rows it stands for."""
        ackers = self._ackers
        self._owing_since = None
        if not ackers:
            self._fails.clear()
            return
        if self._acks or self._fails or self._touches:
            acks, fails, touches = self._acks, self._fails, self._touches
            self._acks, self._fails, self._touches = {}, {}, {}
            if len(ackers) == 1:
                self._send_ids(ackers[0], list(acks), list(acks.values()), list(fails), list(touches))
                return
            for share, acker in enumerate(ackers):
                mine = {root: value for root, value in acks.items() if root % len(ackers) == share}
                self._send_ids(
                    acker,
                    list(mine),
                    list(mine.values()),
                    [root for root in fails if root % len(ackers) == share],
                    [root for root in touches if root % len(ackers) == share],
                )

    def _send_ids(self, acker: TaskId, roots: list[int], values: list[int], fails: list[int], touches: list[int]) -> None:
        # A failed root first: its verdict is the same whatever follows, and it comes sooner.
        if fails:
            self.outbox.put_ids(FrameKind.FAIL, acker, pack_words(fails))
        if roots:
            self.outbox.put_ids(FrameKind.ACK, acker, pack_words(roots), pack_words(values))
        if touches:
            self.outbox.put_ids(FrameKind.RESET, acker, pack_words(touches))

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in hand, no value is owed, and everything sent has been processed by its receivers."""
        return super().is_quiet and not self._acks and not self._fails

    def _levels(self) -> dict[str, float]:
        levels = super()._levels()
        told = [edge.watermark for edge in self.inputs.values() if edge.watermark is not None and edge.watermark > MIN_WATERMARK]
        watermark = self._time.last_watermark
        if told and watermark < MAX_WATERMARK:
            if watermark > MIN_WATERMARK:
                levels |= {"watermark_ms": watermark, "watermark_lag_s": (self.ports.wall_ms() - watermark) / 1000}
            else:
                levels["watermark_ms"] = float(MIN_WATERMARK)
            by = self._time.held_back_by
            if isinstance(by, int):
                levels["held_back_by"] = float(by)
        return levels

    def _latencies(self) -> dict[str, Any]:
        return {"execute": self._execute_latency.snapshot()}


class BasicBoltTask(BoltTask):
    """A bolt whose inputs the engine anchors and acks. The fast path of most topologies."""

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        if not isinstance(setup.component, BasicBolt):
            raise FrameworkBug(f"{setup.component!r} is not a BasicBolt")
        self._bolt = setup.component
        self._collector = AnchoringCollector(
            setup.context.component,
            setup.plan.streams(setup.context.component),
            self._report,
        )
        super().__init__(setup, ports)

    @property
    def _user(self) -> BasicBolt:
        return self._bolt

    def _emitter(self) -> Emitter:
        return self._collector

    def _user_prepare(self) -> None:
        self._bolt.prepare(self.context)

    def _user_tick(self, tup: Tuple) -> None:
        self._bolt.execute(tup, self._collector)

    def _user_end(self) -> None:
        self._bolt.end_of_input(self._collector)

    def _execute(self, batch: Batch, first: int, last: int) -> dict[int, Exception]:
        """Call `execute` for each tuple. Returns what was raised, by the tuple's index from `first`."""
        collector, origin, most = self._collector, batch.origin, self.config.max_task_emit
        execute, new = self._bolt.execute, Tuple.__new__
        streams = collector.streams
        failures: dict[int, Exception] = {}
        only = streams[0] if len(streams) == 1 else None
        rows, ends = ([], []) if only is None else (only.rows, only.ends)
        suspicious = most
        for index, (values, stamp) in enumerate(batch.inputs(first, last)):
            tup = new(Tuple)
            tup.values = values
            tup.origin = origin
            tup.timestamp = stamp
            try:
                execute(tup, collector)
                if len(rows) > suspicious:
                    # No call can have emitted too much before the batch has; from here on look again after as much.
                    collector.check_emitted(len(rows) - (ends[-1] if ends else 0), most)
                    suspicious = len(rows) + most
            except Exception as error:
                failures[index] = error
                collector.truncate()
            if only is not None:
                ends.append(len(rows))
            elif streams:
                self._note_ends(index, failures)
        return failures

    def _note_ends(self, index: int, failures: dict[int, Exception]) -> None:
        """Note how far each of several streams has come with an input."""
        collector = self._collector
        before = sum([stream.ends[-1] for stream in collector.streams if stream.ends])
        try:
            collector.check_emitted(collector.count() - before, self.config.max_task_emit)
        except EmitError as error:
            failures[index] = error
            collector.truncate()
        for stream in collector.streams:
            stream.ends.append(len(stream.rows))

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        failures = self._execute(batch, first, last)
        if batch.anchoring is Anchoring.MULTI:
            self._route_multi(batch, first, last, failures)
        elif batch.anchoring is Anchoring.SINGLE:
            self._route_single(batch, first, last, failures)
        else:
            for stream in self._collector.streams:
                if stream.rows:
                    inherited = batch.stamps_of(first, last)
                    self.counters.emitted += len(stream.rows)
                    stamps = self._stamps(stream, inherited, stream.ends)
                    self.counters.transferred += self._router.untracked(stream, stamps, self._report_row)
        self._clear()
        for index, error in failures.items():
            self._fails.update(dict.fromkeys(batch.ids_at(first + index)[0]))
            self._user_error(error, now)
        self.counters.failed += len(failures)
        self.counters.acked += last - first - len(failures)

    def _route_single(self, batch: Batch, first: int, last: int, failures: dict[int, Exception]) -> None:
        roots, owed = batch.roots[first:last], batch.edges[first:last]
        for stream in self._collector.streams:
            if stream.rows:
                ends = stream.ends
                inherited = batch.stamps_of(first, last)
                stamps = self._stamps(stream, inherited, ends)

                def reject(row: int, error: Exception, ends: list[int] = ends) -> None:
                    self._reject_row(roots[owners_of(ends)[row]], error)

                self.counters.emitted += len(stream.rows)
                self.counters.transferred += self._router.single(stream, roots, owed, ends, stamps, reject)
        if failures:
            keep = [index for index in range(last - first) if index not in failures]
            roots, owed = [roots[i] for i in keep], [owed[i] for i in keep]
        fold(self._acks, roots, owed)

    def _route_multi(self, batch: Batch, first: int, last: int, failures: dict[int, Exception]) -> None:
        """Route a batch whose tuples have several roots, as a bolt that anchors by itself would."""
        inputs = [TrackedTuple.made(batch.rows[i], batch.origin, None, self.epoch, *batch.ids_at(i)) for i in range(first, last)]
        for stream in self._collector.streams:
            if stream.rows:
                owners = owners_of(stream.ends)
                inherited = batch.stamps_of(first, last)
                stamps = self._stamps(stream, inherited, stream.ends)

                def reject(row: int, error: Exception, owners: list[int] = owners) -> None:
                    for root in inputs[owners[row]].roots:
                        self._reject_row(root, error)

                self.counters.emitted += len(stream.rows)
                anchors = [(inputs[owner],) for owner in owners]
                self.counters.transferred += self._router.anchored(stream, anchors, self.epoch, stamps, reject)
        for index, tup in enumerate(inputs):
            if index not in failures:
                for root, edge in zip(tup.roots, tup.edges, strict=True):
                    self._acks[root] = self._acks.get(root, 0) ^ edge ^ tup.out

    def _reject_row(self, root: int, error: Exception) -> None:
        self._fails[root] = None
        self._record_error(error, self.ports.clock())

    def _report_row(self, _row: int, error: Exception) -> None:
        self._record_error(error, self.ports.clock())

    def _clear(self) -> None:
        for stream in self._collector.streams:
            stream.clear()

    def _run_untracked(self, call: Any, now: float) -> None:
        try:
            call()
            self._collector.check_emitted(self._collector.count(), self.config.max_task_emit)
        except Exception as error:
            self._clear()
            self._user_error(error, now)
            return
        for stream in self._collector.streams:
            if stream.rows:
                self.counters.emitted += len(stream.rows)
                self.counters.transferred += self._router.untracked(stream, self._stamps(stream, None, []), self._report_row)
        self._clear()


class AnchoringTask(BoltTask):
    """A bolt whose output names its anchors."""

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        self._collector = BoltCollector(
            setup.context.component,
            setup.plan.streams(setup.context.component),
            self._report,
        )
        super().__init__(setup, ports)

    def _emitter(self) -> Emitter:
        return self._collector

    def _run_untracked(self, call: Any, now: float) -> None:
        mark = self._collector.mark()
        try:
            call()
            self._collector.check_emitted(self._collector.count() - mark.emitted, self.config.max_task_emit)
        except Exception as error:
            self._collector.roll_back(mark, None)
            self._settle(now)
            self._user_error(error, now)
            return
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Route what was emitted, then fold what was acked."""
        collector = self._collector
        for stream, anchors in zip(collector.streams, collector.anchors, strict=True):
            if stream.rows:
                stamps = self._stamps(stream, None, [])

                def reject(row: int, error: Exception, anchors: list[tuple[TrackedTuple, ...]] = anchors) -> None:
                    for anchor in anchors[row]:
                        if anchor.epoch == self.epoch:
                            self._fails.update(dict.fromkeys(anchor.roots))
                    self._record_error(error, now)

                self.counters.emitted += len(stream.rows)
                self.counters.transferred += self._router.anchored(stream, anchors, self.epoch, stamps, reject)
        acks, epoch = self._acks, self.epoch
        for tup in collector.acked:
            if tup.epoch != epoch:
                self.counters.stale_tuples += 1
                continue
            self.counters.acked += 1
            for root, edge in zip(tup.roots, tup.edges, strict=True):
                acks[root] = acks.get(root, 0) ^ edge ^ tup.out
        for tup in collector.failed:
            if tup.epoch != epoch:
                self.counters.stale_tuples += 1
                continue
            assert tup.state == TupleState.FAILED
            self.counters.failed += 1
            self._fails.update(dict.fromkeys(tup.roots))
        for tup in collector.touched:
            if tup.epoch == epoch:
                self._touches.update(dict.fromkeys(tup.roots))
        collector.clear()


class TrackingBoltTask(AnchoringTask):
    """A bolt that names its anchors and acks by itself."""

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        if not isinstance(setup.component, Bolt):
            raise FrameworkBug(f"{setup.component!r} is not a Bolt")
        self._bolt = setup.component
        super().__init__(setup, ports)

    @property
    def _user(self) -> Bolt:
        return self._bolt

    def _user_prepare(self) -> None:
        self._bolt.prepare(self.context, self._collector)

    def _edges_are_open(self, now: float) -> None:
        # What prepare or on_reset has emitted.
        self._settle(now)

    def _user_tick(self, tup: Tuple) -> None:
        self._bolt.execute(tup)

    def _user_end(self) -> None:
        self._bolt.end_of_input()

    def _run(self, batch: Batch, first: int, last: int, now: float) -> None:
        collector, execute, epoch, origin = self._collector, self._bolt.execute, self.epoch, batch.origin
        errors: list[Exception] = []
        for index, (values, stamp) in enumerate(batch.inputs(first, last), first):
            tup = TrackedTuple.made(values, origin, stamp, epoch, *batch.ids_at(index))
            mark = collector.mark()
            try:
                execute(tup)
                collector.check_emitted(collector.count() - mark.emitted, self.config.max_task_emit)
            except Exception as error:
                collector.roll_back(mark, tup)
                errors.append(error)
        self._settle(now)
        for raised in errors:
            self._user_error(raised, now)
