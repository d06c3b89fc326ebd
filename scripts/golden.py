"""Writes the golden files under tests/contract/golden: `python scripts/golden.py [NAME ...]`.

Golden files are the judges of a rebuild: a change to one is a change that users, stored checkpoints or other processes can
notice, so each line of its diff needs a reason. Without names all sequences are written.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.contract.golden.adapter import played  # noqa: E402
from tests.contract.golden.scripts import SCRIPTS  # noqa: E402

SEQUENCES = ROOT / "tests" / "contract" / "golden" / "sequences"


def write_sequences(names: list[str]) -> None:
    """Write what each kind of task does with its script; without names those of all scripts."""
    for name in names or SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            (SEQUENCES / f"{name}.txt").write_text(played(SCRIPTS[name], Path(folder)))
    if not names:
        for path in SEQUENCES.glob("*.txt"):
            if path.stem not in SCRIPTS:
                path.unlink()


if __name__ == "__main__":
    write_sequences(sys.argv[1:])
