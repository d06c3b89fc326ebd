"""A transport of each kind, and waits for its frames.

A deadline in here only bounds how long a failing test takes; no result depends on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from topo.transport.base import Outlet, Transport
from topo.transport.memory import MemoryNetwork, MemoryTransport
from topo.transport.security import AllowList
from topo.transport.zmq import IpcPlace, TcpPlace, ZmqTransport, new_key_pair

PATIENCE_S = 10.0
WATER_MARK = 64


@dataclass
class World:
    """Makes transports of one kind that know each other."""

    kind: str
    folder: Path
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    made: list[Transport] = field(default_factory=list)

    @property
    def is_keyed(self) -> bool:
        return self.kind in ("memory with keys", "tcp")

    def transport(self) -> Transport:
        transport = self.stranger()
        if self.is_keyed:
            self.made.append(transport)
            keys = [one.public_key for one in self.made if one.public_key]
            for one in self.made:
                one.allow(keys)
        return transport

    def stranger(self) -> Transport:
        """A transport that is on no allow-list."""
        transport: Transport
        if self.kind.startswith("memory"):
            keys = new_key_pair() if self.is_keyed else None
            transport = MemoryTransport(self.network, keys, high_water_mark=WATER_MARK)
        elif self.kind == "ipc":
            transport = ZmqTransport(IpcPlace(self.folder), high_water_mark=WATER_MARK)
        else:
            transport = ZmqTransport(TcpPlace(), new_key_pair(), AllowList(), high_water_mark=WATER_MARK)
        self.opened.append(transport)
        return transport

    opened: list[Transport] = field(default_factory=list)


def until(done: Callable[[], bool], *turning: Transport) -> None:
    """Turn the loops of `turning` until `done()`."""
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "gave up waiting"
        for transport in turning:
            transport.wait(0.01)


def post(transport: Transport, outlet: Outlet, frame: bytes) -> None:
    """Send as a loop does: a refused frame goes again when its outlet has recovered."""
    deadline = time.monotonic() + PATIENCE_S
    while not transport.send(outlet, frame):
        while outlet not in transport.recovered():
            assert time.monotonic() < deadline, "never recovered"
            transport.wait(0.05)


def collect(transport: Transport, inbox: str, count: int) -> list[bytes]:
    frames: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(frames) < count:
        assert time.monotonic() < deadline, f"{len(frames)} of {count} frames arrived"
        if inbox in transport.wait(0.5):
            frames += transport.receive(inbox, count - len(frames))
    return frames
