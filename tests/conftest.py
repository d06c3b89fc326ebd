"""What every test stands on: reproducible properties, and a state folder that is nobody's own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail a property: no deadline. In CI the same examples run every time.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.fixture(autouse=True)
def topo_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder for one test, at a short path since sockets live below it; removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="topo-"))
    monkeypatch.setenv("TOPO_HOME", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
