"""A ROUTER socket: one end that many connections talk to, each under its identity."""

from __future__ import annotations

import zmq

from topo.transport.base import MAX_LINK_MESSAGE
from topo.transport.zap import Socket

_READ_AT_ONCE = 256


def router_socket(context: zmq.Context[Socket], longest: int = MAX_LINK_MESSAGE, queued: int = 0) -> Socket:
    """Return a socket that is not bound yet.

    Args:
        longest: a longer message, in bytes, is dropped together with the connection that brought it.
        queued: how many messages wait on a connection, each way; 0: any number.
    """
    socket = context.socket(zmq.ROUTER)
    socket.maxmsgsize = longest
    socket.sndhwm = socket.rcvhwm = queued
    socket.linger = 0
    return socket


def receive(socket: Socket) -> list[tuple[bytes, bytes]]:
    """Return (identity, message) for messages that have arrived, some at a time."""
    found: list[tuple[bytes, bytes]] = []
    try:
        while len(found) < _READ_AT_ONCE:
            parts = socket.recv_multipart(zmq.NOBLOCK)
            if len(parts) == 2:
                found.append((parts[0], parts[1]))
    except zmq.Again:
        pass
    return found


def send(socket: Socket, identity: bytes, message: bytes) -> bool:
    try:
        socket.send_multipart([identity, message], zmq.NOBLOCK)
    except zmq.ZMQError:
        return False
    return True
