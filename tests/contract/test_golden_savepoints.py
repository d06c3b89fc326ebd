"""Savepoints that an earlier build has stored: a run that restores one ends with the results of an uninterrupted run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.contract.golden import runs
from tests.contract.golden.topologies import NAMES, POISON

pytestmark = pytest.mark.integration


def expected(name: str) -> list[str]:
    found: list[str] = json.loads((runs.SAVEPOINTS / f"{name}.json").read_text())
    return found


def stored(name: str, tmp_path: Path) -> Path:
    """Return a copy of a savepoint, which nothing may change."""
    return Path(shutil.copytree(runs.SAVEPOINTS / name, tmp_path / "save"))


@pytest.mark.parametrize("name", NAMES)
def test_a_run_from_a_stored_savepoint_has_the_results_of_one_that_never_stopped(name: str, tmp_path: Path) -> None:
    done = runs.run(tmp_path / "home", name, tmp_path / "out", stored(name, tmp_path))
    assert done.returncode == (1 if name == "letters" else 0), done.stdout + done.stderr
    assert runs.rows(tmp_path / "out") == expected(name)
    if name == "letters":
        rows = runs.asked(tmp_path / "home", "dead-letters", name)
        assert sorted(row["values"][0] for row in rows) == list(POISON), rows


def test_keyed_state_of_a_stored_savepoint_moves_to_another_parallelism(tmp_path: Path) -> None:
    save = stored("words", tmp_path)
    done = runs.run(tmp_path / "home", "words", tmp_path / "out", save, "-e", "count=3", "-e", "split=1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert runs.rows(tmp_path / "out") == expected("words")
