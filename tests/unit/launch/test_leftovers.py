"""Workers that a master has left behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from topo.launch.leftovers import end_leftovers
from topo.launch.worker_command import WORKER_MODULE
from topo.storage.state_folder import StateFolder


def test_workers_are_found_whose_master_had_the_state_folder_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    folder = StateFolder(tmp_path / "home").create("flow")
    start_file = folder.workers / "0-8123456789.json"
    start_file.write_text("{}")
    command = [sys.executable, "-c", "print('up', flush=True); input()", WORKER_MODULE, str(start_file)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert worker.stdin is not None and worker.stdout is not None
    try:
        # Before it runs, it may have no command line.
        assert worker.stdout.readline() == b"up\n"
        assert end_leftovers(StateFolder(tmp_path / "disk").find("flow")) == 1
        assert worker.wait(10) == -signal.SIGKILL
    finally:
        worker.kill()
        worker.wait()
        worker.stdin.close()
        worker.stdout.close()
