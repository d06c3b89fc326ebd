"""Encoded rows that wait for their checkpoint outside of their target, for sinks that publish them from there.

Each transaction of a task is a file in a hidden folder of a place that the next process finds: `StagingPlace` has the
places, and `StagedNames` the names. A file is a sequence of chunks:

    LENGTH    4 bytes, little-endian
    CHECKSUM  4 bytes, CRC-32 of what follows
    ROWS      LENGTH bytes: rows as one array of msgpack

A file that a killed process has left half written has no token; `clean` removes it. The process that has sealed a file publishes
its rows from memory, if there they are still, and another one reads the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from struct import Struct
from typing import Any
from zlib import crc32

import msgpack
import msgspec

from topo.api.context import TaskContext
from topo.connectors.file_folders import shown_url
from topo.connectors.spilling import Spilling
from topo.connectors.staging_places import StagedFile, StagedNames, place_at
from topo.errors import ConfigError, StagedRowsLostError

StagedRow = Sequence[Any]
"""Values that msgpack carries; lists come back as tuples."""
_SPILL_ROWS = 50_000
"""Rows of a transaction that wait in memory before they go to its file, and their bytes with those of their objects."""
_SPILL_BYTES = 8 << 20
_ROW_BYTES = 64
_CHUNK_ROWS = 500
"""Few enough that the rows of a chunk which is read are in the processor's cache until they are used."""
_SUFFIX = ".rows"
_CHUNK = Struct("<II")
_pack = msgspec.msgpack.Encoder(enc_hook=lambda value: msgpack.unpackb(msgpack.packb(value))).encode
"""Packs as msgpack does, in a third of the time; a value of a subclass, such as of str, is made a plain one first."""


def staging_of(context: TaskContext, given: str | os.PathLike[str] | None, user: str) -> str | os.PathLike[str]:
    """Return the place of a sink's staged rows: `given`; or beside the checkpoints, whose tokens need them.

    Raises:
        ConfigError: the tasks share no place.
    """
    found = given or os.path.expanduser(context.config.checkpoint_folder or "") or context.folder
    if found is None:
        raise ConfigError(
            f"{user} stages rows until their checkpoint is complete, and its workers share no folder; give a folder or URL "
            "that all of them reach as staging=, or set checkpoint_folder"
        )
    return found


class StagedRows:
    """The staged rows of one task: those of the open transaction, and those that are sealed.

    Args:
        context: of the task.
        place: a path or URL that all processes of the task reach.
        user: the class of the sink, for errors.
        report: called once when rows cannot be written any more, and once more after they could be.
        options: for fsspec.

    Attributes:
        is_new: whether the place was missing, so that no earlier process has staged anything there.

    Raises:
        ConfigError: the URL cannot be used.
    """

    def __init__(
        self,
        context: TaskContext,
        place: str | os.PathLike[str],
        user: str,
        report: Callable[[BaseException], None],
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._shown = shown_url(place)
        self._place = place_at(place, options or {}, user)
        self._names = StagedNames(context)
        self.is_new = self._place.make()
        self._spilling = Spilling(self._shown, _SPILL_ROWS, report)
        self._sealed: tuple[str, Sequence[StagedRow]] = ("", ())
        """The last sealed file, and its rows where all of them were in memory."""
        self._start()

    def _start(self) -> None:
        self._spilled = 0
        """Rows that are in the file."""
        self._rows: list[StagedRow] = []
        self._bytes = 0
        self._name = ""
        self._file: StagedFile | None = None
        self._spilling.done()

    @property
    def count(self) -> int:
        """Rows of the open transaction."""
        return self._spilled + len(self._rows)

    def add(self, row: StagedRow, size: int) -> None:
        """Add a row of about `size` bytes to the open transaction.

        Raises:
            SinkBlockedError: rows cannot be written, and too many of them wait; the row is not taken.
        """
        if len(self._rows) >= self._spilling.at or self._bytes >= _SPILL_BYTES:
            try:
                self._spill()
            except OSError as error:
                self._spilling.refused(error, len(self._rows))
                # The next attempt comes with more rows.
                self._bytes = 0
        self._rows.append(row)
        self._bytes += size + _ROW_BYTES

    def _spill(self) -> None:
        """Move the rows from memory to the file. If it fails they stay, and a repetition writes them."""
        if self._rows:
            self._write(b"".join(_chunks_of(self._rows)))
            self._spilled += len(self._rows)
            self._rows = []
            self._bytes = 0
        self._spilling.done()

    def _write(self, data: bytes) -> None:
        if self._file is None:
            self._name = self._names.draw(_SUFFIX)
            self._file = self._place.create(self._name)
        self._file.append(data)

    def seal(self) -> str | None:
        """Make the rows durable and end the transaction. If it raises, nothing is lost: it may be repeated, also after more rows.

        Returns:
            The name of its file; None when it has no rows.

        Raises:
            SinkBlockedError: the disk may have lost rows.
            OSError: they cannot be written now.
        """
        if not self.count:
            return None
        kept: Sequence[StagedRow] = () if self._spilled else self._rows
        self._spill()
        assert self._file is not None
        # The file last: after it, no step can fail and no row can be added.
        self._place.keep_names()
        self._file.seal()
        name = self._name
        self._sealed = (name, kept)
        self._start()
        return name

    def rows(self, name: str, count: int) -> Iterator[StagedRow]:
        """Yield the rows of a sealed file. They count when the last one has come: only then the file is known to be whole.

        Raises:
            StagedRowsLostError: the file is missing or damaged, or has another number of rows than `count`.
        """
        sealed, rows = self._sealed
        if sealed == name and len(rows) == count:
            return iter(rows)
        return chain.from_iterable(self._chunks(name, count))

    def _chunks(self, name: str, count: int) -> Iterator[Sequence[StagedRow]]:
        found = 0
        try:
            with self._place.open(name) as file:
                while head := file.read(_CHUNK.size):
                    length, checksum = _CHUNK.unpack(head.ljust(_CHUNK.size, b"\xff"))
                    data = file.read(length)
                    if len(data) < length or crc32(data) != checksum:
                        raise self._lost(name, count, f"is damaged behind its row {found}")
                    rows = msgpack.unpackb(data, use_list=False, strict_map_key=False)
                    found += len(rows)
                    yield rows
        except FileNotFoundError as error:
            raise self._lost(name, count, "is missing") from error
        if found != count:
            raise self._lost(name, count, f"has {found} rows")

    def _lost(self, name: str, count: int, fault: str) -> StagedRowsLostError:
        return StagedRowsLostError(
            f"{count} rows were staged in {name} at {self._shown}, which {fault}. Either somebody has changed it, or an earlier "
            "worker has staged them in another place."
        )

    def is_staged(self, name: str) -> bool:
        """Whether there is a sealed file of this name."""
        try:
            self._place.open(name).close()
        except FileNotFoundError:
            return False
        return True

    def is_drawn(self, name: str) -> bool:
        """Whether this process has staged a file of this name."""
        return self._names.is_drawn(name)

    def remove(self, name: str) -> None:
        """Remove a sealed file; a missing one is no error."""
        self._place.remove(name)
        if self._sealed[0] == name:
            self._sealed = ("", ())

    def discard(self) -> None:
        """Drop the open transaction."""
        if self._file is not None:
            self._file.discard()
        self._start()

    def clean(self, kept: Sequence[str] = ()) -> None:
        """Remove the files, apart from those in `kept`, of this task and of tasks that no longer exist.

        Only in a recovery, when this task has no open transaction.
        """
        for name in self._place.staged():
            if self._names.is_left(name) and name not in kept:
                self.remove(name)


def _chunks_of(rows: Sequence[StagedRow]) -> Iterator[bytes]:
    for first in range(0, len(rows), _CHUNK_ROWS):
        data = _pack(rows[first : first + _CHUNK_ROWS])
        yield _CHUNK.pack(len(data), crc32(data))
        yield data
