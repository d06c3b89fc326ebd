"""The first line of a start states whether it continues or starts from the beginning."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.drive import Result, call
from topo.launch.running import RunningTopology
from topo.storage.state_folder import StateFolder

FLOW = """
import itertools, time
from topo import BasicBolt, IterableSpout, TopologyBuilder


class Pass(BasicBolt):
    def execute(self, tup, collector):
        pass


def numbers():
    for number in itertools.count():
        time.sleep(0.001)
        yield number


def topology(n: int = 0, delivery="at_least_once"):
    builder = TopologyBuilder("flow").config(delivery=delivery, checkpoint_interval="200ms")
    builder.set_spout("numbers", IterableSpout(range(n) if n else numbers), max_spout_pending=100)
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")
    return builder.build()
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "flow.py"
    path.write_text(FLOW)
    return path


class Topo:
    """The `topo` command, and the topology `flow` that it starts."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._state = StateFolder(home)
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Result:
        return call(self._capsys, *arguments)

    def start(self, *arguments: object) -> str:
        """Run a command that starts the topology, and return its first line."""
        result = self(*arguments)
        assert result.code == 0, result.err
        return result.err.splitlines()[0]

    def wait_for_state(self) -> None:
        """Wait until the master has stored something to continue from."""
        running = RunningTopology(self._state.find("flow"))
        running.wait_until(
            lambda status: status["checkpoints"]["complete"] > 0 if status["checkpoints"] else running.folder.positions.exists(),
            what="something to continue from",
        )

    def kill_master(self) -> None:
        folder = self._state.find("flow")
        os.kill(int(folder.owner()), signal.SIGKILL)
        while folder.is_running():
            time.sleep(0.01)


@pytest.fixture
def topo(topo_home: Path, capsys: pytest.CaptureFixture[str]) -> Topo:
    return Topo(topo_home, capsys)


def test_second_run_says_that_it_begins_anew(topo: Topo, flow: Path) -> None:
    """`topo run` twice, in the belief that the second run continues."""
    assert topo.start("run", flow, "-p", "n=20", "-q") == "flow starts from the beginning"

    again = topo.start("run", flow, "-p", "n=20", "-q")

    assert again.startswith("flow starts from the beginning; the last run's positions of ")
    assert "--resume-or-start" in again


def test_submit_after_a_kill_begins_anew_unless_it_is_told_to_go_on(topo: Topo, flow: Path) -> None:
    """`topo submit` after `topo kill`, in the belief that it continues as after a crash."""
    assert topo.start("submit", flow, "--resume-or-start", "--wait") == "flow starts from the beginning"
    topo.wait_for_state()
    topo.kill_master()
    assert topo.start("submit", flow, "--wait").startswith("flow continues from the positions of ")
    assert topo("kill", "flow", "--yes").code == 0
    flow.write_text(FLOW + "\n# edited\n")

    assert topo.start("submit", flow, "--resume-or-start", "--wait").startswith("flow continues from the positions of ")

    assert topo("kill", "flow", "--yes").code == 0
    assert topo.start("resume", "flow", "--wait").startswith("flow continues from the positions of ")
    assert topo("kill", "flow", "--yes").code == 0
    assert topo.start("submit", flow, "--wait").startswith("flow starts from the beginning; the last run's positions of ")
    assert topo("kill", "flow", "--yes").code == 0


def test_checkpoint_of_the_last_run_can_still_be_gone_on_from(topo: Topo, flow: Path) -> None:
    """A run with state starts from the beginning by mistake: the line names what keeps the state of the last one."""
    given = ("submit", flow, "-p", "delivery=exactly_once", "--wait")
    topo.start(*given)
    topo.wait_for_state()
    assert topo("kill", "flow", "--yes").code == 0

    line = topo.start(*given)

    assert line.startswith("flow starts from the beginning; `--from /")
    place = line.split("`")[1].removeprefix("--from ")
    assert topo("kill", "flow", "--yes").code == 0
    assert topo.start(*given, "--from", place).startswith(f"flow continues from {place}, checkpoint ")
    assert topo("kill", "flow", "--yes").code == 0


def test_going_on_in_another_mode_is_refused(topo: Topo, flow: Path) -> None:
    """`--resume-or-start` after the mode of delivery was changed: positions are no checkpoint."""
    topo.start("submit", flow, "--wait")
    assert topo("kill", "flow", "--yes").code == 0

    result = topo("submit", flow, "-p", "delivery=exactly_once", "--resume-or-start")

    assert result.code == 2
    assert "ran with delivery=at_least_once and cannot continue with delivery=exactly_once" in result.err
    assert topo.start("resume", "flow").startswith("flow ")
    assert topo("kill", "flow", "--yes").code == 0


def test_refused_submit_leaves_nothing_behind(topo: Topo, flow: Path, tmp_path: Path) -> None:
    """`topo submit --from` of a savepoint that is not there, under a new name."""
    result = topo("submit", flow, "-p", "delivery=exactly_once", "--from", tmp_path / "nothing", "--name", "other")

    assert result.code == 2
    assert topo("list").out == ""
    assert "no topology is called 'other'" in topo("resume", "other").err
