"""The log of a background master: JSON lines, and bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.submissions import small_plan, store_submission
from topo.launch.running import start_master
from topo.observability.logs import MAX_LOG_BYTES
from topo.storage.state_folder import StateFolder, TopologyFolder, TopologyIsRunning


def log_of_a_master(folder: TopologyFolder, *more: str) -> Path:
    """Start a master that has nothing to run, which it logs."""
    command = [sys.executable, "-P", "-m", "topo.launch.master_process", str(folder.path.parents[1]), folder.name, *more]
    assert subprocess.run(command, check=False, capture_output=True, cwd=Path.cwd()).returncode == 1
    return folder.logs / "master.log"


def test_a_full_log_is_rotated(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("flow")
    with (folder.logs / "master.log").open("wb") as full:
        full.truncate(MAX_LOG_BYTES)
    log = log_of_a_master(folder)
    assert (folder.logs / "master.log.1").stat().st_size == MAX_LOG_BYTES
    assert "the master cannot run" in log.read_text()


def test_quotes_in_a_message_leave_a_line_that_is_json(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / 'of "me"').create("flow")
    folder.topology.write_text("{")
    (row,) = map(json.loads, log_of_a_master(folder).read_text().splitlines())
    assert row["level"] == "ERROR"
    assert datetime.fromisoformat(row["at"]).utcoffset() == timedelta(0), "as the logs of workers"
    assert 'of "me"' in row["message"]


def test_a_master_does_not_run_the_code_of_a_submit_that_came_in_between(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).create("flow")
    store_submission(folder, small_plan(), submitted_ms=5)
    log = log_of_a_master(folder, "0", "4")
    assert "topology 'flow' was submitted again at the same moment" in log.read_text()
    assert not folder.summary.exists() and not folder.master.exists()
    with pytest.raises(TopologyIsRunning, match="submitted again at the same moment"):
        start_master(folder, attached=True, submitted_ms=4)
