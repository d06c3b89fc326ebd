"""`topo rebalance` and `-e`: another number of tasks: announced, done, or refused with the reason."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.drive import PATIENCE_S, TOPO, call, piped
from tests.cli.test_processes import background
from topo.master_process.client import Client
from topo.storage.state_folder import StateFolder

__all__ = ["background"]

pytestmark = pytest.mark.timeout(300)
EXACTLY = ("-s", "delivery=exactly_once", "-s", "batch_size=10", "-p", "pause=0.002", "--workers", "2")


def tasks(name: str = "flow") -> dict[str, int]:
    status = json.loads(piped("status", name, "--json").out)
    return {row["component"]: row["parallelism"] for row in status["components"] if row["kind"] != "acker"}


@pytest.fixture
def running(background: None, flow: Path) -> Iterator[Path]:
    result = piped("submit", flow, *EXACTLY, "-p", "items=100000", "-e", "double=2", "--wait")
    assert result.code == 0, result.err
    yield flow


def test_the_number_of_tasks_can_be_given_to_every_command_that_takes_a_topology(
    capsys: pytest.CaptureFixture[str], flow: Path
) -> None:
    assert "flow is valid: 6 tasks" in call(capsys, "validate", flow, "-e", "double=2", "-e", "show=2").out
    assert "bolt double x3 (Double)" in call(capsys, "graph", flow, "-e", "double=3").out
    result = call(capsys, "run", flow, "-e", "duble=2")
    assert result.code == 2
    assert "flow has no component 'duble'; it has numbers, double, show. Did you mean 'double'?" in result.err
    for wrong in ("double", "double=", "double=0", "double=two", "=2"):
        result = call(capsys, "run", flow, "-e", wrong)
        assert result.code == 2 and f"'{wrong}' is not of the form component=n, with n at least 1" in result.err
    result = call(capsys, "validate", flow, "-e", "double=500")
    assert (result.code, result.out.strip()) == (
        2,
        "- component 'double': parallelism 500 is more than max_parallelism 128; raise max_parallelism or lower the parallelism",
    )


@pytest.mark.integration
def test_a_dry_run_says_what_would_move_and_changes_nothing(running: Path) -> None:
    result = piped("rebalance", "flow", "-e", "double=1", "--dry-run")
    assert (result.code, result.out) == (0, "double: 2 -> 1 tasks, 64 of 128 key groups would move\n")
    shown_text = json.loads(piped("rebalance", "flow", "-e", "double=1", "-e", "show=3", "--dry-run", "--json").out)
    assert [(move["component"], move["before"], move["after"]) for move in shown_text["moves"]] == [
        ("double", 2, 1),
        ("show", 1, 3),
    ]
    assert tasks() == {"numbers": 1, "double": 2, "show": 1}


def write_nothing() -> None:
    """Have each write of this process fail, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["at_least_once", "exactly_once"])
def test_a_rebalance_that_cannot_store_its_numbers_names_the_way_on(mode: str, background: None, flow: Path) -> None:
    arguments = ("-s", f"delivery={mode}", "-p", "items=100000", "-p", "pause=0.002", "--workers", "2", "--wait")
    assert piped("submit", flow, *arguments).code == 0
    result = piped("rebalance", "flow", "-e", "double=2", preexec_fn=write_nothing)
    assert result.code == 1 and "Traceback" not in result.err
    assert "flow has ended, and its new numbers are not stored (" in result.err
    assert "`topo resume flow` continues it with those before" in result.err
    assert piped("resume", "flow", "--wait").code == 0
    assert tasks() == {"numbers": 1, "double": 1, "show": 1}
    assert json.loads(piped("status", "flow", "--json").out)["start"]["goes_on"]


def open_few_files() -> None:
    """Let this process and those that it starts open fewer files than a master needs."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))


@pytest.mark.integration
def test_a_rebalance_whose_start_fails_names_the_way_on(running: Path) -> None:
    result = piped("rebalance", "flow", "-e", "double=3", preexec_fn=open_few_files)
    assert result.code == 1
    assert "open files, and the limit is 40" in result.err
    assert "`topo resume flow` continues it, with the new numbers of tasks and workers" in result.err
    assert piped("resume", "flow", "--wait").code == 0
    assert tasks() == {"numbers": 1, "double": 3, "show": 1}
    assert json.loads(piped("status", "flow", "--json").out)["start"]["goes_on"]


@pytest.mark.integration
def test_a_rebalance_says_what_it_did_and_lasts(running: Path, topo_home: Path) -> None:
    result = piped("rebalance", "flow", "-e", "double=3")
    assert result.code == 0, result.err
    assert result.out.startswith("double: 2 -> 3 tasks, ") and result.out.endswith(" of 128 key groups moved\n")
    assert "flow continues from a savepoint" in result.err
    assert tasks() == {"numbers": 1, "double": 3, "show": 1}
    # The run before left nothing but the savepoint.
    folder = StateFolder(topo_home).find("flow")
    assert len(list(folder.savepoints.iterdir())) == 1 and len(list(folder.checkpoints.iterdir())) <= 1
    assert piped("kill", "flow", "--yes").code == 0
    assert piped("resume", "flow", "--wait").code == 0
    assert tasks() == {"numbers": 1, "double": 3, "show": 1}
    assert "nothing to do" in piped("rebalance", "flow", "-e", "double=3").err


@pytest.mark.integration
def test_what_cannot_be_done_is_said_with_the_reason(running: Path) -> None:
    for arguments, reason in (
        (("flow", "-e", "numbers=2"), "'numbers' is a spout: what each of its tasks has read cannot be split"),
        (("flow", "-e", "shw=2"), "Did you mean 'show'?"),
        (("flo", "-e", "show=2"), "no topology is called 'flo'. Did you mean 'flow'?"),
        (("flow",), "give -e COMPONENT=N, --workers N, or both"),
    ):
        result = piped("rebalance", *arguments)
        assert result.code == 2 and reason in result.err, result.err
    assert tasks() == {"numbers": 1, "double": 2, "show": 1}
    assert piped("kill", "flow", "--yes").code == 0
    assert piped("rebalance", "flow", "-e", "show=2").code == 3
    assert piped("rebalance", "flow", "-e", "show=2", "--dry-run").code == 0


@pytest.mark.integration
def test_a_topology_without_checkpoints_drains_and_continues_behind_its_positions(background: None, flow: Path) -> None:
    assert piped("submit", flow, "-p", "items=100000", "-p", "pause=0.01", "--workers", "1", "--wait").code == 0
    dry = piped("rebalance", "flow", "-e", "double=2", "--workers", "2", "--dry-run")
    assert (dry.code, dry.out) == (0, "double: 1 -> 2 tasks\nworkers: 1 -> 2\n")
    assert tasks()["double"] == 1
    result = piped("rebalance", "flow", "-e", "double=2", "--workers", "2")
    assert (result.code, result.out) == (0, dry.out), result.err
    assert "flow continues behind its stored positions" in result.err
    status = json.loads(piped("status", "flow", "--json").out)
    assert tasks()["double"] == 2 and len(status["workers"]) == 2
    assert status["start"]["text"].startswith("continues from the positions of ")
    # The workers alone, there and back; it stays in force.
    assert piped("rebalance", "flow", "--workers", "1").out == "workers: 2 -> 1\n"
    assert "nothing to do" in piped("rebalance", "flow", "--workers", "1", "-e", "double=2").err


@pytest.mark.integration
def test_the_status_says_how_checkpoints_do(running: Path) -> None:
    assert piped("savepoint", "flow").code == 0
    shown = piped("status", "flow").out
    line = r"^checkpoints  1 complete, \S+ ago: \d+ bytes in \S+, aligned \S+,\s+paused\s+\S+$"
    assert re.search(line, shown, re.MULTILINE), shown


@pytest.mark.integration
def test_a_topology_continues_unchanged_when_its_savepoint_cannot_be_written(running: Path, topo_home: Path) -> None:
    folder = StateFolder(topo_home).find("flow")
    folder.savepoints.touch()
    result = piped("rebalance", "flow", "-e", "double=3")
    assert result.code == 1
    assert f"cannot write {folder.savepoints}" in result.err and "flow continues as before" in result.err
    assert (json.loads(piped("status", "flow", "--json").out)["status"], tasks()["double"]) == ("RUNNING", 2)
    folder.savepoints.unlink()
    assert piped("rebalance", "flow", "-e", "double=3").code == 0
    assert tasks()["double"] == 3


SLOW = ("-p", "items=100000", "-p", "pause=1.5", "--workers", "1", "--wait")


def wait_until_draining(topo_home: Path) -> None:
    client, until = Client("flow", topo_home), time.monotonic() + PATIENCE_S
    while client.request("status")["status"] != "DRAINING":
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.integration
@pytest.mark.parametrize("mode", ["at_least_once", "exactly_once"])
@pytest.mark.parametrize("wait", [(), ("-w", "60s")], ids=["at once", "with a wait"])
def test_a_kill_during_the_drain_of_a_rebalance_wins(
    mode: str, wait: tuple[str, ...], background: None, flow: Path, topo_home: Path
) -> None:
    assert piped("submit", flow, "-s", f"delivery={mode}", *SLOW).code == 0
    rebalance = subprocess.Popen([*TOPO, "rebalance", "flow", "-e", "double=2"], stderr=subprocess.PIPE, text=True)
    wait_until_draining(topo_home)
    killed = piped("kill", "flow", *wait, "--yes")
    assert killed.code == 0, killed.err
    _, talk = rebalance.communicate(timeout=PATIENCE_S)
    assert rebalance.returncode == 1 and "`topo resume flow` continues" in talk, talk
    assert json.loads(piped("status", "flow", "--json").out)["status"] == "KILLED"
    assert piped("resume", "flow", "--wait").code == 0
    assert tasks()["double"] == 1


@pytest.mark.integration
def test_spouts_cannot_be_paused_or_emit_while_the_topology_ends(background: None, flow: Path, topo_home: Path) -> None:
    assert piped("submit", flow, *SLOW).code == 0
    kill = subprocess.Popen([*TOPO, "kill", "flow", "-w", "60s", "--yes"])
    wait_until_draining(topo_home)
    for verb in ("activate", "deactivate"):
        result = piped(verb, "flow")
        assert result.code == 2 and "flow is ending, as by `topo kill` or `topo rebalance`" in result.err, result.err
    assert kill.wait(timeout=PATIENCE_S) == 0


@pytest.mark.integration
def test_a_kill_waits_for_a_bolt_that_closes_late_and_names_it(background: None, flow: Path) -> None:
    """The bolt sleeps for longer than the drain may take, and than a command waits for an answer."""
    assert piped("submit", flow, "-p", "items=100000", "-p", "pause=15", "--workers", "1", "--wait").code == 0
    result = piped("kill", "flow", "-w", "1s", "--yes")
    assert result.code == 0, result.err
    assert re.search(r"drained, not to the end: .*task \d+ \((numbers|double|show)\)", result.err), result.err
