"""The collector of spouts with partitions: rows many at a time, and changes of partitions at their places between the rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from topo.api.partition_values import Partition
from topo.api.streams import DEFAULT_STREAM
from topo.emission.message_collectors import MessageCollector
from topo.errors import EmitError
from topo.hot import ATOMS, NO_TIMESTAMP
from topo.wire.frames import MAX_WATERMARK


class PartitionsFound(NamedTuple):
    """The partitions of the source are known."""


class PartitionBegun(NamedTuple):
    """A partition is read behind a position; its watermark counts from here on."""

    partition: Partition
    position: Any


class PartitionExpected(NamedTuple):
    """A partition will be read; its watermark counts already."""

    name: str
    watermark: int | None


class PartitionOver(NamedTuple):
    """A partition is read no more; its watermark counts no more."""

    name: str


class PartitionForgotten(NamedTuple):
    """A partition that has ended is gone."""

    name: str


PartitionSignal = PartitionsFound | PartitionExpected | PartitionBegun | PartitionOver | PartitionForgotten


class PartitionMessages(MessageCollector):
    """For `PartitionedSpout`, which emits on its main stream alone. A message id is a pair: partition and position in it."""

    def emit_rows(
        self, partition: str, values: Sequence[Any], positions: Sequence[Any], stamps: Sequence[int] | None = None
    ) -> None:
        """Emit rows of a partition, whose positions were checked: all of them, or none when it raises.

        Raises:
            EmitError: rows, positions and timestamps are not as many, or a row or a timestamp cannot be emitted.
        """
        count = len(values)
        if len(positions) != count or (stamps is not None and len(stamps) != count):
            given = f"{count} rows, {len(positions)} positions" + ("" if stamps is None else f", {len(stamps)} timestamps")
            raise EmitError(f"component {self.component!r}, partition {partition!r}: {given}; give one of each for each row")
        self.check_thread()
        are_plain = set(map(type, values)) == {tuple} and set(map(len, values)) == {self._width}
        if not are_plain or not ATOMS.issuperset(map(type, chain.from_iterable(values))):
            before = len(self._rows)
            try:
                for place, row in enumerate(values):
                    stamp = None if stamps is None else stamps[place]
                    self._emit_slow(row, (partition, positions[place]), DEFAULT_STREAM, stamp)
            except Exception:
                self.roll_back([before], len(self.signals))
                raise
            return
        if stamps is not None:
            if set(map(type, stamps)) != {int} or not NO_TIMESTAMP < min(stamps) <= max(stamps) <= MAX_WATERMARK:
                stamps = [self._checked(stamp) for stamp in stamps]
            first = len(self._rows)
            self._main.stamps.update(zip(range(first, first + count), stamps, strict=True))
        self._rows.extend(values)
        self._messages.extend(zip(repeat(partition), positions, strict=False))

    def partitions_found(self) -> None:
        """The partitions of the source are known, at least once."""
        self._signal(PartitionsFound())

    def expect_partition(self, name: str, watermark: int | None) -> None:
        """A partition will be read, and its watermark counts already."""
        self._signal(PartitionExpected(name, watermark))

    def begin_partition(self, partition: Partition, position: Any) -> None:
        """A partition is read from here on behind that position."""
        self._signal(PartitionBegun(partition, position))

    def end_partition(self, name: str) -> None:
        """A partition is read no more."""
        self._signal(PartitionOver(name))

    def forget_partition(self, name: str) -> None:
        """A partition that has ended is gone."""
        self._signal(PartitionForgotten(name))

    def give_up(self, partition: str, position: Any, record: Any, error: Exception | None) -> None:
        """Pass over a record: as a dead letter, or without one where there is no error."""
        self.pass_over((partition, position), record, error)
