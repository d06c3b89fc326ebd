"""Fixtures for tests with real processes: a scene, and a check that nothing is left of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.children import is_server
from tests.integration.support import Scene, processes_of, words_of

_GRACE_S = 30.0


@pytest.fixture(autouse=True)
def no_process_is_left(topo_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test that leaves a process behind, and end it."""
    sockets = topo_home / "run"
    sockets.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(sockets))
    yield
    until = time.monotonic() + _GRACE_S
    while (left := _left(topo_home, tmp_path)) and time.monotonic() < until:
        time.sleep(0.05)
    left_behind = [f"{process.pid}: {' '.join(words)}" for process in left if (words := words_of(process))]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=_GRACE_S)
    assert not left_behind, f"processes were left behind: {left_behind}"


def _left(*folders: Path) -> list[psutil.Process]:
    return [process for folder in folders for process in processes_of(folder) if not is_server(process.pid)]


@pytest.fixture
def scene(no_process_is_left: None, topo_home: Path, tmp_path: Path) -> Iterator[Scene]:
    """Files and topologies of one test; what runs ends with it."""
    made = Scene(tmp_path, topo_home)
    yield made
    made.close()
