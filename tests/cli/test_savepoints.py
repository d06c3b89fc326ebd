"""Savepoints through the command: taken while the topology runs, at its end, and gone on from."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.drive import PATIENCE_S, call, piped
from tests.cli.test_processes import background
from topo.storage.checkpoint_store import open_store
from topo.storage.state_folder import StateFolder

__all__ = ["background"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
EXACTLY = ("-s", "delivery=exactly_once", "-s", "batch_size=10", "-p", "items=2500", "--workers", "1")


@pytest.fixture
def running(background: None, flow: Path) -> Iterator[Path]:
    # It runs for fifty seconds, so that the next command finds it running on a slow machine, too.
    result = piped("submit", flow, *EXACTLY, "-p", "pause=0.02", "--wait")
    assert result.code == 0, result.err
    yield flow


def position(place: str) -> int:
    found = json.loads(piped("state", "show", place, "--json").out)
    shown: str = found["tasks"][0]["values"]["source"]
    return int(shown.partition("'position': ")[2].rstrip("}"))


def test_a_topology_that_was_ended_with_a_savepoint_goes_on_from_it_exactly_there(
    running: Path, topo_home: Path, tmp_path: Path
) -> None:
    first = piped("savepoint", "flow")
    assert first.code == 0, first.err
    kept = Path(first.out.strip())
    assert kept.parent == StateFolder(topo_home).find("flow").savepoints
    ended = piped("kill", "flow", "--savepoint", "--to", tmp_path / "a save", "--yes")
    assert ended.code == 0, ended.err
    place = ended.out.strip()
    assert place == str(tmp_path / "a save") and f"`topo submit TOPOLOGY --from '{place}'`" in ended.err
    assert position(place) >= position(str(kept))
    result = piped("run", running, *EXACTLY, "--from", place, "--json", "-q")
    summary = json.loads(result.out)
    assert result.code == 0, result.err
    assert summary["totals"]["emitted"] == 2500 - (position(place) + 1)
    printed = [int(line.removeprefix("value ")) for line in result.err.splitlines() if line.startswith("value ")]
    assert sorted(printed) == [2 * number for number in range(position(place) + 1, 2500)]
    assert open_store(str(kept), "flow").latest().manifest is not None


def test_a_savepoint_of_another_topology_or_mode_is_refused_and_nothing_lost(
    running: Path, topo_home: Path, tmp_path: Path
) -> None:
    place = piped("kill", "flow", "--savepoint", "--to", tmp_path / "save", "--yes").out.strip()
    folder = StateFolder(topo_home).find("flow")
    assert folder.summary.exists()
    result = piped("run", running, "--from", place)
    assert result.code == 2
    assert "set delivery=exactly_once" in result.err
    result = piped("run", running, *EXACTLY, "--name", "other", "--from", place)
    assert result.code == 2
    assert "of topology 'flow', not of 'other'" in result.err
    result = piped("run", running, *EXACTLY, "--from", tmp_path / "nowhere")
    assert result.code == 2
    assert "no complete checkpoint in" in result.err
    assert folder.summary.exists()


def test_a_topology_goes_on_from_its_own_checkpoints_when_they_are_named(running: Path, topo_home: Path) -> None:
    assert piped("kill", "flow", "--savepoint", "--yes").code == 0
    checkpoints = json.loads(piped("checkpoints", "flow", "--json").out)
    last = position(checkpoints["folder"])
    result = piped("run", running, *EXACTLY, "--from", checkpoints["folder"], "--json", "-q")
    assert json.loads(result.out)["totals"]["emitted"] == 2500 - (last + 1)


def test_a_topology_without_checkpoints_has_no_savepoint(background: None, flow: Path) -> None:
    assert piped("submit", flow, "-p", "items=2500", "-p", "pause=0.05", "--workers", "1", "--wait").code == 0
    result = piped("savepoint", "flow")
    assert result.code == 2
    assert "flow takes no checkpoints" in result.err


def test_where_a_savepoint_goes_is_said_only_with_one(background: None, flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert piped("submit", flow, "-p", "items=2500", "-p", "pause=0.05", "--workers", "1", "--wait").code == 0
    result = call(capsys, "kill", "flow", "--to", "/somewhere", "--yes")
    assert result.code == 2
    assert "add --savepoint" in result.err


def test_a_topology_continues_when_the_savepoint_of_its_end_cannot_be_written(running: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = piped("kill", "flow", "--savepoint", "--to", tmp_path / "file" / "save", "--yes")
    assert (result.code, result.out) == (1, "")
    assert f"was not written: cannot list {tmp_path}/file" in result.err or "was not written: cannot write" in result.err
    assert "flow continues as before, so the same command can be given again when that is mended" in result.err
    status = json.loads(piped("status", "flow", "--json").out)
    assert status["status"] == "RUNNING"
    done = status["totals"]["acked"]
    until = time.monotonic() + PATIENCE_S
    while json.loads(piped("status", "flow", "--json").out)["totals"]["acked"] <= done + 100:
        assert time.monotonic() < until, "its spouts do not emit any more"
    place = piped("kill", "flow", "--savepoint", "--yes").out.strip()
    result = piped("run", running, *EXACTLY, "--from", place, "--json", "-q")
    assert json.loads(result.out)["totals"]["emitted"] == 2500 - (position(place) + 1)
