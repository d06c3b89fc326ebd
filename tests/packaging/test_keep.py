"""The script that runs a topology in a container has Docker start it again where that can help."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

KEEP = Path(__file__).parents[2] / "deploy" / "docker" / "keep.sh"


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (1, 1), (2, 0), (3, 3), (130, 0), (137, 137)])
def test_a_wrong_topology_and_one_that_was_ended_stay_down(code: int, shown: int) -> None:
    done = subprocess.run(["sh", KEEP, "sh", "-c", f"exit {code}"], capture_output=True, text=True, check=False)
    assert done.returncode == shown
    assert done.stderr == (f"topo ended with code {code}: not started again\n" if code != shown else "")


def test_arguments_arrive_as_they_are() -> None:
    done = subprocess.run(["sh", KEEP, "printf", "%s|", "a b", "", "$x"], capture_output=True, text=True, check=True)
    assert done.stdout == "a b||$x|"


def test_a_stop_reaches_the_topology_and_waits_for_it() -> None:
    script = "import signal, sys, threading\nstopped = threading.Event()\n"
    script += "signal.signal(signal.SIGTERM, lambda *_: stopped.set())\nprint('ready', flush=True)\nstopped.wait()\n"
    script += "print('drained', flush=True)\nsys.exit(130)\n"
    child = subprocess.Popen(["sh", KEEP, "python3", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.terminate()
    out, _ = child.communicate(timeout=30)
    assert (out, child.returncode) == ("drained\n", 0)
