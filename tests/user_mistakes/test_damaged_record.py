"""A `master.json` that somebody has edited, or that a full disk of another machine has cut off."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.drive import piped
from tests.user_mistakes.test_removed_folders import eventually, status_of, submit
from topo.testing.fixtures import cluster_of_its_own

pytestmark = pytest.mark.integration


@pytest.fixture
def home() -> Iterator[Path]:
    with cluster_of_its_own() as cluster:
        assert cluster.home is not None
        yield cluster.home


def test_a_damaged_master_json_costs_no_checkpoint(home: Path, tmp_path: Path) -> None:
    """The user's `master.json` is half a file: `topo resume` continues from the last whole checkpoint and names the damage."""
    folder = submit(home, tmp_path, "-s", "delivery=exactly_once")
    eventually(lambda: status_of(home)["checkpoints"]["last_complete"] >= 2, "checkpoints")  # type: ignore[index]
    os.kill(json.loads(folder.master.read_bytes())["pid"], signal.SIGKILL)
    eventually(lambda: not folder.is_running(), "the master's end")
    folder.master.write_bytes(folder.master.read_bytes()[:40])
    resumed = piped("resume", "endless", "--wait", "--home", home)
    assert resumed.code == 0, resumed.err
    eventually(lambda: status_of(home)["checkpoints"]["complete"] >= 1, "another checkpoint")  # type: ignore[index]
    assert status_of(home)["checkpoints"]["restores"] == 1  # type: ignore[index]
    (row,) = [row for row in folder.all_errors() if row["kind"] == "RecordDamaged"]
    assert "master.json is damaged" in row["message"] and "remove" not in row["message"]
    assert piped("kill", "endless", "--yes", "--home", home).code == 0


def test_a_damaged_topology_json_forgets_no_checkpoint_in_silence(home: Path, tmp_path: Path) -> None:
    """The user's `topology.json` is half a file: each answer names it and the way out, and `--from` works."""
    folder = submit(home, tmp_path, "-s", "delivery=exactly_once")
    eventually(lambda: status_of(home)["checkpoints"]["last_complete"] >= 2, "checkpoints")  # type: ignore[index]
    os.kill(json.loads(folder.master.read_bytes())["pid"], signal.SIGKILL)
    eventually(lambda: not folder.is_running(), "the master's end")
    (kept,) = folder.checkpoints.iterdir()
    code = json.loads(folder.topology.read_bytes())["given"]
    folder.topology.write_bytes(folder.topology.read_bytes()[:40])
    way_out = f"`topo submit` with `--from {kept}` continues from the last run's checkpoints"
    for command in (("resume", "endless"), ("submit", code, "--name", "endless", "--resume-or-start")):
        refused = piped(*command, "--home", home)
        assert refused.code == 1
        assert f"{folder.topology} is damaged (" in refused.err and way_out in refused.err
    again = piped("submit", code, "--name", "endless", "-s", "delivery=exactly_once", "--home", home)
    assert again.code == 0 and f"starts from the beginning; `--from {kept}` continues from the last run's checkpoint" in again.err
    assert piped("kill", "endless", "--yes", "--home", home).code == 0
    went_on = piped("submit", code, "--name", "endless", "-s", "delivery=exactly_once", "--from", kept, "--home", home)
    assert went_on.code == 0 and f"continues from {kept}, checkpoint" in went_on.err
    assert piped("kill", "endless", "--yes", "--home", home).code == 0
