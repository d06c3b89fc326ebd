"""The files of a folder that others append to: which of them are followed, and their rows."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import PurePath
from typing import Any

from topo.api.generator_reader import Yielded
from topo.api.partition_values import BadRecord, Partition, SourceRows
from topo.connectors.file_formats import MOST_ROWS, TooLongError
from topo.connectors.followed_file import COMPRESSED, FilePosition, FollowedFile
from topo.connectors.line_reader import LineReader
from topo.connectors.record_decoder import Decode
from topo.errors import ConfigError

_NAME = "{name}"
_ANY_NUMBER = r"[.-]\d[\d_.:-]*"
_SURE_NUMBER = r"(?:\.\d{1,3}|[.-](?:19|20)\d\d(?P<mark>[-_.]?)[01]\d(?P=mark)[0-3]\d[\d_.:-]*)"


def _added(base: str) -> str:
    """Return what follows a name when the file was rotated, by default: `.1`, `-20260101`, `.2026-01-01_12`.

    `worker-1` and `worker.10.0.0.1` beside `worker` are more often live files than rotated ones: behind a name without a suffix
    only a short number or a date counts.
    """
    return _ANY_NUMBER if PurePath(base).suffix else _SURE_NUMBER


class RotatedNames:
    """Distinguishes live files from rotated ones by their names.

    Args:
        pattern: of the names of rotated files, with {name} for that of the live one; None: as `_added` has them.

    Raises:
        ConfigError: the pattern does not contain {name}.
    """

    def __init__(self, pattern: str | None) -> None:
        if pattern is not None and _NAME not in pattern:
            raise ConfigError(f"rotated={pattern!r} must contain {_NAME}, which stands for the name of the file: '{_NAME}.old*'")
        self._pattern = pattern
        self._known: set[str] = set()
        """Names of live files; a name that is missing between its rotation and its next line stays known."""

    def of(self, name: str) -> re.Pattern[str]:
        """Return the names of the rotated files of a live one."""
        if self._pattern is None:
            return re.compile(re.escape(name) + _added(name))
        return re.compile(fnmatch.translate(self._pattern.replace(_NAME, glob.escape(name))))

    def know(self, names: Iterable[str]) -> None:
        """Take names for those of live files."""
        self._known.update(names)

    def live(self, names: Iterable[str]) -> list[str]:
        """Return the live files of a listing of paths."""
        listed = [name for name in names if PurePath(name).suffix not in COMPRESSED]
        bases = self._known.union(listed)
        found = [name for name in listed if not self._is_rotated(name, bases)]
        self._known.update(found)
        return found

    def partition(self, name: str) -> Partition:
        """Return the partition of a live file.

        Its task is that of all the names which a file may have before and after a rotation. A task that does not know the live
        name, since the file of that name is missing, takes a rotated file for a live one, which must not be its own.
        """
        path = PurePath(name)
        digest = blake2b(str(path.parent / self._origin(path.name)).encode(errors="surrogatepass"), digest_size=7).digest()
        return Partition(name, number=int.from_bytes(digest))

    def _is_rotated(self, name: str, bases: set[str]) -> bool:
        path = PurePath(name)
        if self._pattern is None:
            return any(str(path.with_name(base)) in bases for base in self._bases(path.name))
        others = (PurePath(base) for base in bases if base != name)
        return any(other.parent == path.parent and self.of(other.name).fullmatch(path.name) for other in others)

    @staticmethod
    def _bases(name: str) -> Iterator[str]:
        """Yield the names, all shorter, of live files that may have been rotated to a name, by default."""
        # Each place at which a number may begin: the name itself may have some.
        for match in re.finditer(r"(?!^)[.-]\d", name):
            base = name[: match.start()]
            if re.fullmatch(_added(base), name[match.start() :]):
                yield base

    def _origin(self, name: str) -> str:
        """Return a text that a live file's name and all its rotated names have in common, and other names rather not."""
        if self._pattern is None:
            while base := next(self._bases(name), ""):
                name = base
            return name
        before, _, after = self._pattern.partition(_NAME)
        if not before and (mark := re.split(r"[*?[{]", after)[0]):
            # A mark that may overlap itself could begin inside the live name: then its first character has to do.
            end = name.find(mark[0] if mark[0] in mark[1:] else mark, 1)
            return name if end < 0 else name[:end]
        if not after and not re.search(r"[*?[]", before):
            while name.startswith(before) and name != before != "":
                name = name.removeprefix(before)
            return name
        # Nothing is known that they have in common: one task reads all files of the folder.
        return ""


def line_reader(max_line: int, mark: bytes) -> LineReader:
    """Return a reader that gives a line of `max_line` bytes in one piece, with its end; a file may begin with a mark."""
    return LineReader("FilesSpout", None, "strict", max_line + len("\r\n"), mark)


def followed_rows(file: FollowedFile, reader: LineReader, decode: Decode, skip_blank: bool, max_line: int) -> Iterator[Yielded]:
    """Yield the rows of a file that grows, without an end.

    Args:
        file: at its place.
        reader: its reader, as `line_reader` returns it.
        decode: makes a row of a line.
        skip_blank: whether blank lines are passed over.
        max_line: bytes of a line; a longer one is given up in pieces.
    """
    while True:
        rows: list[tuple[Any, ...]] = []
        places: list[FilePosition] = []
        bad: BadRecord | None = None
        is_at_end = False
        while bad is None and not is_at_end and len(rows) < MOST_ROWS:
            line = file.next_line()
            if line is None:
                is_at_end = True
            elif reader.was_inside_line or len(line) > max_line:
                bad = BadRecord(line, file.position, TooLongError(max_line))
            elif not skip_blank or line.strip():
                try:
                    rows.append(decode(line))
                except Exception as error:
                    bad = BadRecord(line, file.position, error)
                else:
                    places.append(file.position)
        if rows:
            yield SourceRows(rows, places)
        if bad is not None:
            yield bad
        if is_at_end:
            yield None
        file.paused()
