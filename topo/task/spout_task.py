"""Spouts: bursts of `next_tuple`, the messages whose trees are open, verdicts, replays, positions.

A message's way: emitted under a fresh root -> pending -> a verdict (complete, failed), or the message timeout, or a new epoch.
A plain spout is called back with `ack` or `fail` and may emit again. A `RetryingSpout`'s messages go through the retry book:
`ack` when the tree is complete, `fail` when the message has been given up and its dead letter is stored.

Without ackers, and for a message that no task reads, the verdict is complete as soon as the call that emitted it has returned.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import groupby, repeat
from typing import Any, NamedTuple

from topo.acking.pending import SpoutPending
from topo.acking.positions import PositionTracker
from topo.acking.retries import Backoff, DeadLetter, RetryBook
from topo.api.metrics import Histogram
from topo.api.spout import RetryingSpout, Spout
from topo.api.streams import DEFAULT_STREAM
from topo.errors import EmitError, FrameworkBug, ValueNotCarried
from topo.ids import ID_BYTES, Epoch, TaskId
from topo.operators.clock import PausableClock
from topo.task.base import Ports, Task, TaskSetup
from topo.task.collectors import MessageCollector, StreamRows
from topo.task.emission_time import EmissionTime
from topo.task.events import RoutesChanged
from topo.task.flow_control import InEdge
from topo.task.pace import Pace
from topo.task.routing import Stamps
from topo.task.statistics import TaskStatistics
from topo.task.wiring import make_router
from topo.wire.control import DeadLetter as DeadLetterMessage
from topo.wire.control import PositionReport
from topo.wire.frames import Frame, FrameKind, SenderStatus, pack_words, signal_frame, unpack_words, watermark_frame

FIRST_WAIT_S = 0.000_25
"""How long a spout without a message waits before it is asked again."""
PATIENT_POLLS = 10
"""How often it is asked at that pace before the wait doubles each time."""
LONGEST_WAIT_S = 0.01
FIRST_ERROR_WAIT_S = 0.2
LONGEST_ERROR_WAIT_S = 30.0
COMMIT_INTERVAL_S = 0.5


class Emission(NamedTuple):
    """What is needed to emit a message again, or to tell the spout of it."""

    values: tuple[Any, ...]
    stream: int
    stamp: int | None
    target: int | None


class Pending(NamedTuple):
    """A message whose tree is open: who it is, when its batch was emitted, and its values where somebody wants them."""

    message: Any
    emitted_at: float
    emission: Emission | None


class SpoutTask(Task):
    """One task of a spout."""

    ACCEPTS = frozenset((FrameKind.OPEN, FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED))

    def __init__(self, setup: TaskSetup, ports: Ports) -> None:
        if not isinstance(setup.component, Spout):
            raise FrameworkBug(f"{setup.component!r} is not a Spout")
        self._spout = setup.component
        super().__init__(setup, ports)
        config = self.config
        self._collector = MessageCollector(self.component_id, self.plan.streams(self.component_id), self._report)
        self._router = make_router(setup, ports.ids, self.outbox, self._collector)
        self._ackers = self.plan.ackers
        self._limit = config.max_spout_pending or 1 << 60
        self.is_retrying = isinstance(self._spout, RetryingSpout)
        self._keeps_values = self.is_retrying or self._spout.wants_values
        self._open_messages: SpoutPending[Pending] = SpoutPending(config.message_timeout_s, ports.clock())
        self._book: RetryBook[Any, Emission] = RetryBook(config.attempts, Backoff(config.back_off_s))
        self._tracker: PositionTracker[Any] = PositionTracker()
        self._letters: dict[int, Any] = {}
        self._letter_messages: dict[int, DeadLetterMessage] = {}
        self._letter_count = 0
        self._unresolved: dict[Any, None] = {}
        """Messages of a plain spout that failed and have not been emitted again."""
        self._init_roots, self._init_values = bytearray(), bytearray()
        self._fails: list[int] = []
        self._lost_roots: dict[int, Any] = {}
        """While an epoch is adopted: the messages of the roots that are being dropped, to know suspects by."""
        self._done: deque[Pending] = deque()
        """Complete without an acker; told to the spout in the next turn."""
        self._pace = Pace(config.flush_interval_s, config.batch_size)
        self._idle_clock = PausableClock(lambda: int(ports.clock() * 1000))
        fields = next((s.declaration.fields for s in self._collector.streams if s.declaration.name == DEFAULT_STREAM), ())
        self._emission_time = EmissionTime(setup.watermarks, fields, self._idle_clock.now_ms, config.watermark_interval_s)
        self._is_going = False
        self._is_wanted = True
        self._is_active = False
        self._end_told = False
        self._poll_at = 0.0
        self._wait_s = FIRST_WAIT_S
        self._idle_polls = 0
        self._errors_in_row = 0
        self._commit_at = 0.0
        self._reported: tuple[Any, Any] = (None, {})
        self._complete_latency = Histogram()

    # -- life ------------------------------------------------------------------------------------------------------------

    def _edges_in(self) -> list[TaskId]:
        return list(self.plan.ackers)

    def _open(self, event: RoutesChanged, now: float) -> None:
        committed = None if event.committed is None else self.ports.codec.unpack_value(event.committed)
        if event.attempts is not None:
            self._book.restore(dict(self.ports.codec.unpack_value(event.attempts)))
        self._tracker = PositionTracker(committed)
        self._reported = (committed, {})
        object.__setattr__(self.context, "committed_position", committed)
        self._spout.open(self.context, self._collector)
        self._end_told = self._collector.ended

    def _epoch_begins(self, now: float) -> None:
        self._emission_time.reset(now)

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._is_going = False
        self._end_told = self._collector.ended
        self._init_roots, self._init_values, self._fails = bytearray(), bytearray(), []
        lost = self._open_messages.drain()
        self.counters.reset += len(lost)
        suspects = set(event.routes.suspects)
        if self.is_retrying:
            roots = self._lost_roots
            in_hand = [message for root, message in roots.items() if root in suspects]
            self._book.lost([pending.message for pending in lost])
            for letter in self._book.suspect(in_hand, event.routes.alone and len(suspects) == 1 and len(in_hand) == 1):
                self._give_up(letter)
            for message in self._letter_messages.values():
                self._tell(message)
        else:
            for pending in lost:
                self._call_fail(pending, now)
        self._lost_roots = {}

    def _on_routes(self, event: RoutesChanged, now: float) -> None:
        if event.routes.epoch > self.epoch and event.routes.suspects:
            self._lost_roots = {root: pending.message for root, pending in self._open_messages.items()}
        super()._on_routes(event, now)

    def _status(self) -> SenderStatus:
        return SenderStatus.FINISHED if self._collector.ended else SenderStatus.ACTIVE

    def _on_go(self, epoch: Epoch, now: float) -> None:
        if epoch == self.epoch:
            self._is_going = True
            self._activate_if_wanted(now)

    def _on_activate(self, active: bool, now: float) -> None:
        self._is_wanted = active
        if active:
            self._activate_if_wanted(now)
        elif self._is_active:
            self._is_active = False
            self._guard(self._spout.deactivate, now)

    def _activate_if_wanted(self, now: float) -> None:
        if self._is_going and self._is_wanted and not self._is_active:
            self._is_active = True
            self._poll_at = now
            self._guard(self._spout.activate, now)

    def _guard(self, call: Callable[[], object], now: float) -> None:
        try:
            call()
        except Exception as error:
            self._record_error(error, now)
            if self.config.on_error == "crash":
                raise

    def _close_component(self) -> None:
        self._report_commit(self.ports.clock(), at_once=True)
        self._spout.close()

    def positions_of(self, roots: bytes) -> list[bytes]:
        """Return, packed, the positions of those of the packed roots that are pending here."""
        found = self._open_messages.find(unpack_words(roots))
        return [self._packed(pending.message) for pending in found]

    # -- state -----------------------------------------------------------------------------------------------------------

    @property
    def _in_flight(self) -> int:
        return len(self._open_messages)

    @property
    def _pending(self) -> int:
        kept = len(self._book) if self.is_retrying else len(self._open_messages)
        return kept + len(self._done) + self._collector.count()

    @property
    def _has_ended(self) -> bool:
        return self._end_told

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in flight, and nothing more will be emitted unless the topology is activated."""
        return super().is_quiet and (self._collector.ended or not self._is_active)

    @property
    def _may_emit(self) -> bool:
        return (
            self._is_going
            and self._is_active
            and not self._collector.ended
            and self._may_act
            and self._pending < self._limit
            and not (self.is_retrying and self._book.holds_back)
        )

    @property
    def has_work(self) -> bool:
        """Whether a Turn would do something now."""
        if self.queue or self._done or self._may_send_leftovers or self.mailbox.has_mail:
            return True
        now = self.ports.clock()
        return (self._may_emit and now >= self._poll_at) or self._replay_is_due(now)

    @property
    def _may_send_leftovers(self) -> bool:
        """Whether there is something that callbacks other than `next_tuple` have emitted, such as a replay by `fail`."""
        return bool(self._collector.count()) and self._is_going and self._may_act

    def _replay_is_due(self, now: float) -> bool:
        if not (self.is_retrying and self._is_going and self._may_act):
            return False
        at = self._book.next_deadline(now, self._in_flight)
        return at is not None and at <= now

    def _deadlines(self, now: float) -> list[float | None]:
        deadlines = [*super()._deadlines(now), self._open_messages.next_deadline if self._in_flight else None]
        if self._may_emit:
            deadlines.append(self._poll_at)
        if self._is_going:
            deadlines.append(self._emission_time.next_probe)
        if self.is_retrying and self._is_going and self._may_act:
            deadlines.append(self._book.next_deadline(now, self._in_flight))
        if self.is_retrying and self._commit_differs:
            deadlines.append(self._commit_at)
        return deadlines

    # -- verdicts --------------------------------------------------------------------------------------------------------

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        if frame.kind is FrameKind.ACKED:
            self._completed(self._open_messages.take(frame.root_list()), now)
        elif frame.kind is FrameKind.FAILED:
            for pending in self._open_messages.take(frame.root_list()):
                self.counters.failed += 1
                self._failed(pending, "a task failed it", now)
        elif frame.kind is FrameKind.TOUCHED:
            for root in frame.root_list():
                self._open_messages.touch(root)
        else:
            self._opened(edge, frame)
        return True

    def _completed(self, complete: list[Pending], now: float) -> None:
        if not complete:
            return
        self.counters.acked += len(complete)
        for emitted_at, times in Counter([pending.emitted_at for pending in complete]).items():
            self._complete_latency.record(now - emitted_at, times)
        if self.is_retrying:
            messages = [pending.message for pending in complete]
            self._book.done(messages)
            self._tracker.done(messages)
        self._call_acks(complete, now)

    def _call_acks(self, complete: list[Pending], now: float) -> None:
        ack = self._spout.ack
        if getattr(ack, "__func__", None) is Spout.ack:
            return
        with_values = self._spout.wants_values
        for pending in complete:
            try:
                if with_values and pending.emission is not None:
                    ack(pending.message, pending.emission.values)  # type: ignore[call-arg]
                else:
                    ack(pending.message)
            except Exception as error:
                self._record_error(error, now)

    def _failed(self, pending: Pending, why: str, now: float) -> None:
        if not self.is_retrying:
            self._call_fail(pending, now)
            return
        outcome = self._book.failed(pending.message, why, now)
        if isinstance(outcome, DeadLetter):
            self._give_up(outcome)

    def _call_fail(self, pending: Pending, now: float) -> None:
        self._unresolved[pending.message] = None
        fail, emission = self._spout.fail, pending.emission
        if self._spout.wants_values and emission is not None:
            self._guard(lambda: fail(pending.message, emission.values), now)  # type: ignore[call-arg]
        else:
            self._guard(lambda: fail(pending.message), now)

    def _give_up(self, letter: DeadLetter[Any, Emission]) -> None:
        """Have the dead letter stored; the message is done when it is."""
        self._letter_count += 1
        message = DeadLetterMessage(
            task=self.id,
            id=self._letter_count,
            position=self._packed(letter.message_id),
            values=self._packed(letter.message.values),
            errors=[letter.why],
            attempts=letter.attempts,
        )
        self._letters[self._letter_count] = letter.message_id
        self._letter_messages[self._letter_count] = message
        self._tell(message)

    def _packed(self, value: Any) -> bytes:
        try:
            return self.ports.codec.pack_value(value)
        except ValueNotCarried:
            return self.ports.codec.pack_value(repr(value))

    def _on_dead_letters_stored(self, ids: tuple[int, ...], now: float) -> None:
        for number in ids:
            if number in self._letters:
                message = self._letters.pop(number)
                del self._letter_messages[number]
                self._book.done([message])
                self._tracker.done([message])
                self.counters.dead_lettered += 1
                self._guard(lambda message=message: self._spout.fail(message), now)  # type: ignore[misc]

    # -- emitting --------------------------------------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        if self._done:
            done = list(self._done)
            self._done.clear()
            self._completed(done, now)
        if self._may_send_leftovers:
            self._send(now, first_time=True)
        if self._replay_is_due(now):
            self._replay(now)
        elif self._may_emit and now >= self._poll_at:
            self._burst(now)

    def _take_verdicts(self, now: float) -> None:
        while self.queue:
            edge, frame = self.queue.popleft()
            self._process(edge, frame, now)
            self._processed(edge, frame, now)

    def _replay(self, now: float) -> None:
        due = self._book.due(now, self._in_flight, self.config.batch_size)
        for message, emission in due:
            stream = self._collector.streams[emission.stream]
            if emission.stamp is not None:
                stream.stamps[len(stream.rows)] = emission.stamp
            if emission.target is not None:
                stream.targets.append(emission.target)
            stream.rows.append(emission.values)
            self._collector.messages[emission.stream].append(message)
        self.counters.replayed += len(due)
        self._send(now, first_time=False)
        if self._book.holds_back:
            self._flush(now)

    def _burst(self, now: float) -> None:
        """Call `next_tuple` until a slice is full, nothing came, the source ended, or the pending limit is reached."""
        collector, next_tuple, clock = self._collector, self._spout.next_tuple, self.ports.clock
        streams = collector.streams
        count: Callable[[], int] = streams[0].rows.__len__ if len(streams) == 1 else collector.count
        room = self._limit - self._pending
        limit = min(self._pace.size, room)
        began = clock()
        size = 0
        while size < limit and not collector.ended:
            marks = None if len(streams) == 1 else [len(stream.rows) for stream in streams]
            try:
                next_tuple()
            except Exception as error:
                collector.roll_back([size] if marks is None else marks)
                self._next_tuple_raised(error, now)
                break
            self._errors_in_row = 0
            grown = count()
            if grown == size:
                break
            size = grown
        seconds = clock() - began
        self.counters.busy_s += seconds
        self.counters.overshoot += max(0, size - room)
        if size:
            self._pace.note(size, seconds)
            self._wait_s, self._idle_polls = FIRST_WAIT_S, 0
            # A call may have taken long: what it emitted is as old as now, and no older.
            self._expire(now + seconds)
            self._stamp_rows()
            self._send(now + seconds, first_time=True)
        if size < limit and not self._errors_in_row:
            self._wait(now + seconds)
        self._tell_time()
        if collector.ended and not self._end_told:
            self._tell_end(now)

    def _stamp_rows(self) -> None:
        """Have the watermark strategy read the timestamps of the main stream, and learn from them."""
        if self._emission_time.is_used:
            for stream in self._collector.streams:
                if stream.rows and stream.declaration.name == DEFAULT_STREAM:
                    stamps = self._emission_time.stamps(stream.rows, self._stamps(stream))
                    stream.stamps = {row: stamp for row, stamp in enumerate(stamps or ()) if stamp is not None}

    def _tell_time(self) -> None:
        """Send what is new of event time behind the rows that were emitted before it, and below what comes again."""
        collector, time = self._collector, self._emission_time
        if collector.watermark is not None:
            time.watermark(collector.watermark)
            collector.watermark = None
        if collector.is_idle:
            time.mark_idle()
            collector.is_idle = False
        waiting = [emission.stamp for emission in self._book.waiting() if emission.stamp is not None] if self.is_retrying else []
        watermark, idle = time.take_news(min(waiting, default=None))
        if watermark is not None:
            for target in self.consumers:
                self.outbox.signal(target, lambda stamp, to, number: watermark_frame(stamp, to, number, watermark))
        if idle is not None:
            kind = FrameKind.IDLE if idle else FrameKind.ACTIVE
            for target in self.consumers:
                self.outbox.signal(target, lambda stamp, to, number: signal_frame(kind, stamp, to, number))

    def _wait(self, now: float) -> None:
        self._idle_polls += 1
        if self._idle_polls > PATIENT_POLLS:
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        self._poll_at = now + self._wait_s

    def _next_tuple_raised(self, error: Exception, now: float) -> None:
        self._record_error(error, now)
        if self.config.on_error == "crash":
            raise error
        self._poll_at = now + min(FIRST_ERROR_WAIT_S * 2.0**self._errors_in_row, LONGEST_ERROR_WAIT_S)
        self._errors_in_row += 1

    def _tell_end(self, now: float) -> None:
        self._end_told = True
        self._flush(now)
        for target in self.consumers:
            self.outbox.signal(target, lambda stamp, to, number: signal_frame(FrameKind.END, stamp, to, number))

    def _send(self, now: float, *, first_time: bool) -> None:
        """Route what is in the collector: in runs of tracked and of untracked rows, which usually is one."""
        collector = self._collector
        for stream, messages in zip(collector.streams, collector.messages, strict=True):
            if not stream.rows:
                continue
            self.counters.emitted += len(stream.rows)
            if None not in messages:
                self._send_tracked(stream, messages, now, first_time)
            elif messages.count(None) == len(messages):
                self._send_untracked(stream)
            else:
                self._send_mixed(stream, messages, now, first_time)
        collector.clear()
        oldest = self.outbox.oldest
        if len(self._init_roots) >= self.config.batch_size * ID_BYTES:
            self._flush_inits()
        if oldest is not None and now >= oldest + self.config.flush_interval_s:
            self._flush(now)

    def _send_mixed(self, stream: StreamRows, messages: list[Any], now: float, first_time: bool) -> None:
        rows, targets, stamps = stream.rows[:], stream.targets[:], dict(stream.stamps)
        start = 0
        for is_tracked, run in groupby(messages, key=lambda message: message is not None):
            chosen = list(run)
            end = start + len(chosen)
            stream.rows[:] = rows[start:end]
            stream.targets[:] = targets[start:end]
            stream.stamps = {row - start: stamp for row, stamp in stamps.items() if start <= row < end}
            if is_tracked:
                self._send_tracked(stream, chosen, now, first_time)
            else:
                self._send_untracked(stream)
            start = end

    def _send_untracked(self, stream: StreamRows) -> None:
        self.counters.transferred += self._router.untracked(stream, self._stamps(stream), self._report_row)

    def _stamps(self, stream: StreamRows) -> Stamps:
        return [stream.stamps.get(row) for row in range(len(stream.rows))] if stream.stamps else None

    def _emissions(self, stream: StreamRows) -> list[Emission]:
        stamps = self._stamps(stream) or repeat(None)
        targets = stream.targets or repeat(None)
        return [
            Emission(values, stream.index, stamp, target)
            for values, stamp, target in zip(stream.rows, stamps, targets, strict=False)
        ]

    def _send_tracked(self, stream: StreamRows, messages: list[Any], now: float, first_time: bool) -> None:
        emissions = self._emissions(stream) if self._keeps_values else repeat(None)
        if self.is_retrying and first_time:
            emissions = self._emissions(stream)
            messages = self._accept(stream, messages, emissions, now)
            if len(messages) != len(emissions):
                emissions = self._emissions(stream)
            if not messages:
                return
        elif self._unresolved:
            for message in messages:
                self._unresolved.pop(message, None)
        records = map(Pending, messages, repeat(now), emissions)
        if not self._ackers or not self._router.has_targets(stream.index):
            self._send_untracked(stream)
            self._done.extend(records)
            return
        count = len(messages)
        roots = self.ports.ids.roots(count)
        while self._open_messages.collides(roots):
            roots = self.ports.ids.roots(count)
        owed = [0] * count

        def reject(row: int, error: Exception) -> None:
            self._fails.append(roots[row])
            self._record_error(error, now)

        ends = list(range(1, count + 1))
        self.counters.transferred += self._router.single(stream, roots, owed, ends, self._stamps(stream), reject)
        self._open_messages.add(roots, records)
        self._init_roots += pack_words(roots)
        self._init_values += pack_words(owed)
        if self._fails:
            self._flush_inits()

    def _accept(self, stream: StreamRows, messages: list[Any], emissions: list[Emission], now: float) -> list[Any]:
        """Enter new messages into the retry book; leave out those that wait to be tried alone, and repeated ids."""
        try:
            held = set(self._book.emitted(messages, emissions))
            self._tracker.emitted(messages)
        except EmitError:
            held = set()
            refused: list[int] = []
            for row, (message, emission) in enumerate(zip(messages, emissions, strict=True)):
                try:
                    held.update(self._book.emitted([message], [emission]))
                    self._tracker.emitted([message])
                except EmitError as error:
                    refused.append(row)
                    self._record_error(error, now)
            self._give_up_condemned(messages, held)
            return self._keep_rows(
                stream, messages, [row for row, m in enumerate(messages) if row not in refused and m not in held]
            )
        if not held:
            return messages
        self._give_up_condemned(messages, held)
        return self._keep_rows(stream, messages, [row for row, message in enumerate(messages) if message not in held])

    def _give_up_condemned(self, messages: list[Any], held: set[Any]) -> None:
        for letter in self._book.condemned([message for message in messages if message in held]):
            self._give_up(letter)

    def _keep_rows(self, stream: StreamRows, messages: list[Any], rows: list[int]) -> list[Any]:
        stamps = stream.stamps
        stream.stamps = {place: stamps[row] for place, row in enumerate(rows) if row in stamps}
        if stream.targets:
            stream.targets[:] = [stream.targets[row] for row in rows]
        stream.rows[:] = [stream.rows[row] for row in rows]
        return [messages[row] for row in rows]

    def _report_row(self, _row: int, error: Exception) -> None:
        self._record_error(error, self.ports.clock())

    def _reject_rows(self, stream: int, roots: Any, error: Exception) -> None:
        name = self.plan.streams(self.component_id)[stream].name
        self._record_error(type(error)(f"component {self.component_id!r}, stream {name!r}: {error}"), self.ports.clock())
        self._fails.extend(roots)

    def _flush(self, now: float) -> None:
        super()._flush(now)
        self._flush_inits()

    def _flush_inits(self) -> None:
        """Send INITs, and FAILs of what could not be sent, to the ackers."""
        ackers = self._ackers
        if self._init_roots:
            roots, values = self._init_roots, self._init_values
            self._init_roots, self._init_values = bytearray(), bytearray()
            if len(ackers) == 1:
                self.outbox.put_ids(FrameKind.INIT, ackers[0], bytes(roots), bytes(values))
            else:
                words, owed = unpack_words(roots), unpack_words(values)
                for share, acker in enumerate(ackers):
                    mine = [place for place, root in enumerate(words) if root % len(ackers) == share]
                    if mine:
                        chosen = pack_words([words[place] for place in mine])
                        self.outbox.put_ids(FrameKind.INIT, acker, chosen, pack_words([owed[place] for place in mine]))
        if self._fails and ackers:
            fails, self._fails = self._fails, []
            for share, acker in enumerate(ackers):
                mine = [root for root in fails if root % len(ackers) == share]
                if mine:
                    self.outbox.put_ids(FrameKind.FAIL, acker, pack_words(mine))

    # -- time ------------------------------------------------------------------------------------------------------------

    def _run_due(self, now: float) -> None:
        # Verdicts that came while the process was held up count before the timeouts of the same time.
        self._take_verdicts(now)
        super()._run_due(now)
        self._expire(now)
        self._report_commit(now)
        if self._emission_time.is_used and self._is_going:
            # Idleness is about the source: while it is kept from emitting, its clock stands.
            if self._may_emit:
                self._idle_clock.resume()
            else:
                self._idle_clock.pause()
            self._emission_time.probe(now)
            self._tell_time()

    def _expire(self, now: float) -> None:
        for pending in self._open_messages.expire(now):
            self.counters.timed_out += 1
            self._failed(pending, f"no verdict within {self.config.message_timeout_s:g} s", now)

    @property
    def _commit_differs(self) -> bool:
        return (self._tracker.committed, self._book.attempts_record()) != self._reported

    def _report_commit(self, now: float, *, at_once: bool = False) -> None:
        if not self.is_retrying or not (at_once or now >= self._commit_at) or not self._commit_differs:
            return
        self._commit_at = now + COMMIT_INTERVAL_S
        position, attempts = self._tracker.committed, self._book.attempts_record()
        self._reported = (position, attempts)
        self._tell(
            PositionReport(
                task=self.id,
                epoch=self.epoch,
                position=b"" if position is None else self.ports.codec.pack_value(position),
                attempts=self.ports.codec.pack_value(list(attempts.items())) if attempts else b"",
            )
        )

    def _levels(self) -> dict[str, float]:
        return {
            "pending": float(self._pending),
            "in_flight": float(self._in_flight),
            "finally_failed": float(len(self._unresolved)),
            "suspects": float(self._book.statistics().suspects),
        }

    def _latencies(self) -> dict[str, Any]:
        return {"complete": self._complete_latency.snapshot()}

    def statistics(self) -> TaskStatistics:
        """Return a snapshot of what the task has counted."""
        self.counters.late_acks = self._open_messages.statistics().late_acks
        self.counters.finally_failed = len(self._unresolved)
        return super().statistics()

    def validate(self) -> None:
        """Assert the invariants."""
        super().validate()
        self._open_messages.validate()
        self._book.validate()
        self._tracker.validate()
        if self.is_retrying:
            assert self._in_flight <= len(self._book), "a message in flight that the retry book does not keep"
