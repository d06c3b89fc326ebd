"""The driver's side of its talk with the agents on a cluster: one encrypted socket."""

from __future__ import annotations

import zmq

from topo.errors import EnvironmentFault
from topo.transport.base import MAX_LINK_MESSAGE
from topo.transport.security import AllowList, check_listener
from topo.transport.zap import Socket, ZapHandler
from topo.transport.zmq import new_key_pair

_READ_AT_ONCE = 256


class AgentLink:
    """Listens on a port of `host` for those whose keys are on the allow-list.

    Attributes:
        endpoint: where agents connect to.
        public_key: what they have to know of this end.
        allow_list: the agents' keys.
    """

    def __init__(self, host: str) -> None:
        self.allow_list = AllowList()
        keys = new_key_pair()
        check_listener(host, keys, self.allow_list)
        self.public_key = keys.public
        self._context: zmq.Context[Socket] = zmq.Context()
        self._zap = ZapHandler(self._context, self.allow_list)
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # An agent whose connection broke comes back under its name before this end has noticed.
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._socket.maxmsgsize = MAX_LINK_MESSAGE
        self._socket.sndhwm = self._socket.rcvhwm = 0
        self._socket.linger = 0
        self._zap.guard(self._socket, keys.secret)
        try:
            self._socket.bind(f"tcp://{host}:*")
        except zmq.ZMQError as error:
            self.close()
            raise EnvironmentFault(f"the driver cannot listen on {host}: {error}") from error
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    @property
    def descriptor(self) -> int:
        """Readable when something may have arrived; trusted only after a `receive` that came back empty, with no send since."""
        return int(self._socket.getsockopt(zmq.FD))

    def receive(self) -> list[tuple[bytes, bytes]]:
        """Return (identity, message) of what has arrived, some at a time."""
        found: list[tuple[bytes, bytes]] = []
        try:
            while len(found) < _READ_AT_ONCE:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
                if len(parts) == 2:
                    found.append((parts[0], parts[1]))
        except zmq.Again:
            pass
        return found

    def send(self, identity: bytes, message: bytes) -> bool:
        """Send to a connection; False when it is not there."""
        try:
            self._socket.send_multipart([identity, message], zmq.NOBLOCK)
        except zmq.ZMQError:
            return False
        return True

    def close(self, linger_s: float = 0.0) -> None:
        """Close the socket, giving the last messages a moment."""
        self._socket.disable_monitor()
        self._socket.close(linger=int(linger_s * 1000))
        self._zap.close()
        self._context.term()
