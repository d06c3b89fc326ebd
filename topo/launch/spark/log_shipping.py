"""Workers' logs on their way from the host of an agent to the topology's folder: read as they grow, appended within bounds."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import BinaryIO

from topo.observability.logs import KEPT_LOGS, MAX_LOG_BYTES, newer_log

_NAME = re.compile(r"worker-(\d+)\.(log|out)")
_AT_ONCE = 256 * 1024
"""Bytes of one file in one turn."""
_MOST_BEHIND = 8 * 1024 * 1024
_KEPT_BEHIND = 1024 * 1024


class LogTails:
    """Reads new lines of the files `worker-N.log` and `worker-N.out` of a folder.

    A file that grows faster than it can be sent is not sent whole: beyond a limit the older part is left out, and a line states
    how much.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tails: dict[str, _Tail] = {}

    def read(self, running: Container[int] | None = None) -> Iterator[tuple[str, bytes]]:
        """Return (file name, whole lines) of each file that has grown.

        Args:
            running: workers that may yet complete their last line, that of others ends here; None: all.
        """
        for path in sorted(self._folder.iterdir()):
            if name := _NAME.fullmatch(path.name):
                tail = self._tails.get(path.name)
                if tail is None:
                    tail = self._tails[path.name] = _Tail(path)
                if data := tail.read(running is None or int(name[1]) in running):
                    yield path.name, data


class _Tail:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def read(self, is_growing: bool) -> bytes:
        with contextlib.suppress(OSError):
            if self._file is None:
                self._file = self._path.open("rb")
            skipped = self._skip(os.fstat(self._file.fileno()).st_size)
            if lines := self._lines(is_growing):
                return skipped + lines
            newer, is_next = newer_log(self._path, self._file.fileno())
            if newer is not None:
                self._file.close()
                self._file = newer.open("rb")
                return skipped + (b"" if is_next else _left_out(self._path.name, "whole files")) + self._lines(is_growing)
            return skipped
        return b""

    def _skip(self, size: int) -> bytes:
        assert self._file is not None
        begin = self._file.tell()
        if size - begin <= _MOST_BEHIND:
            return b""
        self._file.seek(size - _KEPT_BEHIND)
        self._file.readline()
        return _left_out(self._path.name, f"{self._file.tell() - begin:,} bytes")

    def _lines(self, is_growing: bool) -> bytes:
        """Return whole lines; a line longer than one read is cut, and the last of a file that no longer grows is ended."""
        assert self._file is not None
        begin = self._file.tell()
        data = self._file.read(_AT_ONCE)
        if not is_growing and 0 < len(data) < _AT_ONCE:
            return data.removesuffix(b"\n") + b"\n"
        end = len(data) if len(data) == _AT_ONCE and b"\n" not in data else data.rfind(b"\n") + 1
        self._file.seek(begin + end)
        return data[:end]


def _left_out(name: str, what: str) -> bytes:
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())}.000Z"
    message = f"{what} were left out here: the worker logs faster than its log can be sent"
    if name.endswith(".out"):
        return f"{message}\n".encode()
    row = {"time": moment, "level": "WARNING", "logger": "topo.agent", "worker": int(name[7:-4]), "message": message}
    return json.dumps(row).encode() + b"\n"


class LogStore:
    """Appends what agents send to files of the topology's folder, rotated as a worker's own are."""

    def __init__(self, folder: Path, max_bytes: int = MAX_LOG_BYTES, kept: int = KEPT_LOGS) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._kept = kept

    def append(self, name: str, data: bytes) -> None:
        """Append to a file. Data for other names, or without room on the disk, is dropped."""
        if not _NAME.fullmatch(name):
            return
        path = self._folder / name
        with contextlib.suppress(OSError):
            if path.exists() and path.stat().st_size + len(data) > self._max_bytes:
                for number in range(self._kept - 1, 0, -1):
                    with contextlib.suppress(FileNotFoundError):
                        path.with_name(f"{name}.{number}").replace(path.with_name(f"{name}.{number + 1}"))
                path.replace(path.with_name(f"{name}.1"))
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab", buffering=0) as file:
                file.write(data)
