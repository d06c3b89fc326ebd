"""A source of partitions in the memory of one process: for tests of topologies and of what reads partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakSet

from topo.api.arguments import options_of, texts_of
from topo.api.context import TaskContext
from topo.api.partition_values import Partition, PartitionOutput
from topo.api.partitions import PartitionedSpout
from topo.errors import ConfigError, NotFoundError, TopoEnvironmentError


class _Log:
    """The records of one partition; `first` is the position of the oldest that is left."""

    __slots__ = ("first", "has_ended", "partition", "records")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.records: list[Any] = []
        self.first = 0
        self.has_ended = False

    @property
    def end(self) -> int:
        return self.first + len(self.records)


class MemoryPartitions:
    """Named partitions of records, which can be appended to while a topology in the same process reads them.

        source = MemoryPartitions({"a": [1, 2], "b": [3]})
        builder.set_spout("numbers", MemorySpout(source), 2)
        source.append("a", 4)

    Any thread may change it. A position is the number of a record in its partition, from 0.

    Args:
        partitions: records by partition.
        ended: whether nothing will be appended to these.
    """

    def __init__(self, partitions: Mapping[str, Iterable[Any]] | None = None, *, ended: bool = False) -> None:
        self._logs: dict[str, _Log] = {}
        self._ends: dict[str, int] = {}
        """Of the partitions that were removed."""
        self._readers: WeakSet[_MemoryReader] = WeakSet()
        self.committed: dict[str, int] = {}
        """The positions up to which everything is done, as the engine has reported them."""
        for name, records in options_of("partitions", partitions).items():
            if not isinstance(records, Iterable):
                raise ConfigError(
                    f"partitions={partitions!r:.60} must have lists of records, such as {{{name!r}: [{records!r:.20}]}}"
                )
            self.add(name, records, ended=ended)

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryPartitions:
        """Return the source itself: all tasks read the same records."""
        return self

    def add(self, partition: str | Partition, records: Iterable[Any] = (), *, ended: bool = False) -> None:
        """Add a partition. A removed one comes back: its new records have the positions behind its former ones."""
        named = Partition(partition) if isinstance(partition, str) else partition
        log = _Log(named)
        log.first = self._ends.pop(named.name, 0)
        self._logs[named.name] = log
        log.records.extend(records)
        log.has_ended = ended

    def append(self, name: str, *records: Any) -> None:
        """Append records to a partition, and wake its reader."""
        log = self.log(name)
        if log.has_ended:
            raise ConfigError(f"partition {name!r} has ended; add another one")
        log.records.extend(records)
        self._wake()

    def end(self, name: str) -> None:
        """Declare that nothing more will be appended to a partition."""
        self.log(name).has_ended = True
        self._wake()

    def remove(self, name: str) -> None:
        """Remove a partition with all its records."""
        self._ends[name] = self._logs.pop(self.log(name).partition.name).end

    def truncate(self, name: str, first: int) -> None:
        """Remove the records before a position."""
        log = self.log(name)
        del log.records[: first - log.first]
        log.first = max(log.first, first)

    def log(self, name: str) -> _Log:
        """Return the records of a partition. Raises NotFoundError when there is no such partition."""
        found = self._logs.get(name)
        if found is None:
            raise NotFoundError(f"there is no partition {name!r}; there are {', '.join(map(repr, self._logs)) or 'none'}.")
        return found

    def partitions(self) -> list[Partition]:
        """Return the partitions that there are."""
        return [log.partition for log in list(self._logs.values())]

    def register(self, reader: _MemoryReader) -> None:
        """Have a reader woken by each append, for as long as it lives."""
        self._readers.add(reader)

    def _wake(self) -> None:
        for reader in list(self._readers):
            reader.wake()


class MemorySpout(PartitionedSpout):
    """Emits the records of a `MemoryPartitions`: works in one process, as `TopologyTest` and a topology of one worker are.

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | every record at least once, given up ones as dead letters, while the process lives |
    | `exactly_once` | reads again from the checkpoint's positions, while the process lives |
    | `at_most_once` | the position passes with the emit |
    """

    def __init__(
        self,
        source: MemoryPartitions,
        fields: Sequence[str] = ("value",),
        *,
        start: Literal["earliest", "latest"] = "earliest",
        decode: Callable[[Any], Any] | None = None,
        discovery_interval: str | None = "1s",
        max_drift: str | None = None,
        on_bad_record: Literal["dead_letter", "fail", "drop"] = "dead_letter",
        on_lost: Literal["fail", "skip"] = "fail",
    ) -> None:
        """Keep what to read.

        Args:
            source: the partitions.
            fields: names of the fields. With one field a record is the value itself, with several a sequence of values.
            start: where a new partition begins: at its first record, or behind its last one ("latest"). Partitions that are found
                later begin at their first record in any case.
            decode: decodes a record; where it raises, the record is bad.
            discovery_interval: see `PartitionedSpout`, as the others.

        Raises:
            ConfigError: `start` is neither.
        """
        if start not in ("earliest", "latest"):
            raise ConfigError(f"start={start!r} must be 'earliest' or 'latest'")
        self.outputs = texts_of("fields", fields, ("user", "cents"))
        self.is_single = len(self.outputs) == 1
        self.discovery_interval = discovery_interval
        self.max_drift = max_drift
        self.on_bad_record = on_bad_record
        self.on_lost = on_lost
        self.source = source
        self.start = start
        self.decode = decode

    def partitions(self) -> list[Partition]:
        """Return the partitions that there are."""
        return self.source.partitions()

    def reader(self, context: TaskContext) -> _MemoryReader:
        """Return the reader of a task."""
        return _MemoryReader(self, context)


class _MemoryReader:
    """Reads the partitions of one task, each in its turn."""

    def __init__(self, spout: MemorySpout, context: TaskContext) -> None:
        self._spout = spout
        self._source = spout.source
        self._is_single = spout.is_single
        self._next: dict[str, int] = {}
        """Of the partitions that are assigned: the position that is read next."""
        self._paused: set[str] = set()
        self._executor = context.executor
        self._source.register(self)

    def wake(self) -> None:
        """Have `poll` called soon; for any thread."""
        if self._executor is not None:
            self._executor.execute(lambda: None, "records were appended")

    def assign(self, partition: Partition, position: Any, found_later: bool) -> Any:
        log = self._source.log(partition.name)
        if position is None and not found_later and self._spout.start == "latest":
            position = log.end - 1
        if position == -1:
            position = None
        self._next[partition.name] = log.first if position is None else position + 1
        return position

    def release(self, partition: Partition) -> None:
        self._next.pop(partition.name, None)
        self._paused.discard(partition.name)

    def poll(self, output: PartitionOutput) -> None:
        for name in list(self._next):
            if output.room > 0 and name not in self._paused:
                try:
                    log = self._source.log(name)
                except NotFoundError:
                    # Discovery notices it.
                    continue
                self._read(log, output)

    def _read(self, log: _Log, output: PartitionOutput) -> None:
        name, decode = log.partition.name, self._spout.decode
        at = self._next[name]
        if at < log.first:
            error = TopoEnvironmentError(f"partition {name!r} has no records {at} to {log.first - 1} any more")
            output.lost(log.partition, log.first - at, error)
            at = self._next[name] = log.first
        records = log.records[at - log.first : at - log.first + output.room]
        values: list[tuple[Any, ...]] = []
        begin = at
        for record in records:
            try:
                decoded = record if decode is None else decode(record)
                values.append((decoded,) if self._is_single else tuple(decoded))
            except Exception as error:
                output.rows(log.partition, values, range(begin, at))
                output.bad(log.partition, at, record, error)
                values, begin = [], at + 1
            at += 1
        output.rows(log.partition, values, range(begin, at))
        output.room -= len(records)
        self._next[name] = at
        if log.has_ended and at == log.end:
            del self._next[name]
            output.ended(log.partition)

    def pause(self, partition: Partition, paused: bool) -> None:
        (self._paused.add if paused else self._paused.discard)(partition.name)

    def committed(self, positions: Mapping[str, Any]) -> None:
        self._source.committed.update(positions)

    def lag(self) -> int:
        known = {one.name for one in self._source.partitions()}
        return sum(self._source.log(name).end - at for name, at in self._next.items() if name in known)

    def close(self) -> None:
        self._next.clear()
