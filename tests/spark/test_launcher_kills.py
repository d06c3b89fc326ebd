"""Whatever dies under a topology on a Spark cluster: nothing is lost, and it continues. Run with -s to see how fast."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.integration.support import ENDLESS, FAST, PATIENCE_S, SINK, Scene, eventually, flow, is_gone, kill, pid_of
from tests.spark.standalone import LIGHT, StandaloneCluster
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.launch.running import RunningTopology
from topo.master.outcome import OutcomeKind
from topo.storage.submitted import SparkCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(240)]

LONG_S = 120.0
FLOW = ENDLESS + flow('builder.set_spout("numbers", Endless())', SINK + '.shuffle_grouping("numbers")')
SLOW = FLOW.replace("self.collector.emit((self.next,)", "time.sleep(0.005); self.collector.emit((self.next,)")


class Victim:
    """The processes behind the sink's task, from the inside out."""

    def __init__(self, running: RunningTopology) -> None:
        self.worker = psutil.Process(pid_of(running.status(), "sink"))
        self.agent = self._above(self.worker)
        self.executor = self._above(self._above(self.agent))
        self.daemon = self._above(self.executor)

    def _above(self, process: psutil.Process) -> psutil.Process:
        parent = process.parent()
        assert parent is not None
        return parent


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, standalone: StandaloneCluster) -> Iterator[Scene]:
    """Files of the topology that all these tests kill in turn."""
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    yield Scene(tmp_path_factory.mktemp("stage"), home)


@pytest.fixture(scope="module")
def running(stage: Scene, standalone: StandaloneCluster) -> Iterator[RunningTopology]:
    """A topology of three workers that counts until the last test stops it."""
    cluster = SparkCluster(master=standalone.url, conf=LIGHT)
    begun = submit_background(RunRequest(stage.file(SLOW), settings=FAST, home=stage.home, foreground=True, cluster=cluster))
    yield begun
    if begun.folder.is_running():
        begun.kill()
        begun.wait(PATIENCE_S)
    eventually(lambda: not standalone.topology_workers(), what="workers to be gone")


@contextlib.contextmanager
def recovery_from(running: RunningTopology, fault: str) -> Iterator[None]:
    """Wait, behind the block, until tuples are acked in a new epoch; print how long that took."""
    before = running.wait_until(lambda status: status["totals"]["acked"] > 0, LONG_S, "tuples")
    begun = time.monotonic()
    yield
    risen = running.wait_until(lambda status: status["epoch"] > before["epoch"], LONG_S, "a new epoch")
    replaced_s = time.monotonic() - begun
    running.wait_until(lambda status: status["totals"]["acked"] > risen["totals"]["acked"], LONG_S, "tuples")
    print(f"\n{fault}: workers back after {replaced_s:.2f} s, tuples acked after {time.monotonic() - begun:.2f} s")


@pytest.mark.parametrize("victim", ["worker", "agent", "executor"])
def test_a_process_that_is_killed_is_replaced(running: RunningTopology, victim: str) -> None:
    with recovery_from(running, f"kill -9 of the {victim}"):
        killed = Victim(running)
        pid = getattr(killed, victim).pid
        kill(pid)
    eventually(lambda: is_gone(killed.worker.pid) and is_gone(pid), what="the old processes to be gone")


def test_a_spark_worker_that_is_killed_is_done_without(running: RunningTopology, standalone: StandaloneCluster) -> None:
    with recovery_from(running, "kill -9 of the Spark worker"):
        killed = Victim(running)
        kill(killed.daemon.pid)
    eventually(lambda: is_gone(killed.worker.pid) and is_gone(killed.executor.pid), what="the old processes to be gone")
    name = next(name for name, daemon in standalone.daemons.items() if daemon.poll() is not None)
    standalone.start_worker(int(name.rpartition("-")[2]))
    standalone.wait_for_workers(3)


def test_a_frozen_agent_is_replaced_and_leaves_when_it_comes_back(running: RunningTopology) -> None:
    with recovery_from(running, "SIGSTOP of the agent, worker_timeout=5s"):
        frozen = Victim(running)
        kill(frozen.agent.pid, signal.SIGSTOP)
    # Spark may have ended it by now, which a stopped process does not hinder.
    with contextlib.suppress(ProcessLookupError):
        kill(frozen.agent.pid, signal.SIGCONT)
    eventually(lambda: is_gone(frozen.agent.pid) and is_gone(frozen.worker.pid), what="the frozen agent to leave")
    epoch = running.status()["epoch"]
    assert Victim(running).agent.pid != frozen.agent.pid
    running.wait_until(lambda status: status["uptime_s"] > 0, what="an answer")
    assert running.status()["epoch"] == epoch, "the agent that came back has disturbed the others"


def topo(*words: str) -> str:
    """Run the command line, and return its output."""
    done = subprocess.run([sys.executable, "-m", "topo_cli", *words], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


RAISING = """
class Numbers(RetryingSpout):
    outputs = ("number",)
    def open(self, context, collector):
        self.collector, self.next = collector, 0
    def next_tuple(self):
        self.collector.emit((self.next,), self.next)
        self.next += 1
        time.sleep(0.001)

class Picky(BasicBolt):
    def execute(self, tup, collector):
        if tup["number"] == 5:
            print("picky prints hello")
            raise ValueError("five")

def topology():
    builder = TopologyBuilder("raising")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("picky", Picky()).shuffle_grouping("numbers")
    return builder.build()
"""


def test_another_topology_runs_beside_it_and_the_commands_work_on_both(
    running: RunningTopology, standalone: StandaloneCluster, scene: Scene
) -> None:
    neighbours = {process.pid for process in standalone.topology_workers()}
    before = running.status()
    cluster = SparkCluster(master=standalone.url, conf=LIGHT, slots=1)
    settings = {**FAST, "workers": 2}
    beside = submit_background(
        RunRequest(scene.file(RAISING, "raising"), settings=settings, home=scene.home, foreground=True, cluster=cluster)
    )
    beside.wait_until(lambda status: status["totals"]["acked"] > 10, LONG_S, "tuples")
    eventually(lambda: "ValueError" in topo("errors", "raising", "--no-color"), what="the error")
    assert json.loads(topo("list", "--json"))[0]["topology"] == "raising"
    status = json.loads(topo("status", "raising", "--json"))
    found = {process.pid for process in standalone.topology_workers()} - neighbours
    assert {worker["pid"] for worker in status["workers"]} == found
    eventually(lambda: "prints hello" in topo("logs", "raising"), what="the printed line")
    topo("deactivate", "raising")
    beside.wait_until(lambda status: status["status"] == "INACTIVE", LONG_S, "a pause")
    topo("activate", "raising")
    beside.wait_until(lambda status: status["status"] == "RUNNING", LONG_S, "its end")
    topo("kill", "raising", "--yes")
    assert beside.wait(PATIENCE_S).kind is OutcomeKind.KILLED
    eventually(lambda: {process.pid for process in standalone.topology_workers()} == neighbours, what="its workers to be gone")
    after = running.wait_until(lambda status: status["totals"]["acked"] > before["totals"]["acked"], LONG_S, "tuples")
    assert after["epoch"] == before["epoch"]


def test_after_all_that_nothing_is_lost(running: RunningTopology, stage: Scene) -> None:
    running.wait_until(lambda status: status["totals"]["acked"] > 0, LONG_S, "tuples")
    stage.touch("stop")
    outcome = running.wait(LONG_S)
    assert outcome.kind is OutcomeKind.DONE, outcome.reason
    values = set(stage.lines())
    assert values == set(range(max(values) + 1))


def test_a_driver_that_is_killed_takes_all_with_it_and_a_new_submit_goes_on(scene: Scene, standalone: StandaloneCluster) -> None:
    cluster = SparkCluster(master=standalone.url, conf=LIGHT)
    # Its checkpoints are in the topology's folder on the driver's machine.
    settings = {**FAST, "workers": 2, "delivery": "exactly_once", "checkpoint_interval": "200ms"}
    first = submit_background(RunRequest(scene.file(SLOW), settings=settings, home=scene.home, cluster=cluster))
    status = first.wait_until(lambda status: status["totals"]["acked"] > 100, LONG_S, "tuples")
    victim, workers = Victim(first), standalone.topology_workers()
    assert len(workers) == 2
    begun = time.monotonic()
    kill(status["master"]["pid"])
    eventually(lambda: is_gone(victim.agent.pid) and all(is_gone(worker.pid) for worker in workers), what="all to be gone")
    print(f"\nkill -9 of the driver: all workers gone after {time.monotonic() - begun:.2f} s")
    standalone.wait_until_idle()
    second = submit_background(RunRequest(scene.file(SLOW), settings=settings, home=scene.home, cluster=cluster))
    print(f"kill -9 of the driver: resumed after {time.monotonic() - begun:.2f} s")
    second.wait_until(lambda status: status["totals"]["acked"] > 100, LONG_S, "tuples")
    scene.touch("stop")
    outcome = second.wait(LONG_S)
    assert outcome.kind is OutcomeKind.DONE, outcome.reason
    values = sorted(scene.lines())
    assert values == list(range(len(values)))
    assert second.summary()["checkpoints"]["restores"] >= 1, "it began again"
