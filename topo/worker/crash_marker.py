"""The tuples that a worker is processing, in a small mapped file that outlives it.

A worker writes the roots of a batch before it runs user code on them. If the process dies there, the master finds the tuples
that may have killed it. The kernel keeps the contents of the mapping, however the process ends; only a power cut loses it, and
then the master is gone, too.

    begin u64 | end u64 | task u64 | bytes of roots u64 | bytes of positions u64 | truncated u64 | roots | positions

`begin` is written first and `end`, the same number, last: a marker in which they differ was never complete, and no user code
ran under it. Zero in `begin` means that no tuple is in processing.
"""

from __future__ import annotations

import mmap
import os
import struct
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import msgpack
import msgspec
from msgspec import Struct

from topo.errors import TopoEnvironmentError
from topo.ids import ID_BYTES, TaskId
from topo.wire.codec import join_packed, split_packed

MARKER_BYTES = 1 << 20
"""Size of the file: room for the roots of some 130,000 tuples."""

_HEADER = struct.Struct("=6Q")
_BEGIN, _END = 0, 1


class CrashMark(Struct, frozen=True):
    """A batch that was being processed.

    Attributes:
        task: whose user code ran.
        roots: of the batch's tuples; those of a truncated marker are only the first.
        positions: (spout task, packed position) of those whose spout lives in the same worker.
        truncated: the file was too small for all of them.
    """

    task: TaskId
    roots: tuple[int, ...]
    positions: tuple[tuple[TaskId, bytes], ...] = ()
    truncated: bool = False


class CrashMarkerFile:
    """The writer's side: one for each worker, written by the thread that runs the tasks."""

    def __init__(self, path: Path, size: int = MARKER_BYTES) -> None:
        """Make the file, with an empty marker.

        Raises:
            TopoEnvironmentError: it cannot be made.
        """
        try:
            with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600), "r+b") as file:
                # Zeros, not a hole: a write to a mapped hole on a full disk ends the process (SIGBUS).
                file.write(bytes(size))
                file.flush()
                self._map = mmap.mmap(file.fileno(), size)
        except OSError as error:
            raise TopoEnvironmentError(f"cannot make the marker {path}: {error.strerror}") from error
        self._bytes = memoryview(self._map)
        self._words = self._bytes[: _HEADER.size].cast("Q")
        self._room = size - _HEADER.size
        self._number = 0

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        """Write a batch: packed roots, and, by spout of this worker, the packed array of the positions of those it emitted."""
        packed = msgpack.packb(positions) if positions else b""
        truncated = len(roots) + len(packed) > self._room
        if truncated:
            roots, packed = self._cut(roots, positions)
        self._number = number = self._number + 1
        _HEADER.pack_into(self._bytes, 0, number, 0, task, len(roots), len(packed), truncated)
        middle = _HEADER.size + len(roots)
        self._bytes[_HEADER.size : middle] = roots
        self._bytes[middle : middle + len(packed)] = packed
        self._words[_END] = number

    def _cut(self, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> tuple[bytes, bytes]:
        """Keep as many as fit, roots before positions: without a root no message is suspected."""
        roots = roots[: self._room // ID_BYTES * ID_BYTES]
        room = self._room - len(roots)
        each = [(spout, position) for spout, packed in positions for position in split_packed(packed)]
        while each:
            by_spout = groupby(each, itemgetter(0))
            packed: bytes = msgpack.packb([(spout, join_packed(one for _, one in mine)) for spout, mine in by_spout])
            if len(packed) <= room:
                return roots, packed
            each = each[: len(each) // 2]
        return roots, b""

    def clear(self) -> None:
        """Mark that no tuple is in processing."""
        self._words[_BEGIN] = 0

    def close(self) -> None:
        """Release the file, which stays. Idempotent."""
        self._words.release()
        self._bytes.release()
        self._map.close()


def written_bytes(path: Path) -> bytes:
    """Return the used part of a marker's file, which `read_marker` reads as a file; empty when there is no marker."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
            begin, end, _, roots_size, positions_size, _ = _HEADER.unpack(header)
            return header + file.read(roots_size + positions_size) if begin and begin == end else b""
    except (OSError, struct.error):
        return b""


def read_marker(path: Path) -> CrashMark | None:
    """Return the batch that an ended worker was processing; None without any, or when its file is missing or damaged."""
    try:
        data = path.read_bytes()
        begin, end, task, roots_size, positions_size, truncated = _HEADER.unpack_from(data)
        if begin == 0 or begin != end or _HEADER.size + roots_size + positions_size > len(data):
            return None
        middle = _HEADER.size + roots_size
        roots = struct.unpack(f"={roots_size // ID_BYTES}Q", data[_HEADER.size : middle])
        packed = data[middle : middle + positions_size]
        by_spout = msgpack.unpackb(packed) if packed else ()
        positions = tuple((TaskId(spout), position) for spout, array in by_spout for position in split_packed(array))
    except (OSError, ValueError, struct.error, msgpack.UnpackException, msgspec.MsgspecError):
        return None
    return CrashMark(TaskId(task), roots, positions, bool(truncated))
