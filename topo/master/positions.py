"""What every spout task resumes from when its worker is replaced: its committed position and the kills of its messages.

The latest report of a task's present life holds. It is taken as it comes and not compared with the one before: reports of one
life arrive in order, those of earlier lives are fenced, and a source that does not emit in rising order commits, rightly, a
lower position after a higher one (see `topo.tracking.positions`).

Stored at most once in STORE_INTERVAL_S, and at the end; but kills are stored at once, since another death may follow at once.

Kills are the record that the spout keeps, packed: a list of (position, kills). While the spout lives it counts by itself and
reports. When it died in the same process as the task that had its messages in hand, the master counts for it: each position is
put on the record, so that the next life tries it alone, and the one that was alone in hand gets a kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from topo.ids import TaskId
from topo.master.events import InFlightTuples
from topo.wire.codec import Codec

STORE_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class SpoutProgress:
    """What one spout task resumes from; both packed, b"" where there is none."""

    position: bytes = b""
    attempts: bytes = b""


class Positions:
    """The progress of all spout tasks.

    Args:
        codec: reads and writes records of kills.
        stored: what the state folder holds.
    """

    def __init__(self, codec: Codec, stored: Mapping[TaskId, SpoutProgress]) -> None:
        self._codec = codec
        self._progress = dict(stored)
        self._unstored: set[TaskId] = set()
        self._store_at: float | None = None
        self._stored_at = float("-inf")

    def of(self, task: TaskId) -> SpoutProgress | None:
        """Return what a task resumes from; None when it starts from the beginning."""
        return self._progress.get(task)

    def reported(self, task: TaskId, position: bytes, attempts: bytes, now: float) -> None:
        """A spout task has said how far it is; an empty position says nothing new."""
        before = self._progress.get(task, SpoutProgress())
        self._change(task, SpoutProgress(position or before.position, attempts), max(now, self._stored_at + STORE_INTERVAL_S))

    def died_in_hand(self, in_hand: InFlightTuples, now: float) -> None:
        """Spouts have died together with the task that had messages of theirs in hand. What cannot be read is passed over."""
        alone = len(set(in_hand.roots)) <= 1 and len(in_hand.positions) == 1
        for task, position in in_hand.positions:
            before = self._progress.get(task, SpoutProgress())
            # Types of the user's own may be in it, which are read by the user's code.
            with suppress(Exception):
                record = dict(self._codec.unpack_value(before.attempts)) if before.attempts else {}
                message = self._codec.unpack_value(position)
                record[message] = record.get(message, 0) + alone
                self._change(task, replace(before, attempts=self._codec.pack_value(list(record.items()))), now)

    def take_due(self, now: float) -> dict[TaskId, SpoutProgress]:
        """Return what is to be stored now, if anything; it then counts as stored."""
        return self.take_all(now) if self._store_at is not None and now >= self._store_at else {}

    def take_all(self, now: float) -> dict[TaskId, SpoutProgress]:
        """Return everything that is not stored yet; it then counts as stored."""
        taken = {task: self._progress[task] for task in sorted(self._unstored)}
        self._unstored.clear()
        self._store_at, self._stored_at = None, now
        return taken

    def next_deadline(self) -> float | None:
        """When `take_due` will return something."""
        return self._store_at

    def _change(self, task: TaskId, progress: SpoutProgress, store_at: float) -> None:
        if self._progress.get(task) != progress:
            self._progress[task] = progress
            self._unstored.add(task)
            self._store_at = store_at if self._store_at is None else min(self._store_at, store_at)
