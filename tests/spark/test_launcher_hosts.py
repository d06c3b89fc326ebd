"""Hosts of their own, as network namespaces of this machine: one is cut off. Needs the right to make them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support import FAST, PATIENCE_S, Scene, eventually, is_gone
from tests.spark.standalone import LIGHT, StandaloneCluster
from tests.spark.test_launcher_kills import LONG_S, SLOW, Victim, recovery_from
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.master.outcome import OutcomeKind
from topo.storage.submitted import SparkCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

HOSTS = 3


def ip(*words: str) -> None:
    """Run the command of that name."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Network namespaces that hang on one bridge, each behind a cable that can be pulled."""

    def __init__(self) -> None:
        mark = os.getpid() % 100_000
        net = f"10.77.{mark % 250}"
        self.driver = f"{net}.1"
        self.addresses = [f"{net}.{11 + number}" for number in range(HOSTS)]
        self.names = [f"topo{mark}h{number}" for number in range(HOSTS)]
        self._cables = [f"tp{mark}v{number}" for number in range(HOSTS)]
        self._bridge = f"tp{mark}b"

    def make(self) -> None:
        """Raises CalledProcessError where that is not permitted."""
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self.driver}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for name, cable, address in zip(self.names, self._cables, self.addresses, strict=True):
            ip("netns", "add", name)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", cable, "master", self._bridge, "up")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def pull(self, number: int) -> None:
        """Cut a host off."""
        ip("link", "set", self._cables[number], "down")

    def plug_in(self, number: int) -> None:
        """Connect it again."""
        ip("link", "set", self._cables[number], "up")

    def remove(self) -> None:
        """Undo all changes."""
        for words in (*(("netns", "del", name) for name in self.names), ("link", "del", self._bridge)):
            subprocess.run(["ip", *words], check=False, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    """Three hosts, if this user may make them."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip`: apt install iproute2")
    made = Hosts()
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"network namespaces may not be made here: {error.stderr.strip()}")
    yield made
    made.remove()


@pytest.fixture
def cluster(hosts: Hosts, tmp_path: Path) -> Iterator[StandaloneCluster]:
    """A worker on each of them, and the master with the driver."""
    folder = tmp_path / "spark"
    folder.mkdir()
    made = StandaloneCluster(folder, hosts.driver, hosts.addresses, cores=2, namespaces=hosts.names)
    yield made
    made.close()


def test_a_host_that_is_cut_off_is_done_without_and_its_workers_end(
    scene: Scene, hosts: Hosts, cluster: StandaloneCluster
) -> None:
    spark = SparkCluster(master=cluster.url, conf=LIGHT)
    running = submit_background(RunRequest(scene.file(SLOW), settings=FAST, home=scene.home, foreground=True, cluster=spark))
    with recovery_from(running, "a host is cut off, worker_timeout=5s"):
        victim = Victim(running)
        number = next(n for n in range(HOSTS) if cluster.daemons[f"worker-{n}"].pid == victim.daemon.pid)
        begun = time.monotonic()
        hosts.pull(number)
    eventually(lambda: is_gone(victim.agent.pid) and is_gone(victim.worker.pid), what="the processes that were cut off to end")
    print(f"agent and worker on that host have ended after {time.monotonic() - begun:.1f} s")
    hosts.plug_in(number)
    before = running.status()["totals"]["acked"]
    running.wait_until(lambda status: status["totals"]["acked"] > before + 200, LONG_S, "tuples")
    scene.touch("stop")
    outcome = running.wait(LONG_S)
    assert outcome.kind is OutcomeKind.DONE, outcome.reason
    values = set(scene.lines())
    assert values == set(range(max(values) + 1))
    eventually(lambda: not cluster.topology_workers(), PATIENCE_S, "workers to be gone")
