"""Mistakes with `topo resume`."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.cli.drive import TOPO, piped

pytestmark = pytest.mark.integration

TOTAL = """
from topo import IterableSpout, JsonLinesSink, StatefulBolt, TopologyBuilder

class Total(StatefulBolt):
    outputs = ("total",)
    def prepare(self, context):
        self.total = 0
    def execute(self, tup, collector):
        self.total += tup[0]
    def end_of_input(self, collector):
        collector.emit((self.total,))
    def snapshot(self):
        return self.total
    def restore(self, state):
        self.total = state or 0

def topology():
    builder = TopologyBuilder("sum")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("total", Total()).global_grouping("numbers")
    builder.set_bolt("out", JsonLinesSink("total.jsonl")).global_grouping("total")
    return builder.build()
"""


def test_what_is_done_is_resumed(tmp_path: Path, topo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that has ended is resumed, to be sure: nothing starts, nothing is published twice, and the answer states it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.py").write_text(TOTAL)
    assert piped("run", "sum.py", "-q").code == 0
    again = piped("resume", "sum")
    assert again.code == 0
    assert "sum has processed all its input: there is nothing to resume, and nothing was started" in again.err
    assert "`topo resume sum --from-beginning` starts it from the beginning" in again.err
    assert (tmp_path / "total.jsonl").read_text() == '{"total":6}\n'


@pytest.mark.parametrize("command", ["run", "submit"])
def test_what_is_done_is_not_started_again_with_resume_or_start(
    command: str, tmp_path: Path, topo_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container or service starts a finished run again: nothing starts, and the exit code gives no reason to try again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.py").write_text(TOTAL)
    assert piped("run", "sum.py", "-q").code == 0
    again = piped(command, "sum.py", "--resume-or-start")
    assert again.code == 0
    assert "sum has processed all its input: there is nothing to resume, and nothing was started" in again.err
    assert "--watch" not in again.err and "topo kill" not in again.err, "advice for a topology that runs"
    assert (tmp_path / "total.jsonl").read_text() == '{"total":6}\n'


def test_the_systemd_unit_leaves_what_has_ended_ended(tmp_path: Path, topo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service of a finished run is started again by a reboot, another's topology is stopped, a third has a mistake."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sum.py").write_text(TOTAL)
    (tmp_path / "endless.py").write_text(TOTAL.replace("[1, 2, 3]", "__import__('itertools').count"))
    (tmp_path / "wrong.py").write_text(TOTAL.replace('("total", Total())', '("total", 1)'))
    (tmp_path / "failing.py").write_text(TOTAL.replace("self.total += tup[0]", "raise ValueError"))
    unit = ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(Path(__file__).parents[2] / "deploy/systemd/topo@.service")
    service = unit["Service"]
    # With Type=forking a start that finds nothing to do has failed.
    assert service["Type"] == "exec" and service["Restart"] == "on-failure"

    def start(file: str) -> subprocess.Popen[bytes]:
        words = shlex.split(service["ExecStart"].replace("${TOPOLOGY}", file).replace("$ARGUMENTS", "").replace("%i", file[:-3]))
        assert words[0].endswith("/topo")
        return subprocess.Popen([*TOPO, *words[1:]])

    assert start("sum.py").wait(60) == 0
    assert start("sum.py").wait(60) == 0
    assert (tmp_path / "total.jsonl").read_text() == '{"total":6}\n'
    for file, code in (("wrong.py", 2), ("failing.py", 1)):
        assert start(file).wait(60) == code
        assert str(code) in service["RestartPreventExitStatus"].split()
    endless = start("endless.py")
    while piped("status", "endless").code != 0:
        assert endless.poll() is None
        time.sleep(0.1)
    endless.send_signal(signal.SIGTERM)
    assert str(endless.wait(60)) in service["SuccessExitStatus"].split()
