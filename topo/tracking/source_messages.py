"""The messages of a spout until they are done: verdicts, timeouts, replays, dead letters, positions, calls of `ack` and `fail`.

A message's way: emitted under a fresh root -> pending -> a verdict (complete, failed), or the message timeout, or a new epoch.
A plain spout is called back with `ack` or `fail` and may emit again. A `RetryingSpout`'s messages go through the retry book:
`ack` when the tree is complete, `fail` when the message has been given up and its dead letter is stored.

It must not know: streams, routes, frames, when the spout may emit.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from topo.api.metrics import Histogram, HistogramSnapshot
from topo.api.spout import RetryingSpout, Spout
from topo.config import TopologyConfig
from topo.dead_letters.payload import pack_or_say
from topo.errors import UnsupportedValueError
from topo.hot import Pending
from topo.ids import Epoch, TaskId
from topo.tracking.positions import PositionTracker
from topo.tracking.retries import Backoff, GivenUpMessage, RetryBook
from topo.tracking.unresolved import UnresolvedMessages
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter as DeadLetterMessage
from topo.wire.control import PositionReport
from topo.wire.statistics import Counters

COMMIT_INTERVAL_S = 0.5


class SentRow(NamedTuple):
    """Enough to emit a message again, or to call the spout back with its values."""

    values: tuple[Any, ...]
    stream: int
    stamp: int | None
    target: int | None


PendingMessage = tuple[Any, float, SentRow | None]
"""A message whose tree is open: its id, the time at which its batch was emitted, and its row where it is needed. A plain
tuple, which the garbage collector stops looking at: there may be hundreds of thousands."""

MOST_ATTEMPTS = 10
"""Attempts before the last that a dead letter explains."""


class MessageObserver:
    """Watches what becomes of the messages of spout tasks; part of `topo.task.observer.TaskObserver`."""

    def messages_decided(self, task: TaskId, verdict: str, roots: Sequence[int], late: int) -> None:
        """Pending messages are about to be removed.

        Args:
            task: of the spout.
            verdict: "acked", "failed", or "reset" when an epoch begins.
            roots: of messages that are pending.
            late: how many more the verdict names, which are not pending any more.
        """

    def messages_expired(self, task: TaskId, roots: Sequence[int], due: float, now: float) -> None:
        """Messages whose timeout was due at `due` have been removed at `now`, both in monotonic seconds."""

    def message_failed(self, task: TaskId, message_id: Any) -> None:
        """A message of a retrying spout has failed or timed out; `fail` is not called."""

    def messages_kept(self, task: TaskId, roots: Iterable[int]) -> None:
        """The timeouts of those messages that are pending begin again."""


class SourceMessages:
    """The messages of one spout task, from their emission until they are done.

    Args:
        spout: its `ack` and `fail` are called.
        to_master: sends a message to the master.
        report: takes an exception of user code, and raises it again where that ends the process.
        trial_s: see `RetryBook`.

    Attributes:
        pending: the messages whose trees are open, by root.
        is_retrying: whether the engine replays what fails.
        keeps_values: whether emissions are wanted with the messages.
        is_open: whether a message of a retrying spout is kept under an id.
    """

    def __init__(
        self,
        task: TaskId,
        component: str,
        spout: Spout,
        config: TopologyConfig,
        codec: Codec,
        counters: Counters,
        to_master: Callable[[Any], None],
        report: Callable[[Exception, float], None],
        now: float,
        trial_s: float | None = None,
        observer: MessageObserver | None = None,
    ) -> None:
        self.is_retrying = isinstance(spout, RetryingSpout)
        self.keeps_values = self.is_retrying or spout.wants_values
        self.pending: Pending[PendingMessage] = Pending(config.message_timeout_s, now)
        self._task = task
        self._observer = observer
        self._component = component
        self._spout = spout
        self._timeout_s = config.message_timeout_s
        self._codec = codec
        self._counters = counters
        self._report_to_master = to_master
        self._report = report
        self._book: RetryBook[Any, SentRow] = RetryBook(config.attempts, Backoff(config.back_off_s), trial_s)
        self._tracker: PositionTracker[Any] = PositionTracker()
        self.is_open: Callable[[Any], bool] = self._book.__contains__
        self._dead_letters: dict[int, tuple[DeadLetterMessage, GivenUpMessage[Any, SentRow]]] = {}
        """Dead letters that are not known to be stored, by their number."""
        self._dead_letter_count = 0
        self._unresolved = UnresolvedMessages()
        self._attempts: dict[Any, list[tuple[str, int]]] = {}
        """Why the attempts of messages that are to be emitted again have failed, and their roots."""
        self._done: deque[PendingMessage] = deque()
        """Complete without an acker; `ack` is called in the next turn."""
        self._commit_at = 0.0
        self._reported: tuple[Any, dict[Any, int]] = (None, {})
        self._latency = Histogram()

    # -- what there is ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Messages whose outcome is open, those that wait for something included."""
        return len(self._book) if self.is_retrying else len(self.pending) + len(self._done)

    @property
    def has_local(self) -> bool:
        """Whether messages are complete that no acker has followed."""
        return bool(self._done)

    @property
    def holds_back(self) -> bool:
        """Whether nothing may be emitted but what `due` returns."""
        return self._book.holds_back

    @property
    def is_waiting(self) -> bool:
        """Whether messages have to be emitted again and have not been yet."""
        return self._book.is_waiting

    def least_waiting_stamp(self) -> int | None:
        """Return the least event time, in milliseconds, of the messages to emit again; None if nothing has one."""
        waiting = self._book.waiting() if self.is_waiting else ()
        return min((emission.stamp for emission in waiting if emission.stamp is not None), default=None)

    def replay_at(self, now: float) -> float | None:
        """When `due` will return something, in monotonic seconds."""
        return self._book.next_deadline(now, len(self.pending))

    def deadlines(self) -> list[float | None]:
        """When `expire` and `commit` want to be called."""
        return [
            self.pending.next_deadline if len(self.pending) else None,
            self._commit_at if self.is_retrying and self._commit_differs else None,
        ]

    def count(self) -> dict[str, float]:
        """Update the counters that are kept elsewhere; return the levels."""
        self._counters.late_acks = self.pending.statistics().late_acks
        self._counters.finally_failed = len(self._unresolved)
        return {
            "in_flight": float(len(self.pending)),
            "finally_failed": float(len(self._unresolved)),
            "suspects": float(self._book.statistics().suspects),
        }

    def latency(self) -> HistogramSnapshot:
        """Return the times from emission to complete tree, in seconds."""
        return self._latency.snapshot()

    # -- emitted ---------------------------------------------------------------------------------------------------------

    def open(self, committed: bytes | None, attempts: bytes | None) -> Any:
        """Take the position and the attempts that were stored when the spout ran last; return the position."""
        position = None if committed is None else self._codec.unpack_value(committed)
        if attempts is not None:
            self._book.restore(dict(self._codec.unpack_value(attempts)))
        self._tracker = PositionTracker(position)
        self._reported = (position, {})
        return position

    def accept(self, messages: Sequence[Any], emissions: Iterable[Any]) -> list[int] | None:
        """Take over messages that the spout has just emitted.

        Returns:
            The places of those that are to be sent, None for all. Left out are suspects from before a restart, which `due`
            returns in their turn.
        """
        if not self.is_retrying:
            self._unresolved.emitted(messages)
            return None
        held = self._book.emitted(messages, emissions)
        if not held:
            return None
        for given_up in self._book.condemned(held):
            self._give_up(given_up)
        back = set(held)
        return [place for place, message in enumerate(messages) if message not in back]

    def note_order(self, messages: Sequence[Any]) -> None:
        """Note the order, over all streams, of positions that `accept` is given stream by stream."""
        self._tracker.emitted(messages)

    def complete_unsent(self, records: Iterable[PendingMessage]) -> None:
        """Messages that no acker tracks are complete; `ack_untracked` calls `ack` for them."""
        self._done.extend(records)

    # -- decided ---------------------------------------------------------------------------------------------------------

    def ack_untracked(self, now: float) -> None:
        """Call `ack` for the messages that were complete as soon as they had been emitted."""
        done = list(self._done)
        self._done.clear()
        self._completed(done, now)

    def complete(self, roots: Sequence[int], now: float) -> None:
        """The acker has found these trees complete."""
        self._observe_verdict("acked", roots)
        self._completed(self.pending.take(roots), now)

    def fail(self, roots: Sequence[int], now: float) -> None:
        """The acker has found these trees failed."""
        self._observe_verdict("failed", roots)
        for root in roots:
            for record in self.pending.take((root,)):
                self._counters.failed += 1
                self._failed(record, "a task failed it", now, root)

    def expire(self, now: float) -> None:
        """Fail what had no verdict for `message_timeout`."""
        due = self.pending.next_deadline
        expired = self.pending.expire(now)
        if self._observer is not None and due is not None and now >= due:
            self._observer.messages_expired(self._task, list(expired), due, now)
        for record in expired.values():
            self._counters.timed_out += 1
            self._failed(record, f"no verdict within {self._timeout_s:g} s", now)

    def _observe_verdict(self, verdict: str, roots: Sequence[int]) -> None:
        if self._observer is not None:
            pending = [root for root in roots if root in self.pending]
            self._observer.messages_decided(self._task, verdict, pending, len(roots) - len(pending))

    def _completed(self, complete: list[PendingMessage], now: float) -> None:
        if not complete:
            return
        self._counters.acked += len(complete)
        for emitted_at, times in Counter(map(itemgetter(1), complete)).items():
            self._latency.record(now - emitted_at, times)
        if self.is_retrying:
            messages = [record[0] for record in complete]
            self._book.done(messages)
            self._tracker.done(messages)
            if self._attempts:
                for message in messages:
                    self._attempts.pop(message, None)
        ack = self._spout.ack
        # Most spouts leave `ack` as it is: then the calls are spared.
        if getattr(ack, "__func__", None) is not Spout.ack:
            for message, _, emission in complete:
                self._call(ack, message, emission, now)

    def _failed(self, record: PendingMessage, why: str, now: float, root: int = 0) -> None:
        message, _, emission = record
        if not self.is_retrying:
            self._unresolved.failed((message,))
            self._call(self._spout.fail, message, emission, now)
            return
        if self._observer is not None:
            self._observer.message_failed(self._task, message)
        outcome = self._book.failed(message, why, now)
        if isinstance(outcome, GivenUpMessage):
            self._give_up(outcome, root)
        else:
            attempts = self._attempts.setdefault(message, [])
            attempts.append((why, root))
            del attempts[:-MOST_ATTEMPTS]

    def _call(self, callback: Callable[..., None], message: Any, emission: SentRow | None, now: float) -> None:
        try:
            if self._spout.wants_values and emission is not None:
                callback(message, emission.values)
            else:
                callback(message)
        except Exception as error:
            self._report(error, now)

    # -- replays and dead letters ----------------------------------------------------------------------------------------

    def due(self, now: float, limit: int) -> list[tuple[Any, SentRow]]:
        """Return the messages to emit again now, at most `limit`; the task does so at once."""
        due = self._book.due(now, len(self.pending), limit)
        self._counters.replayed += len(due)
        return due

    def previously_failed(self, messages: Sequence[Any]) -> list[int]:
        """Return the places of those messages, of `due`, that have had a verdict against them."""
        return self._book.previously_failed(messages)

    def reset(self, suspects: Sequence[int], alone: bool, now: float) -> None:
        """A new epoch begins: pending messages are lost.

        Args:
            suspects: roots that were in flight when a process died.
            alone: no other root was in flight there.
            now: monotonic seconds.
        """
        suspected = [message for message, _, _ in self.pending.find(suspects)] if suspects else []
        drained = self.pending.drain()
        if self._observer is not None:
            self._observer.messages_decided(self._task, "reset", list(drained), 0)
        lost = list(drained.values())
        self._counters.reset += len(lost)
        if not self.is_retrying:
            for message, _, emission in lost:
                self._unresolved.failed((message,))
                self._call(self._spout.fail, message, emission, now)
            return
        for report, _ in self._dead_letters.values():
            self._report_to_master(report)
        self._book.lost([message for message, _, _ in lost])
        alone = alone and len(suspects) == len(suspected) == 1
        for given_up in self._book.suspect(suspected, alone):
            self._give_up(given_up, suspects[0])

    def _give_up(self, given_up: GivenUpMessage[Any, SentRow], root: int = 0) -> None:
        """Have a dead letter stored; the message is done when it is. `root` is that of its last attempt, if known."""
        self._dead_letter_count += 1
        message = DeadLetterMessage(
            task=self._task,
            id=self._dead_letter_count,
            position=pack_or_say(self._codec, given_up.message_id),
            values=pack_or_say(self._codec, given_up.message.values),
            errors=[given_up.why],
            attempts=given_up.attempts,
            root=root,
            earlier=self._attempts.pop(given_up.message_id, []),
        )
        self._dead_letters[self._dead_letter_count] = message, given_up
        self._report_to_master(message)

    def stored(self, ids: Iterable[int], now: float) -> None:
        """Dead letters are on disk: their messages are done. Unknown numbers are ignored."""
        for number in ids:
            if number in self._dead_letters:
                _, given_up = self._dead_letters.pop(number)
                self._book.done([given_up.message_id])
                self._tracker.done([given_up.message_id])
                self._counters.dead_lettered += 1
                self._call(self._spout.fail, given_up.message_id, given_up.message, now)

    # -- positions -------------------------------------------------------------------------------------------------------

    def positions_of(self, roots: Iterable[int]) -> list[bytes]:
        """Return, packed, the positions of those of the roots that are pending here."""
        return [pack_or_say(self._codec, message) for message, _, _ in self.pending.find(roots)]

    @property
    def _commit_differs(self) -> bool:
        return (self._tracker.committed, self._book.attempts_record()) != self._reported

    def commit(self, epoch: Epoch, now: float, *, at_once: bool = False) -> None:
        """Report the position up to which everything is done, now and then, when it has changed."""
        if not self.is_retrying or not (at_once or now >= self._commit_at) or not self._commit_differs:
            return
        self._commit_at = now + COMMIT_INTERVAL_S
        position, attempts = self._reported = (self._tracker.committed, self._book.attempts_record())
        try:
            packed = b"" if position is None else self._codec.pack_value(position)
            record = self._codec.pack_value(list(attempts.items())) if attempts else b""
        except UnsupportedValueError as error:
            what = f"component {self._component!r}: position {position!r} cannot be stored: {error}"
            self._report(UnsupportedValueError(f"{what}; use an int, a string or a tuple of these as message id"), now)
            return
        self._report_to_master(PositionReport(task=self._task, epoch=epoch, position=packed, attempts=record))

    def validate(self) -> None:
        """Assert the invariants."""
        self.pending.validate()
        self._book.validate()
        self._tracker.validate()
        if self.is_retrying:
            assert len(self.pending) <= len(self._book), "a message in flight that the retry book does not keep"
