"""The files that an earlier build has left in a state folder: commands read them, and a run continues from its positions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.golden import runs
from tests.contract.golden.topologies import COUNT, HALF, POISON

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("verb", ["status", "errors", "dead-letters"])
def test_a_command_answers_from_stored_files_as_it_did(verb: str, tmp_path: Path) -> None:
    runs.restore_state(tmp_path / "home")
    stored = runs.unmarked((runs.HERE / "state_folder.json").read_text(), tmp_path / "home")
    assert runs.asked_of_state(tmp_path / "home", verb) == json.loads(stored)[verb]


def test_a_run_continues_from_stored_positions(tmp_path: Path) -> None:
    runs.restore_state(tmp_path / "home")
    done = runs.run(tmp_path / "home", "letters", tmp_path / "out", None, "-s", "delivery=at_least_once", "--resume-or-start")
    assert done.returncode == 1, done.stdout + done.stderr
    found = {json.loads(row)[0] for row in runs.rows(tmp_path / "out")}
    assert found == set(range(HALF, COUNT)) - set(POISON)
