"""A file that others append to and rotate, followed as `tail -F` does.

A position is (generation, offset, inode, head): `generation` counts the files that were read, `offset` is the end of the line,
and `head` is a digest of the file's first bytes in front of `offset`. Inode and head together identify a file: an inode is used
again for another file soon after its own is removed, and a truncated file keeps its inode.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from topo.connectors.line_reader import LineReader
from topo.errors import TopoEnvironmentError

_HEAD_BYTES = 256
COMPRESSED = frozenset((".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"))

FilePosition = tuple[int, int, int, int]


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


class FollowedFile:
    """Reads the lines of a file and of those that it was rotated to, and then each line that is appended.

    Args:
        path: the file; it may come later.
        reader: reads its lines.
        rotated: of the names that it is given when it is rotated, in the same folder.
        wait_s: how long a file that was renamed must be unchanged before it is left.
        report: takes the error that lines are lost.
        who: the class that the user has written, for errors.
    """

    def __init__(
        self,
        path: Path,
        reader: LineReader,
        rotated: re.Pattern[str],
        wait_s: float,
        report: Callable[[Exception], None],
        who: str,
    ) -> None:
        self._path = path
        self._reader = reader
        self._rotated = rotated
        self._wait_s = wait_s
        self._report = report
        self._who = who
        self._generation = self._inode = self._digest = 0
        self._reader.offset = 0
        self._may_be_replaced = False
        self._done: set[tuple[int, int]] = set()
        """Files that are not read any more in this life: inode and head."""
        self._written_at = 0
        """Of the open file, as of the last look at its beginning."""
        self._renamed = ((0, 0), 0.0)
        """Size and time of the open file behind its rename, and since when they are those."""

    @property
    def position(self) -> FilePosition:
        """The place behind the last line."""
        return self._generation, self._reader.offset, self._inode, self._digest

    def go_to(self, position: FilePosition) -> None:
        """Go to the place behind a line, wherever it is now."""
        self._generation, self._reader.offset, self._inode, self._digest = position
        self._find_again()

    def skip_to_end(self) -> None:
        """Go behind the last whole line of the file, if there is one."""
        if self._path.exists():
            self._begin(self._path, self._last_line_end())

    def next_line(self) -> Any:
        """Return the next line as the reader has it, a piece of a line that is too long for it, or None when none is complete.

        Raises:
            UnicodeDecodeError: it is no text; the next call returns it again.
        """
        reader = self._reader
        while reader.file is not None or self._begin(self._path):
            if self._may_be_replaced:
                self._may_be_replaced = False
                if self._is_replaced():
                    self._find_again()
            if reader.file is not None and reader.offset == 0 and self._begin_copied():
                continue
            if reader.file is None:
                return None
            piece = reader.file.readline(reader.max_line)
            if not piece.endswith(b"\n") and len(piece) < reader.max_line:
                self._may_be_replaced = True
                if not self._is_left():
                    # Its line may not be complete yet.
                    reader.file.seek(reader.offset)
                    return None
                if not piece:
                    self._open_next()
                    continue
            begin = reader.offset
            line = reader.take(piece)
            if line is None:
                continue
            if begin < _HEAD_BYTES:
                self._digest = _head(reader.file, reader.offset)
            return line
        return None

    def paused(self) -> None:
        """Time has passed since the last line was read, in which the file may have been truncated and written to again."""
        self._may_be_replaced = self._reader.file is not None

    def unread(self) -> int:
        """Return how many bytes there are behind the place, also in the files that follow the open one."""
        try:
            live = self._path.stat()
        except FileNotFoundError:
            live = None
        if self._reader.file is None:
            # It was read up to the offset before it was closed.
            return 0 if live is None else max(0, live.st_size - self._reader.offset * (_inode(live) == self._inode))
        mine = os.fstat(self._reader.file.fileno())
        unread = max(0, mine.st_size - self._reader.offset)
        if live is not None and os.path.samestat(mine, live):
            return unread
        between = sum(file.size for _, file in self._followers() if file.inode != self._inode)
        return unread + between + (0 if live is None else live.st_size)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _begin(self, path: Path, offset: int = 0) -> bool:
        """Read a file from an offset on. Returns False when it is not there."""
        if offset == 0 and path == self._path and path.exists():
            # First of all: files that are rotated from here on are to be read.
            self._done.update((old.inode, old.head) for _, old in self._unread_files())
        try:
            file = self._reader.open(path, offset)
        except FileNotFoundError:
            return False
        self._generation += 1
        found = os.fstat(file.fileno())
        self._inode, self._written_at = _inode(found), found.st_mtime_ns
        self._digest = _head(file, offset)
        self._may_be_replaced = False
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
        if os.path.samestat(mine, theirs):
            return False
        # By the clock of the machine it may have been written to before this process began; that clock may be set back, too.
        known, now = (mine.st_size, mine.st_mtime_ns), time.monotonic()
        if self._renamed[0] != known:
            self._renamed = known, now
        return time.time() - mine.st_mtime >= self._wait_s or now - self._renamed[1] >= self._wait_s

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
            f"{self._who}: {self._path} was truncated or removed when {self._reader.offset} bytes of it had been read, and none "
            "of its rotated files begins with them: what followed them is lost; "
            f"continues at the beginning of {later}"
        )
        self._report(error)
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

    def _old_files(self) -> list[Path]:
        """Return the rotated files, in the order in which they were written to last."""
        try:
            names = os.listdir(self._path.parent)
        except FileNotFoundError:
            names = []
        paths = [self._path.with_name(name) for name in names if name != self._path.name and self._rotated.fullmatch(name)]
        found = [
            (file.mtime_ns, path)
            for path in paths
            if path.suffix not in COMPRESSED and path.is_file() and (file := self._look(path, 0))
        ]
        return [path for _, path in sorted(found)]

    def _unread_files(self) -> Iterator[tuple[Path, _Look]]:
        """Yield the rotated files that are not done."""
        for path in self._old_files():
            file = self._look(path, _HEAD_BYTES)
            if file and (file.inode, file.head) not in self._done:
                yield path, file

    def _followers(self) -> Iterator[tuple[Path, _Look]]:
        """Yield the rotated files that were written to after the open one, and were not read."""
        assert self._reader.file is not None
        left_at = os.fstat(self._reader.file.fileno()).st_mtime_ns
        return ((path, file) for path, file in self._unread_files() if file.mtime_ns >= left_at)

    def _begin_copied(self) -> bool:
        """Begin the copy of lines that the open file had and lost before one was read. Returns False when there is none."""
        file = self._reader.file
        assert file is not None
        written_at, self._written_at = self._written_at, os.fstat(file.fileno()).st_mtime_ns
        return self._written_at != written_at and any(self._begin(path) for path, _ in self._unread_files())

    def _open_next(self) -> None:
        """Continue with the file that followed the open one, which has been read to its end and left."""
        self._done.add((self._inode, self._digest))
        if not any(self._begin(path) for path, _ in self._followers()):
            self._begin(self._path)
