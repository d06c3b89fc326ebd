"""Dead letters of a spout task until the master has stored them, and the failed attempts that they explain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from topo.dead_letters.payload import is_array, pack_or_say
from topo.tracking.retries import GivenUpMessage
from topo.tracking.spout_task import SentRow, SpoutReports, SpoutTask
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter

MOST_ATTEMPTS = 10
"""Attempts before the last that a dead letter explains."""


class DeadLetterReports:
    """The dead letters of one spout task that are not known to be stored.

    Args:
        task: of the spout.
        reports: of the task.
        codec: what positions and values are stored with.
        position_of: returns the position that is stored of a message id.
    """

    def __init__(self, task: SpoutTask, reports: SpoutReports, codec: Codec, position_of: Callable[[Any], Any]) -> None:
        self._task = task
        self._reports = reports
        self._codec = codec
        self._streams = task.streams
        self._position_of = position_of
        self._count = 0
        self._unstored: dict[int, tuple[DeadLetter, GivenUpMessage[Any, SentRow]]] = {}
        self._attempts: dict[Any, list[tuple[str, int]]] = {}
        """Why the attempts of messages that are to be emitted again have failed, and their roots."""

    def attempt_failed(self, message_id: Any, why: str, root: int) -> None:
        """Remember why a message that is emitted again has failed."""
        attempts = self._attempts.setdefault(message_id, [])
        attempts.append((why, root))
        del attempts[:-MOST_ATTEMPTS]

    def done(self, message_ids: Iterable[Any]) -> None:
        """Forget why messages have failed that are acked now."""
        if self._attempts:
            for message_id in message_ids:
                self._attempts.pop(message_id, None)

    def give_up(self, given_up: GivenUpMessage[Any, SentRow], root: int = 0) -> None:
        """Have the master store a message. `root` is that of its last attempt, if known."""
        self._count += 1
        report = self.report(given_up, self._count, root)
        self._unstored[self._count] = report, given_up
        self._reports.to_master(report)

    def report(self, given_up: GivenUpMessage[Any, SentRow], number: int, root: int) -> DeadLetter:
        """Return the dead letter of a message, under a number."""
        row = given_up.message
        stream = self._streams[row.stream].name if row.stream >= 0 else ""
        packed = pack_or_say(self._codec, row.values)
        fixed = ""
        if not stream:
            fixed = "it is a record that could not be decoded, and no row of a stream"
        elif row.target is not None:
            fixed = "it was emitted to one task, by emit_direct"
        elif not is_array(packed):
            fixed = "its values cannot be carried, so it has their text alone"
        return DeadLetter(
            task=self._task.id,
            id=number,
            position=pack_or_say(self._codec, self._position_of(given_up.message_id)),
            values=packed,
            errors=[given_up.why],
            attempts=given_up.attempts,
            root=root,
            earlier=self._attempts.pop(given_up.message_id, []),
            stream=stream,
            stamp=row.stamp,
            fixed=fixed,
        )

    def resend(self) -> None:
        """Send all dead letters again that are not known to be stored: an epoch begins."""
        for report, _ in self._unstored.values():
            self._reports.to_master(report)

    def stored(self, ids: Iterable[int]) -> list[GivenUpMessage[Any, SentRow]]:
        """Return the messages whose dead letters are on disk now. Unknown numbers are ignored."""
        return [self._unstored.pop(number)[1] for number in ids if number in self._unstored]
