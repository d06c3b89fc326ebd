"""Parts of checkpoints over a connection: requests of workers that share no disk with the master, and their execution.

A part is written in pieces, in order, each answered before the next; it exists when the last one is answered. An existing
part is never replaced, so that leftovers of an earlier life of a worker cannot spoil a part that a manifest names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from topo.errors import FrameError
from topo.storage.checkpoint_store import PART
from topo.storage.files import NewFile
from topo.wire.decoding import decode_typed

LONGEST_PIECE = 1024 * 1024
"""Bytes of a part in one message."""
LONGEST_MESSAGE = LONGEST_PIECE + 16 * 1024
_LONGEST_PART = 1 << 62
ANSWER_S = 15.0
"""How long a worker waits for an answer: the master may have to bring another one's part onto a slow disk first."""
_QUIET_S = 2 * ANSWER_S
"""A write without progress for this long is abandoned."""
_WHAT = "a message about a part"


class PartMessage(msgspec.Struct, frozen=True, array_like=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages."""


class Put(PartMessage, frozen=True):
    """A piece of a part; `start` is the length of those before it. Answered by Written."""

    folder: str
    name: str
    start: int
    data: bytes
    is_last: bool


class Get(PartMessage, frozen=True):
    """Some bytes of a part are wanted. Answered by Bytes, or by Missing."""

    folder: str
    name: str
    start: int
    length: int


class Written(PartMessage, frozen=True):
    """The piece is taken; if it was the last one, the part is durable."""


class Bytes(PartMessage, frozen=True):
    """The requested bytes; fewer where the part ends."""

    data: bytes


class Missing(PartMessage, frozen=True):
    """There is no such part."""


class Refused(PartMessage, frozen=True):
    """It cannot be done. Nothing is left of the part that was being written."""

    why: str


PartRequest = Put | Get
PartAnswer = Written | Bytes | Missing | Refused

encode = msgspec.msgpack.Encoder().encode
_request: msgspec.msgpack.Decoder[PartRequest] = msgspec.msgpack.Decoder(PartRequest)
_answer: msgspec.msgpack.Decoder[PartAnswer] = msgspec.msgpack.Decoder(PartAnswer)


def decode_answer(data: bytes) -> PartAnswer:
    """Return the master's answer. Raises FrameError on any other message."""
    return decode_typed(_answer, data, _WHAT)


@dataclass(slots=True)
class _Write:
    path: Path
    file: NewFile
    touched_at: float


class PartService:
    """Does what workers ask, within limits. One thread calls it.

    Args:
        folders: in which it reads and writes parts, and nothing else.
        most_writes: how many parts may be under way.
    """

    def __init__(self, folders: Iterable[str], most_writes: int) -> None:
        self._folders = frozenset(folders)
        self._most_writes = most_writes
        self._writes: dict[bytes, _Write] = {}

    def answer(self, connection: bytes, data: bytes, now: float) -> PartAnswer:
        """Do what a message on a connection asks for.

        Args:
            now: monotonic seconds.
        """
        try:
            request = decode_typed(_request, data, _WHAT)
            path = self._path(request)
            if isinstance(request, Get):
                return self._read(path, request)
            return self._write(connection, path, request, now)
        except FrameError as error:
            why = str(error)
        except OSError as error:
            why = f"the master: {error}"
        self._drop(connection)
        return Refused(why)

    def sweep(self, now: float) -> None:
        """Forget writes without progress: their worker is gone."""
        for connection, write in list(self._writes.items()):
            if now - write.touched_at > _QUIET_S:
                self._drop(connection)

    def close(self) -> None:
        """Leave nothing that is half written."""
        for connection in list(self._writes):
            self._drop(connection)

    def _path(self, request: PartRequest) -> Path:
        if request.folder not in self._folders or not PART.fullmatch(request.name):
            raise FrameError(f"{request.name[:100]!r} in {request.folder[:200]!r} is no part that the master has")
        return Path(request.folder, request.name)

    def _read(self, path: Path, request: Get) -> Bytes | Missing:
        if not 0 <= request.start < _LONGEST_PART or not 0 <= request.length <= LONGEST_PIECE:
            raise FrameError(f"{request.length} bytes from {request.start} are too many for one request")
        try:
            with path.open("rb") as file:
                file.seek(request.start)
                return Bytes(file.read(request.length))
        except FileNotFoundError:
            return Missing()

    def _write(self, connection: bytes, path: Path, request: Put, now: float) -> Written:
        write = self._writes.get(connection)
        begun, length = (path, 0) if write is None else (write.path, write.file.length)
        if path != begun or request.start != length or len(request.data) > LONGEST_PIECE:
            raise FrameError(f"{len(request.data)} bytes of {request.name} at {request.start} do not follow {length} of {begun}")
        if path.exists():
            raise FrameError(f"{request.name} exists already")
        if write is None:
            if len(self._writes) >= self._most_writes:
                raise FrameError(f"{self._most_writes} parts are being written already")
            write = self._writes[connection] = _Write(path, NewFile(path), now)
        write.file.write(request.data)
        write.touched_at = now
        if request.is_last:
            write.file.keep()
            del self._writes[connection]
        return Written()

    def _drop(self, connection: bytes) -> None:
        if (write := self._writes.pop(connection, None)) is not None:
            write.file.discard()
