"""Chunks of rows from a program outside of the topology to a task, and the confirmation when they are done.

The program's side may be in many processes, which come and go. A chunk has an id, which stands for its content:

    program -> task    CHUNK id body      here are rows
                       ASK id             what of these?
    task -> program    WORKING id         they are here; unasked, too, when they come
                       UNKNOWN id         they are not: send them (again)
                       DONE id            every row is through
                       REFUSED id text    they cannot be used, and never will be

Nothing is remembered on the task's side beyond its process: chunks not done when it died are UNKNOWN to its successor. So a
chunk is sent until it is DONE; the rows of a chunk that is asked for again after it is done are not taken twice.

Always encrypted, on loopback as well, and open to the holder of one key alone, which is in the address.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import zmq
from msgspec import Struct

from topo.errors import TopoEnvironmentError, UserError
from topo.transport.bell import Bell
from topo.transport.security import AllowList, KeyPair, check_listener
from topo.transport.zap import Socket, ZapHandler, endpoint_of

CHUNK, ASK = b"chunk", b"ask"
DONE, WORKING, UNKNOWN, REFUSED = b"done", b"working", b"unknown", b"refused"
_MAX_FRAME_BYTES = 64 << 20
MAX_CHUNK_BYTES = _MAX_FRAME_BYTES - 1024
"""Encryption makes a frame of it that is a little longer."""
_MOST_WAITING, _MOST_BYTES = 256, _MAX_FRAME_BYTES
"""Chunks and their bytes that may wait for the task, one of any length at least; more are sent once more when there is room."""
_REMEMBERED = 20_000
"""Chunks whose end is remembered, for those who ask again: far more than all programs together have on the way."""
_ASK_S, _RETRY_S = 1.0, 0.02
_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 1000, 4000


class FeedRefused(UserError):
    """The topology cannot use a chunk; the message gives the reason."""


class FeedLost(TopoEnvironmentError):
    """No task has answered for a chunk."""


class FeedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task takes chunks, and the keys to talk to it. Every holder of the address may send.

    Attributes:
        tasks: how many there are of the task's component.
    """

    endpoint: str
    server_public: str
    server_secret: str
    client_public: str
    client_secret: str
    tasks: int = 1

    def for_clients(self) -> FeedAddress:
        """Return it without what only the task needs."""
        return msgspec.structs.replace(self, server_secret="")


def new_feed_address(host: str, tasks: int) -> FeedAddress:
    """Draw keys for a task that will listen on any port of `host`."""
    (server, server_secret), (client, client_secret) = zmq.curve_keypair(), zmq.curve_keypair()
    return FeedAddress(
        endpoint=f"tcp://{host}:*",
        server_public=server.decode(),
        server_secret=server_secret.decode(),
        client_public=client.decode(),
        client_secret=client_secret.decode(),
        tasks=tasks,
    )


class Chunk(Struct, frozen=True):
    """The chunk sent."""

    id: bytes
    body: bytes


class FeedListener:
    """The task's side. A separate thread answers, so that programs get answers while the task is busy or held up.

    Attributes:
        address: as given, with the port.
    """

    def __init__(self, address: FeedAddress) -> None:
        """Listen.

        Args:
            address: its port may be `*`. A port that is taken by now is replaced by another.

        Raises:
            ConfigError: the host is a wildcard.
            TopoEnvironmentError: the host is not one of this machine's.
        """
        host, _, port = address.endpoint.removeprefix("tcp://").rpartition(":")
        allowed = AllowList([address.client_public])
        check_listener(host, KeyPair(address.server_public, address.server_secret), allowed)
        self._context: zmq.Context[Socket] = zmq.Context()
        self._zap = ZapHandler(self._context, allowed)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.maxmsgsize = _MAX_FRAME_BYTES
        self._socket.sndhwm = 0
        self._socket.heartbeat_ivl, self._socket.heartbeat_timeout = _HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS
        self._zap.guard(self._socket, address.server_secret)
        try:
            self._bind(host, port)
        except zmq.ZMQError as error:
            self._close_sockets()
            raise TopoEnvironmentError(f"cannot listen on {host}: {error}") from error
        endpoint = endpoint_of(self._socket)
        self.address = msgspec.structs.replace(address, endpoint=endpoint)
        self._lock = threading.Lock()
        self._known: dict[bytes, tuple[bytes, bytes]] = {}
        self._peers: dict[bytes, bytes] = {}
        self._ended: deque[bytes] = deque()
        self._waiting: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._dropped: deque[tuple[bytes, bytes, int]] = deque()
        """Sender, id and length of chunks for which there was no room: these are WORKING until there is."""
        self._outgoing: deque[bytes] = deque()
        self._is_closing = False
        self._bell = Bell()
        self._thread = threading.Thread(target=self._run, name="topo-feed", daemon=True)
        self._thread.start()

    def _bind(self, host: str, port: str) -> None:
        try:
            self._socket.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError:
            if port == "*":
                raise
            self._socket.bind(f"tcp://{host}:*")

    def take(self) -> Chunk | None:
        """Return the next chunk, or None when there is none yet."""
        try:
            chunk = self._waiting.get_nowait()
        except queue.Empty:
            return None
        with self._lock:
            self._waiting_bytes -= len(chunk.body)
        if self._dropped:
            self._bell.ring()
        return chunk

    def done(self, chunk: bytes) -> None:
        """Say that every row of a chunk is through."""
        self._end(chunk, DONE, b"")

    def refuse(self, chunk: bytes, why: str) -> None:
        """Say that a chunk cannot be used."""
        self._end(chunk, REFUSED, why.encode())

    def _end(self, chunk: bytes, how: bytes, text: bytes) -> None:
        with self._lock:
            self._known[chunk] = (how, text)
            self._ended.append(chunk)
            if len(self._ended) > _REMEMBERED:
                self._known.pop(self._ended.popleft(), None)
        self._outgoing.append(chunk)
        self._bell.ring()

    def close(self) -> None:
        self._is_closing = True
        self._bell.ring()
        self._thread.join()
        self._close_sockets()
        self._bell.close()

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._socket.close(linger=0)
        self._zap.close()
        self._context.term()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._bell.descriptor, zmq.POLLIN)
        poller.register(self._socket, zmq.POLLIN)
        while not self._is_closing:
            for source, _ in poller.poll():
                if source is self._socket:
                    self._read()
                else:
                    self._bell.clear()
            self._want_dropped()
            while self._outgoing:
                chunk = self._outgoing.popleft()
                if (peer := self._peers.pop(chunk, None)) is not None:
                    self._answer(peer, chunk)

    def _read(self) -> None:
        while True:
            try:
                peer, kind, chunk, *rest = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except ValueError:
                continue
            if kind == CHUNK and len(rest) == 1:
                self._take_in(peer, chunk, rest[0])
            self._answer(peer, chunk)

    def _take_in(self, peer: bytes, chunk: bytes, body: bytes) -> None:
        with self._lock:
            if chunk in self._known:
                return
            self._known[chunk] = (WORKING, b"")
            has_room = self._waiting.qsize() < _MOST_WAITING and self._waiting_bytes + len(body) <= _MOST_BYTES
            if has_room:
                self._waiting_bytes += len(body)
                self._waiting.put(Chunk(chunk, body))
            else:
                self._dropped.append((peer, chunk, len(body)))

    def _want_dropped(self) -> None:
        """Have the senders of dropped chunks send as many of them as there is room for."""
        with self._lock:
            chunks, room = _MOST_WAITING - self._waiting.qsize(), _MOST_BYTES - self._waiting_bytes
        while self._dropped and chunks > 0 and self._dropped[0][2] <= room:
            peer, chunk, length = self._dropped.popleft()
            chunks, room = chunks - 1, room - length
            with self._lock:
                del self._known[chunk]
            self._answer(peer, chunk)

    def _answer(self, peer: bytes, chunk: bytes) -> None:
        with self._lock:
            how, text = self._known.get(chunk, (UNKNOWN, b""))
        if how == WORKING:
            self._peers[chunk] = peer
        # The socket drops what goes to a peer that is gone: it will ask.
        self._socket.send_multipart([peer, how, chunk, text], zmq.NOBLOCK)


_NO_CONNECTION = (
    "has no connection to it: can it reach that address, which host= of the FeedSpout gives, and is the key still that of the "
    "topology? `topo logs` shows refused keys"
)


@dataclass(slots=True)
class _Sent:
    task: int
    body: bytes
    is_on_its_way: bool = False


class FeedSender:
    """A program's side: sends chunks, at most a window of them at a time, until they are done. For one thread."""

    def __init__(self, addresses: Sequence[FeedAddress], window: int, patience_s: float) -> None:
        """Connect to the tasks.

        Args:
            addresses: of the tasks, which get the chunks in turn.
            window: chunks on the way.
            patience_s: how long a task that has chunks may be silent.
        """
        self._window, self._patience_s = window, patience_s
        # A task that answers is not silent however short the patience.
        self._ask_s = min(_ASK_S, patience_s / 4)
        self._context: zmq.Context[Socket] = zmq.Context()
        self._sockets = [self._connect(address) for address in addresses]
        self._heard = [time.monotonic()] * len(addresses)
        self._endpoints = [address.endpoint for address in addresses]
        self._poller = zmq.Poller()
        for socket in self._sockets:
            self._poller.register(socket, zmq.POLLIN)
        self._pending: dict[bytes, _Sent] = {}
        self._asked = time.monotonic()
        self._turn = 0

    def _connect(self, address: FeedAddress) -> Socket:
        socket = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.maxmsgsize = _MAX_FRAME_BYTES
        # Frames sent without a connection would arrive late, and twice: after a restart the task asks for the chunk.
        socket.immediate = 1
        socket.heartbeat_ivl, socket.heartbeat_timeout = _HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS
        socket.curve_serverkey = address.server_public.encode()
        socket.curve_publickey = address.client_public.encode()
        socket.curve_secretkey = address.client_secret.encode()
        socket.connect(address.endpoint)
        return socket

    def start_with(self, task: int) -> None:
        """Give the next chunk to that task, counted from 0 and round again."""
        self._turn = task

    def send(self, chunk: bytes, body: bytes) -> None:
        """Send a chunk; waits until there is room in the window.

        Raises:
            FeedLost: a task was silent for too long.
            FeedRefused: a task cannot use a chunk, or this one is longer than one may be.
        """
        if len(body) > MAX_CHUNK_BYTES:
            raise FeedRefused(f"a row of {len(body):,} bytes is too long: at most {MAX_CHUNK_BYTES:,} go to a topology at once")
        while len(self._pending) >= self._window:
            self._step()
        task = self._turn % len(self._sockets)
        self._turn += 1
        if not any(sent.task == task for sent in self._pending.values()):
            self._heard[task] = time.monotonic()
        self._pending[chunk] = _Sent(task, body)
        self._push(chunk)

    def wait_done(self) -> None:
        """Wait until every chunk is done. Raises as `send`."""
        while self._pending:
            self._step()

    def close(self) -> None:
        """Disconnect; open chunks may still be processed."""
        for socket in self._sockets:
            socket.close(linger=0)
        self._context.term()

    def _push(self, chunk: bytes) -> None:
        sent = self._pending[chunk]
        with suppress(zmq.Again):
            self._sockets[sent.task].send_multipart([CHUNK, chunk, sent.body], zmq.NOBLOCK)
            sent.is_on_its_way = True

    def _step(self) -> None:
        """Wait for an answer, and act on it or on the silence."""
        for chunk, sent in self._pending.items():
            if not sent.is_on_its_way:
                self._push(chunk)
        is_waiting = any(not sent.is_on_its_way for sent in self._pending.values())
        wait_s = _RETRY_S if is_waiting else max(0.0, self._asked + self._ask_s - time.monotonic())
        for socket, _ in self._poller.poll(int(wait_s * 1000) + 1):
            self._read(self._sockets.index(socket))
        now = time.monotonic()
        if now >= self._asked + self._ask_s:
            self._asked = now
            self._ask(now)

    def _ask(self, now: float) -> None:
        for chunk, sent in self._pending.items():
            if now - self._heard[sent.task] > self._patience_s:
                lost = f"{self._endpoints[sent.task]} was silent for {self._patience_s:g} s; its rows are not confirmed"
                raise FeedLost(lost if sent.is_on_its_way else f"{lost}. {os.uname().nodename} {_NO_CONNECTION}")
            if sent.is_on_its_way:
                try:
                    self._sockets[sent.task].send_multipart([ASK, chunk], zmq.NOBLOCK)
                except zmq.Again:
                    sent.is_on_its_way = False

    def _read(self, task: int) -> None:
        while True:
            try:
                how, chunk, text = self._sockets[task].recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._heard[task] = time.monotonic()
            sent = self._pending.get(chunk)
            if sent is None:
                continue
            if how == DONE:
                del self._pending[chunk]
            elif how == REFUSED:
                raise FeedRefused(text.decode())
            elif how == UNKNOWN:
                sent.is_on_its_way = False
