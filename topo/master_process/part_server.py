"""The master's end of parts of checkpoints over TCP, for workers that share no disk with it."""

from __future__ import annotations

import logging
import threading
import time

import zmq

from topo.master_process.control_link import ControlLink
from topo.storage.part_service import LONGEST_MESSAGE, PartService, Refused, encode
from topo.transport.bell import Bell

_LOG = logging.getLogger(__name__)

_SWEEP_S = 1.0
_QUEUED = 4
"""Messages that wait on a connection; a worker has one under way."""


class PartServer:
    """Writes and reads parts for the workers of a link, in a separate thread.

    Args:
        link: whose keys and allow-list it goes by. It is closed after this.
        host: address to listen on.
        desk: what performs.

    Attributes:
        endpoint: for workers.
    """

    def __init__(self, link: ControlLink, host: str, desk: PartService) -> None:
        self._desk = desk
        self._socket, self.endpoint = link.listener(host, LONGEST_MESSAGE, _QUEUED)
        self._bell = Bell()
        self._thread = threading.Thread(target=self._run, name="parts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; a part that is half written is dropped."""
        self._bell.ring()
        self._thread.join()
        self._socket.disable_monitor()
        self._socket.close(linger=0)
        self._desk.close()
        self._bell.close()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._bell.descriptor, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(int(_SWEEP_S * 1000)))
            if self._bell.descriptor in ready:
                return
            if self._socket in ready:
                self._serve()
            self._desk.sweep(time.monotonic())

    def _serve(self) -> None:
        connection, *parts = self._socket.recv_multipart()
        try:
            answer = self._desk.answer(connection, b"".join(parts), time.monotonic())
        except Exception:  # the others are to be served on
            _LOG.exception("a part could not be served")
            answer = Refused("the master failed")
        if isinstance(answer, Refused):
            _LOG.warning("refused: %s", answer.why)
        # Dropped when it is gone, or does not read its answers.
        self._socket.send_multipart([connection, encode(answer)], zmq.NOBLOCK)
