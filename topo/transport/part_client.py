"""Parts of checkpoints in a folder that only the master reaches: the workers' end of `master_process/part_server.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import zmq

from topo.errors import FrameError, TopoEnvironmentError
from topo.storage.part_service import (
    ANSWER_S,
    LONGEST_MESSAGE,
    LONGEST_PIECE,
    Bytes,
    Get,
    PartAnswer,
    PartRequest,
    Put,
    Refused,
    decode_answer,
    encode,
)
from topo.transport.security import KeyPair
from topo.transport.zap import Socket

Ask = Callable[[PartRequest], PartAnswer]


class MasterFiles:
    """Parts in a folder that only the master reaches (`PartFiles`). For any thread; each call opens its own connection.

    Args:
        folder: as the master names it.
        endpoint: of its `PartServer`.
        master_key: its public key.
        keys: this worker's own.
        answer_s: how long it may take to answer; a storage that is silent for longer has failed.
    """

    def __init__(self, folder: str, endpoint: str, master_key: str, keys: KeyPair, answer_s: float = ANSWER_S) -> None:
        self.url = folder
        self._endpoint = endpoint
        self._master_key = master_key
        self._keys = keys
        self._answer_s = answer_s

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a part; an existing one is refused."""
        with self._connected() as ask:
            start, held = 0, bytearray()
            for chunk in chunks:
                for at in range(0, len(chunk), LONGEST_PIECE):
                    piece = memoryview(chunk)[at : at + LONGEST_PIECE]
                    if len(held) + len(piece) > LONGEST_PIECE:
                        ask(Put(self.url, name, start, bytes(held), False))
                        start += len(held)
                        held.clear()
                    held += piece
            ask(Put(self.url, name, start, bytes(held), True))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a part, fewer where it ends. Raises FileNotFoundError when it is not there."""
        found = bytearray()
        with self._connected() as ask:
            while True:
                wanted = LONGEST_PIECE if length is None else min(LONGEST_PIECE, length - len(found))
                answer = ask(Get(self.url, name, start + len(found), wanted))
                if not isinstance(answer, Bytes):
                    raise FileNotFoundError(name)
                found += answer.data
                if len(answer.data) < wanted or len(found) == length:
                    return bytes(found)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Ask]:
        context: zmq.Context[Socket] = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.curve_serverkey = self._master_key.encode()
        socket.curve_publickey = self._keys.public.encode()
        socket.curve_secretkey = self._keys.secret.encode()
        socket.maxmsgsize = LONGEST_MESSAGE
        try:
            socket.connect(self._endpoint)
            yield lambda request: self._ask(socket, request)
        except (zmq.ZMQError, FrameError) as error:
            raise TopoEnvironmentError(f"the master at {self._endpoint} cannot be asked for parts: {error}") from error
        finally:
            context.destroy(linger=0)

    def _ask(self, socket: Socket, request: PartRequest) -> PartAnswer:
        socket.send(encode(request))
        if not socket.poll(int(self._answer_s * 1000)):
            raise TopoEnvironmentError(f"the master has not answered for {self._answer_s:g} s about {request.name}")
        answer = decode_answer(socket.recv())
        if isinstance(answer, Refused):
            raise TopoEnvironmentError(answer.why)
        return answer
