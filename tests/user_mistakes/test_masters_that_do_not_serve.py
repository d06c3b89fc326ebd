"""A stopped master, and a master whose topology does not start, are named as such."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.drive import call
from topo.storage.state_folder import StateFolder

FLOW = """
import pathlib, time
from topo import BasicBolt, IterableSpout, TopologyBuilder

AWAY = pathlib.Path({away!r})


class Store(BasicBolt):
    def prepare(self, context):
        if AWAY.exists():
            raise OSError("the database is away")

    def execute(self, tup, collector):
        pass


def numbers():
    while True:
        time.sleep(0.001)
        yield 1


builder = TopologyBuilder("flow")
builder.set_spout("numbers", IterableSpout(numbers))
builder.set_bolt("store", Store()).shuffle_grouping("numbers")
topology = builder.build()
"""

SLOW_TO_CLOSE = """
import time
from topo import BasicBolt, IterableSpout, TopologyBuilder


class Numbers(IterableSpout):
    def close(self):
        time.sleep(1)


class Store(BasicBolt):
    def prepare(self, context):
        raise OSError("the database is away")

    def execute(self, tup, collector):
        pass


builder = TopologyBuilder("flow")
builder.set_spout("numbers", Numbers([1]))
builder.set_bolt("store", Store()).shuffle_grouping("numbers")
topology = builder.build()
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    path = tmp_path / "flow.py"
    path.write_text(FLOW.format(away=str(tmp_path / "away")))
    return path


def test_stopped_master_is_stalled_for_list_and_resume_alike(
    flow: Path, topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A master was stopped (SIGSTOP, a debugger): `list` called it LOST, and `resume` reported that it was running."""
    assert call(capsys, "submit", flow, "--wait").code == 0
    master = int(StateFolder(topo_home).find("flow").owner())
    os.kill(master, signal.SIGSTOP)
    try:
        (row,) = json.loads(call(capsys, "list", "--json", "--deadline", "200ms").out)
        resumed = call(capsys, "resume", "flow")
    finally:
        os.kill(master, signal.SIGCONT)

    assert (row["status"], row["pid"]) == ("STALLED", master)
    assert f"kill -CONT {master}" in row["reason"]
    assert resumed.code == 4
    assert f"the master of 'flow', process {master}, runs and does not answer" in resumed.err
    assert call(capsys, "resume", "flow").code == 2, "a master that answers is running"
    assert call(capsys, "kill", "flow", "--yes").code == 0


def test_resume_that_waits_fails_when_a_component_does_not_open(
    flow: Path, tmp_path: Path, topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`topo resume --wait` while the database that a bolt opens is away: the exit code was 0."""
    assert call(capsys, "submit", flow, "--wait").code == 0
    assert call(capsys, "kill", "flow", "--yes").code == 0
    (tmp_path / "away").touch()

    result = call(capsys, "resume", "flow", "--wait")

    assert result.code == 1
    assert "flow does not start" in result.err and "OSError: the database is away" in result.err
    assert call(capsys, "kill", "flow", "--yes").code == 0


def test_submit_and_resume_that_wait_for_a_topology_that_cannot_start_fail(
    tmp_path: Path, topo_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topology that never ran gives up on a bolt that does not open, while a spout takes its time to close."""
    flow = tmp_path / "flow.py"
    flow.write_text(SLOW_TO_CLOSE)
    for command in (("submit", str(flow)), ("resume", "flow")):
        result = call(capsys, *command, "--wait")
        assert (result.code, "flow has failed: " in result.err) == (1, True), result.err


def test_doctor_warns_of_a_state_folder_that_others_can_write_to(topo_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A state folder with mode 0777 was called private."""
    topo_home.chmod(0o777)

    found = {row["check"]: row for row in json.loads(call(capsys, "doctor", "--json").out)}

    assert found["state folder"]["state"] == "warning"
    assert f"chmod 700 {topo_home}" in found["state folder"]["detail"]
