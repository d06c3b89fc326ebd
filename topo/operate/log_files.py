"""The logs of a topology's workers, read as one: rows of all files in the order of time, and new rows as they are appended."""

from __future__ import annotations

import heapq
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from topo.observability.logs import go_to, newer_log

LogRow = dict[str, Any]

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_PRINTED = ("stdout", "stderr")
_PIECE_BYTES = 1 << 18


class LogFiles(AbstractContextManager["LogFiles"]):
    """The `*.log` files of a folder, which may appear, grow, and be replaced when they are full.

    Args:
        folder: where they are.
        rotated: begin with the older files that full ones were renamed to.
        since: most rows before this moment may be left out.
    """

    def __init__(self, folder: Path, *, rotated: bool = False, since: str = "") -> None:
        self._folder, self._since = folder, since
        self._open: dict[Path, _GrowingFile] = {}
        self._rotated = sorted(folder.glob("*.log.[0-9]"), reverse=True) if rotated else []

    def new_rows(self, most_bytes: int = -1, is_wanted: Callable[[LogRow], bool] = bool, most: int | None = None) -> list[LogRow]:
        """Return the rows since the last call, in the order of time: those that are wanted, of each file the last `most`.

        Args:
            most_bytes: of each file; the rest is left for the next call. By default there is no limit.
        """
        rows: list[LogRow] = []
        for file in (*(_GrowingFile(path, self._since) for path in self._rotated), *self._growing()):
            # All rows of all workers would be gigabytes.
            rows += deque(filter(is_wanted, file.read_rows(most_bytes)), most)
        self._rotated = []
        return sorted(rows, key=_time_of)

    def each_row(self) -> Iterator[LogRow]:
        """Yield the rows since the last call, in the order of time: as many as there are, a piece of each file in memory."""
        growing = self._growing()
        # Opened before the first row: files are renamed while the caller shows rows.
        older = [(path.with_suffix(""), _GrowingFile(path, self._since).opened()) for path in self._rotated]
        self._rotated = []
        logs = {path: [file.rest() for of, file in older if of == path] for path, _ in older}
        for file in growing:
            logs.setdefault(file.path, []).append(file.opened().read_rows(-1))
        yield from heapq.merge(*(chain.from_iterable(parts) for parts in logs.values()), key=_time_of)

    def _growing(self) -> list[_GrowingFile]:
        return [self._open.setdefault(path, _GrowingFile(path, self._since)) for path in self._folder.glob("*.log")]

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def __exit__(self, *_: object) -> None:
        self.close()


class _GrowingFile:
    """A file of JSON lines. When others have taken its name, the rest of it and those between are read first, without a limit."""

    def __init__(self, path: Path, since: str) -> None:
        self.path, self._since = path, since
        self._file: BinaryIO | None = None
        self._rest = b""

    def opened(self) -> _GrowingFile:
        """Open the file, unless it is open, so that it is read although it is renamed."""
        if self._file is None:
            self._open(self.path)
        return self

    def rest(self) -> Iterator[LogRow]:
        """Yield the rest of an open file that does not grow, and close it."""
        yield from self._lines(-1)
        self.close()

    def read_rows(self, most_bytes: int) -> Iterator[LogRow]:
        newer: Path | None = self.path if self._file is None else newer_log(self.path, self._file.fileno())[0]
        while newer is not None:
            # A reader that stays behind by a full file would lose it: it is removed when more are full.
            yield from self._lines(-1)
            if (file := self._open(newer)) is None:
                return
            newer = newer_log(self.path, file.fileno())[0]
        yield from self._lines(most_bytes)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _lines(self, most_bytes: int) -> Iterator[LogRow]:
        while self._file is not None and (data := self._file.read(_PIECE_BYTES if most_bytes < 0 else most_bytes)):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and "time" in row and "message" in row:
                    yield row
            if most_bytes >= 0:
                return

    def _open(self, path: Path) -> BinaryIO | None:
        self.close()
        self._rest = b""
        with suppress(FileNotFoundError):
            self._file = path.open("rb")
            go_to(self._file, self._since)
        return self._file


def _time_of(row: LogRow) -> str:
    return str(row["time"])


def moment(seconds_ago: float) -> str:
    """Return a moment of the wall clock as rows say it, to compare with their `time`; 1970 is the earliest."""
    return datetime.fromtimestamp(max(0.0, time.time() - seconds_ago), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]


def is_at_least(row: LogRow, level: str) -> bool:
    """Whether a row is of that level or a graver one; unknown levels always are."""
    return row.get("level") not in LEVELS or LEVELS.index(row["level"]) >= LEVELS.index(level)


def is_printed(row: LogRow) -> bool:
    """Whether user code has printed the row rather than logged it."""
    return row.get("logger") in _PRINTED


def source_of(row: LogRow) -> str:
    """Return who wrote the row: component and task, or the worker where no task did."""
    return f"{row['component']}#{row['task']}" if row.get("component") else f"worker {row.get('worker', '?')}"
