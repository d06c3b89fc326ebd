"""Topologies on a real YARN: runs, the loss of a node with all its containers, refusals. Run with -s to see how fast."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.support import FAST, PATIENCE_S, Scene, eventually
from tests.spark.standalone import LIGHT
from tests.spark.test_launcher import WORDS
from tests.spark.test_launcher_kills import SLOW, recovery_from
from tests.spark.yarn import YarnCluster
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.launch.running import RunningTopology
from topo.master.outcome import OutcomeKind
from topo.storage.submitted import SparkCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(240)]

LONG_S = 120.0

Submit = Callable[..., RunningTopology]


@pytest.fixture(scope="module")
def yarn(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """A ResourceManager and two NodeManagers."""
    cluster = YarnCluster(tmp_path_factory.mktemp("yarn"), 2)
    yield cluster
    cluster.close()


@pytest.fixture
def submit(scene: Scene, yarn: YarnCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Submit]:
    """Submits a topology to the YARN; whatever runs is ended with the test, and leaves nothing behind."""
    import pyspark

    begun: list[RunningTopology] = []
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.settings))
    conf = {
        **LIGHT,
        "spark.executor.cores": "2",
        "spark.yarn.am.extraJavaOptions": LIGHT["spark.executor.extraJavaOptions"],
        # Else each application copies Spark's jars.
        "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
        "spark.yarn.stagingDir": str(tmp_path),
    }

    def begin(topology: str, more: dict[str, str] | None = None, **settings: Any) -> RunningTopology:
        cluster = SparkCluster(master="yarn", conf={**conf, **(more or {})})
        request = RunRequest(topology, settings={**FAST, **settings}, home=scene.home, foreground=True, cluster=cluster)
        begun.append(submit_background(request))
        return begun[-1]

    yield begin
    for running in begun:
        if running.outcome() is None:
            running.kill()
        running.wait(PATIENCE_S)
    eventually(lambda: not yarn.containers(), what="containers to be gone")


def nodes_of(yarn: YarnCluster, status: dict[str, Any]) -> set[str]:
    """Return the NodeManagers in whose containers the topology's workers run; of a worker without a process, the name is ""."""
    try:
        return {yarn.node_of(worker["pid"]) if worker["pid"] else "" for worker in status["workers"]}
    except psutil.NoSuchProcess:
        return {""}


def test_a_word_count_is_exact_in_containers(scene: Scene, yarn: YarnCluster, submit: Submit) -> None:
    running = submit(scene.file(WORDS.replace("self.collector.emit(", "time.sleep(0.002); self.collector.emit("), "words"))
    running.wait_until(lambda status: nodes_of(yarn, status) <= {"node-0", "node-1"}, LONG_S, "workers in containers")
    outcome = running.wait(LONG_S)
    assert outcome.kind is OutcomeKind.DONE, (outcome.reason, running.errors())
    assert sorted(scene.lines()) == [("be", 1000), ("not", 500), ("or", 500), ("to", 1000)]
    assert running.summary()["totals"]["acked"] == 3000


def refused(scene: Scene, *words: str) -> str:
    """Return the message with which `topo submit` refuses to run a topology."""
    command = [sys.executable, "-m", "topo_cli", "submit", scene.file(WORDS, "words"), "--master", "yarn", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_a_refusal_names_the_setting_to_change(scene: Scene, yarn: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert "set HADOOP_CONF_DIR to the folder of its yarn-site.xml" in refused(scene)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.settings))
    message = refused(scene, "--conf", "spark.executor.memory=20g")
    assert "Required executor memory (20480 MB)" in message and "yarn.scheduler.maximum-allocation-mb" in message


def test_a_node_manager_that_is_killed_with_its_containers_is_done_without(
    scene: Scene, yarn: YarnCluster, submit: Submit
) -> None:
    """First the node without the ApplicationMaster, then the node with it: YARN ends all containers then."""
    running = submit(scene.file(SLOW))
    running.wait_until(lambda status: status["totals"]["acked"] > 100, LONG_S, "tuples")
    of_master = yarn.node_of_master()
    (other,) = {"node-0", "node-1"} - {of_master}
    for lost, left in ((other, of_master), (of_master, other)):
        # YARN may have put all executors beside the ApplicationMaster.
        if lost not in nodes_of(yarn, running.status()):
            continue
        with recovery_from(running, f"kill -9 of {lost}, {of_master} has the ApplicationMaster"):
            yarn.kill_node(lost)
        assert nodes_of(yarn, running.status()) == {left}
        if lost == other:
            yarn.start_nodes(lost)
    scene.touch("stop")
    outcome = running.wait(LONG_S)
    assert outcome.kind is OutcomeKind.DONE, outcome.reason
    values = set(scene.lines())
    assert values == set(range(max(values) + 1))


@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_a_run_that_waits_for_the_yarn_ends_on_a_signal(
    scene: Scene, yarn: YarnCluster, monkeypatch: pytest.MonkeyPatch, send: Callable[[int, int], None]
) -> None:
    """Spark itself would wait for as long as the YARN has no room for its ApplicationMaster, as without any node."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.settings))
    for name in {"node-0", "node-1"} & yarn.daemons.keys():
        yarn.kill_node(name)
    before = len(yarn.applications())
    command = [sys.executable, "-m", "topo_cli", "run", scene.file(WORDS, "words"), "--master", "yarn"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
    try:
        eventually(lambda: len(yarn.applications()) > before, LONG_S, "an application")
        send(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "it was asked to end while Spark started" in output and "Traceback" not in output, output
