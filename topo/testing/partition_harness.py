"""Runs the tasks of a `PartitionedSpout` without a topology: discovery, assignment, positions, restarts with another parallelism.

Every row counts as done as soon as it was emitted, so the positions that are stored are those that were read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from topo.api.context import TaskContext
from topo.api.partition_values import PartitionProgress, StoredPartition, joined, owned
from topo.api.partitions import PartitionedSpout
from topo.api.streams import declared_streams
from topo.emission.message_collectors import PassedOver
from topo.emission.partition_messages import PartitionBegun, PartitionForgotten, PartitionMessages, PartitionsFound
from topo.operators.time.watermarks import InputStatus
from topo.testing.clock import ManualClock
from topo.tracking.partition_positions import PartitionPositions

ROOM = 100
"""Rows that each task has room for in a turn."""


class PartitionTask:
    """One task of the spout.

    Attributes:
        rows: partition, position and values of each emitted row.
        given_up: bad records: partition, position, record.
        has_ended: whether its input has ended.
        is_idle: whether it has marked its output as idle, and no partition has begun since.
        metrics: those that it keeps.
    """

    def __init__(
        self,
        spout: PartitionedSpout,
        index: int,
        parallelism: int,
        stored: Mapping[str, Any] | None,
        clock: Callable[[], float],
        errors: list[BaseException],
    ) -> None:
        self.spout = spout
        self.rows: list[tuple[str, Any, Any]] = []
        self.given_up: list[tuple[str, Any, Any]] = []
        self.has_ended = self.is_idle = False
        self._errors = errors
        self._index, self._parallelism = index, parallelism
        self._collector = PartitionMessages("spout", declared_streams(spout.outputs), errors.append)
        self._collector.wanted = ROOM
        kept = None if stored is None else owned(stored, index, parallelism)
        self._positions = PartitionPositions(kept)
        context = TaskContext("harness", "spout", index + 1, index, parallelism, committed_position=kept, clock=clock)
        self.metrics = context.metrics
        spout.open(context, self._collector)

    def turn(self) -> None:
        """Call `next_tuple` once, and take its output, unless it raises."""
        collector = self._collector
        if self.has_ended:
            return
        try:
            self.spout.next_tuple()
        except Exception as error:
            self._errors.append(error)
            collector.roll_back([0], 0)
            return
        rows, messages = collector.streams[0].rows, collector.messages[0]
        sent = 0
        for counts, signal in (*collector.signals, ([len(rows)], None)):
            self._positions.emitted(messages[sent : counts[0]])
            sent = counts[0]
            if signal is InputStatus.IDLE:
                self.is_idle = True
            elif isinstance(signal, PartitionsFound):
                self._positions.found()
            elif isinstance(signal, PartitionBegun):
                self.is_idle = False
                self._positions.begin(signal.partition, signal.position)
            elif isinstance(signal, PartitionForgotten):
                self._positions.forget(signal.name)
            elif isinstance(signal, PassedOver):
                self._positions.reach(*signal.message)
                if signal.error is not None:
                    self.given_up.append((*signal.message, signal.record))
        self.rows += [(*message, row) for message, row in zip(messages, rows, strict=True)]
        self.has_ended = collector.ended
        collector.clear()

    def commit(self) -> None:
        """Report the positions as done, as the engine does."""
        self.spout.on_committed(self._positions.take_changes())

    def record(self) -> dict[str, Any] | None:
        """Return its progress to store; None before it has found the partitions of the source."""
        return self._positions.record() if self._positions.is_known else None

    def stored(self) -> dict[str, StoredPartition]:
        """Return the positions of its partitions."""
        return PartitionProgress(self.record() or {})

    @property
    def is_known(self) -> bool:
        """Whether it has found the partitions of the source."""
        return self._positions.is_known

    def restart(self, stored: Mapping[str, StoredPartition] | None) -> None:
        """Go back to what a checkpoint has, with the reader that there is."""
        kept = None if stored is None else owned(stored, self._index, self._parallelism)
        self._positions = PartitionPositions(kept)
        self._collector.clear()
        self.has_ended = False
        self.spout.restart(kept)


class PartitionHarness:
    """The tasks of a `PartitionedSpout`.

        harness = PartitionHarness(lambda: MySpout(...), tasks=3)
        harness.turns()
        assert harness.read == {"a": [1, 2]}
        harness.stop()
        harness.start(tasks=2)

    Args:
        make: returns the spout of a task, with one field.
        tasks: how many there are.

    Attributes:
        clock: by which partitions are discovered.
        tasks: those that run.
        errors: what they have reported or raised.
    """

    def __init__(self, make: Callable[[], PartitionedSpout], tasks: int = 1) -> None:
        self._make = make
        self.clock = ManualClock()
        self.errors: list[BaseException] = []
        self.tasks: list[PartitionTask] = []
        self._stored: dict[str, Any] | None = None
        self._rows: list[tuple[str, Any, Any]] = []
        self._given_up: list[tuple[str, Any, Any]] = []
        self.start(tasks)

    def start(self, tasks: int) -> None:
        """Start `tasks` tasks, which continue from the stored positions."""
        self.tasks = [PartitionTask(self._make(), index, tasks, self._stored, self.clock, self.errors) for index in range(tasks)]

    def stop(self, *, store: bool = True) -> None:
        """Close all tasks and store their positions; without `store` they are lost, as in a crash before any report."""
        if store:
            records = [task.record() for task in self.tasks]
            self._stored = joined(records) if records.count(None) < len(records) else None
        self._rows, self._given_up = self.all_rows(), self.given_up
        for task in self.tasks:
            task.spout.close()
        self.tasks = []

    def turns(self, count: int = 10) -> None:
        """Give every task `count` turns."""
        for _ in range(count):
            for task in self.tasks:
                task.turn()

    def discover(self) -> None:
        """Let the time of a discovery pass, and read the new rows."""
        self.turns()
        self.clock.advance("1m")
        self.turns()

    def stored(self) -> dict[str, StoredPartition]:
        """Return the positions of all partitions."""
        return {name: kept for task in self.tasks for name, kept in task.stored().items()}

    def all_rows(self) -> list[tuple[str, Any, Any]]:
        """Return the rows of all tasks since the beginning: partition, position, values."""
        return [*self._rows, *(row for task in self.tasks for row in task.rows)]

    @property
    def given_up(self) -> list[tuple[str, Any, Any]]:
        """The bad records since the beginning: partition, position, record."""
        return [*self._given_up, *(row for task in self.tasks for row in task.given_up)]

    @property
    def read(self) -> dict[str, list[Any]]:
        """The values of the first field, by partition in the order of positions as they were emitted."""
        found: dict[str, list[Any]] = {}
        for name, _, values in self.all_rows():
            found.setdefault(name, []).append(values[0])
        return found

    @property
    def has_ended(self) -> bool:
        """Whether the input of all tasks has ended."""
        return all(task.has_ended for task in self.tasks)
