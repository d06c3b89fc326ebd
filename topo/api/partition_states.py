"""The partitions of a task with their states, and what one poll of the reader has given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from math import inf
from typing import Any

from topo.api.partition_values import Partition

FIRST_WAIT_S = 1.0
"""How long a partition that cannot be read waits, and a discovery that has failed; doubled each time, up to LONGEST_WAIT_S."""
LONGEST_WAIT_S = 30.0


class PartitionState(Enum):
    """See `partition_loop`."""

    WAITING = "waiting"
    ASSIGNED = "assigned"
    ENDED = "ended"


class HeldPartition:
    """A partition of this task."""

    __slots__ = (
        "assign_at",
        "found_later",
        "has_begun",
        "is_expected",
        "is_late",
        "is_missing",
        "is_paused",
        "partition",
        "position",
        "state",
        "wait_s",
    )

    def __init__(self, partition: Partition, position: Any, found_later: bool) -> None:
        self.partition = partition
        self.position = position
        self.is_late = found_later
        """Whether it was found later than the first ones."""
        self.found_later = found_later
        """Whether it begins at its beginning, without a position: also when that was decided before."""
        self.state = PartitionState.WAITING
        self.assign_at = -inf
        self.wait_s = FIRST_WAIT_S
        self.has_begun = False
        """Whether the engine knows of it."""
        self.is_expected = False
        """Whether the engine waits for its watermark."""
        self.is_missing = False
        """Whether the last discovery has not found it."""
        self.is_paused = False

    def fails(self, now: float) -> None:
        """Wait before the next attempt."""
        self.state = PartitionState.WAITING
        self.assign_at = now + self.wait_s
        self.wait_s = min(2 * self.wait_s, LONGEST_WAIT_S)


PollCall = tuple[str, HeldPartition, Any]
"""A call of a reader: the name of the method, the partition, the other arguments."""


class PollOutput:
    """The `PartitionOutput` of one poll: keeps all calls, in order."""

    def __init__(self, known: Callable[[Partition], HeldPartition]) -> None:
        self._known = known
        self.room = 0
        self.calls: list[PollCall] = []

    def _add(self, kind: str, partition: Partition, what: Any) -> None:
        self.calls.append((kind, self._known(partition), what))

    def rows(
        self, partition: Partition, values: Sequence[Any], positions: Sequence[Any], timestamps: Sequence[int] | None = None
    ) -> None:
        if values:
            self._add("rows", partition, (values, positions, timestamps))

    def bad(self, partition: Partition, position: Any, record: Any, error: Exception) -> None:
        self._add("bad", partition, (position, record, error))

    def lost(self, partition: Partition, count: int | None, error: Exception) -> None:
        self._add("lost", partition, (count, error))

    def failed(self, partition: Partition, error: Exception) -> None:
        self._add("failed", partition, error)

    def ended(self, partition: Partition) -> None:
        self._add("ended", partition, None)
