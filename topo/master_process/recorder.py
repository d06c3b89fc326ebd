"""The master's writes to the topology's folder: its record, positions, dead letters, rows of `topo errors`, the summary."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from topo.dead_letters.records import letter_row
from topo.dead_letters.replays import DONE, FAILED
from topo.errors import TopoEnvironmentError
from topo.ids import TaskId
from topo.master.commands import MasterRecord, RecordError
from topo.master.links import RETRY_S
from topo.master.outcome import Outcome
from topo.master.positions import SpoutProgress
from topo.master_process.job import Job
from topo.storage.master_record import write_record
from topo.storage.state_folder import append_lines, rotate, write_atomically
from topo.user_code.copy import as_user_knows_it, not_copied, origin_of_copy
from topo.wire import control
from topo.wire.codec import Codec

MAX_ERRORS_BYTES = 16 << 20
"""Size at which the file of errors is rotated; one older file is kept."""
_LOG = logging.getLogger(__name__)
_MOST_UNSAVED = 100

Incident = Callable[[RecordError], None]


class Recorder:
    """Writes what outlives a master.

    Args:
        progress: the positions that are on disk.
        client_endpoint: noted in the master's record, for clients.
        on_incident: called with each error as it is recorded.
        check_folder: called before each write. Raises TopoEnvironmentError where the folder is not this master's any more:
            nothing is written then, since the files may be those of another run.

    Attributes:
        started_ms: when this master started, by the wall clock.
    """

    def __init__(
        self,
        job: Job,
        progress: Mapping[TaskId, SpoutProgress],
        client_endpoint: str,
        clock: Callable[[], float],
        on_incident: Incident | None = None,
        check_folder: Callable[[], None] = lambda: None,
    ) -> None:
        self._check_folder = check_folder
        self._job = job
        self._progress = dict(progress)
        self._client_endpoint = client_endpoint
        self._clock = clock
        self._on_incident = on_incident
        self._codec = Codec(job.serializers)
        self.started_ms = int(time.time() * 1000)
        self._unsaved: deque[bytes] = deque(maxlen=_MOST_UNSAVED)
        """Rows of errors that the disk had no room for."""
        self._unsaved_replays: list[bytes] = []
        """Results of replays that it had no room for: one for each dead letter that is under way, at most."""
        self._save_at = 0.0
        self._copied_from = origin_of_copy(job.submitted.reference)

    def persist(self, record: MasterRecord) -> None:
        """Write the master's record, durably. Raises TopoEnvironmentError when it cannot be written."""
        self._check_folder()
        write_record(
            self._job.folder.master, record, pid=os.getpid(), client_endpoint=self._client_endpoint, started_ms=self.started_ms
        )

    def store_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        """Write the positions of some spout tasks beside those of the others."""
        self._progress.update(progress)
        rows = {task: (kept.position, kept.attempts) for task, kept in self._progress.items()}
        try:
            self._check_folder()
            write_atomically(self._job.folder.positions, msgspec.msgpack.encode(rows))
        except TopoEnvironmentError as error:
            self.record(RecordError("PositionsNotStored", str(error)))

    def store_dead_letters(self, dead_letters: Iterable[control.DeadLetter]) -> bool:
        """Append dead letters; return False when they were not stored, so that their tasks keep and resend them."""
        try:
            self._check_folder()
            append_lines(self._job.folder.dead_letters, map(self._row_of, dead_letters))
        except Exception as error:
            why = str(error) if isinstance(error, TopoEnvironmentError) else f"{type(error).__name__}: {error}"
            self.record(RecordError("DeadLettersNotStored", why))
            return False
        return True

    def store_replays(self, results: Mapping[int, str | None]) -> None:
        """Append results of dead letters that were emitted again: why it has failed, None where it is done.

        Results that cannot be written are kept for `save_again`: the dead letters would be under way for ever.
        """
        rows = replay_rows((number, DONE if why is None else FAILED, why or "") for number, why in results.items())
        try:
            self.append_replays(rows)
        except TopoEnvironmentError as error:
            self._unsaved_replays += rows
            self.record(RecordError("DeadLettersNotStored", f"results of replays: {error}"))

    def append_replays(self, rows: Iterable[bytes]) -> None:
        """Append rows of `replay_rows`, durably. Raises TopoEnvironmentError when they cannot be written."""
        self._check_folder()
        append_lines(self._job.folder.replays, [*self._unsaved_replays, *rows])
        self._unsaved_replays.clear()

    def record(self, error: RecordError) -> None:
        """Write a row of `topo errors`; a row that cannot be written is kept for `save_again`."""
        message = self._of_the_original(error.message)
        if error.kind == FileNotFoundError.__name__:
            message += not_copied(error.message, message)
        error = replace(
            error,
            file=self._of_the_original(error.file),
            message=message,
            traceback=self._of_the_original(error.traceback),
        )
        row = {
            "at_ms": error.at_ms or int(time.time() * 1000),
            "kind": error.kind,
            "message": error.message,
            "component": error.component,
            "task": error.task,
            "worker": error.worker,
            "file": error.file,
            "line": error.line,
            "count": error.count,
            "traceback": error.traceback,
        }
        self._unsaved.append(json.dumps(row).encode())
        self._save()
        if self._on_incident is not None:
            self._on_incident(error)

    def save_again(self, now: float) -> None:
        """Try again to write rows that could not be written."""
        if (self._unsaved or self._unsaved_replays) and now >= self._save_at:
            self._save()

    def latest_unsaved(self) -> str:
        """Return kind and message of the latest error that `topo errors` lacks because it cannot be written; "" for none."""
        if not self._unsaved:
            return ""
        row = json.loads(self._unsaved[-1])
        return f"{row['kind']}: {row['message']}"

    def write_summary(self, status: Mapping[str, Any], outcome: Outcome) -> None:
        """Write the last status, for commands that are given after the end. That it cannot be written is recorded."""
        ended = {"ended_ms": int(time.time() * 1000), "outcome": outcome.as_dict() | (status.get("outcome") or {})}
        summary = {**status, **ended}
        try:
            self._check_folder()
            write_atomically(self._job.folder.summary, json.dumps(summary, default=repr).encode())
        except TopoEnvironmentError as error:
            name = self._job.plan.name
            why = (
                f"{error}; {name} has ended ({outcome.reason}), and `topo status` shows it as lost until `topo resume {name}` "
                "has continued it"
            )
            _LOG.error("%s", why)
            self.record(RecordError("SummaryNotStored", why))

    def _save(self) -> None:
        self._save_at = self._clock() + RETRY_S
        with contextlib.suppress(TopoEnvironmentError):
            if self._unsaved_replays:
                self.append_replays([])
        with contextlib.suppress(TopoEnvironmentError):
            self._check_folder()
            append_lines(self._job.folder.errors, self._unsaved)
            self._unsaved.clear()
            rotate(self._job.folder.errors, MAX_ERRORS_BYTES)

    def _row_of(self, dead_letter: control.DeadLetter) -> bytes:
        component = self._job.plan.task(dead_letter.task).component
        return letter_row(dead_letter, component, self._codec, int(time.time() * 1000), self._of_the_original)

    def _of_the_original(self, text: str) -> str:
        """Replace the path of the copy that runs by that of the user's own file."""
        return text if self._copied_from is None else as_user_knows_it(text, *self._copied_from)


def read_progress(path: Path) -> dict[TaskId, SpoutProgress]:
    """Return the stored positions of spout tasks. Raises TopoEnvironmentError when the file is damaged."""
    try:
        rows = msgspec.msgpack.decode(path.read_bytes(), type=dict[int, tuple[bytes, bytes]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise TopoEnvironmentError(f"{path} is damaged ({error}); remove it to read the sources from the beginning") from error
    return {TaskId(task): SpoutProgress(*kept) for task, kept in rows.items()}


def replay_rows(changes: Iterable[tuple[int, str, str]]) -> list[bytes]:
    """Return number, state and reason of dead letters as rows of the file of replays."""
    now_ms = int(time.time() * 1000)
    return [json.dumps({"dead_letter": one, "at_ms": now_ms, "state": state, "why": why}).encode() for one, state, why in changes]
