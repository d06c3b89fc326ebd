"""The connection of one process to the topology master in virtual time: two ways, each in order.

A seed decides which messages are late or lost. A reset loses the last messages in flight, each way, and nothing passes until the
process has connected again. Meanwhile its socket keeps new messages; the master's socket has no such peer, and refuses. ZeroMQ's
sockets do so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from topo.wire import control

DELAY_S = (0.0001, 0.002)
SLOWER = 100
"""How many times as long a slow connection takes."""

Schedule = Callable[[float, Callable[[], None]], None]
"""Call a function at a moment of virtual time."""
Deliver = Callable[[bytes], None]


def message_name(data: bytes) -> str:
    """Return the class name of an encoded control message: the first element of a short msgpack array."""
    return data[2 : 2 + (data[1] & 0x1F)].decode()


class Way:
    """One direction.

    Attributes:
        in_flight: arrival and bytes of each message that has not arrived, oldest first.
    """

    def __init__(self, line: ControlLine, deliver: Deliver) -> None:
        self.in_flight: deque[tuple[float, bytes]] = deque()
        self._line = line
        self._deliver = deliver
        self._arrives_last = 0.0

    def put(self, data: bytes, now: float) -> None:
        """Hand a message over."""
        at = self._arrives_last = max(now + self._line.draw_delay_s(now), self._arrives_last + 1e-9)
        self.in_flight.append((at, data))
        self._line.schedule(at, lambda: self._arrive(at))

    def lose(self, count: int) -> list[bytes]:
        """Lose the last messages in flight; return them."""
        return [self.in_flight.pop()[1] for _ in range(count)]

    def _arrive(self, now: float) -> None:
        while self.in_flight and self.in_flight[0][0] <= now:
            self._deliver(self.in_flight.popleft()[1])


class ControlLine:
    """One process's connection to the present master.

    Args:
        random: decides delays and losses.
        schedule: runs arrivals.
        to_master, to_worker: take a message that has arrived.

    Attributes:
        slow_until: until then messages take much longer.
        most_in_flight: messages of the master; it refuses others until one has arrived.
        most_reports: the same of the process.
        on_room: called when a message of the process may be taken again.
        lost_at: when messages that are counted were first lost; None: never.
        has_repeated: whether a message arrives twice, which hides the loss of another one from the counts.
        on_send: called with each message that was handed over.
    """

    def __init__(self, random: Random, schedule: Schedule, to_master: Deliver, to_worker: Deliver) -> None:
        self._random = random
        self.schedule = schedule
        self._to_master = to_master
        self.up = Way(self, self._reaches_master)
        self.down = Way(self, to_worker)
        self.slow_until = 0.0
        self.most_in_flight = self.most_reports = 1 << 30
        self.lost_at: float | None = None
        self.has_repeated = False
        self.on_send: Callable[[ControlLine, bytes], None] = lambda _line, _data: None
        self.on_room: Callable[[], None] = lambda: None
        self._waiting: deque[bytes] = deque()
        """Messages that the process sent while there was no connection."""
        self._is_connected = True
        self._resets = 0

    @property
    def is_in_use(self) -> bool:
        """Whether anything is in flight."""
        return self._is_connected and bool(self.up.in_flight or self.down.in_flight)

    @property
    def is_sound(self) -> bool:
        """Whether it was never reset and never slow."""
        return not self._resets and not self.slow_until

    def send_up(self, data: bytes, now: float) -> bool:
        """Take a message of the process; False when the connection is full."""
        if len(self.up.in_flight) + len(self._waiting) >= self.most_reports:
            return False
        if self._is_connected:
            self.up.put(data, now)
            self.on_send(self, data)
        else:
            self._waiting.append(data)
        return True

    def send_down(self, data: bytes, now: float) -> bool:
        """Take a message of the master; False when there is no connection, or it is full."""
        if not self._is_connected or len(self.down.in_flight) >= self.most_in_flight:
            return False
        self.down.put(data, now)
        self.on_send(self, data)
        return True

    def reset(self, now: float, for_s: float) -> int:
        """Reset the connection: at least one message in flight is lost. Returns how many.

        Args:
            for_s: how long it takes to connect again.
        """
        ups, downs = len(self.up.in_flight), len(self.down.in_flight)
        count = self._random.randint(1, ups + downs)
        ups = min(ups, max(count - downs, self._random.randint(0, count)))
        lost = [*self.up.lose(ups), *self.down.lose(count - ups)]
        self._note_loss(lost, now)
        self._disconnect()
        resets = self._resets
        self.schedule(now + for_s, lambda: self.connect(now + for_s) if self._resets == resets else None)
        return count

    def repeat(self, now: float) -> int:
        """Hand over a second time the last messages in flight, one way; return how many."""
        self.has_repeated = True
        ways = [way for way in (self.up, self.down) if way.in_flight]
        way = self._random.choice(ways)
        count = self._random.randint(1, len(way.in_flight))
        for _, data in list(way.in_flight)[-count:]:
            way.put(data, now)
        return count

    def master_died(self) -> None:
        """The master has died. Messages to it are lost, and some of those from it."""
        self.up.lose(len(self.up.in_flight))
        self.down.lose(self._random.randint(0, len(self.down.in_flight)))
        self._disconnect()

    def process_died(self) -> None:
        """The process was killed. Messages that its socket had not sent are lost."""
        self.up.lose(self._random.randint(0, len(self.up.in_flight)))
        self._waiting.clear()
        self.close()

    def close(self) -> None:
        """The process is gone: nothing reaches it."""
        self.down.lose(len(self.down.in_flight))

    def connect(self, now: float) -> None:
        """Connect again: what waited for that is sent."""
        self._is_connected = True
        while self._waiting:
            self.up.put(self._waiting.popleft(), now)

    def draw_delay_s(self, now: float) -> float:
        """Draw how long a message takes."""
        return self._random.uniform(*DELAY_S) * (SLOWER if now < self.slow_until else 1)

    def _reaches_master(self, data: bytes) -> None:
        self._to_master(data)
        self.on_room()

    def _disconnect(self) -> None:
        self._is_connected = False
        self._resets += 1
        # The messages in flight are lost, which makes room.
        self.on_room()

    def _note_loss(self, lost: list[bytes], now: float) -> None:
        if self.lost_at is None and any(message_name(data) != control.Alive.__name__ for data in lost):
            self.lost_at = now
