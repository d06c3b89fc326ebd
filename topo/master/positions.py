"""The progress that a spout task resumes from when its worker is replaced: the committed position, and kills of its messages.

The latest report of a task's current life holds. It is not compared with the one before: reports of one life arrive in order,
those of earlier lives are fenced, and a source that does not emit in rising order rightly commits a lower position after a higher
one (see `topo.tracking.positions`).

Stored at most once in STORE_INTERVAL_S, and at the end; but kills are stored at once, since another death may follow at once.

Kills are the record that the spout keeps, packed: a list of (position, kills). While the spout lives it counts and
reports. When it died in the same process as the task that was processing its messages, the master counts for it: each position is
put on the record, so that the next life tries it alone, and a position that was processed alone gets a kill.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from topo.ids import TaskId
from topo.tracking.suspects import InFlightTuples
from topo.wire.codec import Codec

STORE_INTERVAL_S = 1.0


class SpoutProgress(Struct, frozen=True):
    """Position and kills of one spout task; both packed, b"" where there is none."""

    position: bytes = b""
    attempts: bytes = b""


class Positions:
    """The progress of all spout tasks.

    Args:
        codec: reads and writes records of kills.
        stored: the positions in the state folder.
    """

    def __init__(self, codec: Codec, stored: Mapping[TaskId, SpoutProgress]) -> None:
        self._codec = codec
        self._progress = dict(stored)
        self._unstored: set[TaskId] = set()
        self._store_at: float | None = None
        self._stored_at = float("-inf")

    def of(self, task: TaskId) -> SpoutProgress | None:
        """Return the progress that a task resumes from; None when it starts from the beginning."""
        return self._progress.get(task)

    def reported(self, task: TaskId, position: bytes, attempts: bytes, now: float) -> None:
        """Take a spout task's report of its position; an empty position is no change."""
        before = self._progress.get(task, SpoutProgress())
        # May wait: a position that a crash loses costs replays, and no message.
        self._change(task, SpoutProgress(position or before.position, attempts), max(now, self._stored_at + STORE_INTERVAL_S))

    def died_in_flight(self, in_flight: InFlightTuples, now: float) -> None:
        """Spouts died together with the task that was processing their messages. Records that cannot be read are skipped."""
        # Of several messages any may have killed the process: they get no kill, but a record, so that each is tried alone next.
        alone = len(set(in_flight.roots)) <= 1 and len(in_flight.positions) == 1
        for task, position in in_flight.positions:
            before = self._progress.get(task, SpoutProgress())
            # Types of the user's own may be in it, which are read by the user's code.
            with suppress(Exception):
                record = dict(self._codec.unpack_value(before.attempts)) if before.attempts else {}
                message = self._codec.unpack_value(position)
                record[message] = record.get(message, 0) + alone
                self._change(task, replace(before, attempts=self._codec.pack_value(list(record.items()))), now)

    def take_due(self, now: float) -> dict[TaskId, SpoutProgress]:
        """Return the progress to store now, if any; it then counts as stored."""
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
            # The earlier time wins: a position that may wait must not hold back a kill that may not.
            self._store_at = store_at if self._store_at is None else min(self._store_at, store_at)
