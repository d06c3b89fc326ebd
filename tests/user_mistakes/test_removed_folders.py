"""Folders that are removed while a topology runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.drive import Result, piped
from topo.storage.state_folder import StateFolder, TopologyFolder
from topo.testing.fixtures import cluster_of_its_own, processes_of

pytestmark = pytest.mark.integration
PATIENCE_S = 30.0

ENDLESS = """
import time

from topo import BasicBolt, RetryingSpout, StatefulBolt, TopologyBuilder

class Numbers(RetryingSpout):
    outputs = ("number",)
    def open(self, context, collector):
        self.collector = collector
        self.next = context.committed_position or 0
    def next_tuple(self):
        time.sleep(0.001)
        self.collector.emit((self.next,), self.next)
        self.next += 1

class Look(BasicBolt):
    def execute(self, tup, collector):
        pass

def topology():
    builder = TopologyBuilder("endless")
    builder.config(checkpoint_interval="100ms", workers=3, max_spout_pending=100)
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("look", Look()).shuffle_grouping("numbers")
    return builder.build()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with cluster_of_its_own() as cluster:
        assert cluster.home is not None
        yield cluster.home


def submit(home: Path, folder: Path, *arguments: str) -> TopologyFolder:
    file = folder / "endless.py"
    file.write_text(ENDLESS)
    done = piped("submit", file, "--home", home, "--wait", *arguments)
    assert done.code == 0, done.err
    return StateFolder(home).find("endless")


def remove(folder: TopologyFolder) -> None:
    """Remove a state folder at once: `rm -rf` fails while files are written into it, and is called again."""
    folder.path.rename(folder.path.with_name(".removed"))
    shutil.rmtree(folder.path.with_name(".removed"))


def eventually(condition: Callable[[], object], what: str, within_s: float = PATIENCE_S) -> None:
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def status_of(home: Path) -> dict[str, object]:
    done: Result = piped("status", "endless", "--json", "--home", home)
    assert done.code == 0, done.err
    status: dict[str, object] = json.loads(done.out)
    return status


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_state_folder_that_is_removed_ends_its_topology_and_the_name_is_free(home: Path, tmp_path: Path, delivery: str) -> None:
    """The user removes the state folder of a topology that runs: master and workers end within seconds, and leave nothing."""
    folder = submit(home, tmp_path, "-s", f"delivery={delivery}")
    remove(folder)
    eventually(lambda: not processes_of(home), f"still there: {processes_of(home)}", within_s=10.0)
    assert not folder.path.exists()
    assert piped("kill", "endless", "--yes", "--home", home).code == 2
    submit(home, tmp_path)
    assert piped("kill", "endless", "--yes", "--home", home).code == 0


def test_a_second_topology_under_the_name_of_a_removed_one_runs_alone(home: Path, tmp_path: Path) -> None:
    """The user removes the state folder and submits again at once: of two masters, only the second one continues."""
    folder = submit(home, tmp_path)
    before = processes_of(home)
    remove(folder)
    submit(home, tmp_path)
    _, alive = psutil.wait_procs(before, timeout=10.0)
    assert alive == []
    assert status_of(home)["topology"] == "endless"
    assert piped("kill", "endless", "--yes", "--home", home).code == 0


def test_workers_of_a_killed_master_end_when_the_state_folder_is_removed(home: Path, tmp_path: Path) -> None:
    """The master was killed and the state folder removed: its workers do not write on for `master_timeout`."""
    folder = submit(home, tmp_path, "-s", "heartbeat=200ms")
    master = json.loads(folder.master.read_bytes())["pid"]
    os.kill(master, signal.SIGKILL)
    remove(folder)
    eventually(lambda: not processes_of(home), "the workers ended", within_s=10.0)


def test_sockets_that_are_removed_are_made_anew(home: Path, tmp_path: Path) -> None:
    """A cleaner of /tmp removes the sockets: commands still work, and a worker that dies is replaced."""
    folder = submit(home, tmp_path, "-s", "heartbeat=200ms")
    endpoint = json.loads(folder.master.read_bytes())["client_endpoint"]
    shutil.rmtree(Path(endpoint.removeprefix("ipc://")).parent)
    eventually(lambda: any(row["kind"] == "SocketsRemoved" for row in folder.all_errors()), "it was noticed")
    workers = status_of(home)["workers"]
    assert isinstance(workers, list)
    os.kill(workers[1]["pid"], signal.SIGKILL)

    def flows_again() -> bool:
        status = status_of(home)
        return status["restarts"] == 1 and status["status"] == "RUNNING"

    eventually(flows_again, "the worker was replaced")
    acked = status_of(home)["totals"]["acked"]  # type: ignore[index]
    eventually(lambda: status_of(home)["totals"]["acked"] > acked, "messages are acked again")  # type: ignore[index]
    assert piped("kill", "endless", "--yes", "--home", home).code == 0
