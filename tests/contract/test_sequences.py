"""Each kind of task, fed by a fixed script, keeps its calls of user code and its sent frames, in the same order.

The expected logs are tests/contract/golden/sequences/*.txt. A wanted change is written by `python scripts/golden.py NAME`.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.contract.golden.rig import played
from tests.contract.golden.scripts import SCRIPTS

FOLDER = Path(__file__).parent / "golden" / "sequences"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_task_repeats_its_recorded_sequence(name: str, tmp_path: Path) -> None:
    expected = (FOLDER / f"{name}.txt").read_text().splitlines()
    found = played(SCRIPTS[name], tmp_path).splitlines()
    difference = unified_diff(expected, found, f"sequences/{name}.txt", "this tree", n=12, lineterm="")
    assert found == expected, "\n".join(["", *difference, "", f"If this is wanted: python scripts/golden.py {name}"])


def test_every_recorded_sequence_has_a_script() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(SCRIPTS)
