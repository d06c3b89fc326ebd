"""The messages that a queue has delivered to one consumer and that are not settled. Without any I/O.

The broker knows a delivery by its *tag*, a number that means something on its channel alone. When the channel is lost, it
delivers unsettled messages again, marked as redelivered, under other tags. Messages with an id are recognised then:

| state     | meaning                                                  | a redelivery of it       |
| --------- | -------------------------------------------------------- | ------------------------ |
| open      | emitted, and not done                                    | is the same: not emitted |
| done      | done; the broker may not have seen its acknowledgement   | is settled at once       |
| forgotten | done, and `most_done` others since                       | is a new message         |
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True, eq=False)
class QueueDelivery:
    """A message.

    Attributes:
        tag: of the last delivery.
        channel: number of the channel that has brought it.
        known_as: its id and what its body is compared by; None without an id.
        position: of its row; 0 until it has one.
        is_dead: whether it was given up.
    """

    tag: int
    channel: int
    known_as: tuple[str, int] | None = None
    position: int = 0
    is_dead: bool = False


class Settlement(NamedTuple):
    """Acknowledgements and rejections of one channel's deliveries.

    Attributes:
        rejected: tags of messages that were given up; they come first.
        up_to: all open tags up to this one are acknowledged; 0: none.
        acknowledged: further tags.
    """

    rejected: tuple[int, ...] = ()
    up_to: int = 0
    acknowledged: tuple[int, ...] = ()


class QueueDeliveries:
    """Those of one task.

    Args:
        rejects_dead: whether messages that were given up are rejected, and not acknowledged.
        most_done: done messages that are remembered. The broker has seen the acknowledgements of all but as many as it gives
            before they are acknowledged.
    """

    def __init__(self, *, rejects_dead: bool, most_done: int) -> None:
        self._rejects_dead, self._most_done = rejects_dead, most_done
        self._in_order: deque[QueueDelivery] = deque()
        self._open: dict[tuple[str, int], QueueDelivery] = {}
        self._done: OrderedDict[tuple[str, int], bool] = OrderedDict()
        """Whether each was given up."""
        self._at_once: list[QueueDelivery] = []
        """Redeliveries of done messages."""

    def __len__(self) -> int:
        return len(self._in_order)

    def arrive(self, tag: int, channel: int, known_as: tuple[str, int] | None, *, is_redelivered: bool) -> QueueDelivery | None:
        """Take a delivery; return it if it is to be emitted."""
        if known_as is not None and is_redelivered:
            known = self._open.get(known_as)
            if known is not None and known.channel != channel:
                known.tag, known.channel = tag, channel
                return None
            is_dead = self._done.get(known_as)
            if is_dead is not None:
                self._at_once.append(QueueDelivery(tag, channel, is_dead=is_dead))
                return None
        taken = QueueDelivery(tag, channel, known_as)
        if known_as is not None:
            self._open[known_as] = taken
        self._in_order.append(taken)
        return taken

    def dead(self, position: int) -> None:
        """The message at a position was given up, and its dead letter is stored."""
        for delivery in self._in_order:
            if delivery.position == position:
                delivery.is_dead = True
                return

    def settle(self, position: int, channel: int) -> Settlement:
        """Return the settlement on a channel when everything up to a position is done; 0: there is no channel."""
        done = [one for one in self._at_once if one.channel == channel]
        self._at_once.clear()
        while self._in_order and 0 < self._in_order[0].position <= position:
            delivery = self._in_order.popleft()
            self._forget(delivery)
            if delivery.channel == channel:
                done.append(delivery)
            if delivery.known_as is not None:
                self._done[delivery.known_as] = delivery.is_dead
        while len(self._done) > self._most_done:
            self._done.popitem(last=False)
        return self._settlement(done, channel) if done and channel else Settlement()

    def _forget(self, delivery: QueueDelivery) -> None:
        if delivery.known_as is not None and self._open.get(delivery.known_as) is delivery:
            del self._open[delivery.known_as]

    def _settlement(self, done: Iterable[QueueDelivery], channel: int) -> Settlement:
        rejected = tuple(one.tag for one in done if one.is_dead and self._rejects_dead)
        tags = sorted({one.tag for one in done} - set(rejected))
        lowest_open = min((one.tag for one in self._in_order if one.channel == channel), default=None)
        below = [tag for tag in tags if lowest_open is None or tag < lowest_open]
        return Settlement(rejected, below[-1] if below else 0, tuple(tags[len(below) :]))
