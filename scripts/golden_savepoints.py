"""Makes the golden savepoints and the golden state folder: `python scripts/golden_savepoints.py [NAME ...]`.

With each savepoint go the rows that a run from it ends with, and with the state folder what `topo` answers about it.

They are made once, by the version whose savepoints have to stay readable. Only those that are missing are made: a savepoint of a
later version goes beside the old ones, never in their place.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.contract.golden import runs  # noqa: E402
from tests.contract.golden.topologies import NAMES  # noqa: E402


def make(name: str, target: Path) -> None:
    """Take a savepoint in the middle, and compare a run from it with one that was never stopped."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        here = Path(folder)
        runs.save(here / "first", name, here / "half", target)
        runs.run(here / "second", name, here / "rest", target)
        found = runs.rows(here / "rest")
        if name != "held":
            # A queue that never stopped would not deliver what the first run has taken.
            runs.run(here / "whole", name, here / "all")
            assert found == runs.rows(here / "all"), f"{name}: a run from the savepoint differs from one that was never stopped"
        target.with_suffix(".json").write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        if not (runs.SAVEPOINTS / name).exists():
            make(name, runs.SAVEPOINTS / name)
            print(name)
    if not runs.STATE.exists():
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            runs.save_state(Path(folder) / "home", Path(folder) / "out")
