"""Topologies on a real Spark cluster: runs, views, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import msgspec
import pytest
import zmq

from tests.integration.support import FAST, PATIENCE_S, Scene, eventually
from tests.spark.standalone import LIGHT, StandaloneCluster
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.launch.running import RunningTopology
from topo.master.outcome import OutcomeKind
from topo.storage.submitted import SparkCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(240)]

LONG_S = 120.0

WORDS = """
class Words(RetryingSpout):
    outputs = ("word",)
    def open(self, context, collector):
        self.words, self.collector = iter(enumerate(("to", "be", "or", "not", "to", "be") * 500)), collector
    def next_tuple(self):
        for number, word in self.words:
            self.collector.emit((word,), number)
            return
        self.collector.end_of_input()

class Count(BasicBolt):
    outputs = ("word", "count")
    def prepare(self, context):
        self.counts = {}
        print("counting on", os.getcwd())
    def execute(self, tup, collector):
        self.counts[tup["word"]] = self.counts.get(tup["word"], 0) + 1
    def end_of_input(self, collector):
        for row in self.counts.items():
            collector.emit(row)

def topology():
    builder = TopologyBuilder("words")
    builder.set_spout("words", Words())
    builder.set_bolt("count", Count(), 2).fields_grouping("words", "word")
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl")).global_grouping("count")
    return builder.build()
"""

Submit = Callable[..., RunningTopology]


@pytest.fixture
def submit(scene: Scene, standalone: StandaloneCluster) -> Iterator[Submit]:
    """Submits a topology to the cluster; whatever runs is ended with the test, and leaves nothing behind."""
    begun: list[RunningTopology] = []

    def begin(topology: str, cluster: dict[str, Any] | None = None, **settings: Any) -> RunningTopology:
        given: dict[str, Any] = {"master": standalone.url, "conf": LIGHT, **(cluster or {})}
        begun.append(
            submit_background(
                RunRequest(
                    topology,
                    settings={**FAST, "workers": 2, **settings},
                    home=scene.home,
                    foreground=True,
                    cluster=SparkCluster(**given),
                )
            )
        )
        return begun[-1]

    yield begin
    for running in begun:
        if running.folder.is_running():
            running.kill()
            running.wait(PATIENCE_S)
    eventually(lambda: not standalone.topology_workers(), what="workers to be gone")


def test_a_word_count_is_exact_with_modules_wheels_and_topo_shipped(
    scene: Scene, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "elsewhere" / "helper.py"
    helper.parent.mkdir()
    helper.write_text("def shout(word):\n    return word.upper()\n")
    wheel = tmp_path / "elsewhere" / "wheeled-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("wheeled/__init__.py", "MARK = '!'\n")
    python = bare_python(tmp_path)
    (packages,) = (tmp_path / "bare" / "lib").glob("python*/site-packages")
    for module in (zmq, msgpack, msgspec):
        here = Path(module.__file__ or "").parent
        for source in (here, *here.parent.glob("pyzmq.libs")):
            if not (packages / source.name).exists():
                (packages / source.name).symlink_to(source)
    foreign = packages / "topo" / "__init__.py"
    foreign.parent.mkdir()
    foreign.write_text("raise SystemExit('another project of this name has been executed')\n")
    monkeypatch.setenv("PYSPARK_PYTHON", python)
    source = WORDS.replace("class Words", "from helper import shout\nfrom wheeled import MARK\n\nclass Words").replace(
        "collector.emit(row)", "collector.emit((shout(row[0]) + MARK, row[1]))"
    )
    running = submit(scene.file(source, "words"), {"py_files": [str(helper), str(wheel)], "slots": 2}, workers=3)
    outcome = running.wait(LONG_S)
    assert outcome.kind is OutcomeKind.DONE, (outcome.reason, running.errors())
    assert sorted(scene.lines()) == [("BE!", 1000), ("NOT!", 500), ("OR!", 500), ("TO!", 1000)]
    log = (running.folder.logs / "master.log").read_text()
    assert "it is shipped" in log
    assert f"has another project's package topo at {foreign}" in log
    printed = [json.loads(line) for path in running.folder.logs.glob("worker-*.log") for line in path.read_text().splitlines()]
    assert sum(row["logger"] == "stdout" and row["component"] == "count" for row in printed) == 2, "agents log to the folder"


def bare_python(folder: Path) -> str:
    """Make an environment in which nothing is installed; return its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")], check=True)
    return str(folder / "bare" / "bin" / "python")


def refusal(running: RunningTopology) -> str:
    outcome = running.wait(LONG_S)
    assert outcome.kind is OutcomeKind.CRASHED
    assert running.summary()["totals"]["emitted"] == 0, "it ran"
    return outcome.reason


def test_too_few_slots_are_told_with_what_there_is(scene: Scene, submit: Submit, standalone: StandaloneCluster) -> None:
    running = submit(scene.file(WORDS.replace("Count(), 2", "Count(), 20"), "words"), workers=None)
    assert refusal(running) == (
        f"topology words needs 23 worker slots; Spark at {standalone.url} offers 12. "
        "Lower --workers or --slots, add Spark workers, or raise spark.cores.max"
    )


def test_a_host_without_the_interpreter_is_told(scene: Scene, submit: Submit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/bin/python3")
    assert "no Python at /nowhere/bin/python3" in refusal(submit(scene.file(WORDS, "words"), workers=1))


def test_another_version_of_python_is_told(scene: Scene, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An interpreter that takes itself for an older one: all that Spark looks at.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nclass Old(tuple):\n    major, minor, micro = 3, 9, 1\nsys.version_info = Old((3, 9, 1, 'final', 0))\n"
    )
    old = tmp_path / "python3.9"
    old.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    old.chmod(0o755)
    monkeypatch.setenv("PYSPARK_PYTHON", str(old))
    assert "hosts of the cluster run Python 3.9 and this machine 3." in refusal(submit(scene.file(WORDS, "words"), workers=1))


def test_a_host_without_the_packages_is_told_with_their_names(
    scene: Scene, submit: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", bare_python(tmp_path))
    refused = refusal(submit(scene.file(WORDS, "words"), workers=1))
    assert "lacks zmq, msgpack, msgspec: on that host: pip install 'msgpack>=" in refused


def test_a_spark_master_that_is_not_there_is_told_at_once(scene: Scene) -> None:
    from topo.errors import TopoEnvironmentError

    with pytest.raises(TopoEnvironmentError, match=r"no Spark master answers at spark://127.0.0.1:9"):
        submit_background(
            RunRequest(scene.file(WORDS, "words"), home=scene.home, cluster=SparkCluster(master="spark://127.0.0.1:9"))
        )
