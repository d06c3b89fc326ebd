"""The messages of an MQTT session that the broker has sent and that are not acked. Without any I/O.

A broker knows a message by the number of its packet (`mid`), which it uses again when the message is acked. After a lost
connection it sends messages without an ack once more, with the same number and marked as a duplicate:

| state    | meaning                                              | a duplicate of it           |
| -------- | ---------------------------------------------------- | --------------------------- |
| open     | emitted, and not done                                | is the same: not emitted    |
| done     | done while no connection could take its ack          | is acked at once            |
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from hashlib import sha256


@dataclass(slots=True, eq=False)
class Delivery:
    """A message.

    Attributes:
        connection: number of the connection that has brought it last.
        position: of its row; 0 until it has one.
    """

    mid: int
    digest: bytes
    connection: int
    position: int = 0


def digest_of(topic: str, payload: bytes) -> bytes:
    """Return what two messages of one packet number are compared by."""
    return sha256(f"{len(topic)}:{topic}".encode() + payload).digest()


class SessionMessages:
    """Those of one task."""

    def __init__(self) -> None:
        self._in_order: deque[Delivery] = deque()
        self._open: dict[int, Delivery] = {}
        self._done: dict[int, Delivery] = {}

    def __len__(self) -> int:
        return len(self._in_order)

    def arrive(self, mid: int, digest: bytes, connection: int, *, is_duplicate: bool) -> Delivery | None:
        """Take a message.

        Returns:
            It, if it is to be emitted. None for a duplicate: of an open one, or of a done one, which `is_done` has then.
        """
        if is_duplicate:
            known = self._open.get(mid)
            if known is not None and known.digest == digest:
                known.connection = connection
                return None
            done = self._done.get(mid)
            if done is not None and done.digest == digest:
                return None
        self._done.pop(mid, None)
        taken = self._open[mid] = Delivery(mid, digest, connection)
        self._in_order.append(taken)
        return taken

    def is_done(self, mid: int, digest: bytes) -> bool:
        """Whether a message is done and was not acked. It counts as acked from here on."""
        done = self._done.get(mid)
        if done is None or done.digest != digest or mid in self._open:
            return False
        del self._done[mid]
        return True

    def complete(self, position: int, connection: int) -> list[int]:
        """Return the packet numbers to ack, in the order of arrival, when everything up to a position is done."""
        acks: list[int] = []
        while self._in_order and 0 < self._in_order[0].position <= position:
            done = self._in_order.popleft()
            if self._open.get(done.mid) is done:
                del self._open[done.mid]
            if done.connection == connection:
                acks.append(done.mid)
            elif done.connection > 0:
                self._done[done.mid] = done
        return acks

    def forget_connection(self) -> None:
        """The broker has lost the session: no packet number means anything any more."""
        for delivery in self._in_order:
            delivery.connection = -1
        self._open.clear()
        self._done.clear()
