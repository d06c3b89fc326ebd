"""The driver's side of its talk with the agents on a cluster: one encrypted socket."""

from __future__ import annotations

import zmq

from topo.errors import TopoEnvironmentError
from topo.transport.router import receive, router_socket, send
from topo.transport.security import AllowList, check_listener
from topo.transport.zap import Socket, ZapHandler, endpoint_of
from topo.transport.zmq import new_key_pair


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
        self._socket = router_socket(self._context)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        # An agent whose connection broke comes back under its name before this end has noticed.
        self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._zap.guard(self._socket, keys.secret)
        try:
            self._socket.bind(f"tcp://{host}:*")
        except zmq.ZMQError as error:
            self.close()
            raise TopoEnvironmentError(f"the driver cannot listen on {host}: {error}") from error
        self.endpoint = endpoint_of(self._socket)

    @property
    def descriptor(self) -> int:
        """Readable when something may have arrived; trusted only after a `receive` that came back empty, with no send since."""
        return int(self._socket.getsockopt(zmq.FD))

    def receive(self) -> list[tuple[bytes, bytes]]:
        return receive(self._socket)

    def send(self, identity: bytes, message: bytes) -> bool:
        return send(self._socket, identity, message)

    def close(self, linger_s: float = 0.0) -> None:
        """Close the socket, giving the last messages a moment."""
        self._socket.disable_monitor()
        self._socket.close(linger=int(linger_s * 1000))
        self._zap.close()
        self._context.term()
