"""Messages of a spout that ackers follow: each is sent under a fresh root, and is done when all tuples of its tree are.

Without ackers, and for a message that no task reads, a message is done as soon as the call that emitted it has returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

from topo.api.partitions import PartitionedSpout
from topo.api.spout import Spout
from topo.emission.emission import Emission
from topo.emission.emitter import StreamRows
from topo.hot import Column, pack_words, unpack_words
from topo.ids import ID_BYTES, REPLAYED_BIT, SUSPECT_BIT
from topo.task.events import RoutesChanged
from topo.task.guarantees.source import SourceGuarantee, SourceStart
from topo.task.parts import TaskParts
from topo.task.waiting_roots import WaitingRoots
from topo.tracking.owed_ids import IN_PASSING
from topo.tracking.source_messages import SourceMessages
from topo.tracking.spout_task import SentRow
from topo.wire.control import DeadLettersStored, LetterToReplay, ReplayLetters
from topo.wire.frames import FrameKind


def _sent_rows(stream: StreamRows) -> list[SentRow]:
    # A NamedTuple made by its own class costs three times as much.
    stamps, targets = stream.stamp_list() or repeat(None), stream.targets or repeat(None)
    fields = zip(stream.rows, repeat(stream.index), stamps, targets)
    return list(map(tuple.__new__, repeat(SentRow), fields))


class TrackedSource(SourceGuarantee):
    """The messages of one spout task: pending, replayed, given up.

    Args:
        messages: those that are not done.

    Attributes:
        task: whose messages they are.
        source_messages: those that are not done.
    """

    opens_finished = True
    stores_ids = False

    def __init__(self, parts: TaskParts, spout: Spout, emission: Emission, messages: SourceMessages) -> None:
        super().__init__(parts, spout, emission, messages.is_open)
        state = parts.state
        self.task = state.id
        self.source_messages = messages
        self.replays = self.source_messages if self.is_retrying else None
        self._pending = self.source_messages.pending
        self.timed = self.id_sender = self
        self.partitions = messages.positions if isinstance(spout, PartitionedSpout) else None
        parts.checks.append(self.source_messages.validate)
        self.messages = {
            DeadLettersStored: lambda event, now: self.source_messages.stored(event.ids, now),
            ReplayLetters: lambda event, _now: self._replay(event.dead_letters),
        }
        self._waiting = WaitingRoots(state, parts.outbound) if state.plan.ackers else None
        self._also_waiting = parts.waiting
        self._ids = parts.env.ids
        self._init_roots, self._init_values = bytearray(), bytearray()
        self._fails: list[int] = []
        self._ids_since: float | None = None
        """When the first of the waiting ids was due; None while none waits."""
        self._ids_wait = state.plan.ids_may_wait
        self._taken = 0
        """Messages that were to be tracked, each time that the user's spout emitted them."""

    # -- life ------------------------------------------------------------------------------------------------------------

    def begin_epoch(self, event: RoutesChanged, now: float) -> None:
        """Forget INITs and FAILs that have not left."""
        self._init_roots, self._init_values, self._fails, self._ids_since = bytearray(), bytearray(), [], None
        self._reports.causes.clear()

    def start(self, event: RoutesChanged, now: float) -> SourceStart | None:
        """Fail the messages that are pending, or continue at the position that was stored."""
        messages = self.source_messages
        if not self._is_started:
            self._is_started = True
            return SourceStart(messages.positions.restore(event.committed, event.attempts))
        messages.reset(event.routes.suspects, event.routes.alone, now)
        if event.routes.suspects:
            # Stored before they are tried: the next trial may take this process down as well.
            messages.positions.send(now, at_once=True)
        return None

    def close(self, now: float) -> None:
        """Report the position up to which all messages are done."""
        self.source_messages.positions.send(now, at_once=True)

    def positions_of(self, roots: Iterable[int]) -> bytes:
        """Return the positions of those of the roots that are pending here as a packed array; nothing where none is."""
        return self.source_messages.positions_of(roots)

    # -- emitted ---------------------------------------------------------------------------------------------------------

    def pass_over(self, message: Any, record: Any, error: Exception | None) -> None:
        """Have the dead letter stored; the position waits for that."""
        self._taken += error is not None
        self.source_messages.pass_over(message, record, error)

    def note_order(self, messages: Sequence[Any]) -> None:
        """Take the ids of a burst in order."""
        self.source_messages.note_order(messages)

    def admit(self, stream: StreamRows, messages: Sequence[Any], *, first_time: bool, now: float) -> None:
        """Keep messages until their verdict, and send them."""
        kept = self.source_messages
        sent = _sent_rows(stream) if kept.keeps_values and first_time else None
        if first_time:
            self._taken += len(messages)
            messages = kept.ids_of(messages)
            places = kept.accept(messages, sent or ())
            if places is not None:
                stream.keep(places)
                messages = [messages[place] for place in places]
                sent = [sent[place] for place in places] if sent else None
                if not messages:
                    return
        records = kept.records(messages, sent)
        if not self._acker_routes.ackers or not self._emission.has_readers(stream):
            self.admit_untracked(stream)
            kept.complete_unsent(records, now)
            return
        roots = self._draw_roots(messages, first_time)
        while not self._pending.add(roots, records, now):
            roots = self._draw_roots(messages, first_time)
        if self._state.observer is not None:
            self._state.observer.messages_pending(self.task, unpack_words(roots), messages, now)
        if unreadable := self._emission.drop_unreadable(stream):
            words = unpack_words(roots)
            failed = {words[row]: error for row, _, error in unreadable}
            for root, error in failed.items():
                self._fail((root,), error)
            self._owe_inits(pack_words(failed), bytes(ID_BYTES * len(failed)))
            roots = pack_words(root for root in words if root not in failed)

        def reject(row: int, error: Exception) -> None:
            self._fail(unpack_words(roots[ID_BYTES * row : ID_BYTES * row + ID_BYTES]), error)
            self._reports.record(error, now)

        self._emission.messages(stream, roots, reject, self._owe_inits)
        if self._fails or len(self._init_roots) >= self._state.config.batch_size * ID_BYTES:
            self._flush_ids()

    def _draw_roots(self, messages: Sequence[Any], first_time: bool) -> bytes:
        if first_time and self._state.lookout is None:
            return self._ids.unmarked_column(len(messages))
        roots = self._ids.unmarked_roots(len(messages))
        if self._state.lookout is not None:
            self._state.lookout.roots_drawn(self.task, roots)
        if not first_time:
            for place in self.source_messages.previously_failed(messages):
                roots[place] |= REPLAYED_BIT
            for place in self.source_messages.once_suspected(messages):
                roots[place] |= SUSPECT_BIT
        return pack_words(roots)

    def _lose_row(self, values: Any, roots: Sequence[int], error: Exception) -> None:
        if roots:
            self._fail(roots, error)
        else:
            self._counters.unsent += 1

    # -- ids -------------------------------------------------------------------------------------------------------------

    def _owe_inits(self, roots: Column, values: Column) -> None:
        self._init_roots += roots
        self._init_values += values

    def _fail(self, roots: Sequence[int], error: Exception) -> None:
        self._fails.extend(roots)
        self._reports.causes.note(roots, error)

    def on_idle(self, now: float) -> None:
        """Have INITs wait for `flush_interval`, unless a message has failed, or there is no room for others meanwhile."""
        if self._fails or not self._ids_wait or self.room <= 0:
            self._flush_ids()
        elif self._ids_since is None and self._init_roots:
            self._ids_since = now

    def flush(self, now: float) -> None:
        """Send all rows that are buffered, then all ids."""
        self._outbound.outbox.flush()
        self._flush_ids()

    @property
    def is_quiet(self) -> bool:
        """Whether no INIT and no FAIL waits."""
        return not self._init_roots and not self._fails

    def _flush_ids(self) -> None:
        """Send INITs, and FAILs of messages that could not be sent, to the ackers."""
        self._ids_since = None
        # The init of a message that no task got would complete its tree; that it has failed must be known before.
        if self._fails:
            self._reports.flush_causes()
            fails, self._fails = self._fails, []
            self._acker_routes.send(FrameKind.FAIL, pack_words(fails))
        if self._init_roots:
            roots, values = bytes(self._init_roots), bytes(self._init_values)
            self._init_roots, self._init_values = bytearray(), bytearray()
            self._acker_routes.send(FrameKind.INIT, roots, values)

    def _keep_alive(self, roots: dict[int, None]) -> None:
        """Begin the timeouts of roots again: tuples of them wait on edges of this task."""
        # Here at once, and at the acker, which forgets trees without ids after twice the timeout.
        self._pending.keep(roots)
        if self._state.observer is not None:
            self._state.observer.messages_kept(self.task, roots)
        self._acker_routes.send(FrameKind.RESET, pack_words(roots))

    # -- decided ---------------------------------------------------------------------------------------------------------

    def on_verdicts(self, kind: FrameKind, roots: Column, now: float) -> None:
        """Trees are complete, have failed, or are kept open by a bolt."""
        if kind is FrameKind.ACKED:
            self.source_messages.complete(roots, now)
        elif kind is FrameKind.FAILED:
            self.source_messages.fail(roots, now)
        else:
            words = unpack_words(roots)
            if self._state.observer is not None:
                self._state.observer.messages_kept(self.task, words)
            for root in words:
                self._pending.touch(root)

    def on_time(self, now: float) -> None:
        """Keep the messages that wait on edges; fail those that are over their timeout; report positions."""
        if self._waiting is not None and (roots := self._waiting.due(now)) is not None:
            for also_waiting in self._also_waiting:
                roots |= also_waiting(roots, now)
            if roots:
                self._keep_alive(roots)
        if self._ids_since is not None and now >= self._ids_since + IN_PASSING * self._state.config.flush_interval_s:
            self.flush(now)
        self.source_messages.expire(now)
        self.source_messages.positions.send(now)

    def deadlines(self) -> Iterable[float | None]:
        """Return when messages time out, when those on edges are kept alive, and when positions are to be reported."""
        waiting = None if self._waiting is None else self._waiting.deadline
        ids_at = None if self._ids_since is None else self._ids_since + self._state.config.flush_interval_s
        return [waiting, ids_at, *self.source_messages.deadlines()]

    def _replay(self, dead_letters: Sequence[LetterToReplay]) -> None:
        # Before it was started it does not know the kills of earlier lives; the master asks again.
        if self._is_started:
            self.source_messages.replay(dead_letters)

    def call_back(self, now: float) -> None:
        """Call `ack` for the messages that were done as soon as they had been emitted."""
        if self.source_messages.has_local:
            self.source_messages.ack_untracked(now)

    # -- what there is ---------------------------------------------------------------------------------------------------

    @property
    def has_callbacks(self) -> bool:
        """Whether messages are done that no acker has followed."""
        return self.source_messages.has_local

    @property
    def pending(self) -> int:
        """Messages that are not done."""
        return len(self.source_messages)

    @property
    def room(self) -> int:
        """How many messages the spout may emit."""
        return self._limit - len(self.source_messages)

    @property
    def _unaccounted(self) -> int:
        """Messages that were taken, less those whose outcome is known or open."""
        counters = self._counters
        given_up = counters.dead_lettered if self.is_retrying else counters.failed + counters.timed_out + counters.reset
        return self._taken - counters.acked - given_up - len(self.source_messages) + self.source_messages.dead_letters

    def _levels(self) -> dict[str, float]:
        return self.source_messages.count()

    def latencies(self) -> dict[str, Any]:
        """Return the times from emission to complete tree."""
        return {"complete": self.source_messages.latency()}
