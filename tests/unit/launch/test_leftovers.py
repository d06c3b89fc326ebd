"""Workers that a master has left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from topo.launch.leftovers import end_leftovers, sweep_sockets
from topo.launch.worker_command import WORKER_MODULE
from topo.storage.socket_folder import make_socket_folder, remove_socket_folder
from topo.storage.state_folder import StateFolder


@contextmanager
def worker_of(start_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    start_file.write_text("{}")
    command = [sys.executable, "-c", "print('up', flush=True); input()", WORKER_MODULE, str(start_file)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert worker.stdin is not None and worker.stdout is not None
    try:
        # Before it runs, it may have no command line.
        assert worker.stdout.readline() == b"up\n"
        yield worker
    finally:
        worker.kill()
        worker.wait()
        worker.stdin.close()
        worker.stdout.close()


def test_workers_are_found_whose_master_had_the_state_folder_by_another_path(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "disk")
    folder = StateFolder(tmp_path / "home").create("flow")
    with worker_of(folder.workers / "0-8123456789.json") as worker:
        assert end_leftovers(StateFolder(tmp_path / "disk").find("flow")) == 1
        assert worker.wait(10) == -signal.SIGKILL


def test_workers_are_found_whose_state_folder_was_moved(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "home").create("flow")
    with worker_of(folder.workers / "0-8123456789.json") as worker:
        (tmp_path / "home").rename(tmp_path / "moved")
        assert end_leftovers(StateFolder(tmp_path / "moved").find("flow")) == 1
        assert worker.wait(10) == -signal.SIGKILL


def test_a_copy_of_a_state_folder_leaves_the_workers_and_the_sockets_of_its_original_alone(tmp_path: Path, sockets: Path) -> None:
    folder = StateFolder(tmp_path / "home").create("flow")
    folder.master.write_text(json.dumps({"client_endpoint": f"ipc://{sockets}/clients"}))
    with worker_of(folder.workers / "0-8123456789.json") as worker:
        shutil.copytree(tmp_path / "home", tmp_path / "copy")
        with socket.socket(socket.AF_UNIX) as master:
            master.bind(str(sockets / "clients"))
            master.listen()
            assert end_leftovers(StateFolder(tmp_path / "copy").find("flow")) == 0
            sweep_sockets(StateFolder(tmp_path / "copy"))
            assert worker.poll() is None and sockets.is_dir()
    sweep_sockets(StateFolder(tmp_path / "copy"))
    assert not sockets.exists()
    assert end_leftovers(StateFolder(tmp_path / "copy").find("flow")) == 0


def test_the_sockets_of_killed_workers_are_removed_while_a_thread_of_theirs_still_listens(tmp_path: Path, sockets: Path) -> None:
    folder = StateFolder(tmp_path / "home").create("flow")
    folder.master.write_text(json.dumps({"client_endpoint": f"ipc://{sockets}/clients"}))
    with worker_of(folder.workers / "0-8123456789.json"), socket.socket(socket.AF_UNIX) as thread:
        thread.bind(str(sockets / "inbox"))
        thread.listen()
        assert end_leftovers(folder) == 1
    assert not sockets.exists()


@pytest.fixture
def sockets() -> Iterator[Path]:
    made = make_socket_folder(os.environ)
    yield made
    remove_socket_folder(made)
