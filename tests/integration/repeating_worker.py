"""A worker whose transport repeats itself: every frame leaves twice, some once more later, and those of old epochs again.

Started in the place of `topo.worker.process`, with the same arguments.
"""

from __future__ import annotations

import sys
from collections import deque

from topo.errors import FrameError
from topo.transport.base import Outlet
from topo.transport.zmq import ZmqTransport
from topo.wire.frames import parse
from topo.worker import process

REMEMBERED = 30


class RepeatingTransport(ZmqTransport):
    """Sends what a network with retries might send."""

    sent: dict[Outlet, deque[bytes]]

    def send(self, outlet: Outlet, frame: bytes) -> bool:
        if not super().send(outlet, frame):
            return False
        before = self.__dict__.setdefault("sent", {}).setdefault(outlet, deque(maxlen=REMEMBERED))
        super().send(outlet, frame)
        if before and epoch_of(before[-1]) < epoch_of(frame):
            for old in before:
                super().send(outlet, old)
            before.clear()
        if len(before) == REMEMBERED:
            super().send(outlet, before[0])
        before.append(frame)
        return True


def epoch_of(frame: bytes) -> int:
    """Return the epoch of a frame, 0 of a message for the master."""
    try:
        return parse(frame).epoch
    except FrameError:
        return 0


if __name__ == "__main__":
    process.ZmqTransport = RepeatingTransport  # type: ignore[misc]
    sys.exit(process.main(sys.argv[1:]))
