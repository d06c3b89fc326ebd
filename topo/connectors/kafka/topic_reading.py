"""The state of a partition that a task reads from Kafka."""

from __future__ import annotations

from topo.api.partition_values import Partition
from topo.connectors.kafka.offsets import Continuation


class TopicReading:
    """A partition that is assigned to the reader.

    Attributes:
        next: the offset of the record that is read next; BEGINNING: the first that there is.
        stop: the offset in front of which it ends; None: it has no end.
        found: where it continues after a loss that is to be reported, by the offset that was asked for.
        is_asking, is_waiting: whether the reason of a loss is looked for, or, while it is not read, a schema.
        is_read: whether the client has it.
        epoch: of the leader that has written the last record, as far as it is known; -1: not at all.
        has_epoch: whether the record in front of `next` is of that epoch.
    """

    __slots__ = (
        "epoch",
        "era",
        "found",
        "has_epoch",
        "is_asking",
        "is_paused",
        "is_read",
        "is_waiting",
        "next",
        "partition",
        "stop",
    )

    def __init__(self, partition: Partition, era: str, offset: int, stop: int | None, epoch: int = -1) -> None:
        self.partition = partition
        self.era = era
        self.next = offset
        self.stop = stop
        self.epoch, self.has_epoch = epoch, epoch >= 0
        self.found: tuple[int, Continuation] | None = None
        self.is_asking = self.is_paused = self.is_read = self.is_waiting = False

    @property
    def checked_epoch(self) -> int:
        """The epoch by which the broker can check that it has the record in front of `next`; -1: there is none."""
        return self.epoch if self.has_epoch else -1

    def read_to(self, last: int, epoch: int) -> None:
        """Records up to `last` were given, which has that epoch."""
        if last + 1 >= self.next:
            self.next, self.has_epoch = last + 1, epoch >= 0

    def pass_to(self, offset: int) -> None:
        """There is no record in front of an offset that was not given: control records and compacted ones have no message."""
        if offset > self.next:
            self.next, self.has_epoch = offset, False

    def wait_at(self, offset: int) -> None:
        """Wait for the schema of a record."""
        self.next, self.has_epoch = offset, False
        self.is_waiting, self.is_asking = True, False

    def begin_era(self, era: str, offset: int) -> None:
        """Continue behind a loss."""
        self.era, self.next, self.epoch, self.has_epoch = era, offset, -1, False
