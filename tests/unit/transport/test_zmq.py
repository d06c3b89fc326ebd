"""Options of ZeroMQ sockets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq

from topo.transport.security import AllowList
from topo.transport.zmq import IpcPlace, TcpPlace, ZmqTransport, new_key_pair


@pytest.mark.parametrize(("is_tcp", "interval_ms"), [(True, 1000), (False, 0)])
def test_only_connections_over_tcp_have_heartbeats(tmp_path: Path, is_tcp: bool, interval_ms: int) -> None:
    tmp_path.chmod(0o700)
    transport = ZmqTransport(TcpPlace(), new_key_pair(), AllowList()) if is_tcp else ZmqTransport(IpcPlace(tmp_path))
    sockets = [transport._socket(kind, 1024) for kind in (zmq.PUSH, zmq.PULL, zmq.DEALER)]
    try:
        assert {socket.heartbeat_ivl for socket in sockets} == {interval_ms}
    finally:
        for socket in sockets:
            socket.close()
        transport.close()


class Watched:
    """A socket whose user does something once, when it has been looked at for room."""

    def __init__(self, socket: zmq.Socket[bytes], then: Callable[[], None]) -> None:
        self._socket = socket
        self._then: Callable[[], None] | None = then

    def getsockopt(self, option: int) -> Any:
        found = self._socket.getsockopt(option)
        if option == zmq.EVENTS and self._then is not None and found & zmq.POLLOUT:
            then, self._then = self._then, None
            then()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def test_a_peer_that_goes_between_the_look_for_room_and_the_frame_refuses_it(tmp_path: Path) -> None:
    """A full connection has room again, and is lost before the frame is sent: another thread may run for long in between."""
    tmp_path.chmod(0o700)
    endpoint, frame = f"ipc://{tmp_path}/peer", b"x" * 200_000
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    peer = context.socket(zmq.PULL)
    peer.rcvhwm = 1
    peer.bind(endpoint)
    transport = ZmqTransport(IpcPlace(tmp_path), high_water_mark=1)
    outlet = transport.connect(endpoint)
    out = transport._outlets[outlet]
    assert out.socket is not None
    events = partial(out.socket.getsockopt, zmq.EVENTS)

    def lose() -> None:
        peer.close(linger=0)
        while events() & zmq.POLLOUT:
            pass

    try:
        while not transport.send(outlet, frame):
            transport.wait(0.01)
        while transport.send(outlet, frame):
            pass
        watched: Any = Watched(out.socket, lose)
        out.socket = watched
        while watched._then is not None:
            if peer.poll(10):
                peer.recv()
            assert not transport.send(outlet, frame) or watched._then is not None
    finally:
        transport.close()
        peer.close(linger=0)
        context.term()
