"""Runs of the golden topologies through the command `topo`, each in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.contract.golden.topologies import COUNT, HALF

HERE = Path(__file__).parent
SAVEPOINTS = HERE / "savepoints"
QUICK = ("-s", "heartbeat=100ms", "-s", "worker_timeout=20s")
PATIENCE_S = 40.0


def topo(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    environment = {**os.environ, "TOPO_HOME": str(home), "NO_COLOR": "1"}
    program = str(Path(sys.executable).parent / "topo")
    return subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, cwd=HERE)


def asked(home: Path, *words: str) -> Any:
    """Return the JSON that a command prints."""
    done = topo(home, *words, "--json")
    assert done.returncode == 0, f"topo {' '.join(words)}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def place(name: str) -> str:
    return f"topologies.py:{name}"


def rows(out: Path) -> list[str]:
    """Return the rows that a run has published, as sorted JSON."""
    return sorted(json.dumps(row) for path in out.glob("*.json") for row in json.loads(path.read_text()))


def run(home: Path, name: str, out: Path, start_from: Path | None = None, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a topology to the end of its input."""
    begun = ("--from", str(start_from)) if start_from else ()
    return topo(home, "run", place(name), "-p", f"stop={COUNT}", "-p", f"out={out}", *QUICK, *begun, *more, "--json")


def save(home: Path, name: str, out: Path, target: Path) -> None:
    """Run the first half of a topology, take a savepoint, and end it with all that it still holds."""
    begun = topo(home, "submit", place(name), "-p", f"stop={HALF}", "-p", f"out={out}", *QUICK)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    until = time.monotonic() + PATIENCE_S
    while asked(home, "status", name)["totals"]["emitted"] < HALF:
        assert time.monotonic() < until, f"{name} does not emit its half"
        time.sleep(0.2)
    done = topo(home, "savepoint", name, "--to", str(target))
    ended = topo(home, "kill", name, "--yes")
    assert (done.returncode, ended.returncode) == (0, 0), done.stdout + done.stderr + ended.stderr
