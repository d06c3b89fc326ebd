"""How the author of a sink describes it to its tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any


class PublishesBy(Enum):
    """How a sink has each row once; a reader sees the difference."""

    TRANSACTION = "all rows of a checkpoint of a task appear at one moment, and none before"
    STAGED_COMMIT = "rows of a checkpoint appear when it is complete, one part after the other"
    UPSERT = "a row replaces the one with its key: it may appear before its checkpoint, and a repetition changes nothing"


class SinkContract(ABC):
    """A sink under test: how to make it, how to read its published rows, and its promises.

    Tuples have one field, `n`, and no two different ones the same number.

    Attributes:
        publishes_by: see `PublishesBy`.
        judges_each_tuple: whether a tuple is acked, or fails, in its own call (in the modes other than `exactly_once`: when its
            batch is full); False for a sink that gathers tuples otherwise.
    """

    publishes_by: PublishesBy = PublishesBy.STAGED_COMMIT
    judges_each_tuple: bool = True

    @abstractmethod
    def sink(self, folder: Path) -> Any:
        """Return a sink, for each task another one. Its target is in the folder, or belongs to it: other folder, other rows."""

    @abstractmethod
    def rows(self, folder: Path) -> list[int]:
        """Return the numbers that a reader from outside finds, also where there is no target yet.

        In the order of the target, where that is the order of writing; otherwise sorted. Of rows with a key the last one counts.
        """

    def staged(self, folder: Path) -> Sequence[Any]:
        """Return the staged entries, if they can be seen: none may be left when everything is published."""
        return []

    @contextmanager
    def broken(self, folder: Path) -> Iterator[None]:
        """Have the target fail while this is open, and whole again afterwards. As it stands, the folder is away."""
        away = folder.with_name(f"{folder.name}.away")
        folder.rename(away)
        folder.touch()
        yield
        folder.unlink()
        away.rename(folder)

    def assert_published(self, folder: Path, rows: Sequence[int], *, in_order: bool = True) -> None:
        """Assert that these rows are there and, unless the sink may show rows of later checkpoints, no others."""
        found = self.rows(folder)
        if self.publishes_by is PublishesBy.UPSERT:
            assert len(set(found)) == len(found), "a row is repeated"
            assert set(rows) <= set(found)
        elif in_order:
            assert found == list(rows)
        else:
            assert sorted(found) == sorted(rows)
