"""Fixtures for pytest: `pytest_plugins = ["topo.testing.fixtures"]` in a conftest.py, or import a single fixture.

Without pytest the module can be imported and holds no fixture.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from topo.launch.local_cluster import LocalCluster

_END_S = 5.0


@contextmanager
def cluster_of_its_own() -> Iterator[LocalCluster]:
    """A local cluster with a temporary state folder. At the end of the block its processes and the folder are gone."""
    # Sockets live below it, so its path has to be short.
    home = Path(tempfile.mkdtemp(prefix="topo-")).resolve()
    try:
        with LocalCluster(home) as cluster:
            yield cluster
    finally:
        _end_what_is_left(home)
        shutil.rmtree(home, ignore_errors=True)


def processes_of(home: Path) -> list[psutil.Process]:
    """Return the masters and workers of a state folder, which name it on their command lines."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            # Whole, since a path with spaces is several words in the command line of a forked worker.
            line = f"{' '.join(process.cmdline())} "
            if f" {home}{os.sep}" in line or f" {home} " in line:
                found.append(process)
    return found


def _end_what_is_left(home: Path) -> None:
    left = processes_of(home)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=_END_S)


with suppress(ModuleNotFoundError):
    import pytest

    @pytest.fixture
    def local_cluster() -> Iterator[LocalCluster]:
        """A `LocalCluster` for one test: real processes, which end with it."""
        with cluster_of_its_own() as cluster:
            yield cluster
