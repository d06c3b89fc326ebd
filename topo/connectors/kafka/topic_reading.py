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
    """

    __slots__ = ("era", "found", "is_asking", "is_paused", "is_read", "is_waiting", "next", "partition", "stop")

    def __init__(self, partition: Partition, era: str, offset: int, stop: int | None) -> None:
        self.partition = partition
        self.era = era
        self.next = offset
        self.stop = stop
        self.found: tuple[int, Continuation] | None = None
        self.is_asking = self.is_paused = self.is_read = self.is_waiting = False
