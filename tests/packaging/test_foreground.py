"""A server of tests in the foreground, as `make redis` and others start it: Ctrl-C reaches it and its parent at the same time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import subprocess
from tests.servers.server import Server, in_foreground

in_foreground("Sleeper", lambda folder: Server(str(folder), subprocess.Popen(["sleep", "300"])))
"""


def test_a_ctrl_c_ends_it_without_a_traceback_and_drops_its_data() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    shown = process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    folder = Path(shown.removeprefix("Sleeper at ").partition(";")[0])
    assert folder.name.startswith("topo-server-") and not folder.exists()
