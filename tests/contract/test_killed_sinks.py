"""Two-phase sinks in processes that are killed between any two of their steps."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.killing import Report, run_child
from tests.contract.two_phase_sinks import KINDS, SEVERAL_FILES, SinkKind
from topo.connectors import json_lines_sink, staged_files, staged_table
from topo.testing.contracts import sink_lives
from topo.testing.contracts.sink_lives import COMPLETED, Master, check_recovery

__all__ = ["Master", "check_recovery", "life_of", "spill_early"]

# A process is started and killed at each step of some kinds: minutes on a busy machine.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def spill_early(set_to: Callable[[object, str, int], None]) -> None:
    """Let sinks write rows of a transaction to disk from the second on."""
    set_to(json_lines_sink, "_SPILL_LINES", 2)
    set_to(staged_table, "SPILL_ROWS", 2)
    set_to(staged_files, "_SPILL_ROWS", 2)


def life_of(kind: SinkKind, folder: Path, master: Master) -> Callable[[Report], None]:
    """A life of the contract, with transactions that are spilled."""
    life = sink_lives.life_of(kind, folder, master)

    def work(report: Report) -> None:
        spill_early(setattr)
        life(report)

    return work


@pytest.fixture(params=[*KINDS, SEVERAL_FILES], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SinkKind:
    spill_early(monkeypatch.setattr)
    found: SinkKind = request.param
    return found


def test_killed_before_any_step_a_sink_recovers_the_rows_of_the_checkpoint(kind: SinkKind, tmp_path: Path) -> None:
    step, is_done, completed = 0, False, set()
    while not is_done:
        folder = tmp_path / str(step)
        folder.mkdir()
        master = Master()
        is_done, reports = run_child(life_of(kind, folder, master), step)
        master.note(reports)
        completed.add(master.complete)
        check_recovery(kind, folder, master)
        shutil.rmtree(folder)
        step += max(1, kind.stride // 8)
    assert completed == COMPLETED
    assert step > 10


def test_a_recovery_that_is_killed_before_any_step_is_recovered_from(kind: SinkKind, tmp_path: Path) -> None:
    """The first life is killed at every seventh step, the second at every other step of its recovery and some more."""
    step, is_done = 1, False
    stride = kind.stride
    while not is_done:
        folder = tmp_path / "first"
        folder.mkdir()
        first = Master()
        is_done, reports = run_child(life_of(kind, folder, first), step)
        first.note(reports)
        for second_step in range(step % stride, 24, stride):
            copy = tmp_path / "second"
            shutil.copytree(folder, copy)
            master = Master(first.complete, first.last, dict(first.states), dict(first.covered))
            # Staged files are named in full, so the copy takes the original's place.
            folder.rename(tmp_path / "aside")
            copy.rename(folder)
            _, reports = run_child(life_of(kind, folder, master), second_step)
            master.note(reports)
            check_recovery(kind, folder, master)
            shutil.rmtree(folder)
            (tmp_path / "aside").rename(folder)
        shutil.rmtree(folder)
        step += 7
    assert step > 10
