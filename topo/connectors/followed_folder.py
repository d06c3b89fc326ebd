"""The files of a folder that others append to: which of them are followed, and their rows."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any

from topo.api.generator_reader import Yielded
from topo.api.partition_values import BadRecord, SourceRows
from topo.connectors.file_formats import MOST_ROWS, Decode, TooLongError
from topo.connectors.followed_file import COMPRESSED, FilePosition, FollowedFile
from topo.connectors.line_reader import LineReader
from topo.errors import ConfigError

_NAME = "{name}"
_NUMBERED = r"[.-]\d[\d_.:-]*"
"""What follows a file's name when it was rotated, by default: `.1`, `-20260101`, `.2026-01-01_12`."""


class RotatedNames:
    """Distinguishes live files from rotated ones by their names.

    Args:
        pattern: of the names of rotated files, with {name} for that of the live one; None: its name, "." or "-", and a number or
            a date.

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
            return re.compile(re.escape(name) + _NUMBERED)
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

    def _is_rotated(self, name: str, bases: set[str]) -> bool:
        path = PurePath(name)
        if self._pattern is None:
            # Each place at which a number may begin: the name itself may have some.
            starts = [match.start() for match in re.finditer(r"[.-]\d", path.name)]
            return any(
                str(path.with_name(path.name[:start])) in bases and re.fullmatch(_NUMBERED, path.name[start:])
                for start in starts
                if start > 0
            )
        others = (PurePath(base) for base in bases if base != name)
        return any(other.parent == path.parent and self.of(other.name).fullmatch(path.name) for other in others)


def followed_rows(file: FollowedFile, reader: LineReader, decode: Decode, skip_blank: bool) -> Iterator[Yielded]:
    """Yield the rows of a file that grows, without an end.

    Args:
        file: at its place.
        reader: its reader, which gives bytes.
        decode: makes a row of a line.
        skip_blank: whether blank lines are passed over.
    """
    while True:
        rows: list[tuple[Any, ...]] = []
        places: list[FilePosition] = []
        bad: BadRecord | None = None
        is_at_end = False
        while bad is None and not is_at_end and len(rows) < MOST_ROWS:
            is_piece = reader.is_inside_line
            line = file.next_line()
            if line is None:
                is_at_end = True
            elif is_piece or len(line) >= reader.max_line:
                bad = BadRecord(line, file.position, TooLongError(reader.max_line))
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
