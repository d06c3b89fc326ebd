"""The transport over ZeroMQ: a PULL socket for each inbox, a PUSH socket for each outlet, a DEALER to the master.

Waiting. A ZeroMQ socket's descriptor is readable while it has unread *commands*, not messages, and whatever reads the
commands (a receive that finds nothing, a look at EVENTS, a send on the same socket) takes the signal away although messages
may be left. So an inbox is *unsure* from any such call until a look at EVENTS, or a receive that came back empty, shows that
it has nothing; only then is its descriptor trusted. Sleeping uses select() on the selector's own descriptor, since poll()
and epoll round a sleep up to a millisecond.
"""

from __future__ import annotations

import itertools
import os
import select
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import zmq
from msgspec import Struct

from topo.errors import ConfigError, FrameError, TopoEnvironmentError
from topo.transport.base import MAX_FRAME, MAX_LINK_MESSAGE, Outlet, TransportStatistics
from topo.transport.bell import Bell
from topo.transport.ipc import listen_again
from topo.transport.security import AllowList, KeyPair, check_ipc_path, check_listener, check_private_folder
from topo.transport.zap import Socket, ZapHandler, endpoint_of

HIGH_WATER_MARK = 1024
"""Messages that libzmq may queue for one peer. A sender has one for each of its turns, so windows are full long before."""

_LIBZMQ_NEEDED = (4, 3, 5)
_HANDSHAKE_MS = 5000
_DIAL_HANDSHAKE_MS = 1000
"""How long a connecting peer waits for an answer. A key that is not allowed yet gets none: this is when it tries again."""
_CURVE_OVERHEAD = 64
"""More than what encryption adds to a frame; libzmq's size limit counts it."""
_CURVE_GREETING = 1024
"""More than the longest command of the handshake has; the size limit applies to it, too."""
_HEARTBEAT_MS = 1000
_HEARTBEAT_TIMEOUT_MS = 4000
_RECONNECT_MS = 100
_RECONNECT_MAX_MS = 5000
_MAX_SOCKETS = 16384
# As plain numbers: an operation on enum flags takes as long as asking the socket.
_READABLE, _WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
_COARSE_S = 0.002
"""Sleeps from here on may last up to a millisecond too long, which is as exact as epoll is."""


def new_key_pair() -> KeyPair:
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


class IpcPlace(Struct, frozen=True):
    """Inboxes are sockets in this folder, which must be the user's alone and have a short path."""

    folder: Path


class TcpPlace(Struct, frozen=True):
    """Inboxes are ports, chosen by the system, of this interface."""

    host: str = "127.0.0.1"


@dataclass(slots=True)
class _Inbox:
    name: str
    socket: Socket
    receive: Callable[[int], bytes]
    local: deque[bytes] = field(default_factory=deque)
    local_first: bool = False
    max_frame: int = MAX_FRAME
    is_open: bool = True


@dataclass(slots=True)
class _ZmqOutlet:
    """Leads through `socket`, or straight into `inbox` where sender and receiver share this transport.

    `answers` names the inbox that reads the same socket.
    """

    max_frame: int
    socket: Socket | None = None
    inbox: _Inbox | None = None
    answers: str | None = None


class ZmqTransport:
    """See `base.Transport` for the contract. An outlet to an inbox of the same transport does not pass through a socket."""

    def __init__(
        self,
        place: IpcPlace | TcpPlace,
        keys: KeyPair | None = None,
        allow_list: AllowList | None = None,
        high_water_mark: int = HIGH_WATER_MARK,
    ) -> None:
        """Check where to listen, and start answering for the allow-list when there are keys.

        Raises:
            ConfigError: a TCP place without keys or allow-list, or an ipc folder that is open to others.
            TopoEnvironmentError: libzmq is older than the first version without known holes.
        """
        if zmq.zmq_version_info() < _LIBZMQ_NEEDED:
            raise TopoEnvironmentError(f"libzmq {zmq.zmq_version()} is too old: topo needs 4.3.5 or newer (pip install -U pyzmq)")
        if isinstance(place, TcpPlace):
            check_listener(place.host, keys, allow_list)
        else:
            check_private_folder(place.folder)
        self._place = place
        self._keys = keys
        self._allow_list = allow_list or AllowList()
        self._high_water_mark = high_water_mark
        self._context: zmq.Context[Socket] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, _MAX_SOCKETS)
        self._zap = ZapHandler(self._context, self._allow_list) if isinstance(place, TcpPlace) else None
        self._name = os.urandom(5).hex()
        self._numbers = itertools.count(1)
        self._inboxes: dict[str, _Inbox] = {}
        self._own: dict[str, _Inbox] = {}
        self._outlets: dict[Outlet, _ZmqOutlet] = {}
        self._unsure: set[str] = set()
        self._refused: set[Outlet] = set()
        self._recovered: list[Outlet] = []
        self._woken = False
        self._done = TransportStatistics()
        self._selector = selectors.DefaultSelector()
        self._bell = Bell()
        self._selector.register(self._bell.descriptor, selectors.EVENT_READ)

    @property
    def public_key(self) -> str | None:
        return self._keys.public if self._keys and self._zap else None

    # Inboxes and outlets

    def bind(self, inbox: str, *, max_frame: int = MAX_FRAME, endpoint: str | None = None) -> str:
        socket = self._socket(zmq.PULL, max_frame)
        try:
            if isinstance(self._place, TcpPlace):
                assert self._zap is not None and self._keys is not None
                self._zap.guard(socket, self._keys.secret)
                endpoint = endpoint or f"tcp://{self._place.host}:*"
            else:
                endpoint = endpoint or f"ipc://{self._place.folder}/{self._name}-{next(self._numbers)}"
                _claim(endpoint.removeprefix("ipc://"))
            socket.bind(endpoint)
        except BaseException as error:
            socket.disable_monitor()
            socket.close(linger=0)
            if isinstance(error, zmq.ZMQError):
                raise TopoEnvironmentError(f"cannot listen on {endpoint}: {error}") from error
            raise
        endpoint = endpoint_of(socket)
        self._own[endpoint] = self._open(inbox, socket, max_frame)
        return endpoint

    def unbind(self, inbox: str) -> None:
        gone = self._shut(inbox)
        self._own = {endpoint: entry for endpoint, entry in self._own.items() if entry is not gone}
        if self._zap is not None:
            gone.socket.disable_monitor()
        gone.socket.close(linger=0)

    def listen_again(self) -> int:
        return sum([listen_again(inbox.socket, endpoint) for endpoint, inbox in self._own.items()])

    def connect(self, endpoint: str, public_key: str | None = None, *, max_frame: int = MAX_FRAME) -> Outlet:
        outlet = Outlet(next(self._numbers))
        own = self._own.get(endpoint)
        if own is not None:
            self._outlets[outlet] = _ZmqOutlet(min(max_frame, own.max_frame), inbox=own)
            return outlet
        socket = self._socket(zmq.PUSH, max_frame)
        # Nothing is queued for a peer that is not there.
        socket.immediate = True
        self._dial(socket, endpoint, public_key)
        self._outlets[outlet] = _ZmqOutlet(max_frame, socket)
        return outlet

    def disconnect(self, outlet: Outlet) -> None:
        gone = self._outlets.pop(outlet)
        self._trust(outlet, gone)
        if gone.answers is not None:
            self._shut(gone.answers)
        if gone.socket is not None:
            gone.socket.close(linger=0)

    def link(self, inbox: str, endpoint: str, identity: bytes, public_key: str | None = None) -> Outlet:
        socket = self._socket(zmq.DEALER, MAX_LINK_MESSAGE)
        socket.routing_id = identity
        self._dial(socket, endpoint, public_key)
        outlet = Outlet(next(self._numbers))
        self._outlets[outlet] = _ZmqOutlet(MAX_LINK_MESSAGE, socket, answers=inbox)
        self._open(inbox, socket, MAX_LINK_MESSAGE)
        return outlet

    def _socket(self, kind: int, max_frame: int) -> Socket:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.sndhwm = socket.rcvhwm = self._high_water_mark
        socket.maxmsgsize = max(max_frame + _CURVE_OVERHEAD, _CURVE_GREETING) if self._keys else max_frame
        socket.handshake_ivl = _HANDSHAKE_MS
        if isinstance(self._place, TcpPlace):
            # A peer on the same machine cannot vanish without closing its end.
            socket.heartbeat_ivl = _HEARTBEAT_MS
            socket.heartbeat_timeout = _HEARTBEAT_TIMEOUT_MS
            socket.heartbeat_ttl = _HEARTBEAT_TIMEOUT_MS
        socket.reconnect_ivl = _RECONNECT_MS
        socket.reconnect_ivl_max = _RECONNECT_MAX_MS
        return socket

    def _dial(self, socket: Socket, endpoint: str, public_key: str | None) -> None:
        try:
            if endpoint.startswith("tcp://") or public_key is not None:
                if public_key is None or self._keys is None:
                    lacking = "the peer's public key" if public_key is None else "its own key pair"
                    raise ConfigError(f"connecting to {endpoint} needs {lacking}: tcp is always encrypted")
                socket.handshake_ivl = _DIAL_HANDSHAKE_MS
                socket.curve_serverkey = public_key.encode()
                socket.curve_publickey = self._keys.public.encode()
                socket.curve_secretkey = self._keys.secret.encode()
            socket.connect(endpoint)
        except BaseException as error:
            socket.close(linger=0)
            if isinstance(error, (zmq.ZMQError, ValueError)):
                raise ConfigError(f"cannot connect to {endpoint}: {error}") from error
            raise

    def _open(self, inbox: str, socket: Socket, max_frame: int) -> _Inbox:
        self._selector.register(_option(socket, zmq.FD), selectors.EVENT_READ, inbox)
        self._unsure.add(inbox)
        self._inboxes[inbox] = opened = _Inbox(inbox, socket, socket.recv, max_frame=max_frame)
        return opened

    def _shut(self, inbox: str) -> _Inbox:
        gone = self._inboxes.pop(inbox)
        gone.is_open = False
        gone.local.clear()
        self._unsure.discard(inbox)
        self._selector.unregister(_option(gone.socket, zmq.FD))
        return gone

    # Sending

    def send(self, outlet: Outlet, frame: bytes) -> bool:
        out = self._outlets[outlet]
        if len(frame) > out.max_frame:
            raise FrameError(f"frame of {len(frame)} bytes is over the limit of {out.max_frame}")
        if out.answers is not None:
            self._unsure.add(out.answers)
        if not (self._push(out.socket, frame) if out.socket is not None else self._hand_over(out, frame)):
            self._done.refused += 1
            self._doubt(outlet, out)
            return False
        self._done.frames_sent += 1
        self._done.bytes_sent += len(frame)
        return True

    def _push(self, socket: Socket, frame: bytes) -> bool:
        # A send reads its socket's commands only now and then: room may be there, unnoticed, and be gone by the second one.
        for _ in range(2):
            try:
                socket.send(frame, zmq.DONTWAIT)
                return True
            except zmq.Again:
                if not _option(socket, zmq.EVENTS) & _WRITABLE:
                    break
        return False

    def _hand_over(self, out: _ZmqOutlet, frame: bytes) -> bool:
        if not self._has_room(out):
            return False
        assert out.inbox is not None
        out.inbox.local.append(frame)
        self._unsure.add(out.inbox.name)
        return True

    def _has_room(self, out: _ZmqOutlet) -> bool:
        if out.answers is not None:
            self._unsure.add(out.answers)
        if out.socket is not None:
            return bool(_option(out.socket, zmq.EVENTS) & _WRITABLE)
        return out.inbox is not None and out.inbox.is_open and len(out.inbox.local) < self._high_water_mark

    def _doubt(self, outlet: Outlet, out: _ZmqOutlet) -> None:
        if outlet not in self._refused:
            self._refused.add(outlet)
            if out.socket is not None and out.answers is None:
                self._selector.register(_option(out.socket, zmq.FD), selectors.EVENT_READ, outlet)

    def _trust(self, outlet: Outlet, out: _ZmqOutlet) -> None:
        if outlet in self._refused:
            self._refused.remove(outlet)
            if out.socket is not None and out.answers is None:
                self._selector.unregister(_option(out.socket, zmq.FD))

    # Waiting and receiving

    def wait(self, timeout_s: float | None) -> list[str]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        # What may be ready without its descriptor saying so is looked at before any sleep.
        pause = 0.0 if self._unsure or self._refused else timeout_s
        while True:
            self._sleep(pause)
            recovered = self._refused and self._recover()
            ready = self._readable()
            if ready or recovered or self._woken:
                self._woken = False
                return ready
            pause = None if deadline is None else deadline - time.monotonic()
            if pause is not None and pause <= 0:
                return []

    def _sleep(self, pause: float | None) -> None:
        if pause and pause < _COARSE_S:
            if not select.select((self._selector,), (), (), pause)[0]:
                return
            pause = 0
        for key, _ in self._selector.select(pause):
            if isinstance(key.data, str):
                self._unsure.add(key.data)
            elif key.data is None:
                self._bell.clear()
                self._woken = True

    def _readable(self) -> list[str]:
        ready = []
        for name in tuple(self._unsure):
            inbox = self._inboxes[name]
            if inbox.local or _option(inbox.socket, zmq.EVENTS) & _READABLE:
                ready.append(name)
            else:
                self._unsure.remove(name)
        return ready

    def _recover(self) -> bool:
        """Look at every outlet that refused; few do, and only for the time it takes to connect."""
        found = [outlet for outlet in self._refused if self._has_room(self._outlets[outlet])]
        for outlet in found:
            self._trust(outlet, self._outlets[outlet])
        self._recovered += sorted(found)
        return bool(found)

    def recovered(self) -> list[Outlet]:
        recovered, self._recovered = self._recovered, []
        return recovered

    def receive(self, inbox: str, limit: int) -> list[bytes]:
        source = self._inboxes[inbox]
        frames: list[bytes] = []
        if source.local and source.local_first:
            self._take_local(source, frames, limit)
        receive, socket = source.receive, source.socket
        try:
            while len(frames) < limit:
                frames.append(receive(zmq.DONTWAIT))
                # The exception of a socket that has nothing costs more than the question. More than two come in bursts.
                if len(frames) <= 2 and not _option(socket, zmq.EVENTS) & _READABLE:
                    self._unsure.discard(inbox)
                    break
            else:
                self._unsure.add(inbox)
        except zmq.Again:
            self._unsure.discard(inbox)
        if source.local:
            self._take_local(source, frames, limit)
            self._unsure.add(inbox)
        # Neither the sockets' frames nor the local ones can starve the others.
        source.local_first = not source.local_first
        self._done.frames_received += len(frames)
        self._done.bytes_received += sum(map(len, frames))
        return frames

    def _take_local(self, source: _Inbox, frames: list[bytes], limit: int) -> None:
        local = source.local
        while local and len(frames) < limit:
            frames.append(local.popleft())

    def wake(self) -> None:
        self._bell.ring()

    # Everything else

    def allow(self, public_keys: Iterable[str]) -> None:
        self._allow_list.replace(public_keys)

    def statistics(self) -> TransportStatistics:
        return replace(self._done, denied=self._allow_list.denied)

    def close(self, linger_s: float = 0.0) -> None:
        if self._context.closed:
            return
        for outlet, out in list(self._outlets.items()):
            self._trust(outlet, out)
            if out.answers is not None:
                self._shut(out.answers)
            if out.socket is not None:
                out.socket.close(linger=int(linger_s * 1000))
        self._outlets.clear()
        for inbox in list(self._inboxes):
            self.unbind(inbox)
        if self._zap is not None:
            self._zap.close()
        self._selector.close()
        self._context.term()
        self._bell.close()


def _option(socket: Socket, option: int) -> int:
    value = socket.getsockopt(option)
    assert isinstance(value, int)
    return value


def _claim(path: str) -> None:
    """Take an ipc path exclusively: libzmq would let a second bind on it steal the first one's traffic."""
    check_ipc_path(path)
    try:
        os.close(os.open(f"{path}.claim", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError as error:
        raise TopoEnvironmentError(f"ipc://{path} is in use or was before; ipc names are never used twice") from error
    except OSError as error:
        raise TopoEnvironmentError(f"cannot listen on ipc://{path}: {error}") from error
