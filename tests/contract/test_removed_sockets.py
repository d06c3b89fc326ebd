"""ipc sockets whose files are removed while they are in use: they get them back, and no connection is cut."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from topo.errors import TopoEnvironmentError
from topo.master_process.control_link import ControlLink
from topo.transport.base import Outlet
from topo.transport.control_client import ControlClient
from topo.transport.zmq import IpcPlace, ZmqTransport

PATIENCE_S = 10.0


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="topo-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def deliver(sender: ZmqTransport, outlet: Outlet, receiver: ZmqTransport, frame: bytes) -> list[bytes]:
    """Send a frame, as soon as its connection stands; return what arrives."""
    while not sender.send(outlet, frame):
        sender.wait(PATIENCE_S)
    receiver.wait(PATIENCE_S)
    return receiver.receive("in", 10)


def test_an_inbox_can_be_connected_to_again_and_standing_connections_are_kept(folder: Path) -> None:
    receiver, early, late = (ZmqTransport(IpcPlace(folder)) for _ in range(3))
    try:
        endpoint = receiver.bind("in")
        standing = early.connect(endpoint)
        assert deliver(early, standing, receiver, b"before") == [b"before"]
        shutil.rmtree(folder)
        assert deliver(early, standing, receiver, b"meanwhile") == [b"meanwhile"]
        assert receiver.listen_again() == 1
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert early.send(standing, b"at once"), "the connection was never cut"
        assert deliver(late, late.connect(endpoint), receiver, b"new")
        assert receiver.listen_again() == 0
    finally:
        for transport in (early, late, receiver):
            transport.close()


def test_a_client_reaches_the_master_again(folder: Path) -> None:
    link = ControlLink(folder)
    try:
        shutil.rmtree(folder)
        assert link.listen_again()
        assert not link.listen_again()
        asker = ControlClient(link.client_endpoint)
        asker.ask(b"how is it?")
        link.wait(PATIENCE_S)
        ((identity, _),) = link.from_clients()
        assert link.to_client(identity, b"well")
        assert asker.answer(PATIENCE_S) == b"well"
        asker.close()
    finally:
        link.close()


def test_a_folder_that_cannot_be_made_again_is_an_error(folder: Path) -> None:
    receiver = ZmqTransport(IpcPlace(folder))
    try:
        receiver.bind("in")
        shutil.rmtree(folder)
        folder.write_text("in the way")
        with pytest.raises(TopoEnvironmentError, match="removed while it was in use, and cannot be made again"):
            receiver.listen_again()
    finally:
        receiver.close()
        folder.unlink()
