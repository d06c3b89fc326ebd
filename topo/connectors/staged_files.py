"""The files of one task of a sink: rows by group, each file complete when it is published.

A row waits in memory, then encoded in a file under a hidden name. A file is sealed when it has its size, or at the end of the
transaction; what its sink publishes is then a matter of names. `StagingPlace` has the places, and `RowFormat` the formats.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from topo.api.context import TaskContext
from topo.connectors.file_folders import shown_url
from topo.connectors.named_errors import WRITING, naming
from topo.connectors.row_formats import FileEncoder, RowFormat
from topo.connectors.spilling import Spilling
from topo.connectors.staging_places import StagedFile, StagedNames, StagingPlace
from topo.errors import SinkBlockedError, TopoEnvironmentError

_SPILL_ROWS = 10_000
"""Rows of a transaction that wait in memory before they are encoded and go to their files."""
_SPILL_BYTES = 8 << 20
_MOST_OPEN = 100
"""Files that stay open when the rows of a task have left memory; the others are completed then."""

Group = TypeVar("Group")
"""The rows of a file have it in common; it can be a key of a dict."""


class SealedFile(NamedTuple, Generic[Group]):
    """A file that is durable under its hidden name: its group, its size, and its rows."""

    name: str
    group: Group
    bytes: int
    rows: int


class _UnfinishedFile(Generic[Group]):
    """A file that takes rows: in memory at first, then encoded, then under its hidden name.

    Attributes:
        count: rows that it has.
        waiting: those of them in memory.
    """

    def __init__(self, name: str, group: Group, file: StagedFile, format: RowFormat, target: str) -> None:
        self.name = name
        self.group = group
        self.count = self._bytes = 0
        self._file = file
        self._target = target
        self._format = format
        self._encoder: FileEncoder | None = None
        """Made for the first rows that leave memory: that of parquet is large."""
        self._rows: list[Any] = []
        self._encoded = b""
        """Bytes that could not be written yet."""
        self._has_ended = False

    @property
    def size(self) -> int:
        """About how many bytes it has; exactly, when it is sealed."""
        return self._file.size + len(self._encoded) + self._bytes

    @property
    def waiting(self) -> int:
        return len(self._rows)

    def add(self, row: Any, size: int) -> None:
        self._rows.append(row)
        self.count += 1
        self._bytes += size

    def spill(self) -> None:
        """Move the rows from memory to the file. If it fails their bytes stay, and a repetition writes them."""
        if self._rows:
            self._encoded += self._encoding().encode(self._rows)
            self._rows = []
            self._bytes = 0
        if self._encoded:
            with naming(f"cannot write to {self._target}", WRITING):
                self._file.append(self._encoded)
            self._encoded = b""

    def seal(self) -> None:
        """Complete the file, durably. It may be repeated; no row is added after it has begun."""
        self.spill()
        if not self._has_ended:
            self._encoded = self._encoding().end()
            self._has_ended = True
            self.spill()
        with naming(f"cannot write to {self._target}", WRITING):
            self._file.seal()

    def _encoding(self) -> FileEncoder:
        if self._encoder is None:
            self._encoder = self._format.encoder()
        return self._encoder

    def discard(self) -> None:
        self._file.discard()


class StagedFiles(Generic[Group]):
    """The files of the open transaction of one task, and those of this process that were sealed and not published.

    Args:
        context: of the task; gets the counters `rows`, `bytes` and `files`.
        url: the folder, for messages.
        place: where the files are.
        format: of all files.
        roll_rows: the most rows of a file.
        roll_size: about its most bytes.
        report: takes the error when rows cannot be written any more.
    """

    def __init__(
        self,
        context: TaskContext,
        url: str | os.PathLike[str],
        place: StagingPlace,
        format: RowFormat,
        *,
        roll_rows: int,
        roll_size: int,
        report: Callable[[BaseException], None],
    ) -> None:
        self._format = format
        self._place = place
        self._roll_rows, self._roll_size = roll_rows, roll_size
        self._names = StagedNames(context)
        self._target = shown_url(url)
        with naming(f"cannot write to {self._target}", WRITING):
            self._is_new = place.make()
        self._spilling = Spilling(self._target, _SPILL_ROWS, report)
        self._unpublished: set[str] = set()
        """Names of durable files of this process that were not published."""
        self._rows_counter, self._bytes_counter, self._files_counter = map(context.metrics.counter, ("rows", "bytes", "files"))
        self.begin()

    def begin(self) -> None:
        """Start a transaction with no files."""
        self._growing: dict[Group, _UnfinishedFile[Group]] = {}
        self._closing: list[_UnfinishedFile[Group]] = []
        """Files that take no more rows, and are not durable yet."""
        self._sealed: list[SealedFile[Group]] = []
        self._begin_memory()
        self._spilling.done()

    def _begin_memory(self) -> None:
        self._rows_in_memory = self._bytes_in_memory = 0

    @property
    def has_full(self) -> bool:
        """Whether the open transaction has a file that takes no more rows."""
        return bool(self._sealed or self._closing)

    def add(self, group: Group, row: Any) -> None:
        """Add a row that the format has made. Raises SinkBlockedError."""
        if self._rows_in_memory >= self._spilling.at or self._bytes_in_memory >= _SPILL_BYTES:
            self._spill()
        file = self._growing.get(group)
        if file is None:
            name = self._names.draw(self._format.suffix)
            file = self._growing[group] = _UnfinishedFile(name, group, self._place.create(name), self._format, self._target)
        size = self._format.size(row)
        file.add(row, size)
        self._rows_in_memory += 1
        self._bytes_in_memory += size
        if file.count >= self._roll_rows or file.size >= self._roll_size:
            self._close(group)

    def _spill(self) -> None:
        """Move all rows from memory to their files; where that fails they wait, up to a limit."""
        # Those with the fewest new rows first: of them the fewest are to come.
        surplus = len(self._growing) - _MOST_OPEN
        for file in sorted(self._growing.values(), key=attrgetter("waiting"))[: max(0, surplus)]:
            self._close(file.group)
        try:
            for file in [*self._growing.values(), *self._closing]:
                file.spill()
        except SinkBlockedError:
            raise
        except TopoEnvironmentError as error:
            cause = error.__cause__
            self._spilling.refused(cause if isinstance(cause, Exception) else error, self._rows_in_memory)
            # The next attempt comes with more rows.
            self._bytes_in_memory = 0
        else:
            self._begin_memory()
            self._spilling.done()

    def _close(self, group: Group) -> None:
        """Let a file take no more rows; what cannot be made durable now is so at the end of the transaction."""
        self._closing.append(self._growing.pop(group))
        with suppress(Exception):
            self._seal()

    def _seal(self) -> None:
        while self._closing:
            file = self._closing[0]
            file.seal()
            del self._closing[0]
            self._sealed.append(SealedFile(file.name, file.group, file.size, file.count))
            self._unpublished.add(file.name)
            self._rows_counter.add(file.count)
            self._bytes_counter.add(file.size)
            self._files_counter.add()

    def seal(self) -> list[SealedFile[Group]]:
        """Make all files of the transaction durable under their hidden names, and return them.

        If it raises, nothing is lost: it may be repeated, also after more rows.
        """
        self._closing += self._growing.values()
        self._growing = {}
        self._seal()
        if self._sealed:
            with naming(f"cannot write to {self._target}", WRITING):
                self._place.keep_names()
        return list(self._sealed)

    def is_missed(self, name: str) -> bool:
        """Whether a sealed file has to be there still. A published one may have been taken away by its reader since then.

        But in a folder that was missing when this process began, no earlier process has published any.
        """
        return name in self._unpublished or (self._is_new and not self._names.is_drawn(name))

    def is_staged(self, name: str) -> bool:
        """Whether a file has its hidden name."""
        try:
            self._place.open(name).close()
        except FileNotFoundError:
            return False
        return True

    def publish(self, name: str, folder: str = "") -> bool:
        """Give a sealed file its own name in a folder. It may be repeated, by any process.

        Returns:
            False when it has neither name.
        """
        with naming(f"cannot write to {self._target}", WRITING):
            is_there = self._place.publish(name, folder)
        self._unpublished.discard(name)
        return is_there

    def discard(self) -> None:
        """Drop the open transaction."""
        for file in [*self._growing.values(), *self._closing]:
            file.discard()
        names = [file.name for file in self._sealed]
        self._growing, self._closing, self._sealed = {}, [], []
        for name in names:
            self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a file that was sealed and not published."""
        self._place.remove(name)
        self._unpublished.discard(name)

    def clean(self) -> None:
        """Remove the staged files of this task, and of tasks that no longer exist."""
        for name in self._place.staged():
            if self._names.is_left(name):
                self._place.remove(name)
