"""Reads a file as lines of text, each with the byte offset of its end. Shared by the spouts that read files."""

from __future__ import annotations

import codecs
import os
from pathlib import Path
from typing import Any, BinaryIO

from topo.config import parse_size
from topo.errors import ConfigError


def mark_of(encoding: str | None) -> bytes:
    """Return the byte order mark that spreadsheets write in front of UTF-8; of other encodings none."""
    return codecs.BOM_UTF8 if encoding is not None and codecs.lookup(encoding).name == "utf-8" else b""


class LineReader:
    """Reads lines of one file after another; a line longer than `max_line` comes in pieces.

    Args:
        kind: the class that the user has written, for errors.
        encoding: one in which a newline is the one byte 10; None: lines are bytes.
        errors: what to do with bytes that are no text, as in `open`.
        max_line: bytes of a piece at most.
        mark: bytes with which a file may begin, and which are no part of its first line; None: that of `encoding`.

    Attributes:
        file: the open file; None before `open` and after `close`.
        offset: bytes in front of the next piece.
        is_inside_line: whether the next piece continues a line.
        was_inside_line: whether the last piece that was taken has continued one.

    Raises:
        ConfigError: an argument cannot be used.
    """

    def __init__(self, kind: str, encoding: str | None, errors: str, max_line: str | int, mark: bytes | None = None) -> None:
        try:
            line_end = b"\n" if encoding is None else "\n".encode(encoding)
            codecs.lookup_error(errors)
        except LookupError as error:
            raise ConfigError(f"{kind}: {error}; give encoding= and errors= as open takes them") from error
        if line_end != b"\n":
            raise ConfigError(f"{kind} cannot find the lines of {encoding!r} text; have the file written in UTF-8")
        self._encoding = encoding
        self._mark = mark_of(encoding) if mark is None else mark
        self._errors = errors
        self.max_line = parse_size(max_line)
        if self.max_line < 1:
            raise ConfigError(f"max_line={max_line!r} must be at least one byte")
        self.file: BinaryIO | None = None
        self.offset = 0
        self.is_inside_line = self.was_inside_line = False

    def open(self, path: Path, offset: int = 0) -> BinaryIO:
        """Open a file at an offset, and close the one before. Raises OSError, and then keeps the one before."""
        file = path.open("rb")
        self.close()
        self.file, self.offset = file, offset
        self.is_inside_line = offset > 0 and os.pread(file.fileno(), 1, offset - 1) != b"\n"
        file.seek(offset)
        return file

    def skip_line(self) -> None:
        """Go behind the end of the line that the offset is in."""
        assert self.file is not None
        while self.is_inside_line and (piece := self.file.readline(self.max_line)):
            self.offset += len(piece)
            self.is_inside_line = not piece.endswith(b"\n")

    def take(self, piece: bytes) -> Any:
        """Go behind a piece that was read at the offset, and return its text; None for the bare end of a line, or a bare mark.

        Without an encoding it is bytes.

        Raises:
            UnicodeDecodeError: the bytes are no text, with `errors="strict"`; the offset stays in front of them.
        """
        self.was_inside_line = self.is_inside_line
        has_end = piece.endswith(b"\n")
        if not has_end and len(piece) == self.max_line and self._encoding is not None:
            piece = self._whole_characters(piece, self._encoding)
        data = piece[:-1].removesuffix(b"\r") if has_end else piece
        if self.offset == 0:
            data = data.removeprefix(self._mark)
        try:
            if not data and (self.is_inside_line or not has_end):
                text: Any = None
            else:
                text = data if self._encoding is None else data.decode(self._encoding, self._errors)
        except UnicodeDecodeError:
            assert self.file is not None
            self.file.seek(self.offset)
            raise
        self.offset += len(piece)
        self.is_inside_line = not has_end
        return text

    def _whole_characters(self, piece: bytes, encoding: str) -> bytes:
        """Return a piece without a character at its end that continues in the next one."""
        decoder = codecs.getincrementaldecoder(encoding)("ignore")
        decoder.decode(piece)
        begun = decoder.getstate()[0]
        if 0 < len(begun) < len(piece):
            piece = piece[: -len(begun)]
            assert self.file is not None
            self.file.seek(self.offset + len(piece))
        return piece

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self.file is not None:
            self.file.close()
            self.file = None
