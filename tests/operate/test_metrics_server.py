"""The server of metrics and its clients and masters, without a Prometheus."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.servers.server import need

pytestmark = pytest.mark.server


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    need(("prometheus_client",), "prometheus")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """The address of a server that gives a request three seconds."""
    from topo.operate.prometheus import MetricsServer, TopologyCollector

    server = MetricsServer(TopologyCollector(tmp_path), "127.0.0.1", 0, request_s=3.0)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,))
    thread.start()
    host, _, port = server.address.rpartition(":")
    yield host, int(port)
    server.shutdown()
    server.server_close()
    thread.join()


def test_silent_and_slow_clients_hold_up_no_scrape_and_are_cut_quietly(
    address: tuple[str, int], capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(address, timeout=10) as silent, socket.create_connection(address, timeout=10) as slow:
        slow.sendall(b"GET /met")
        began = time.monotonic()
        connection = HTTPConnection(*address, timeout=10)
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 200
        assert time.monotonic() - began < 2.5
        assert slow.recv(10) == b"" and silent.recv(10) == b""
    assert capfd.readouterr().err == ""


def test_a_scrape_of_a_removed_state_folder_is_answered(
    address: tuple[str, int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(tmp_path)
    connection = HTTPConnection(*address, timeout=10)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 503 and b"cannot list" in answer.read()
    assert capfd.readouterr().err == ""


def test_masters_are_asked_at_once_and_one_that_hangs_is_down() -> None:
    from topo.operate.overviews import overviews

    together, release = threading.Barrier(3), threading.Event()

    def ask(folder: Any) -> dict[str, str]:
        if folder.name == "hangs":
            release.wait(30)
        else:
            together.wait(10)
        return {"topology": folder.name}

    def runs(name: str) -> Any:
        return SimpleNamespace(name=name, is_running=lambda: True)

    try:
        found = overviews([runs(name) for name in ("hangs", "a", "b", "c")], ask, 1.0)
    finally:
        release.set()
    assert found == {"hangs": None} | {name: {"topology": name} for name in "abc"}
