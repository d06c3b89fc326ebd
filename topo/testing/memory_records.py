"""Records of a master in memory: the errors and dead letters that tests read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from topo.ids import TaskId
from topo.master.commands import MasterRecord, RecordError
from topo.master.positions import SpoutProgress
from topo.wire import control


class MemoryRecords:
    """Records of one master (`master_process.loop.Records`).

    Attributes:
        errors: rows of `topo errors`.
        letters: dead letters.
    """

    def __init__(self) -> None:
        self.errors: list[RecordError] = []
        self.letters: list[control.DeadLetter] = []

    def persist(self, record: MasterRecord) -> None:
        """Drop the record: no other master follows."""

    def store_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        """Drop the positions, which the master keeps for its own workers."""

    def store_letters(self, letters: Iterable[control.DeadLetter]) -> bool:
        """Keep dead letters."""
        self.letters += letters
        return True

    def record(self, error: RecordError) -> None:
        """Keep a row."""
        self.errors.append(error)
