"""`topo ui` as a process, beside a real topology: its snapshots, its answers, and the effect of actions."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytest.importorskip("starlette", reason="needs the extra ui")

from websockets.sync.client import connect

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
TOPO = [sys.executable, "-m", "topo_cli"]
MOST_BYTES = 80 << 20


class Page:
    """The client of a page, as a browser is one."""

    def __init__(self, link: str) -> None:
        self.address, _, self.token = link.strip().partition("#token=")
        self.origin = self.address.rstrip("/")

    def get(self, path: str) -> Any:
        request = Request(self.address + path, headers={"Authorization": f"Bearer {self.token}"})
        return json.load(urlopen(request, timeout=20))

    def act(self, action: str) -> Any:
        return self.post(f"actions/{action}", {})

    def post(self, path: str, asked: dict[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Origin": self.origin, "Content-Type": "application/json"}
        return json.load(urlopen(Request(f"{self.address}api/t/top-n/{path}", json.dumps(asked).encode(), headers), timeout=60))

    def look(self, at: str, until: Callable[[Any], bool]) -> Any:
        """Return the first snapshot that is as wanted."""
        with connect(self.address.replace("http", "ws") + "api/live", origin=self.origin, proxy=None) as socket:  # type: ignore[arg-type]
            socket.send(json.dumps({"token": self.token}))
            assert json.loads(socket.recv(5))["type"] == "hello"
            socket.send(json.dumps({"look": at}))
            end = time.monotonic() + 40
            while time.monotonic() < end:
                snapshot = json.loads(socket.recv(10))
                if until(snapshot):
                    return snapshot
        raise AssertionError(snapshot)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    start = [*TOPO, "submit", "topologies/top_n.py", "-p", "seconds=600", "--home", str(home)]
    subprocess.run(start, cwd=ROOT, check=True, capture_output=True, timeout=60)
    yield home
    subprocess.run([*TOPO, "kill", "top-n", "--yes", "--home", str(home)], cwd=ROOT, capture_output=True, timeout=60)


@pytest.fixture
def server(home: Path) -> Iterator[subprocess.Popen[str]]:
    command = [*TOPO, "ui", "--port", "0", "--home", str(home)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.send_signal(signal.SIGINT)
        assert process.wait(20) in (0, 130)


def test_it_shows_a_topology_acts_on_it_and_sees_its_master_lost(home: Path, server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    page = Page(server.stdout.readline())
    shown = page.look("top-n", lambda one: one.get("running") and one["overview"]["status"] == "RUNNING")
    assert {row["kind"] for row in shown["overview"]["components"]} >= {"spout", "bolt"}
    for what in ("history", "errors", "dead-letters", "logs", "checkpoints", "settings", "workers"):
        assert page.get(f"api/t/top-n/{what}")
    spout = next(row["component"] for row in shown["overview"]["components"] if row["kind"] == "spout")
    watched = page.post("observations", {"kind": "tap", "component": spout, "for_s": 30})
    while not page.get(f"api/t/top-n/observations/{watched['id']}")["rows"]:
        time.sleep(0.2)
    with pytest.raises(HTTPError) as refused:
        page.post("observations", {"kind": "trace", "for_s": 30})
    assert "exactly_once: only barriers are tracked" in json.load(refused.value)["error"]
    assert page.act("deactivate")["exit"] == 0
    page.look("top-n", lambda one: one["overview"]["status"] == "INACTIVE")
    assert page.act("activate")["exit"] == 0
    done = (home / "topologies" / "top-n" / "operator.jsonl").read_text().splitlines()
    assert [json.loads(row)["action"] for row in done] == ["deactivate", "activate"]
    pages = int(Path(f"/proc/{server.pid}/statm").read_text().split()[1])
    assert pages * os.sysconf("SC_PAGE_SIZE") < MOST_BYTES
    os.kill(shown["overview"]["master"]["pid"], signal.SIGKILL)
    page.look("list", lambda one: [row["status"] for row in one["topologies"]] == ["LOST"])
    assert page.act("resume")["exit"] == 0
    page.look("top-n", lambda one: bool(one["running"]))


def printed(home: Path) -> subprocess.CompletedProcess[str]:
    command = [*TOPO, "ui", "--print", "--home", str(home)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20)


def test_a_run_serves_the_page_and_ends_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = [*TOPO, "run", "topologies/top_n.py", "-p", "seconds=600", "--ui", "--quiet", "--home", str(home)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        link = next(line for line in run.stderr if "#token=" in line).rpartition(" ")[2]
        page = Page(link)
        page.look("list", lambda one: [row["status"] for row in one["topologies"]] == ["RUNNING"])
        assert printed(home).stdout.strip() == link.strip()
        run.send_signal(signal.SIGINT)
        run.stderr.read()
    assert printed(home).returncode == 1
