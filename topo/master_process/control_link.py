"""The master's side of its talk: one socket for workers, one for clients, and whatever else its loop has to wait for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import zmq

from topo.errors import TopoEnvironmentError
from topo.transport.ipc import listen_again
from topo.transport.router import receive, router_socket, send
from topo.transport.security import AllowList, KeyPair, check_ipc_path
from topo.transport.zap import Socket, ZapHandler, endpoint_of


class ControlLink:
    """The socket on which workers and clients reach the master.

    Args:
        folder: private folder for the ipc sockets.
        keys: with them workers come over TCP, encrypted; without them over ipc.
        host: the address for TCP.

    Attributes:
        client_endpoint: for clients of this machine, always ipc.
        allow_list: the workers' keys that may connect over TCP.
    """

    def __init__(self, folder: Path, keys: KeyPair | None = None, host: str = "127.0.0.1") -> None:
        self._context: zmq.Context[Socket] = zmq.Context()
        self.allow_list = AllowList()
        self._zap = ZapHandler(self._context, self.allow_list) if keys is not None else None
        self._keys = keys
        self._workers = self._router()
        self._clients = self._router()
        if keys is not None and self._zap is not None:
            self._zap.guard(self._workers, keys.secret)
            self.worker_endpoint = self._bind(self._workers, f"tcp://{host}:*")
        else:
            self.worker_endpoint = self._bind(self._workers, f"ipc://{folder}/master")
        self.client_endpoint = self._bind(self._clients, f"ipc://{folder}/clients")
        self._poller = zmq.Poller()
        self._poller.register(self._workers, zmq.POLLIN)
        self._poller.register(self._clients, zmq.POLLIN)
        self._watched: set[int] = set()

    def listener(self, host: str, longest: int, queued: int) -> tuple[Socket, str]:
        """Open another TCP socket for workers, under the same keys and allow-list, and return it with its endpoint.

        It is for one thread, which need not be this one. The caller closes it before this link.

        Args:
            longest: a longer message, in bytes, is dropped together with the connection that brought it.
            queued: how many messages wait on a connection, each way, before its sender has to, or an answer is dropped.
        """
        assert self._zap is not None and self._keys is not None, "workers of this link do not come over TCP"
        socket = router_socket(self._context, longest, queued)
        self._zap.guard(socket, self._keys.secret)
        return socket, self._bind(socket, f"tcp://{host}:*")

    def listen_again(self) -> bool:
        """Bind the ipc sockets again that were removed from the file system. Returns whether any were.

        Raises:
            TopoEnvironmentError: they cannot be made, so no worker and no client can connect any more.
        """
        bound = ((self._workers, self.worker_endpoint), (self._clients, self.client_endpoint))
        return sum(listen_again(socket, endpoint) for socket, endpoint in bound) > 0

    def wait(self, timeout_s: float | None, descriptors: Iterable[int] = ()) -> None:
        """Sleep until somebody talks, a descriptor is readable, or the time is up."""
        wanted = set(descriptors)
        for gone in self._watched - wanted:
            self._poller.unregister(gone)
        for new in wanted - self._watched:
            self._poller.register(new, zmq.POLLIN)
        self._watched = wanted
        self._poller.poll(None if timeout_s is None else max(0, int(timeout_s * 1000 + 0.999)))

    def from_workers(self) -> list[tuple[bytes, bytes]]:
        return receive(self._workers)

    def from_clients(self) -> list[tuple[bytes, bytes]]:
        return receive(self._clients)

    def to_worker(self, identity: bytes, message: bytes) -> bool:
        return send(self._workers, identity, message)

    def to_client(self, identity: bytes, reply: bytes) -> bool:
        """Answer a client; False when it is gone."""
        return send(self._clients, identity, reply)

    def close(self, linger_s: float = 0.2) -> None:
        """Close both sockets, giving the last messages a moment."""
        if self._zap is not None:
            self._workers.disable_monitor()
        for socket in (self._workers, self._clients):
            socket.close(linger=int(linger_s * 1000))
        if self._zap is not None:
            self._zap.close()
        self._context.term()

    def _router(self) -> Socket:
        socket = router_socket(self._context)
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        return socket

    def _bind(self, socket: Socket, endpoint: str) -> str:
        if endpoint.startswith("ipc://"):
            check_ipc_path(endpoint.removeprefix("ipc://"))
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            raise TopoEnvironmentError(f"the master cannot listen on {endpoint}: {error}") from error
        return endpoint_of(socket)
