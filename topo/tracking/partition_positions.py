"""The positions of the partitions of one spout task.

Message ids are pairs: the name of the partition, and the position in it; a number follows where messages of another partition of
that name, which is gone, were open when it began. Stored are the group and the number of each partition
besides its position, so that tasks of another parallelism find their own by arithmetic.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Container, Mapping, Sequence
from itertools import count, groupby, islice
from operator import itemgetter
from typing import Any

from topo.api.partition_values import UNFOUND, Partition, PartitionProgress, StoredPartition

MessageId = tuple[Any, ...]
partition_of = itemgetter(0)
_LOOKS = 4
"""Partitions that are gone whose messages are looked at when others are done: there may be many thousands."""


class PartitionPositions:
    """The position that counts, of each partition.

    Args:
        stored: the progress that the task begins with; its partitions stay, whether they are read or not.

    Attributes:
        revision: rises with each change.
        is_known: whether the partitions of the source were found, ever: without that there is nothing to store.
    """

    def __init__(self, stored: Mapping[str, StoredPartition] | None = None) -> None:
        self._stored = dict(stored or {})
        # A former process may have died before it reported these.
        self._changed = {name: kept.position for name, kept in self._stored.items() if kept.position is not None}
        self.revision = 0
        self.is_known = stored is not None
        self._unfound = stored.unfound if isinstance(stored, PartitionProgress) else ()

    def found(self) -> bool:
        """The partitions of the source are known: those that are found from here on begin at their beginning.

        Returns whether that is new.
        """
        was_known = self.is_known and not self._unfound
        self.is_known, self._unfound = True, ()
        self.revision += not was_known
        return not was_known

    def begin(self, partition: Partition, position: Any) -> bool:
        """A partition is read. Returns whether it is new: where it begins is decided by that."""
        name, group, number = partition
        if name in self._stored:
            return False
        self._stored[name] = StoredPartition(group, number, position)
        self.revision += 1
        return True

    def forget(self, name: str) -> None:
        """Keep nothing of a partition."""
        self._changed.pop(name, None)
        if self._stored.pop(name, None) is not None:
            self.revision += 1

    def reach(self, name: str, position: Any) -> None:
        """Move the position of a partition."""
        self._stored[name] = self._stored[name]._replace(position=position)
        self._changed[name] = position
        self.revision += 1

    def emitted(self, messages: Sequence[MessageId]) -> None:
        """Move the positions behind messages, in the order of each partition."""
        for name, run in groupby(messages, partition_of):
            # The last one of a run counts; a deque takes it without a loop in Python.
            self.reach(name, deque(run, maxlen=1)[0][1])

    def record(self, watermarks: Mapping[str, int] | None = None) -> dict[str, tuple[Any, ...]]:
        """Return the fields of a `StoredPartition` by name, to be stored, with these watermarks."""
        marks = watermarks or {}
        record = {name: (*kept[:3], marks.get(name, kept.watermark)) for name, kept in self._stored.items()}
        return record | ({UNFOUND: self._unfound} if self._unfound else {})

    def take_changes(self) -> dict[str, Any]:
        """Return the positions that have moved since the last call; at the first one, all stored ones as well."""
        changed, self._changed = self._changed, {}
        return changed


class PartitionTracker:
    """Follows which positions are done, in each partition separately; `PositionTracker` has the theory.

    Args:
        open_positions: message ids that have been emitted and are not done.
        positions: the committed ones, which it moves.
    """

    def __init__(self, open_positions: Container[MessageId], positions: PartitionPositions) -> None:
        self._open = open_positions
        self._positions = positions
        self._orders: dict[str, deque[MessageId]] = {}
        """Of the partitions with messages that are not committed."""
        self._gone: OrderedDict[str, deque[MessageId]] = OrderedDict()
        """The messages of forgotten partitions, until they are done: in turn."""
        self._numbers: dict[str, int] = {}
        """Behind the positions of messages, where they differ by this from those of a predecessor of the same name."""
        self._count = count(1)

    def begin(self, name: str) -> None:
        """A new partition begins."""
        if self._has_open(name):
            self._numbers[name] = next(self._count)

    def ids_of(self, messages: Sequence[MessageId]) -> Sequence[MessageId]:
        """Return the ids of messages, which the spout has named by partition and position: no other open one has the same."""
        if not self._numbers:
            return messages
        numbers = self._numbers
        return [(*message, numbers[message[0]]) if message[0] in numbers else message for message in messages]

    def emitted(self, messages: Sequence[MessageId]) -> None:
        """Append messages in the order of emission; they have to be open before `advance` is called."""
        for name, run in groupby(messages, partition_of):
            self._orders.setdefault(name, deque()).extend(run)

    def forget(self, name: str) -> None:
        """Store nothing of a partition; its messages that are open move no position any more."""
        if order := self._orders.pop(name, None):
            self._gone.setdefault(name, deque()).extend(order)
        self._numbers.pop(name, None)
        self._positions.forget(name)

    def advance(self) -> None:
        """Move the positions behind the messages that are done."""
        still_open, through = self._open, []
        for name, order in self._orders.items():
            last = None
            while order and order[0] not in still_open:
                last = order.popleft()
            if last is not None:
                self._positions.reach(name, last[1])
            if not order:
                through.append(name)
        for name in through:
            del self._orders[name]
        for name in list(islice(self._gone, _LOOKS)):
            if self._has_open(name):
                self._gone.move_to_end(name)

    def _has_open(self, name: str) -> bool:
        """Whether messages of forgotten partitions of that name are open; if not, forget those messages."""
        order = self._gone.get(name)
        while order and order[0] not in self._open:
            order.popleft()
        if not order:
            self._gone.pop(name, None)
        return bool(order)

    @property
    def mark(self) -> int:
        """What `committed` is compared by."""
        return self._positions.revision

    @property
    def committed(self) -> dict[str, tuple[Any, ...]] | None:
        """The positions to store; None before the partitions were found."""
        return self._positions.record() if self._positions.is_known else None

    def __len__(self) -> int:
        """How many messages are uncommitted: open, or done behind an open one of their partition."""
        return sum(map(len, self._orders.values()))

    def validate(self) -> None:
        """Assert the invariants."""
        for order in self._orders.values():
            assert order and order[0] in self._open, "the first uncommitted message of a partition is done"
            assert len({partition_of(message) for message in order}) == 1, "messages of two partitions in one order"
