"""Dead letters that one spout task emits again, as messages of the retry book under ids of their own.

So they are tracked, time out, are emitted again after a failure and tried alone as suspects like all others; but the spout is not
called back for them, and no position waits for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from topo.tracking.dead_letter_reports import DeadLetterReports
from topo.tracking.retries import GivenUpMessage, RetryBook
from topo.tracking.spout_task import SentRow, SpoutReports, SpoutTask
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter, LettersReplayed, LetterToReplay

_MARK = "\0dead letter"


def is_letter(message_id: Any) -> bool:
    """Whether the id of a message is that of a dead letter."""
    return type(message_id) is tuple and len(message_id) == 2 and message_id[0] == _MARK


class ReplayedLetters:
    """The dead letters that one spout task emits again.

    Args:
        task: of the spout.
        reports: of the task.
        codec: what values are packed with.
        book: of the task's messages.
        dead_letters: makes the reports of those that fail again.
    """

    def __init__(
        self,
        task: SpoutTask,
        reports: SpoutReports,
        codec: Codec,
        book: RetryBook[Any, SentRow],
        dead_letters: DeadLetterReports,
    ) -> None:
        self._task = task
        self._reports = reports
        self._codec = codec
        self._book = book
        self._dead_letters = dead_letters
        self._open = 0
        self._done: set[int] = set()
        self._failed: dict[int, tuple[int, DeadLetter]] = {}
        """By number: how often it had been asked for, and the report. The master may have sent it again before that came."""
        self._asked: dict[int, int] = {}

    def __len__(self) -> int:
        """How many the book has."""
        return self._open

    def take(self, dead_letters: Iterable[LetterToReplay], *, is_retrying: bool) -> None:
        """Put dead letters into the book, to be emitted next; repeat results, and refuse rows that the code does not fit."""
        again: list[int] = []
        for dead_letter in dead_letters:
            message_id = (_MARK, dead_letter.number)
            if dead_letter.number in self._done:
                again.append(dead_letter.number)
            elif (failed := self._failed.get(dead_letter.number)) is not None and failed[0] == dead_letter.asked:
                self._reports.to_master(LettersReplayed(self._task.id, [], [failed[1]]))
            elif message_id not in self._book:
                row = self._row(dead_letter) if is_retrying else "its component is no RetryingSpout any more"
                if isinstance(row, str):
                    self._refuse(dead_letter.number, row)
                else:
                    self._open += 1
                    self._failed.pop(dead_letter.number, None)
                    self._asked[dead_letter.number] = dead_letter.asked
                    held = self._book.emitted([message_id], [row])
                    self._book.lost([message_id])
                    for given_up in self._book.condemned(held):
                        self.failed(given_up, 0)
        if again:
            self._reports.to_master(LettersReplayed(self._task.id, again, []))

    def completed(self, message_ids: Iterable[Any]) -> None:
        """Trees of dead letters are complete."""
        done = [message_id for message_id in message_ids if message_id in self._book]
        self._book.done(done)
        self._dead_letters.done(done)
        self._open -= len(done)
        numbers = [number for _, number in done]
        self._done.update(numbers)
        for number in numbers:
            del self._asked[number]
        self._reports.to_master(LettersReplayed(self._task.id, numbers, []))

    def failed(self, given_up: GivenUpMessage[Any, SentRow], root: int) -> None:
        """A dead letter has failed as often as a message may."""
        self._open -= 1
        self._book.done([given_up.message_id])
        number = given_up.message_id[1]
        report = self._dead_letters.report(given_up, number, root)
        self._failed[number] = self._asked.pop(number), report
        self._reports.to_master(LettersReplayed(self._task.id, [], [report]))

    def _row(self, dead_letter: LetterToReplay) -> SentRow | str:
        try:
            values = tuple(self._codec.unpack_value(dead_letter.values))
        except Exception as error:
            return f"its values cannot be read: {error}"
        for index, stream in enumerate(self._task.streams):
            if stream.name == dead_letter.stream and len(stream.fields) == len(values):
                return SentRow(values, index, dead_letter.stamp, None)
        return f"component {self._task.component_id!r} has no stream {dead_letter.stream!r} of {len(values)} fields any more"

    def _refuse(self, number: int, why: str) -> None:
        report = DeadLetter(task=self._task.id, id=number, position=b"", values=b"", errors=[why], attempts=0)
        self._reports.to_master(LettersReplayed(self._task.id, [], [report]))
