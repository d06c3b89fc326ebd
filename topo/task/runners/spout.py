"""Spouts: bursts of `next_tuple`, sent under fresh roots; and the life of the component. What becomes of the messages is
`SourceMessages`.

Without ackers, and for a message that no task reads, the verdict is complete as soon as the call that emitted it has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, repeat
from math import inf
from typing import Any

from topo.api.spout import RetryingSpout, Spout
from topo.api.streams import DEFAULT_STREAM
from topo.emission.emitter import StreamRows
from topo.emission.message_collectors import REFUSED, message_collector
from topo.emission.output_watermarks import OutputWatermarks, UnreadableRows
from topo.emission.time_cuts import send_in_pieces
from topo.errors import FrameworkBug, SpoutStalled
from topo.ids import ID_BYTES, REPLAYED_BIT, Epoch, TaskId
from topo.operators.time.clock import PausableClock
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.events import RoutesChanged
from topo.task.flow_control import InEdge
from topo.task.router_factory import make_router
from topo.task.runners.user import UserTask
from topo.task.slice_size import AdaptiveSliceSize
from topo.tracking.acker_routes import AckerRoutes
from topo.tracking.source_messages import Pending, SentRow, SourceMessages
from topo.user_errors import blame, returned
from topo.wire.frames import Frame, FrameKind, SenderStatus, pack_words, unpack_words

FIRST_WAIT_S = 0.000_25
"""How long a spout without a message waits before it is asked again."""
PATIENT_POLLS = 10
"""How often it is asked at that pace before the wait doubles each time."""
LONGEST_WAIT_S = 0.02
TRIAL_S = 0.05
"""How long a suspect is watched whose verdict may take as long as a window."""
STALL_S = 5.0
"""How long a spout is out of room, without a verdict, before windows are taken to be the cause."""
FIRST_ERROR_WAIT_S = 0.2
LONGEST_ERROR_WAIT_S = 30.0


class SpoutTask(UserTask):
    """One task of a spout.

    Attributes:
        source_messages: the messages that are not done.
    """

    ACCEPTS = frozenset((FrameKind.OPEN, FrameKind.ACKED, FrameKind.FAILED, FrameKind.TOUCHED))

    def __init__(self, setup: TaskSpec, ports: TaskEnvironment) -> None:
        if not isinstance(setup.component, Spout):
            raise FrameworkBug(f"{setup.component!r} is not a Spout")
        self._spout = setup.component
        super().__init__(setup, ports)
        config = self.config
        streams = self.plan.streams(self.component_id)
        has_order = isinstance(self._spout, RetryingSpout)
        report = self.reports.record_misuse
        self._collector = message_collector(self.component_id, streams, report, ports.codec, has_order=has_order)
        self._router = make_router(setup, ports.ids, self.outbox, self._collector)
        self._ackers = self.plan.ackers
        self._acker_routes = AckerRoutes(self._ackers, self.outbox.put_ids)
        self._limit = config.max_spout_pending or 1 << 60
        self._feeds_windows = any(origin not in self.plan.spouts for origin in self.plan.origins)
        self.source_messages = SourceMessages(
            self.id,
            self.component_id,
            self._spout,
            config,
            ports.codec,
            self.counters,
            self.reports.to_master,
            self._user_error,
            ports.clock(),
            TRIAL_S if self._feeds_windows else None,
            ports.observer,
        )
        self.is_retrying = self.source_messages.is_retrying
        self._open_messages = self.source_messages.pending
        self._init_roots, self._init_values = bytearray(), bytearray()
        self._fails: list[int] = []
        self._pace = AdaptiveSliceSize(config.flush_interval_s, config.batch_size)
        self._idle_clock = PausableClock(lambda: int(ports.clock() * 1000))
        fields = next((s.declaration.fields for s in self._collector.streams if s.declaration.name == DEFAULT_STREAM), ())
        self._output_watermarks = OutputWatermarks(
            setup.watermarks,
            fields,
            self._idle_clock.now_ms,
            config.watermark_interval_s,
            self.component_id,
            lambda error: self._user_error(error, self.state.now),
        )
        self._taken = 0
        """Messages that were to be tracked, each time that the user's spout emitted them."""
        self._unstamped: dict[tuple[int, int], Exception] = {}
        """Why rows of the batch at hand have no timestamp, by stream and the `id()` of their values."""
        self._is_going = False
        self._is_wanted = True
        self._is_active = False
        self._end_sent = False
        self._stall_from: float | None = None
        """Since when there is no room and no verdict, where windows hold messages; infinite once that is told."""
        self._poll_at = 0.0
        self._wait_s = FIRST_WAIT_S
        self._idle_polls = 0
        self._error_wait_s = FIRST_ERROR_WAIT_S

    # -- life ------------------------------------------------------------------------------------------------------------

    def _edges_in(self) -> list[TaskId]:
        return list(self.plan.ackers)

    def _open(self, event: RoutesChanged, now: float) -> None:
        committed = self.source_messages.open(event.committed, event.attempts)
        self._open_user(committed)
        # The opening frames will say so.
        self._end_sent = self._collector.ended

    def _open_user(self, committed: Any) -> None:
        object.__setattr__(self.context, "committed_position", committed)
        self._spout.open(self.context, self._collector)

    def _epoch_begins(self, now: float) -> None:
        self._is_going = False
        self._output_watermarks.reset(now, forget=False)

    def _reset(self, event: RoutesChanged, now: float) -> None:
        self._init_roots, self._init_values, self._fails = bytearray(), bytearray(), []
        self.reports.causes.clear()
        self.source_messages.reset(event.routes.suspects, event.routes.alone, now)
        self._end_sent = self._may_send_end
        if event.routes.suspects:
            # Stored before they are tried: the next trial may take this process down as well.
            self.source_messages.commit(self.epoch, now, at_once=True)

    def _status(self) -> SenderStatus:
        return SenderStatus.FINISHED if self._end_sent else SenderStatus.ACTIVE

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

    def _run_user_mail(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:
            self._user_error(error, self.state.now)
            # Nothing repeats it.
            self.counters.lost_results += 1
        if self._error_wait_s == FIRST_ERROR_WAIT_S:
            # It may have brought what `next_tuple` is waiting for.
            self._poll_at = min(self._poll_at, self.state.now)

    def _close_component(self) -> None:
        self.source_messages.commit(self.epoch, self.ports.clock(), at_once=True)
        self._spout.close()

    def positions_of(self, roots: bytes) -> list[bytes]:
        """Return, packed, the positions of those of the packed roots that are pending here."""
        return self.source_messages.positions_of(unpack_words(roots))

    # -- state -----------------------------------------------------------------------------------------------------------

    @property
    def _pending(self) -> int:
        return len(self.source_messages) + self._collector.count()

    @property
    def _has_ended(self) -> bool:
        return self._end_sent

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is in flight, and nothing more will be emitted unless the topology is activated."""
        return super().is_quiet and (self._collector.ended or not self._is_active)

    @property
    def _may_send(self) -> bool:
        return self._is_going and self._may_act

    @property
    def _may_emit(self) -> bool:
        return (
            self._may_send
            and self._is_active
            and not self._collector.ended
            and self._pending < self._limit
            and not self.source_messages.holds_back
        )

    @property
    def _has_input(self) -> bool:
        if not self._is_going:
            return False
        now = self.ports.clock()
        replay_at = self.source_messages.replay_at(now)
        return (
            (self._is_active and not self._collector.ended) or self._has_leftovers or (replay_at is not None and replay_at <= now)
        )

    @property
    def _has_leftovers(self) -> bool:
        """Whether other callbacks than `next_tuple` have emitted something, such as a replay by `fail`, or ended the input."""
        collector = self._collector
        return bool(collector.said or collector.count()) or (self._may_send_end and not self._end_sent)

    @property
    def _may_send_end(self) -> bool:
        """Whether the input has ended, for windows too: they are over with its end, so what comes again goes before it."""
        return self._collector.ended and not (
            self._feeds_windows and (self.source_messages.is_waiting or self._collector.count())
        )

    @property
    def has_work(self) -> bool:
        """Whether a Turn would do something now."""
        if not self.state.is_working:
            return False
        if (
            self.inbound.queue
            or self.source_messages.has_local
            or self.mailbox.may_have_mail
            or (self._may_send and self._has_leftovers)
        ):
            return True
        now = self.ports.clock()
        return (self._may_emit and now >= self._poll_at) or self._replay_is_due(now)

    def _replay_is_due(self, now: float) -> bool:
        if not (self.is_retrying and self._may_send):
            return False
        at = self.source_messages.replay_at(now)
        return at is not None and at <= now

    def _deadlines(self, now: float) -> list[float | None]:
        return [
            *super()._deadlines(now),
            *self.source_messages.deadlines(),
            self._poll_at if self._may_emit else None,
            self.source_messages.replay_at(now) if self._may_send else None,
            self._output_watermarks.next_probe if self._is_going else None,
            None if self._stall_from is None else self._stall_from + STALL_S,
        ]

    # -- verdicts --------------------------------------------------------------------------------------------------------

    def _process(self, edge: InEdge, frame: Frame, now: float) -> bool:
        self._stall_from = None
        if frame.kind is FrameKind.ACKED:
            self.source_messages.complete(frame.root_list(), now)
        elif frame.kind is FrameKind.FAILED:
            self.source_messages.fail(frame.root_list(), now)
        elif frame.kind is FrameKind.TOUCHED:
            touched = frame.root_list()
            if self._observer is not None:
                self._observer.messages_kept(self.id, touched)
            for root in touched:
                self._open_messages.touch(root)
        else:
            self.inbound.opened(edge, frame)
        return True

    def _take_verdicts(self, now: float) -> None:
        while self.inbound.queue:
            edge, frame = self.inbound.queue.popleft()
            self._process(edge, frame, now)
            self.inbound.processed(edge, frame, now)

    def _on_dead_letters_stored(self, ids: Sequence[int], now: float) -> None:
        self.source_messages.stored(ids, now)

    # -- emitting --------------------------------------------------------------------------------------------------------

    def _act(self, now: float) -> None:
        if self.source_messages.has_local:
            self.source_messages.ack_untracked(now)
        if self._may_send and (self._collector.said or self._collector.count()):
            self._send(now, first_time=True)
        if self._replay_is_due(now):
            self._replay(now)
        elif self._may_emit and now >= self._poll_at:
            self._burst(now)
        if self._may_send_end and not self._end_sent and self._may_send:
            self._send_end(now)

    def _replay(self, now: float) -> None:
        for message, (values, index, stamp, target) in self.source_messages.due(
            now, min(self.config.batch_size, self.outbox.room)
        ):
            stream = self._collector.streams[index]
            if stamp is not None:
                stream.stamps[len(stream.rows)] = stamp
            if target is not None:
                stream.targets.append(target)
            stream.rows.append(values)
            self._collector.messages[index].append(message)
        self._send(now, first_time=False)
        self._send_event_time()
        if self.source_messages.holds_back:
            self._flush(now)

    def _burst(self, now: float) -> None:
        """Call `next_tuple` until a slice is full, nothing came, the source ended, or the pending limit is reached."""
        collector, next_tuple, clock = self._collector, self._spout.next_tuple, self.ports.clock
        streams, most = collector.streams, self.config.max_task_emit
        count: Callable[[], int] = streams[0].rows.__len__ if len(streams) == 1 else collector.count
        said = collector.said
        room = self._limit - self._pending
        limit = min(self._pace.size, room, self.outbox.room)
        if self._output_watermarks.cuts and len(streams) > 1:
            # The order of rows on different streams is known between calls alone.
            limit = min(1, room)
        began = clock()
        size = heard = 0
        failure: Exception | None = None
        while size < limit:
            marks = None if len(streams) == 1 else [len(stream.rows) for stream in streams]
            try:
                if (value := next_tuple()) is not None:
                    raise returned(next_tuple, value)
                grown = count()
                if grown - size > most:
                    collector.check_emitted(grown - size, most)
            except Exception as error:
                collector.roll_back([size] if marks is None else marks, heard)
                failure = error
                break
            if grown == size:
                break
            size = grown
            if said:
                heard = len(said)
                if collector.ended:
                    break
        seconds = clock() - began
        later = now + seconds
        self.counters.busy_s += seconds
        self.counters.overshoot += max(0, size - room)
        if size:
            self._pace.note(size, seconds)
            self._wait_s, self._idle_polls, self._error_wait_s = FIRST_WAIT_S, 0, FIRST_ERROR_WAIT_S
            # A call may have taken long: what it emitted is as old as now, and no older.
            self.source_messages.expire(later)
        if size or said:
            self._send(later, first_time=True)
        if failure is not None:
            self._poll_at = later + self._error_wait_s
            self._error_wait_s = min(self._error_wait_s * 2, LONGEST_ERROR_WAIT_S)
            self._user_error(failure, later)
        elif size < limit:
            self._wait(later)
        self._send_event_time()

    def _stamp_rows(self, now: float) -> None:
        """Have the watermark strategy read the timestamps of the main stream."""
        time = self._output_watermarks
        for stream in self._collector.streams:
            if stream.rows and stream.declaration.name == DEFAULT_STREAM:
                stamps, refused = time.read(stream.rows, stream.stamp_list())
                stream.stamps = {row: stamp for row, stamp in enumerate(stamps) if stamp is not None}
                self._note_unstamped(stream, refused, now)

    def _stamp_again(self, now: float) -> None:
        """Read the timestamps of replayed rows that have none: maybe they could not be read before."""
        for stream in self._collector.streams:
            if len(stream.stamps) < len(stream.rows) and stream.declaration.name == DEFAULT_STREAM:
                places = [row for row in range(len(stream.rows)) if row not in stream.stamps]
                rows = [stream.rows[row] for row in places]
                stamps, refused = self._output_watermarks.read(rows, None)
                self._output_watermarks.show(rows, stamps)
                stream.stamps |= {row: stamp for row, stamp in zip(places, stamps, strict=True) if stamp is not None}
                self._note_unstamped(stream, {places[row]: error for row, error in refused.items()}, now)

    def _note_unstamped(self, stream: StreamRows, refused: UnreadableRows, now: float) -> None:
        for row, error in refused.items():
            self._unstamped[stream.index, id(stream.rows[row])] = error
            self._user_error(error, now)

    def _drop_unstamped(self, stream: StreamRows) -> None:
        """Lose the rows that have no timestamp, where no message fails with them."""
        if not self._unstamped:
            return
        kept: list[int] = []
        for row, values in enumerate(stream.rows):
            error = self._unstamped.get((stream.index, id(values)))
            if error is None:
                kept.append(row)
            else:
                self._lose_row(values, error)
        stream.keep(kept)

    def _send_event_time(self) -> None:
        """Send what is new of event time behind the rows that were emitted before it, and below what comes again."""
        time = self._output_watermarks
        if time.has_updates and not self._end_sent:
            self.outbound.send_time(time.drain_updates(self.source_messages.least_waiting_stamp()))

    def _wait(self, now: float) -> None:
        self._idle_polls += 1
        if self._idle_polls > PATIENT_POLLS:
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        self._poll_at = now + self._wait_s

    def _send(self, now: float, *, first_time: bool) -> None:
        """Route what is in the collector: in runs of tracked and of untracked rows, which usually is one."""
        collector = self._collector
        if first_time:
            self.counters.emitted += collector.count()
            if self._output_watermarks.is_used:
                self._stamp_rows(now)
            self._judge_ids(now)
        elif self._output_watermarks.reads:
            self._stamp_again(now)
        if first_time and (collector.said or self._output_watermarks.is_used or self._output_watermarks.is_idle):
            send_in_pieces(collector, self._output_watermarks, lambda: self._send_rows(now, first_time), self._send_event_time)
        else:
            self._send_rows(now, first_time)
        collector.clear()
        self._unstamped.clear()
        if len(self._init_roots) >= self.config.batch_size * ID_BYTES:
            self._flush_inits()
        if self.outbound.is_flush_due(now):
            self._flush(now)

    def _send_rows(self, now: float, first_time: bool) -> None:
        collector = self._collector
        for stream, messages in zip(collector.streams, collector.messages, strict=True):
            if not stream.rows:
                continue
            if collector.has_refused:
                stream.keep([row for row, message in enumerate(messages) if message is not REFUSED])
                messages[:] = [message for message in messages if message is not REFUSED]
                if not messages:
                    continue
            if None not in messages:
                self._send_tracked(stream, messages, now, first_time)
            else:
                self._send_mixed(stream, messages, now, first_time)

    def _judge_ids(self, now: float) -> None:
        """Refuse the messages whose ids cannot be used: they count, and are reported."""
        collector = self._collector
        ids = collector.in_order()
        refused = self.source_messages.ids.refused(ids)
        self.counters.refused += len(refused)
        if self._observer is not None and refused:
            self._observer.messages_refused(self.id, [ids[place] for place in refused])
        collector.refuse(refused)
        if self.is_retrying:
            self._note_order([one for place, one in enumerate(ids) if place not in refused] if refused else ids)
        for error in refused.values():
            blame(error, self._spout.next_tuple)
            self._user_error(error, now)

    def _note_order(self, messages: Sequence[Any]) -> None:
        self.source_messages.note_order(messages)

    def _send_mixed(self, stream: StreamRows, messages: list[Any], now: float, first_time: bool) -> None:
        contents = stream.contents()
        start = 0
        for is_tracked, run in groupby(messages, key=lambda message: message is not None):
            chosen = list(run)
            end = start + len(chosen)
            stream.hold(contents, start, end)
            if is_tracked:
                self._send_tracked(stream, chosen, now, first_time)
            else:
                self._send_untracked(stream)
            start = end

    def _send_untracked(self, stream: StreamRows) -> None:
        self._drop_unstamped(stream)
        self.counters.transferred += self._router.untracked(stream, stream.stamp_list(), self._reject_untracked(stream))

    def _emissions(self, stream: StreamRows) -> list[SentRow]:
        # A NamedTuple made by its own class costs three times as much.
        stamps, targets = stream.stamp_list() or repeat(None), stream.targets or repeat(None)
        fields = zip(stream.rows, repeat(stream.index), stamps, targets)
        return list(map(tuple.__new__, repeat(SentRow), fields))

    def _send_tracked(self, stream: StreamRows, messages: list[Any], now: float, first_time: bool) -> None:
        emissions = self._emissions(stream) if self.source_messages.keeps_values else None
        if first_time:
            self._taken += len(messages)
            places = self.source_messages.accept(messages, emissions or ())
            if places is not None:
                stream.keep(places)
                messages = [messages[place] for place in places]
                emissions = [emissions[place] for place in places] if emissions else None
                if not messages:
                    return
        kept: Iterable[SentRow | None] = emissions or repeat(None)
        records: Iterable[Pending] = zip(messages, repeat(now), kept)
        if not self._ackers or not self._router.has_targets(stream.index):
            self._send_untracked(stream)
            self.source_messages.complete_unsent(records)
            return
        count = len(messages)
        roots = self._draw_roots(messages, first_time)
        while self._open_messages.collides(roots):
            roots = self._draw_roots(messages, first_time)
        packed, owed = pack_words(roots), [0] * count

        if self._observer is not None:
            records = list(records)
            self._observer.messages_pending(self.id, roots, records)
        self._open_messages.add(roots, records)
        if self._unstamped:
            roots = self._fail_unstamped(stream, roots)
            packed, owed = pack_words(roots), owed[: len(roots)]

        def reject(row: int, error: Exception) -> None:
            self._fails.append(roots[row])
            self.reports.causes.note((roots[row],), error)
            self.reports.record(error, now)

        self.counters.transferred += self._router.single(stream, packed, owed, None, stream.stamp_list(), reject)
        self._init_roots += packed
        self._init_values += pack_words(owed)
        if self._fails:
            self._flush_inits()

    def _fail_unstamped(self, stream: StreamRows, roots: list[int]) -> list[int]:
        """Have the messages fail whose rows have no timestamp; keep the other rows, and return their roots."""
        kept: list[int] = []
        failed: list[int] = []
        for row, values in enumerate(stream.rows):
            error = self._unstamped.get((stream.index, id(values)))
            if error is None:
                kept.append(row)
            else:
                failed.append(roots[row])
                self._fail((roots[row],), error)
        stream.keep(kept)
        self._init_roots += pack_words(failed)
        self._init_values += pack_words([0] * len(failed))
        return [roots[row] for row in kept]

    def _keep_waiting(self, roots: dict[int, None]) -> None:
        # Here at once, and at the acker, which forgets what it does not hear of for twice as long.
        self._open_messages.keep(roots)
        if self._observer is not None:
            self._observer.messages_kept(self.id, roots)
        self._acker_routes.send(FrameKind.RESET, pack_words(roots))

    def _draw_roots(self, messages: Sequence[Any], first_time: bool) -> list[int]:
        roots = self.ports.ids.unmarked_roots(len(messages))
        if not first_time:
            for place in self.source_messages.previously_failed(messages):
                roots[place] |= REPLAYED_BIT
        return roots

    def _fail(self, roots: Iterable[int], error: Exception) -> None:
        roots = list(roots)
        self._fails.extend(roots)
        self.reports.causes.note(roots, error)

    def _flush(self, now: float) -> None:
        super()._flush(now)
        self._flush_inits()

    def _flush_inits(self) -> None:
        """Send INITs, and FAILs of what could not be sent, to the ackers."""
        # The init of a message that no task got would complete its tree; that it has failed must be known before.
        if self._fails and self._ackers:
            self.reports.flush_causes()
            fails, self._fails = self._fails, []
            self._acker_routes.send(FrameKind.FAIL, pack_words(fails))
        if self._init_roots:
            roots, values = bytes(self._init_roots), bytes(self._init_values)
            self._init_roots, self._init_values = bytearray(), bytearray()
            self._acker_routes.send(FrameKind.INIT, roots, values)

    # -- time ------------------------------------------------------------------------------------------------------------

    def _run_due(self, now: float) -> None:
        # Verdicts that came while the process was held up count before the timeouts of the same time.
        self._take_verdicts(now)
        super()._run_due(now)
        self.source_messages.expire(now)
        self.source_messages.commit(self.epoch, now)
        if self._output_watermarks.is_used and self._is_going:
            # Idleness is about the source: while it is kept from emitting, its clock stands.
            if self._may_emit:
                self._idle_clock.resume()
            else:
                self._idle_clock.pause()
            self._output_watermarks.probe(now)
            self._send_event_time()
        if self._feeds_windows:
            self._watch_stall(now)

    def _watch_stall(self, now: float) -> None:
        """Say it when windows wait for a watermark that is not coming, for the spout has no room to emit what would bring it."""
        if self._collector.ended or not self._is_going or self._pending < self._limit:
            self._stall_from = None
        elif self._stall_from is None:
            self._stall_from = now
        elif now >= self._stall_from + STALL_S:
            self._stall_from = inf
            what = f"component {self.component_id!r} has {self._pending} messages in flight (max_spout_pending) and no verdict"
            self.reports.record(
                SpoutStalled(
                    f"{what} for {STALL_S:g} s: windows hold them, and wait for a watermark, or for the count of a count window, "
                    "that only further messages bring; "
                    "set max_spout_pending to more than the messages of all open windows, or make the windows shorter"
                ),
                now,
            )

    def _unaccounted(self) -> int:
        """Return how many messages were taken, less those whose fate is known or open. Other than 0 is a bug of the engine."""
        counters = self.counters
        given_up = counters.dead_lettered if self.is_retrying else counters.failed + counters.timed_out + counters.reset
        return self._taken - counters.acked - given_up - len(self.source_messages)

    def _levels(self) -> dict[str, float]:
        # A worker that dies while it closes has reported nothing yet.
        self.counters.unaccounted = self._unaccounted() if self.is_closed else 0
        return {"pending": float(self._pending), **self.source_messages.count()}

    def _latencies(self) -> dict[str, Any]:
        return {"complete": self.source_messages.latency()}

    def validate(self) -> None:
        """Assert the invariants."""
        super().validate()
        self.source_messages.validate()
