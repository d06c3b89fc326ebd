"""The code that a topology was submitted with is the code that runs, whatever happens to the original."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.drive import call
from topo.launch.local_cluster import LocalCluster

pytestmark = pytest.mark.integration

MAIN = """
from topo import BasicBolt, IterableSpout, TopologyBuilder
from helper import up
import more


class Up(BasicBolt):
    outputs = ("value",)

    def prepare(self, context):
        print(up("ready"))

    def execute(self, tup, collector):
        collector.emit((up(tup["value"]),))


def forever():
    while True:
        yield "a"


builder = TopologyBuilder("shipped")
builder.set_spout("words", IterableSpout(forever), max_spout_pending=10)
builder.set_bolt("up", Up()).shuffle_grouping("words")
topology = builder.build()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "helper.py").write_text("import deeper.tools\ndef up(text):\n    return deeper.tools.shout(text)\n")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "tools.py").write_text("def shout(text):\n    return text.upper()\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "more.py").write_text("")
    return tmp_path


def test_edited_and_removed_modules_change_nothing_that_runs(project: Path, topo_home: Path) -> None:
    """While a topology runs its helper is edited and the rest of its folder removed; then a worker is restarted."""
    more = project / "elsewhere" / "more.py"
    with LocalCluster(topo_home) as cluster:
        run = cluster.submit(str(project / "main.py"), py_files=[str(more)])
        run.wait_until(lambda status: status["totals"]["acked"] > 10, what="the first acks")
        (project / "helper.py").write_text("def up(text):\n    return 'EDITED'\n")
        (project / "main.py").unlink()
        for folder in ("deeper", "elsewhere"):
            shutil.rmtree(project / folder)

        host = next(task["worker"] for task in run.status()["tasks"] if task["component"] == "up")
        run.restart(host)
        run.wait_until(lambda status: status["epoch"] == 2 and status["status"] == "RUNNING", what="the restart")

        lines = [json.loads(line) for line in (run.folder.logs / f"worker-{host}.log").read_text().splitlines()]
        assert [line["message"] for line in lines if line["logger"] == "stdout"] == ["READY", "READY"]
        assert run.errors() == []


def test_missing_py_file_is_refused_before_anything_starts(
    project: Path, topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--py-files` names a missing file, and a file that cannot be imported."""
    result = call(capsys, "submit", project / "main.py", "--py-files", project / "gone.py")
    assert result.code == 2
    assert f"--py-files: there is no file {project}/gone.py" in result.err
    result = call(capsys, "submit", project / "main.py", "--py-files", project / "deeper")
    assert result.code == 2
    (project / "data.csv").write_text("")
    result = call(capsys, "submit", project / "main.py", "--py-files", project / "data.csv")
    assert "give files that end in .py, .zip, .egg, .whl" in result.err
    assert call(capsys, "list").out == ""


DATA = """
from pathlib import Path
from topo import BasicBolt, IterableSpout, TopologyBuilder

STOP = Path(__file__).with_name("stop.txt")


class Keep(BasicBolt):
    def execute(self, tup, collector):
        STOP.read_text()


builder = TopologyBuilder("data")
builder.config(attempts=1)
builder.set_spout("words", IterableSpout(["a"]))
builder.set_bolt("keep", Keep()).shuffle_grouping("words")
topology = builder.build()
"""


def test_a_data_file_beside_a_single_file_is_not_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`Path(__file__).with_name("stop.txt")` of a topology of one file, read by a bolt, and while the file is imported."""
    (tmp_path / "stop.txt").write_text("the")
    (tmp_path / "flow.py").write_text(DATA)
    (tmp_path / "early.py").write_text(DATA.replace('"stop.txt")', '"stop.txt").read_text()'))

    for file in ("flow.py", "early.py"):
        shown = call(capsys, "run", tmp_path / file).err
        assert f"No such file or directory: '{tmp_path}/stop.txt'" in shown
        assert "; it exists, but code runs as a copy, and data files beside a single-file topology are not copied" in shown
