"""A spout that follows a file that others append to and rotate, as `tail -F` does.

A position is (generation, offset, inode, head): `generation` counts the files that were read, `offset` is the end of the line,
and `head` is a digest of the file's first bytes in front of `offset`. Inode and head together identify a file: an inode is used
again for another file soon after its own is removed, and a truncated file keeps its inode.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, SpoutCollector
from topo.config import parse_duration
from topo.connectors.line_reader import LineReader
from topo.errors import ConfigError, TopoEnvironmentError

_HEAD_BYTES = 256
_COMPRESSED = {".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"}


class _Look(NamedTuple):
    """The identity of a file, and the time of its last write."""

    inode: int
    head: int
    size: int
    mtime_ns: int


def _inode(found: os.stat_result) -> int:
    # Some file systems use all 64 bits; positions are signed.
    return found.st_ino & (1 << 63) - 1


def _head(file: BinaryIO, offset: int) -> int:
    data = os.pread(file.fileno(), min(offset, _HEAD_BYTES), 0)
    return int.from_bytes(blake2b(data, digest_size=7).digest())


class TailSpout(RetryingSpout):
    """Emits the lines of a file, and then each line that is appended. It never ends.

        builder.set_spout("log", TailSpout("/var/log/nginx/access.log"))
        builder.set_spout("logs", TailSpout(["/var/log/a.log", "/var/log/b.log"]), 2)

    Rotation is followed, by rename (`access.log` becomes `access.log.1` or `access.log-20260101`) and by copy and truncate. The
    rest of the old file is read before the new one; also when the rotation, or several, happened while the topology was down, as
    long as the old files are there under names that `rotated` matches and are not compressed. Where a file that was not read to
    its end is gone, an error is reported (`topo errors`) and the spout continues with the files that are left.

    A line is emitted when its newline is written. Waits for a file that does not exist yet. Each task follows one file, so the
    parallelism is the number of paths.
    """

    outputs = ("line",)

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        start: Literal["beginning", "end"] = "beginning",
        rotated: str | None = None,
        rotate_wait: str | timedelta = "5s",
        encoding: str = "utf-8",
        errors: str = "replace",
        max_line: str | int = "1MiB",
    ) -> None:
        """Keep what to read; nothing is opened yet.

        Args:
            path: the file, or several, one for each task. No pattern: files are known by name before they are there.
            start: where to begin a file that exists when the topology first starts: at its beginning, or behind its last whole
                line, for lines appended from then on. Only until the first line was processed: then the position counts.
                A file that comes later is read from its beginning.
            rotated: pattern of the names that it is given when it is rotated, in the same folder; by default its own name
                followed by "." or "-" and anything.
            rotate_wait: how long a file that was renamed must be unchanged before the spout leaves it: programs write on into
                the file that they have open.
            encoding: one in which a newline is the one byte 10, as in UTF-8 and all single-byte encodings.
            errors: what to do with bytes that are no text, as in `open`.
            max_line: a longer line is emitted in pieces of this size.

        Raises:
            ConfigError: an argument cannot be used.
        """
        given = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._paths = [Path(one) for one in given]
        if not given or len(set(self._paths)) < len(given):
            raise ConfigError(f"TailSpout follows one file in each task; give paths, each once, not {given!r}")
        for one in self._paths:
            if any(mark in one.name for mark in "*?[") and not one.exists():
                raise ConfigError(
                    f"TailSpout follows files by their names, and {os.fspath(one)!r} is a pattern; list them, such as "
                    f"TailSpout(sorted(glob.glob({os.fspath(one)!r})))"
                )
        if start not in ("beginning", "end"):
            raise ConfigError(f"start={start!r} must be 'beginning' or 'end'")
        self.tasks_needed = len(given)
        """Any other parallelism is refused at build."""
        self._start = start
        self._rotated = rotated
        self._wait_s = parse_duration(rotate_wait)
        self._reader = LineReader("TailSpout", encoding, errors, max_line)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Find the file of the committed position and go there, or to the start.

        Raises:
            ConfigError: the path is a folder.
        """
        self._path = self._paths[context.task_index]
        if self._path.is_dir():
            where = f"TailSpout {context.component!r}"
            raise ConfigError(f"{where} follows one file, but {self._path} is a folder; give the path of a file")
        self._collector = collector
        self._generation = self._inode = self._digest = 0
        self._reader.offset = 0
        self._is_at_end = False
        self._done: set[tuple[int, int]] = set()
        """Files that were read to their end in this life: inode and head."""
        if context.committed_position is not None:
            self._generation, self._reader.offset, self._inode, self._digest = context.committed_position
            self._find_again()
        elif self._start == "end" and self._path.exists():
            self._begin(self._path, self._last_line_end())

    def next_tuple(self) -> None:
        """Emit the next line, if there is one."""
        reader = self._reader
        if reader.file is None and not self._begin(self._path):
            return
        if self._is_at_end and self._is_replaced():
            self._find_again()
        if reader.file is None:
            return
        piece = reader.file.readline(reader.max_line)
        if not piece.endswith(b"\n") and len(piece) < reader.max_line:
            self._is_at_end = True
            if not self._is_left():
                # Its line may not be complete yet.
                reader.file.seek(reader.offset)
                return
            if not piece:
                self._open_next()
                return
        begin = reader.offset
        line = reader.take(piece)
        if line is not None:
            if begin < _HEAD_BYTES:
                self._digest = _head(reader.file, reader.offset)
            self._collector.emit((line,), (self._generation, reader.offset, self._inode, self._digest))

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    # -- files -----------------------------------------------------------------------------------------------------------

    def _begin(self, path: Path, offset: int = 0) -> bool:
        """Read a file from an offset on. Returns False when it is not there."""
        try:
            file = self._reader.open(path, offset)
        except FileNotFoundError:
            return False
        self._generation += 1
        self._inode = _inode(os.fstat(file.fileno()))
        self._digest = _head(file, offset)
        self._is_at_end = False
        return True

    def _last_line_end(self) -> int:
        """Return the offset behind the last whole line of the file; of a longer line than one piece, that of its last byte."""
        with self._path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - self._reader.max_line)
            found = os.pread(file.fileno(), size - begin, begin).rfind(b"\n")
            return begin + found + 1 if found >= 0 or begin == 0 else size

    def _is_replaced(self) -> bool:
        """Whether the open file was truncated: it no longer has the content read from it."""
        file, offset = self._reader.file, self._reader.offset
        assert file is not None
        return os.fstat(file.fileno()).st_size < offset or _head(file, offset) != self._digest

    def _is_left(self) -> bool:
        """Whether the path is another file by now, and this file has not been written to for a while."""
        assert self._reader.file is not None
        mine = os.fstat(self._reader.file.fileno())
        try:
            theirs = self._path.stat()
        except FileNotFoundError:
            return False
        return not os.path.samestat(mine, theirs) and time.time() - mine.st_mtime >= self._wait_s

    def _find_again(self) -> None:
        """Go to the position in the file that has it: the same one, a renamed one, or the copy of a truncated one."""
        paths = (self._path, *self._old_files())
        found = [(file.inode == self._inode, path) for path in paths if (file := self._look(path)) and self._is_in(file)]
        for _, path in sorted(found, key=lambda one: not one[0]):
            if self._begin(path, self._reader.offset):
                return
        mine = self._look(self._path)
        # Rotation removes the oldest file first: when the file of the position is gone, all that are left were written later.
        later = self._path if mine and mine.inode == self._inode else next(iter(paths[1:]), self._path)
        error = TopoEnvironmentError(
            f"TailSpout: {self._path} was truncated or removed when {self._reader.offset} bytes of it had been read, and none of "
            f"its rotated files ({self._pattern}) begins with them: what followed them is lost; "
            f"continues at the beginning of {later}"
        )
        self._collector.report_error(error)
        self.close()
        self._begin(later)

    def _is_in(self, file: _Look) -> bool:
        """Whether a file has the content read up to the position."""
        return file.size >= self._reader.offset and file.head == self._digest

    def _look(self, path: Path, offset: int | None = None) -> _Look | None:
        """Return the identity of a file, with the head of its content in front of `offset`; None when it does not exist."""
        try:
            with path.open("rb") as file:
                found = os.fstat(file.fileno())
                head = _head(file, self._reader.offset if offset is None else offset)
                return _Look(_inode(found), head, found.st_size, found.st_mtime_ns)
        except FileNotFoundError:
            return None

    @property
    def _pattern(self) -> str:
        return self._rotated if self._rotated is not None else f"{self._path.name}[.-]*"

    def _old_files(self) -> list[Path]:
        """Return the rotated files, in the order in which they were written to last."""
        paths = [path for path in self._path.parent.glob(self._pattern) if path != self._path and path.suffix not in _COMPRESSED]
        found = [(file.mtime_ns, path) for path in paths if path.is_file() and (file := self._look(path, 0))]
        return [path for _, path in sorted(found)]

    def _open_next(self) -> None:
        """Continue with the file that followed the open one, which has been read to its end and left."""
        assert self._reader.file is not None
        left_at = os.fstat(self._reader.file.fileno()).st_mtime_ns
        self._done.add((self._inode, self._digest))
        for path in self._old_files():
            file = self._look(path, _HEAD_BYTES)
            if file and file.mtime_ns >= left_at and (file.inode, file.head) not in self._done and self._begin(path):
                return
        self._begin(self._path)
