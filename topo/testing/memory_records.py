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
        dead_letters: the stored dead letters.
    """

    def __init__(self) -> None:
        self.errors: list[RecordError] = []
        self.dead_letters: list[control.DeadLetter] = []

    def persist(self, record: MasterRecord) -> None:
        """Drop the record: no other master follows."""

    def store_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        pass

    def store_dead_letters(self, dead_letters: Iterable[control.DeadLetter]) -> bool:
        self.dead_letters += dead_letters
        return True

    def store_replays(self, results: Mapping[int, str | None]) -> None:
        pass

    def record(self, error: RecordError) -> None:
        self.errors.append(error)
