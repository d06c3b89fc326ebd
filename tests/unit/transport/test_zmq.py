"""Options of ZeroMQ sockets."""

from __future__ import annotations

from pathlib import Path

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
