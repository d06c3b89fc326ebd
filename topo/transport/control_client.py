"""A client's connection to a master."""

from __future__ import annotations

import zmq

from topo.errors import TopoEnvironmentError
from topo.transport import descriptors
from topo.transport.base import MAX_LINK_MESSAGE
from topo.transport.zap import Socket


class EndpointInvalid(TopoEnvironmentError):
    """ZeroMQ can make no connection to a given endpoint."""


class ControlClient:
    """A client's side: one request at a time to the master at `endpoint`.

    Raises:
        EndpointInvalid: ZeroMQ does not take `endpoint`.
        TopoEnvironmentError: the process may not open the files that a connection takes.
    """

    def __init__(self, endpoint: str) -> None:
        descriptors.ensure(descriptors.CLIENT, "asking the master")
        self._context: zmq.Context[Socket] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.maxmsgsize = MAX_LINK_MESSAGE
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise EndpointInvalid(f"cannot connect to {endpoint!r}: {error.strerror}") from error

    def ask(self, request: bytes) -> None:
        self._socket.send(request)

    def answer(self, timeout_s: float) -> bytes | None:
        """Return the answer, None when none came in time."""
        return self._socket.recv() if self._socket.poll(int(timeout_s * 1000)) else None

    def close(self) -> None:
        self._socket.close()
        self._context.term()
