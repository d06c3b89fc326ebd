"""Partitions as values: names, owners, positions that are stored; and the interfaces of their readers.

A *partition* is a part of a source that is read in its own order: a file, a partition of a topic. Its name is the same for ever
and in every process. Which task reads it is arithmetic on the name in each task.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from operator import lt
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from topo.digests import blake2b
from topo.errors import EmitError


class Partition(NamedTuple):
    """A part of a source that is read in its own order.

    Attributes:
        name: of this partition alone, the same in every process and every run: "orders-3", a path.
        group: partitions of one group with numbers are spread evenly over the tasks: the topic's name.
        number: its number in the group, from 0; None for partitions without numbers.
    """

    name: str
    group: str = ""
    number: int | None = None

    @property
    def can_be_stored(self) -> bool:
        """Whether name and group are UTF-8: names of files need not be."""
        try:
            f"{self.name}{self.group}".encode()
        except UnicodeEncodeError:
            return False
        return True

    def owner(self, parallelism: int) -> int:
        """Return the index of the task that reads it, among `parallelism` tasks."""
        # Of the names a.log to p.log a CRC gives 8 tasks 1, 0, 7, 8, 0, 0, 0 and 0: similar names need a hash.
        if self.number is None:
            return int.from_bytes(blake2b(self.name.encode(), digest_size=8).digest()) % parallelism
        return (crc32(self.group.encode()) + self.number) % parallelism


class StoredPartition(NamedTuple):
    """The stored progress of a partition.

    Attributes:
        group, number: of the partition, which name its owner.
        position: of the last row that counts; None at the beginning of the partition.
        watermark: of the partition, in a checkpoint; None where it had none.
    """

    group: str
    number: int | None
    position: Any
    watermark: int | None = None


StoredPartitions = Mapping[str, StoredPartition]
"""The stored progress of partitions, by name."""
UNFOUND = ""
"""Where `PartitionProgress.unfound` is stored among the fields of partitions: no partition has this name."""


class PartitionProgress(dict[str, StoredPartition]):
    """The stored progress of partitions, by name.

    Args:
        stored: the fields of each, as they are stored.

    Attributes:
        unfound: tasks, as (index, parallelism), that had not found their partitions when it was stored: these begin as at the
            first start.
    """

    def __init__(self, stored: Mapping[str, Sequence[Any]]) -> None:
        super().__init__((name, StoredPartition(*kept)) for name, kept in stored.items() if name != UNFOUND)
        self.unfound = tuple((index, parallelism) for index, parallelism in stored.get(UNFOUND, ()))


def begins_first(stored: StoredPartitions | None, partition: Partition) -> bool:
    """Whether a partition that has no progress begins as at the first start, where the settings say."""
    unfound = stored.unfound if isinstance(stored, PartitionProgress) else ()
    return stored is None or (
        partition.can_be_stored and any(partition.owner(parallelism) == index for index, parallelism in unfound)
    )


def joined(stored: Sequence[Mapping[str, Sequence[Any]] | None]) -> dict[str, Any]:
    """Return the progress that all tasks of a spout have stored, by index; None: a task had not found its partitions."""
    every = {name: kept for one in stored for name, kept in (one or {}).items()}
    unfound = [(index, len(stored)) for index, one in enumerate(stored) if one is None]
    return every | ({UNFOUND: unfound} if unfound else {})


def owned(stored: Mapping[str, Sequence[Any]], index: int, parallelism: int) -> PartitionProgress:
    """Return those of the stored partitions that the task `index` of `parallelism` reads."""
    found = PartitionProgress(stored)
    for name, kept in list(found.items()):
        if Partition(name, kept.group, kept.number).owner(parallelism) != index:
            del found[name]
    return found


class SourceRow(NamedTuple):
    """One row of a partition: values, position, and event time in milliseconds where it has one."""

    values: tuple[Any, ...]
    position: Any
    timestamp: int | None = None


class SourceRows(NamedTuple):
    """Several rows of a partition: values and positions, and event times in milliseconds where all have one."""

    values: Sequence[tuple[Any, ...]]
    positions: Sequence[Any]
    timestamps: Sequence[int] | None = None


class BadRecord(NamedTuple):
    """A record of a partition that cannot be decoded: its bytes, its position, and why."""

    record: Any
    position: Any
    error: Exception


class PartitionOutput(Protocol):
    """Takes what a reader has read. Rows of one call of `poll` leave together, when it has returned.

    Attributes:
        room: the most rows that one call of `poll` is to give.
    """

    room: int

    def rows(
        self,
        partition: Partition,
        values: Sequence[tuple[Any, ...]],
        positions: Sequence[Any],
        timestamps: Sequence[int] | None = None,
    ) -> None:
        """Emit rows of a partition.

        Args:
            partition: an assigned one.
            values: of each row, one for each field.
            positions: of each row: ints, strings or tuples of these, each later than the one before in this partition.
            timestamps: event time of each row in milliseconds; None where rows have none, or the watermark strategy reads it.
        """

    def bad(self, partition: Partition, position: Any, record: Any, error: Exception) -> None:
        """Give up a record that cannot be decoded: by default it is a dead letter with its bytes, and reading continues."""

    def lost(self, partition: Partition, count: int | None, error: Exception) -> None:
        """Report that the source no longer has what follows the position. `count`: how many records, where that is known."""

    def failed(self, partition: Partition, error: Exception) -> None:
        """Report that a partition cannot be read for now. It is released, and assigned again after a wait; others are read on."""

    def ended(self, partition: Partition) -> None:
        """Report that a partition has no more rows, and will have none. It is not released: the reader has left it."""


class PartitionReader(Protocol):
    """Reads the partitions of one task. All calls come from the task's thread."""

    def assign(self, partition: Partition, position: Any, found_later: bool) -> Any:
        """Begin to read a partition behind a position.

        Args:
            partition: it is not assigned.
            position: of the last row that counts; None when no row does.
            found_later: without a position: read from the beginning. False only for partitions that are there when the
                topology starts for the first time: these begin where the settings say, such as `start="latest"`.

        Returns:
            The position behind which it begins, None at the beginning. It is stored before any row, so that the place where a
            partition begins is decided once.
        """

    def release(self, partition: Partition) -> None:
        """Read a partition no more; it may be assigned again, behind another position."""

    def poll(self, output: PartitionOutput) -> None:
        """Give the rows that have come, at most `output.room`. It must not block.

        When it raises, all that this call has given is dropped, every partition is released, and assigned again after a wait,
        behind the last row that was taken.
        """

    def pause(self, partition: Partition, paused: bool) -> None:
        """Give no rows of a partition until the next call: it is further ahead in event time than `max_drift`."""

    def committed(self, positions: Mapping[str, Any]) -> None:
        """Take the positions, by partition, up to which everything is done: for the source, if it wants to know."""

    def lag(self) -> int | None:
        """Return how many records the source has that were not read, or its bytes and so on; None if that is not known."""

    def close(self) -> None:
        """Release all resources."""


def as_partitions(found: Iterable[Partition | str]) -> list[Partition]:
    """Return partitions that a spout has named.

    Raises:
        EmitError: one is no partition, or a name comes twice.
    """
    partitions = [Partition(one) if isinstance(one, str) else one for one in found]
    for one in partitions:
        if not isinstance(one, Partition) or not isinstance(one.name, str) or not one.name:
            raise EmitError(f"partitions() returned {one!r}; return names, or Partition(name, group, number)")
    names = [one.name for one in partitions]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise EmitError(f"partitions() returned {twice!r} twice; give each partition another name")
    return partitions


def check_positions(name: str, positions: Sequence[Any], last: Any) -> None:
    """Check the positions of rows of a partition, which follow `last`.

    Raises:
        EmitError: one cannot be stored, or is not later than the one before.
    """
    kinds = set(map(type, positions))
    flat: Sequence[Any] = positions
    if kinds == {tuple} and len(set(map(len, positions))) == 1:
        # Columns are looked at faster than rows are made flat.
        columns = [set(map(type, column)) for column in zip(*positions, strict=True)]
        kinds = set().union(*columns)
    while tuple in kinds:
        flat = list(chain.from_iterable([one for one in flat if type(one) is tuple]))
        kinds = kinds - {tuple} | set(map(type, flat))
    if not kinds <= {int, str, bytes}:
        wrong = ", ".join(sorted(kind.__name__ for kind in kinds - {int, str, bytes}))
        raise EmitError(f"partition {name!r}: a position holds {wrong}; positions are ints, strings or tuples of these")
    try:
        in_order = all(map(lt, positions, positions[1:])) and (last is None or not positions or last < positions[0])
    except TypeError:
        in_order = False
    if not in_order:
        ordered = [*([] if last is None else [last]), *positions]
        pair = next(((a, b) for a, b in pairwise(ordered) if not _is_later(b, a)), ordered[-2:])
        raise EmitError(
            f"partition {name!r} gave position {pair[1]!r} after {pair[0]!r}; each position is later than the one before in "
            "its partition"
        )


def _is_later(one: Any, than: Any) -> bool:
    try:
        return bool(than < one)
    except TypeError:
        return False
