"""A sink that writes tuples as lines of JSON."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

from topo.api.bolt import WithOwnFile
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import NotPublishedError, TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.json_rows import json_line
from topo.connectors.line_files import mend, move_lines, remove_staged, size_of, write_at
from topo.connectors.spilling import Spilling
from topo.durable import make_folder, sync_folder
from topo.errors import SinkBlockedError, StagedRowsLostError

_SPILL_LINES = 1000
"""Lines of a transaction that wait in memory before they go to its file."""
_STAGED = re.compile(r"(?P<task>\d+)(\.(?P<writer>.+))?\.[0-9a-f]{12}\.\d+(\.at\.\d+)?")
"""What follows `.NAME.staged.`; earlier versions have named no writer."""


class JsonLinesSink(TwoPhaseSink, WithOwnFile):
    """Appends one line of JSON for each tuple, an object of its fields.

    Decimals, UUIDs, moments and durations become texts, bytes base64, sets and numpy's arrays lists, enums their value,
    dataclasses objects, and floats that are no number `null`. A tuple with any other value fails; the error names the field.

    One task writes to `path`; of several, task n writes to `path.n`. A topology with two sinks of one path is refused.

    With `exactly_once` lines are staged in hidden files beside it, `.NAME.staged.TASK.TOPOLOGY.COMPONENT.PROCESS.NUMBER`, and
    appended when their checkpoint is complete: the file has each line once, and none that may be taken back. Every worker must
    see the folder. With the other modes lines are appended in batches, and acked after `fsync`: nothing that was
    acked is lost, whatever is killed, and after a recovery lines may repeat.
    """

    @checks_arguments
    def __init__(
        self, path: str | os.PathLike[str], *, max_batch: int = 1000, flush_interval: str | timedelta | float = "100ms"
    ) -> None:
        """Keep where to write.

        Args:
            path: the file; its folder is made if need be.
            max_batch: tuples that are written and synced together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`. Must be well below
                `message_timeout`.

        Raises:
            ConfigError: an argument cannot be used.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        self._path = Path(path)
        self.own_file = os.path.realpath(path)

    def open(self, context: TaskContext) -> None:
        """Make the file; take away a line that a killed process has left half written."""
        path = self._path.absolute()
        self._task, self._tasks = context.task_index, context.parallelism
        self._output = path.with_name(f"{path.name}.{self._task}") if self._tasks > 1 else path
        self._staged_names = f".{path.name}.staged."
        self._writer = f"{context.topology}.{context.component}"
        # A replacement must never name a file as its predecessor did, which may be alive still.
        self._process = os.urandom(6).hex()
        self._number = 0
        self._spilling = Spilling(path, _SPILL_LINES, self._collector.report_error)
        self._staged: int | None = None
        make_folder(path.parent)
        self._file = os.open(self._output, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._closing = ExitStack()
        self._closing.callback(os.close, self._file)
        self._size = mend(self._file)
        sync_folder(path.parent)

    def begin(self) -> None:
        """Start with no lines."""
        self._lines: list[bytes] = []
        self._staged_size = 0
        self._spilling.done()

    def write(self, tup: Tuple) -> None:
        """Add a line. Raises UserError for a value that JSON cannot represent, and SinkBlockedError."""
        line = json_line(tup.as_dict(), tup.component)
        if self._is_staged and len(self._lines) >= self._spilling.at:
            try:
                self._spill()
            except OSError as error:
                self._spilling.refused(error, len(self._lines))
        self._lines.append(line)

    def pre_commit(self) -> Any:
        """Sync the staged file. The token: it, its length, the output, and the least size that the output has with it."""
        self._spill()
        if self._staged is None:
            return None
        try:
            os.fsync(self._staged)
        except OSError as error:
            # What a failed sync has dropped, a second one does not report.
            raise SinkBlockedError(
                f"cannot sync {self._staged_path}: {error}; all tasks go back to the last checkpoint"
            ) from error
        path = self._staged_path
        sync_folder(path.parent)
        # All that may raise comes before the file is let go: it is asked for again then.
        least = size_of(self._output) + self._staged_size
        os.close(self._staged)
        self._staged = None
        self._number += 1
        return [str(path), self._staged_size, str(self._output), least]

    def commit(self, token: Any) -> None:
        """Append the staged file to its output, once."""
        staged, length, output, least = Path(token[0]), token[1], Path(token[2]), token[3]
        if not move_lines(staged, length, output):
            size = size_of(output)
            if size < least:
                self._collector.report_error(
                    StagedRowsLostError(
                        f"{output} has {size} bytes, and had at least {least} with the lines of {staged.name}. Either somebody "
                        "has changed it, or an earlier worker has written to another folder."
                    )
                )

    def abort(self, token: Any) -> None:
        """Remove the staged lines."""
        if token is not None:
            remove_staged(Path(token[0]))
            return
        if self._staged is not None:
            os.close(self._staged)
            self._staged = None
            self._staged_path.unlink(missing_ok=True)
            self._number += 1

    def recover(self, tokens: Sequence[Any]) -> None:
        """Append the committed files; remove the others that this task, or a task that no longer exists, has staged."""
        if not self._is_staged:
            return
        self._size = mend(self._file)
        super().recover(tokens)
        for name in os.listdir(self._output.parent):
            if name.startswith(self._staged_names):
                found = _STAGED.fullmatch(name.removeprefix(self._staged_names))
                if found and found["writer"] in (self._writer, None) and int(found["task"]) % self._tasks == self._task:
                    self._output.with_name(name).unlink(missing_ok=True)

    def publish(self) -> None:
        """Append the lines and sync them; none stays of a batch that the disk does not take."""
        batch = b"\n".join(self._lines) + b"\n"
        try:
            write_at(self._file, batch)
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise NotPublishedError from error
        self._size += len(batch)

    def close(self) -> None:
        """Close the files."""
        self._closing.close()
        if self._staged is not None:
            os.close(self._staged)
            self._staged = None

    @property
    def _staged_path(self) -> Path:
        return self._output.with_name(f"{self._staged_names}{self._task}.{self._writer}.{self._process}.{self._number}")

    def _spill(self) -> None:
        """Move the lines from memory to the staged file. If it fails they stay, and a repetition writes over the rest."""
        if not self._lines:
            return
        if self._staged is None:
            self._staged = os.open(self._staged_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        data = b"\n".join(self._lines) + b"\n"
        write_at(self._staged, data, self._staged_size)
        self._staged_size += len(data)
        self._lines = []
        self._spilling.done()
