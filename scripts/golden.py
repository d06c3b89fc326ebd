"""Writes the golden files under tests/contract/golden: `python scripts/golden.py [NAME ...]`.

Golden files are the judges of a rebuild: a change to one is a change that users, stored checkpoints or other processes can
notice, so each line of its diff needs a reason. Without names all sequences, frames and control messages are written.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.contract.golden import wire  # noqa: E402
from tests.contract.golden.rig import played  # noqa: E402
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


def write_wire() -> None:
    """Write the bytes of each frame and control message."""
    frames = {
        name: [wire.frame_bytes(one).hex(), wire.frame_meaning(wire.frame_bytes(one))] for name, one in wire.frames().items()
    }
    messages = {name: [wire.control_bytes(one).hex(), repr(one)] for name, (one, _) in wire.control_messages().items()}
    for name, found in (("frames", frames), ("control", messages)):
        (SEQUENCES.parent / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    write_sequences(sys.argv[1:])
    if not sys.argv[1:]:
        write_wire()
