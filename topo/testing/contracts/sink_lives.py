"""Lives of a two-phase sink's process, and what outlives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topo.testing.contracts.killing import ChildReport
from topo.testing.contracts.sink_contract import PublishesBy, SinkContract
from topo.testing.contracts.sink_tasks import MakesSinks, SinkTask

LIFE_ROWS = 19
"""Rows that a life writes at most."""
COMPLETED = {0, 1, 2, 4}
"""Checkpoints that are the last complete one of some life, killed or not."""


@dataclass
class Master:
    """What outlives the process: checkpoints, those that are complete, and the rows before each.

    A row is the number of its input, so a source that returns to a position gives the same rows again.
    """

    complete: int = 0
    last: int = 0
    states: dict[int, Any] = field(default_factory=lambda: {0: None})
    covered: dict[int, int] = field(default_factory=lambda: {0: 0})

    def note(self, reports: list[Any]) -> None:
        """Read the reports of a process that has died."""
        for what, checkpoint, *rest in reports:
            self.last = max(self.last, checkpoint)
            if what == "stored":
                self.states[checkpoint], self.covered[checkpoint] = rest
            else:
                self.complete = checkpoint

    @property
    def state(self) -> Any:
        return self.states[self.complete]

    @property
    def rows(self) -> list[int]:
        return list(range(self.covered[self.complete]))


def life_of(kind: MakesSinks, folder: Path, master: Master) -> Callable[[ChildReport], None]:
    """A process that restores the last checkpoint: takes some, of which every third is aborted, and does not end well."""

    def work(report: ChildReport) -> None:
        task = SinkTask(kind, folder, state=master.state)
        position = len(master.rows)
        for checkpoint in range(master.last + 1, master.last + 5):
            task.write(*range(position, position + 3))
            position += 3
            report(("stored", checkpoint, task.snapshot(checkpoint), position))
            task.write(position)
            position += 1
            if checkpoint % 3:
                report(("complete", checkpoint))
                task.output.complete(checkpoint)
        task.write(position, position + 1, position + 2)

    return work


def check_what_is_seen(contract: SinkContract, folder: Path, master: Master) -> None:
    """Nothing that may be taken back, and nothing twice."""
    seen = contract.rows(folder)
    assert seen == sorted(set(seen)), "rows are repeated, or out of order"
    if contract.publishes_by is PublishesBy.TRANSACTION:
        assert len(seen) in [rows for checkpoint, rows in master.covered.items() if checkpoint <= master.complete]
    if contract.publishes_by is not PublishesBy.UPSERT:
        assert set(seen) <= set(master.rows)


def check_recovery(contract: SinkContract, folder: Path, master: Master) -> None:
    """A replacement has the rows of the checkpoint published, nothing else staged, and continues."""
    check_what_is_seen(contract, folder, master)
    task = SinkTask(contract, folder, state=master.state)
    contract.assert_published(folder, master.rows)
    assert list(contract.staged(folder)) == []
    first = len(master.rows)
    task.write(*range(first, first + LIFE_ROWS))
    task.snapshot(master.last + 1)
    task.output.complete(master.last + 1)
    task.die()
    assert contract.rows(folder) == list(range(first + LIFE_ROWS)), "replayed rows are missing or repeated"
