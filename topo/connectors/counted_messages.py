"""Positions for messages that have none, such as those of a queue: they are counted, in the order in which they are given.

A source gives a message once. Those whose rows the engine has not taken are therefore kept here, and given again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from topo.api.partition_values import Partition, PartitionOutput


class Counted(Protocol):
    """A message. `position` is that of its row, 0 until it has one."""

    @property
    def position(self) -> int: ...
    @position.setter
    def position(self, position: int, /) -> None: ...


Message = TypeVar("Message", bound=Counted)


class CountedMessages(Generic[Message]):
    """The messages of one partition.

    Args:
        row_of: returns the values of a message; raises where it cannot be decoded.
        record_of: returns the bytes of such a message.
        stamp_of: returns the event time of a message, milliseconds; None: rows have none.
    """

    def __init__(
        self,
        row_of: Callable[[Message], tuple[Any, ...]],
        record_of: Callable[[Message], Any],
        stamp_of: Callable[[Message], int] | None = None,
    ) -> None:
        self._row_of, self._record_of, self._stamp_of = row_of, record_of, stamp_of
        self._position = 0
        self._polled: list[Message] = []
        """Those of the last poll, which were not all taken where `back_to` follows."""
        self._again: deque[Message] = deque()

    def back_to(self, position: int | None) -> int:
        """Have the messages behind a position given again. Returns the position."""
        self._position = position or 0
        while self._polled and self._polled[-1].position > self._position:
            message = self._polled.pop()
            message.position = 0
            self._again.appendleft(message)
        return self._position

    def give(self, output: PartitionOutput, partition: Partition, more: Callable[[int], Iterable[Message]]) -> None:
        """Give messages, as many as there is room for.

        Args:
            output: takes them.
            partition: theirs.
            more: yields new ones, at most as many as it is called with.
        """
        # A poll follows one whose messages were all taken, or `back_to`.
        self._polled.clear()
        again = [self._again.popleft() for _ in range(min(output.room, len(self._again)))]
        values: list[tuple[Any, ...]] = []
        taken: list[Message] = []
        for message in chain(again, more(output.room - len(again))):
            self._position += 1
            message.position = self._position
            self._polled.append(message)
            try:
                row = self._row_of(message)
            except Exception as error:
                self._pass_on(output, partition, values, taken)
                output.bad(partition, self._position, self._record_of(message), error)
                values, taken = [], []
            else:
                values.append(row)
                taken.append(message)
        self._pass_on(output, partition, values, taken)

    def _pass_on(
        self, output: PartitionOutput, partition: Partition, values: list[tuple[Any, ...]], taken: list[Message]
    ) -> None:
        if values:
            stamps = None if self._stamp_of is None else [self._stamp_of(message) for message in taken]
            output.rows(partition, values, [message.position for message in taken], stamps)
