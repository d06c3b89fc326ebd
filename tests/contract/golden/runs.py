"""Runs of the golden topologies through the command `topo`, each in real processes."""

from __future__ import annotations

import json
import os
import re
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


STATE = HERE / "state_folder"
PLACES = {"@HERE@": HERE, "@ROOT@": HERE.parents[2]}
"""What stands for this folder and for that of the project in stored files, which have absolute paths."""


def marked(text: str, home: Path) -> str:
    """Return text with marks in place of paths. Its sockets, which are removed with their folder, get one below the home."""
    for mark, folder in {**PLACES, "@HOME@": home}.items():
        text = text.replace(str(folder), mark)
    return re.sub(r"ipc://[^@][^\"]*/", "ipc://@HOME@/sockets/", text)


def unmarked(text: str, home: Path) -> str:
    """Return text with paths in place of marks."""
    for mark, folder in {**PLACES, "@HOME@": home}.items():
        text = text.replace(mark, str(folder))
    return text


def save_state(home: Path, out: Path) -> None:
    """Run the first half of a topology without checkpoints, end it, and store the files of its state folder."""
    begun = topo(
        home, "submit", place("letters"), "-p", f"stop={HALF}", "-p", f"out={out}", "-s", "delivery=at_least_once", *QUICK
    )
    assert begun.returncode == 0, begun.stdout + begun.stderr
    until = time.monotonic() + PATIENCE_S
    while asked(home, "status", "letters")["totals"]["pending"] or asked(home, "status", "letters")["totals"]["emitted"] < HALF:
        assert time.monotonic() < until, "half of the messages are not done"
        time.sleep(0.2)
    assert topo(home, "kill", "letters", "--yes").returncode == 0
    STATE.mkdir()
    for path in (home / "topologies" / "letters").iterdir():
        if path.is_file() and path.name != "lock":
            # Latin-1 keeps every byte: positions are packed.
            (STATE / path.name).write_text(marked(path.read_text("latin-1"), home).replace(str(out.parent), "@HOME@"), "latin-1")
    answers = {verb: asked_of_state(home, verb) for verb in ("status", "errors", "dead-letters")}
    (HERE / "state_folder.json").write_text(marked(json.dumps(answers, indent=1), home) + "\n")


def restore_state(home: Path) -> None:
    """Lay the stored files into a state folder."""
    folder = home / "topologies" / "letters"
    folder.mkdir(parents=True)
    for path in (home, folder.parent, folder):
        path.chmod(0o700)
    for path in STATE.iterdir():
        (folder / path.name).write_text(unmarked(path.read_text("latin-1"), home), "latin-1")


def asked_of_state(home: Path, verb: str) -> Any:
    """Return the answer of a command about the topology, without its age."""
    found = asked(home, verb, "letters")
    return {name: found[name] for name in ("status", "totals", "components")} if verb == "status" else found
