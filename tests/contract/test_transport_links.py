"""The link of a worker to its master, over memory and ipc."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from tests.contract.transports import World, collect, until
from topo.transport.memory import MemoryRouter


class ZmqRouter:
    """A master's socket, as plain as possible."""

    def __init__(self, endpoint: str) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(endpoint)

    def receive(self) -> list[tuple[bytes, bytes]]:
        messages = []
        with suppress(zmq.Again):
            while True:
                identity, message = self.socket.recv_multipart(zmq.DONTWAIT)
                messages.append((identity, message))
        return messages

    def send(self, identity: bytes, message: bytes) -> bool:
        self.socket.send_multipart([identity, message])
        return True

    def close(self) -> None:
        self.socket.close()
        self.context.term()


@pytest.mark.parametrize("kind", ["memory", "ipc"])
def test_a_link_keeps_messages_until_the_master_is_there_and_brings_its_answers(kind: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="tt-"))
    world = World(kind, folder)
    worker = world.transport()
    worker.bind("data")
    endpoint = "memory://master" if kind == "memory" else f"ipc://{folder}/master"
    outlet = worker.link("master", endpoint, b"worker-7")
    assert worker.send(outlet, b"hello")
    assert worker.send(outlet, b"again")
    assert worker.wait(0.01) == []
    router: MemoryRouter | ZmqRouter = MemoryRouter(world.network, endpoint) if kind == "memory" else ZmqRouter(endpoint)
    got: list[tuple[bytes, bytes]] = []

    def has_both() -> bool:
        got.extend(router.receive())
        return len(got) == 2

    until(has_both, worker)
    assert got == [(b"worker-7", b"hello"), (b"worker-7", b"again")]
    assert router.send(b"worker-7", b"welcome")
    assert collect(worker, "master", 1) == [b"welcome"]
    # A send reads the socket's commands, and with them the news of an answer.
    router.send(b"worker-7", b"one")
    worker.send(outlet, b"ping")
    router.send(b"worker-7", b"two")
    worker.send(outlet, b"ping")
    assert collect(worker, "master", 2) == [b"one", b"two"]
    worker.disconnect(outlet)
    worker.close()
    if isinstance(router, ZmqRouter):
        router.close()
    shutil.rmtree(folder)
