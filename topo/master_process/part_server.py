"""Parts of checkpoints over TCP, for workers that share no disk with the master: its end, and theirs."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import zmq

from topo.errors import EnvironmentFault, FrameError
from topo.master_process.control_link import ControlLink
from topo.storage.files import PartFiles, open_files
from topo.storage.part_service import (
    ANSWER_S,
    LONGEST_MESSAGE,
    LONGEST_PIECE,
    Bytes,
    Get,
    PartAnswer,
    PartRequest,
    PartService,
    Put,
    Refused,
    decode_answer,
    encode,
)
from topo.transport.security import KeyPair
from topo.transport.zap import Socket
from topo.worker.spec import WorkerSpec

_LOG = logging.getLogger(__name__)

_SWEEP_S = 1.0
_QUEUED = 4
"""Messages that wait on a connection; a worker has one under way."""

Ask = Callable[[PartRequest], PartAnswer]


class PartServer:
    """Writes and reads parts for the workers of a link, in a thread of its own.

    Args:
        link: whose keys and allow-list it goes by. It is closed after this.
        host: address to listen on.
        desk: what performs.

    Attributes:
        endpoint: for workers.
    """

    def __init__(self, link: ControlLink, host: str, desk: PartService) -> None:
        self._desk = desk
        self._socket, self.endpoint = link.listener(host, LONGEST_MESSAGE, _QUEUED)
        self._bell, self._ring = os.pipe()
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; what is half written is not."""
        os.write(self._ring, b"\0")
        self._thread.join()
        self._socket.disable_monitor()
        self._socket.close(linger=0)
        self._desk.close()
        os.close(self._bell)
        os.close(self._ring)

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._bell, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(_SWEEP_S * 1000)))
            if self._bell in ready:
                return
            if self._socket in ready:
                self._serve()
            self._desk.sweep(time.monotonic())

    def _serve(self) -> None:
        connection, *parts = self._socket.recv_multipart()
        try:
            answer = self._desk.answer(connection, b"".join(parts), time.monotonic())
        except Exception:  # the others are to be served on
            _LOG.exception("a part could not be served")
            answer = Refused("the master failed")
        if isinstance(answer, Refused):
            _LOG.warning("refused: %s", answer.why)
        # Dropped when it is gone, or does not read its answers.
        self._socket.send_multipart([connection, encode(answer)], zmq.NOBLOCK)


class MasterFiles:
    """Parts in a folder that only the master reaches (`PartFiles`). For any thread; each call has a connection of its own.

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
        """Write a part; one that is there already is refused."""
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
            raise EnvironmentFault(f"the master at {self._endpoint} cannot be asked for parts: {error}") from error
        finally:
            context.destroy(linger=0)

    def _ask(self, socket: Socket, request: PartRequest) -> PartAnswer:
        socket.send(encode(request))
        if not socket.poll(int(self._answer_s * 1000)):
            raise EnvironmentFault(f"the master has not answered for {self._answer_s:g} s about {request.name}")
        answer = decode_answer(socket.recv())
        if isinstance(answer, Refused):
            raise EnvironmentFault(answer.why)
        return answer


def files_for(spec: WorkerSpec, url: str) -> PartFiles:
    """Return the files at a path or URL as a worker reaches them. Raises EnvironmentFault when it cannot."""
    if url not in spec.served:
        return open_files(url)
    return MasterFiles(url, spec.parts_endpoint, spec.master_key, KeyPair(spec.public_key, spec.secret_key))
