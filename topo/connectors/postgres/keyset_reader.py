"""Reads the partitions of one task of a `PostgresSpout`: its thread asks, and the task's helper thread waits for the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Literal, Protocol

from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput
from topo.connectors.postgres.keyset import LEAST, KeysetBatch


class KeyedRows(Protocol):
    """A `KeysetSource`: its calls block."""

    def check(self, source: str) -> None: ...

    def greatest(self, source: str) -> int | None: ...

    def read(self, source: str, number: int, behind: int, limit: int) -> KeysetBatch: ...

    def close(self) -> None: ...


def stamped_runs(stamps: list[int | None] | None, first: int, end: int) -> Iterator[tuple[int, int, list[int] | None]]:
    """Yield rows in runs that have all a stamp or have none: the first, the one behind the last, and their stamps."""
    if stamps is None:
        yield first, end, None
        return
    if None not in stamps:
        yield first, end, [stamp for stamp in stamps[first:end] if stamp is not None]
        return
    for _, run in groupby(range(first, end), lambda row: stamps[row] is None):
        rows = list(run)
        known = [stamp for stamp in stamps[rows[0] : rows[-1] + 1] if stamp is not None]
        yield rows[0], rows[-1] + 1, known or None


class _KeysetPlace:
    """A partition that is read.

    Attributes:
        at: the key up to which rows were given.
        read_to: the key up to which the partition was read.
        batch: the rows that the helper thread has read, or its error; None: nothing.
        given: how many rows of it were given.
        is_asked: whether the helper thread reads.
        ask_at: when to ask again, in seconds of the task's clock.
    """

    __slots__ = ("ask_at", "at", "batch", "given", "is_asked", "is_paused", "partition", "read_to")

    def __init__(self, partition: Partition, at: int) -> None:
        self.partition = partition
        self.at = self.read_to = at
        self.batch: KeysetBatch | Exception | None = None
        self.given = 0
        self.is_asked = self.is_paused = False
        self.ask_at = float("-inf")


class KeysetReader:
    """A `PartitionReader` of tables.

    Args:
        source: reads rows.
        context: of the task.
        poll_interval_s: how long a table without new rows is left alone.
        batch: the most rows that are read together.
        start: where new partitions begin: None at the first row, "latest" behind the last one, or behind a key.
        partitions: of each table.
    """

    def __init__(
        self,
        source: KeyedRows,
        context: TaskContext,
        poll_interval_s: float,
        batch: int,
        start: int | Literal["latest"] | None,
        partitions: int,
    ) -> None:
        self._partitions = partitions
        self._source = source
        self._context = context
        self._poll_interval_s, self._batch, self._start = poll_interval_s, batch, start
        self._places: dict[str, _KeysetPlace] = {}
        self._greatest: dict[str, int] = {}
        """By table, the greatest key that was seen."""

    def assign(self, partition: Partition, position: Any, found_later: bool) -> Any:
        self._source.check(partition.group)
        if position is None and not found_later and self._start is not None:
            position = self._source.greatest(partition.group) if self._start == "latest" else self._start
        self._places[partition.name] = _KeysetPlace(partition, LEAST if position is None else position)
        return position

    def release(self, partition: Partition) -> None:
        # A read of the helper thread that is not over goes to an object that nothing refers to any more.
        self._places.pop(partition.name, None)

    def pause(self, partition: Partition, paused: bool) -> None:
        self._places[partition.name].is_paused = paused

    def poll(self, output: PartitionOutput) -> None:
        room, now = output.room, self._context.clock()
        # In turn: a partition that has given rows moves to the end.
        for name in list(self._places):
            place = self._places[name]
            if place.is_paused:
                continue
            if place.batch is not None and room > 0:
                room -= self._give(place, room, output)
            if place.batch is None and not place.is_asked and now >= place.ask_at and name in self._places:
                place.is_asked = True
                self._context.run_beside(partial(self._read, place))

    def _give(self, place: _KeysetPlace, room: int, output: PartitionOutput) -> int:
        """Give rows of a partition, at most `room`; return the number."""
        partition, batch = place.partition, place.batch
        if not isinstance(batch, KeysetBatch):
            del self._places[partition.name]
            output.failed(partition, batch or RuntimeError())
            return 0
        del self._places[partition.name]
        self._places[partition.name] = place
        self._greatest[partition.group] = batch.greatest
        first, end = place.given, min(place.given + room, len(batch.keys))
        if end > first:
            for begin, stop, stamps in stamped_runs(batch.stamps, first, end):
                output.rows(partition, batch.values[begin:stop], batch.keys[begin:stop], stamps)
            place.at, place.given = batch.keys[end - 1], end
        if end < len(batch.keys):
            return end - first
        if batch.bad is not None:
            key, text, error = batch.bad
            output.bad(partition, key, text, error)
            place.at = key
        if not batch.keys and batch.bad is None:
            place.ask_at = self._context.clock() + self._poll_interval_s
        place.read_to, place.batch, place.given = batch.read_to, None, 0
        return end - first

    def _read(self, place: _KeysetPlace) -> None:
        """On the helper thread: read the next rows, and wake the task."""
        try:
            number = place.partition.number or 0
            found: KeysetBatch | Exception = self._source.read(place.partition.group, number, place.read_to, self._batch)
        except Exception as error:
            found = error
        place.batch, place.is_asked = found, False
        if self._context.executor is not None:
            self._context.executor.execute(lambda: None, "rows were read")

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Nothing: the table keeps its rows."""

    def lag(self) -> int | None:
        """About how many rows were not read: the keys that are left, as if none were missing."""
        if self._places and not self._greatest:
            return None
        keys = 0
        for place in self._places.values():
            greatest = self._greatest.get(place.partition.group, LEAST)
            keys += max(0, greatest - max(0, place.read_to if place.batch is None else place.at))
        return keys // self._partitions

    def close(self) -> None:
        self._source.close()
