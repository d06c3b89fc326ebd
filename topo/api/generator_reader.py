"""Reads partitions by a generator each: the short way to write a `PartitionedSpout`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from topo.api.partition_values import BadRecord, Partition, PartitionOutput, SourceRow, SourceRows
from topo.errors import EmitError

Yielded = SourceRow | SourceRows | BadRecord | None
Read = Callable[[Partition, Any], Iterator[Yielded]]

_BAD_BYTES = 1 << 16
"""Each such part of a record that cannot be decoded counts as a row: it is kept until it is stored."""


class _Reading:
    """A partition that is being read: its generator, and whether it is paused."""

    __slots__ = ("is_paused", "partition", "rest", "rows")

    def __init__(self, partition: Partition, rows: Iterator[Yielded]) -> None:
        self.partition = partition
        self.rows = rows
        self.rest: SourceRows | None = None
        """Rows that the generator has given and that there was no room for."""
        self.is_paused = False


class GeneratorReader:
    """A `PartitionReader` that takes rows from `read(partition, position)`, from each partition in its turn.

    Args:
        read: returns the rows of a partition behind a position, as `PartitionedSpout.read` does.
        begin: returns where a new partition begins, as `PartitionedSpout.begin` does.
        committed: takes the positions up to which everything is done.
        lag: returns the lag, as `PartitionReader.lag` does.
        most_open: how many partitions are read at the same time; the others wait until one of these ends. Paused ones do not
            count, since others may have to be read before them. None: all.
    """

    def __init__(
        self,
        read: Read,
        begin: Callable[[Partition, bool], Any] = lambda _partition, _found_later: None,
        committed: Callable[[Mapping[str, Any]], None] = lambda _positions: None,
        *,
        lag: Callable[[], int | None] = lambda: None,
        most_open: int | None = None,
    ) -> None:
        self._read = read
        self._begin = begin
        self.committed = committed
        self._lag = lag
        self._readings: dict[str, _Reading] = {}
        self._most_open = most_open
        self._turns: deque[str] = deque()
        self._waiting: deque[str] = deque()
        """Partitions of which nothing was read, and whose generators have not begun."""

    def assign(self, partition: Partition, position: Any, found_later: bool) -> Any:
        if position is None:
            position = self._begin(partition, found_later)
        self._readings[partition.name] = _Reading(partition, iter(self._read(partition, position)))
        self._waiting.append(partition.name)
        return position

    def release(self, partition: Partition) -> None:
        reading = self._readings.pop(partition.name, None)
        if reading is not None:
            (self._turns if partition.name in self._turns else self._waiting).remove(partition.name)
            # A generator ends its `with` blocks, such as that of its file.
            close = getattr(reading.rows, "close", None)
            if close is not None:
                close()

    def pause(self, partition: Partition, paused: bool) -> None:
        self._readings[partition.name].is_paused = paused

    def _open_more(self) -> None:
        """Give partitions that wait their turns, as far as there is room."""
        count = sum(not self._readings[name].is_paused for name in self._turns)
        while self._waiting and (self._most_open is None or count < self._most_open):
            self._turns.append(self._waiting.popleft())
            count += 1

    def poll(self, output: PartitionOutput) -> None:
        if self._waiting:
            self._open_more()
        room, left = output.room, len(self._turns)
        while room > 0 and left > 0:
            name = self._turns.popleft()
            self._turns.append(name)
            left -= 1
            reading = self._readings[name]
            if not reading.is_paused:
                # So a partition that always has rows leaves room for the others.
                room -= self._take(reading, max(1, room // (left + 1)), output)

    def _take(self, reading: _Reading, room: int, output: PartitionOutput) -> int:
        """Give rows of one partition, at most `room`; return the number."""
        singles: list[SourceRow] = []
        taken = 0

        def give() -> None:
            if singles:
                self._give(reading.partition, singles, output)
                singles.clear()

        while taken < room:
            item: Yielded
            try:
                item = reading.rest if reading.rest is not None else next(reading.rows)
            except StopIteration:
                give()
                self.release(reading.partition)
                output.ended(reading.partition)
                return taken
            except Exception as error:
                give()
                self.release(reading.partition)
                output.failed(reading.partition, error)
                return taken
            if item is None:
                break
            if type(item) is SourceRow:
                singles.append(item)
                taken += 1
                continue
            if type(item) is BadRecord:
                give()
                output.bad(reading.partition, item.position, item.record, item.error)
                taken += 1 + (len(item.record) // _BAD_BYTES if isinstance(item.record, bytes | str) else 0)
                continue
            give()
            if type(item) is not SourceRows:
                what = f"read({reading.partition.name!r}, ...) yielded {item!r}; yield SourceRow(values, position), "
                self.release(reading.partition)
                output.failed(
                    reading.partition,
                    EmitError(f"{what}SourceRows(values, positions), or None when there is nothing for now"),
                )
                return taken
            count = min(len(item.values), room - taken)
            if not count:
                # As None: a loop over such batches would never end.
                break
            stamps = item.timestamps
            output.rows(
                reading.partition, item.values[:count], item.positions[:count], None if stamps is None else stamps[:count]
            )
            taken += count
            is_whole = count == len(item.values)
            reading.rest = (
                None
                if is_whole
                else SourceRows(item.values[count:], item.positions[count:], None if stamps is None else stamps[count:])
            )
        give()
        return taken

    def _give(self, partition: Partition, rows: list[SourceRow], output: PartitionOutput) -> None:
        values, positions, stamps = zip(*rows, strict=True)
        if None not in stamps:
            output.rows(partition, values, positions, stamps)
        elif all(stamp is None for stamp in stamps):
            output.rows(partition, values, positions)
        else:
            for row in rows:
                output.rows(partition, [row.values], [row.position], None if row.timestamp is None else [row.timestamp])

    def lag(self) -> int | None:
        return self._lag()

    def close(self) -> None:
        for reading in list(self._readings.values()):
            self.release(reading.partition)
