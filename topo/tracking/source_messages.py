"""The messages of a spout until they are done: verdicts, timeouts, replays, dead letters, positions, calls of `ack` and `fail`.

A message's way: emitted under a fresh root -> pending -> a verdict (complete, failed), or the message timeout, or a new epoch.
A plain spout is called back with `ack` or `fail` and may emit again. A `RetryingSpout`'s messages go through the retry book:
`ack` when the tree is complete, `fail` when the message has been given up and its dead letter is stored.

It must not know: streams, routes, frames, when the spout may emit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from topo.api.metrics import Histogram, HistogramSnapshot
from topo.api.partitions import PartitionedSpout
from topo.api.spout import RetryingSpout, Spout
from topo.dead_letters.payload import pack_or_say_each
from topo.dead_letters.registry import TASK_FAILED
from topo.hot import Column, Pending, pack_words, unpack_words
from topo.tracking.dead_letter_reports import DeadLetterReports
from topo.tracking.failure_causes import cause_of
from topo.tracking.position_reports import PositionReports
from topo.tracking.replayed_letters import ReplayedLetters, is_letter
from topo.tracking.retries import Backoff, GivenUpMessage, RetryBook, Trials
from topo.tracking.spout_task import SentRow, SpoutReports, SpoutTask
from topo.tracking.unresolved import UnresolvedMessages
from topo.wire.codec import Codec
from topo.wire.control import LetterToReplay


class SourceMessages:
    """The messages of one spout task, from their emission until they are done.

    A message of a retrying spout is kept once, with its row, in the book: by its id, until it is done. `pending` finds
    those in flight by their root, and the committed position is the end of the prefix that the book has not any more.

    Args:
        spout: its `ack` and `fail` are called.
        task: of the spout.
        reports: of the task.
        codec: what positions and dead letters are stored with.
        trials: see `RetryBook`.

    Attributes:
        pending: the messages whose trees are open, by root: their ids, or pairs of id and row where the spout has no book and
            its callbacks want the values. There may be hundreds of thousands.
        positions: of a retrying spout, and their reports.
        is_retrying: whether the engine replays what fails.
        keeps_values: whether rows are wanted with the messages.
        is_open: whether a message of a retrying spout is kept under an id.
    """

    def __init__(self, spout: Spout, task: SpoutTask, reports: SpoutReports, codec: Codec, trials: Trials | None = None) -> None:
        config = task.config
        self.is_retrying = isinstance(spout, RetryingSpout | PartitionedSpout)
        self.keeps_values = self.is_retrying or spout.wants_values
        self.pending: Pending[Any] = Pending(config.message_timeout_s, task.clock())
        self._has_rows = self.keeps_values and not self.is_retrying
        """Whether a record of `pending` is a pair of message id and row, not the id alone."""
        self._spout = spout
        self._task = task
        self._reports = reports
        self._codec = codec
        self._counters = task.counters
        self._book: RetryBook[Any, SentRow] = RetryBook(config.attempts, Backoff(config.back_off_s), trials)
        self.is_open: Callable[[Any], bool] = self._book.__contains__
        on_committed = spout.on_committed if isinstance(spout, PartitionedSpout) else None
        self.positions = PositionReports(task, reports, codec, self._book, on_committed)
        self._dead_letters = DeadLetterReports(task, reports, codec, self.positions.position_of)
        self._letters = ReplayedLetters(task, reports, codec, self._book, self._dead_letters)
        self._unresolved = UnresolvedMessages()
        self._done: list[Any] = []
        """Records of messages that are complete without an acker; `ack` is called in the next turn."""
        self._done_at: list[tuple[float, int]] = []
        """The moments at which they were emitted, each with the number of them."""
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
        return min((row.stamp for row in waiting if row.stamp is not None), default=None)

    def replay_at(self, now: float) -> float | None:
        """When `due` will return something, in monotonic seconds."""
        return self._book.next_deadline(now, len(self.pending))

    def deadlines(self) -> list[float | None]:
        """When `expire` and `positions.send` want to be called."""
        return [
            self.pending.next_deadline if len(self.pending) else None,
            self.positions.deadline,
        ]

    def count(self) -> dict[str, float]:
        """Update the counters that are kept elsewhere; return the levels."""
        self._counters.late_acks = self.pending.late_acks
        self._counters.finally_failed = len(self._unresolved)
        return {
            "in_flight": float(len(self.pending)),
            "finally_failed": float(len(self._unresolved)),
            "suspects": float(self._book.suspect_count),
        }

    def latency(self) -> HistogramSnapshot:
        """Return the times from emission to complete tree, in seconds."""
        return self._latency.snapshot()

    # -- emitted ---------------------------------------------------------------------------------------------------------

    def accept(self, messages: Sequence[Any], rows: Iterable[SentRow]) -> list[int] | None:
        """Take over messages that the spout has just emitted.

        Returns:
            The places of those that are to be sent, None for all. Left out are suspects from before a restart, which `due`
            returns in their turn.
        """
        if not self.is_retrying:
            self._unresolved.emitted(messages)
            return None
        held = self._book.emitted(messages, rows)
        if not held:
            return None
        for given_up in self._book.condemned(held):
            self._dead_letters.give_up(given_up)
        back = set(held)
        return [place for place, message in enumerate(messages) if message not in back]

    def records(self, messages: Sequence[Any], rows: Iterable[SentRow] | None) -> Sequence[Any]:
        """Return the entries of `pending` for messages that are sent."""
        return messages if not self._has_rows else list(zip(messages, rows or (), strict=True))

    def _split(self, record: Any) -> tuple[Any, SentRow | None]:
        return record if self._has_rows else (record, None)

    def note_order(self, messages: Sequence[Any]) -> None:
        """Note the order, over all streams, of positions that `accept` is given stream by stream."""
        self.positions.emitted(self.ids_of(messages))

    def ids_of(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Return what messages are kept by, that the spout has just emitted."""
        return self.positions.ids_of(messages)

    def complete_unsent(self, records: Sequence[Any], now: float) -> None:
        """Messages that no acker tracks are complete; `ack_untracked` calls `ack` for them."""
        self._done += records
        self._done_at.append((now, len(records)))

    def pass_over(self, message: Any, record: Any, error: Exception | None) -> None:
        """Move the position behind a record that is no row, at once or when its dead letter is stored."""
        (message,) = self.ids_of([message])
        if error is not None:
            self._book.emitted([message], [SentRow((record,), -1, None, None)])
            why = str(cause_of(error, self._task.component_id))
            self._dead_letters.give_up(self._book.give_up(message, why))
        self.positions.emitted([message])
        self.positions.advance()

    # -- decided ---------------------------------------------------------------------------------------------------------

    def ack_untracked(self, now: float) -> None:
        """Call `ack` for the messages that were complete as soon as they had been emitted."""
        done, emitted = self._done, self._done_at
        self._done, self._done_at = [], []
        self._completed(done, emitted, now)

    def complete(self, roots: Column, now: float) -> None:
        """The acker has found these trees complete."""
        self._observe_verdict("acked", roots)
        self._completed(*self.pending.complete(roots), now)

    def fail(self, roots: Column, now: float) -> None:
        """The acker has found these trees failed."""
        self._observe_verdict("failed", roots)
        for root in unpack_words(roots):
            for record in self.pending.complete(pack_words([root]))[0]:
                self._counters.failed += 1
                self._failed(record, TASK_FAILED, now, root)

    def expire(self, now: float) -> None:
        """Fail what had no verdict for `message_timeout`."""
        due = self.pending.next_deadline
        if due is None or now < due:
            return
        expired = self.pending.expire(now)
        observer = self._task.observer
        if observer is not None:
            observer.messages_expired(self._task.id, list(expired), due, now)
        for record in expired.values():
            self._counters.timed_out += 1
            self._failed(record, f"no verdict within {self._task.config.message_timeout_s:g} s", now)

    def _observe_verdict(self, verdict: str, roots: Column) -> None:
        if self._task.observer is not None:
            self._task.observer.messages_decided(self._task.id, verdict, unpack_words(roots), self.pending)

    def _completed(self, complete: list[Any], emitted: Iterable[tuple[float, int]], now: float) -> None:
        for moment, count in emitted:
            self._latency.record(now - moment, count)
        if self._letters:
            dead_letters = [record for record in complete if is_letter(record)]
            if dead_letters:
                complete = [record for record in complete if not is_letter(record)]
                self._letters.completed(dead_letters)
        if not complete:
            return
        self._counters.acked += len(complete)
        rows: Iterable[SentRow | None] | None = None
        if self.is_retrying:
            rows = self._book.done(complete)
            self.positions.advance()
            self._dead_letters.done(complete)
        ack = self._spout.ack
        # Most spouts leave `ack` as it is: then the calls are spared.
        if getattr(ack, "__func__", None) is not Spout.ack:
            for message, row in map(self._split, complete) if rows is None else zip(complete, rows, strict=True):
                self._call(ack, message, row, now)

    def _failed(self, record: Any, why: str, now: float, root: int = 0) -> None:
        message, row = self._split(record)
        if not self.is_retrying:
            self._unresolved.failed((message,))
            self._call(self._spout.fail, message, row, now)
            return
        if self._task.observer is not None:
            self._task.observer.message_failed(self._task.id, message)
        given_up = self._book.failed(message, why, now)
        if given_up is None:
            self._dead_letters.attempt_failed(message, why, root)
        else:
            self._give_up(given_up, root)

    def _give_up(self, given_up: GivenUpMessage[Any, SentRow], root: int) -> None:
        give_up = self._letters.failed if is_letter(given_up.message_id) else self._dead_letters.give_up
        give_up(given_up, root)

    def _call(self, callback: Callable[..., None], message: Any, row: SentRow | None, now: float) -> None:
        message = self.positions.position_of(message)
        try:
            if self._spout.wants_values and row is not None:
                callback(message, row.values)
            else:
                callback(message)
        except Exception as error:
            self._reports.user_error(error, now)

    # -- replays and dead letters ----------------------------------------------------------------------------------------

    def due(self, now: float, limit: int) -> list[tuple[Any, SentRow]]:
        """Return the messages to emit again now, at most `limit`; the task does so at once."""
        due = self._book.due(now, len(self.pending), limit)
        self._counters.replayed += len(due)
        return due

    def previously_failed(self, messages: Sequence[Any]) -> list[int]:
        """Return the places of those messages, of `due`, that have had a verdict against them; dead letters have."""
        failed = self._book.previously_failed(messages)
        return [*failed, *(place for place, one in enumerate(messages) if is_letter(one))] if self._letters else failed

    def once_suspected(self, messages: Sequence[Any]) -> list[int]:
        """Return the places of those messages, of `due`, that were in processing when a process died."""
        return self._book.once_suspected(messages)

    def reset(self, suspects: Sequence[int], alone: bool, now: float) -> None:
        """A new epoch begins: pending messages are lost.

        Args:
            suspects: roots that were in flight when a process died.
            alone: no other root was in flight there.
            now: monotonic seconds.
        """
        suspected = [message for message, _ in map(self._split, self.pending.find(dict.fromkeys(suspects)))]
        drained = self.pending.drain()
        if self._task.observer is not None:
            self._task.observer.messages_decided(self._task.id, "reset", list(drained), drained)
        lost = list(drained.values())
        self._counters.reset += len(lost)
        if not self.is_retrying:
            for message, row in map(self._split, lost):
                self._unresolved.failed((message,))
                self._call(self._spout.fail, message, row, now)
            return
        self._dead_letters.resend()
        self._book.lost(lost)
        alone = alone and len(suspects) == len(suspected) == 1
        for given_up in self._book.suspect(suspected, alone):
            self._give_up(given_up, suspects[0])

    def replay(self, dead_letters: Iterable[LetterToReplay]) -> None:
        """Emit dead letters again, each as a new message. Those that are under way are ignored, results are reported again."""
        self._letters.take(dead_letters, is_retrying=self.is_retrying)

    @property
    def dead_letters(self) -> int:
        """How many dead letters are emitted again and have no result."""
        return len(self._letters)

    def stored(self, ids: Iterable[int], now: float) -> None:
        """Dead letters are on disk: their messages are done. Unknown numbers are ignored."""
        for given_up in self._dead_letters.stored(ids):
            self._book.done([given_up.message_id])
            self.positions.advance()
            self._counters.dead_lettered += 1
            self._call(self._spout.fail, given_up.message_id, given_up.message, now)

    # -- positions -------------------------------------------------------------------------------------------------------

    def positions_of(self, roots: Iterable[int]) -> bytes:
        """Return the positions of those of the roots that are pending here as a packed array; nothing where none is."""
        found = self.positions.positions_of([message for message, _ in map(self._split, self.pending.find(roots))])
        return pack_or_say_each(self._codec, found) if found else b""

    def validate(self) -> None:
        """Assert the invariants."""
        self.pending.validate()
        self._book.validate()
        self.positions.validate()
        if self.is_retrying:
            assert len(self.pending) <= len(self._book), "a message in flight that the retry book does not keep"
