"""The thread that answers libzmq's question whether the holder of a key may connect (ZAP, RFC 27).

It has to answer while the loop's thread sits in user code, so it is a thread; it answers from the allow-list alone. It also
watches the listening sockets for peers that fail before that question: no key at all, or another protocol.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import zmq
from zmq.utils import z85

from topo.transport.bell import Bell
from topo.transport.security import AllowList

_ADDRESS = "inproc://zeromq.zap.01"
_DOMAIN = b"topo"
_VERSION = b"1.0"

Socket = zmq.Socket[bytes]


def endpoint_of(socket: Socket) -> str:
    """Return the address that a socket was last bound to, with the port that it was given."""
    return socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")


class ZapHandler:
    """Admits to the sockets of one context those whose keys are on the allow-list.

    Made before the first socket binds: without a handler libzmq would admit any key.
    """

    def __init__(self, context: zmq.Context[Socket], allow_list: AllowList) -> None:
        # It brings asyncio along, which workers that share a machine need not wait for.
        from zmq.utils.monitor import parse_monitor_message

        self._event_of = parse_monitor_message
        self._allow_list = allow_list
        self._requests = context.socket(zmq.REP)
        self._requests.linger = 0
        self._requests.bind(_ADDRESS)
        self._watched: deque[Socket] = deque()
        self._stopping = False
        self._bell = Bell()
        self._thread = threading.Thread(target=self._run, name="topo-zap", daemon=True)
        self._thread.start()

    def guard(self, socket: Socket, secret_key: str) -> None:
        """Make a socket that is about to bind accept only admitted keys."""
        socket.curve_server = True
        socket.curve_secretkey = secret_key.encode()
        socket.zap_domain = _DOMAIN
        # Without it libzmq lets everyone in should the handler be gone.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        failures = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        self._watched.append(socket.get_monitor_socket(failures))
        self._bell.ring()

    def close(self) -> None:
        """Stop answering. The guarded sockets are closed before."""
        self._stopping = True
        self._bell.ring()
        self._thread.join()
        self._bell.close()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._bell.descriptor, zmq.POLLIN)
        poller.register(self._requests, zmq.POLLIN)
        monitors: list[Socket] = []
        while not self._stopping:
            for source, _ in poller.poll():
                if source is self._requests:
                    self._answer()
                elif isinstance(source, zmq.Socket):
                    if not self._report(source):
                        poller.unregister(source)
                        monitors.remove(source)
                        source.close(linger=0)
                else:
                    self._bell.clear()
                    while self._watched:
                        monitors.append(self._watched.popleft())
                        poller.register(monitors[-1], zmq.POLLIN)
        for socket in [*monitors, *self._watched, self._requests]:
            socket.close(linger=0)

    def _answer(self) -> None:
        version, request, _domain, address, _identity, mechanism, *credentials = self._requests.recv_multipart()
        admitted = False
        if version == _VERSION and mechanism == b"CURVE" and len(credentials) == 1:
            key = z85.encode(credentials[0]).decode()
            admitted = self._allow_list.admits(key)
            if not admitted:
                self._allow_list.deny(address.decode(errors="replace"), f"key {key[:8]}... is not on the allow-list")
        # 300, not 400: a peer whose key is about to be allowed must retry on its own, and libzmq never retries after 400.
        status = (b"200", b"OK") if admitted else (b"300", b"not on the allow-list")
        self._requests.send_multipart([_VERSION, request, *status, b"", b""])

    def _report(self, monitor: Socket) -> bool:
        """Count a handshake that failed; False when the watched socket is closed."""
        event: dict[str, Any] = dict(self._event_of(monitor.recv_multipart()))
        if event["event"] == zmq.EVENT_MONITOR_STOPPED:
            return False
        self._allow_list.deny(f"a peer of {event['endpoint'].decode(errors='replace')}", "it offered no key")
        return True
