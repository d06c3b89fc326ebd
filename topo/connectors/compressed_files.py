"""Compressed files: which are unpacked, by their names, and their contents."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO, cast

from topo.errors import ConfigError, TopoEnvironmentError

_BLOCK = 1 << 16
_UNREAD = (".zst", ".zstd", ".lz4", ".zip", ".7z", ".tgz", ".tbz2", ".txz")
"""Ends of the names of compressed files that nothing here unpacks."""


class UnpackedFile(io.BufferedReader):
    """The contents of a file of one compressed stream or of several, with zeros between them.

    For the standard library the file of bz2 or xz ends where bytes begin no further stream: it is silent about a damaged one.
    """

    def __init__(self, make: Callable[[], Any], packed: BinaryIO) -> None:
        super().__init__(_UnpackedBytes(make, packed))


class _UnpackedBytes(io.RawIOBase):
    """Unpacks as much as is asked for.

    Args:
        make: returns what unpacks one stream.
        packed: the file, which stays open.
    """

    def __init__(self, make: Callable[[], Any], packed: BinaryIO) -> None:
        self._make, self._packed = make, packed
        self._stream = make()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _next(self, most: int) -> bytes:
        data = b""
        while not data:
            if self._stream.eof:
                packed = self._stream.unused_data.lstrip(b"\0")
                while not packed:
                    packed = self._packed.read(_BLOCK)
                    if not packed:
                        return b""
                    packed = packed.lstrip(b"\0")
                self._stream = self._make()
            else:
                packed = self._packed.read(_BLOCK) if self._stream.needs_input else b""
                if not packed and self._stream.needs_input:
                    raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            data = self._stream.decompress(packed, most)
        return data


_COMPRESSIONS: Mapping[str, Callable[[BinaryIO], Any]] = {
    ".gz": partial(gzip.GzipFile, None, "rb", 9),
    ".bz2": partial(UnpackedFile, bz2.BZ2Decompressor),
    ".xz": partial(UnpackedFile, lzma.LZMADecompressor),
}
_NAMES = "those that end with .gz, .bz2 and .xz"


def is_compressed(name: str) -> bool:
    """Whether a file of that name is unpacked."""
    return name.lower().endswith(tuple(_COMPRESSIONS))


def unpacked_file(file: BinaryIO, name: str) -> BinaryIO:
    """Return the contents of a file, unpacked if its name ends as that of a compressed one.

    Raises:
        TopoEnvironmentError: nothing unpacks it.
    """
    if name.lower().endswith(_UNREAD):
        raise TopoEnvironmentError(f"file {name!r} is compressed, and is not unpacked: of compressed files {_NAMES} are read")
    opener = next((opener for suffix, opener in _COMPRESSIONS.items() if name.lower().endswith(suffix)), None)
    return file if opener is None else cast(BinaryIO, opener(file))


def check_is_text(who: str, name: str | os.PathLike[str]) -> None:
    """Check the name, or pattern, of files that are read as they are.

    Raises:
        ConfigError: they are compressed.
    """
    shown = os.fspath(name)
    if shown.lower().endswith((*_COMPRESSIONS, *_UNREAD)):
        raise ConfigError(
            f"{who} reads text as it is, and {shown!r} is compressed: FilesSpout(folder, pattern=...) reads compressed files, "
            f"{_NAMES}"
        )
