"""A network in virtual time: it delays, cuts, repeats and reorders frames as connections do, by a seed.

The model follows measurements of real connections. A link (one process to one inbox of another) is a FIFO. When its connection is
reset, or either end dies, it loses a contiguous *suffix* of the frames in flight, never the middle, and it repeats nothing. Two
faults that no transport should have are made on request: frames that are delivered twice, and an old connection that delivers
after a new one has begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from topo.ids import Incarnation
from topo.wire.envelope import unpack
from topo.wire.frames import _HEADER, Frame, FrameKind, SenderStamp, parse

Schedule = Callable[[float, Callable[[], None]], None]
"""Call a function at a moment of virtual time."""
Deliver = Callable[["Link", bytes], None]
LinkKey = tuple[Incarnation, Incarnation]


@dataclass(slots=True)
class Link:
    """One connection: from one process to the inbox of another.

    Attributes:
        base_s: the least time that a frame takes.
        slow_until: until then frames take much longer.
        in_flight: arrival and bytes of each frame in flight, oldest first.
    """

    sender: Incarnation
    receiver: Incarnation
    base_s: float
    slow_until: float = 0.0
    in_flight: deque[tuple[float, bytes]] = field(default_factory=deque)
    arrives_last: float = 0.0


@dataclass(slots=True)
class NetworkCounts:
    """Counts of frames by their outcome.

    Attributes:
        lost: by (epoch, sender task, target task): frames of the edge that never arrived; confirmations are not counted.
        repeated: frames handed over twice; confirmations are not counted.
        overtaken: likewise: frames of an old connection that arrived after the new one had begun.
    """

    delivered: int = 0
    lost: dict[tuple[int, int, int], int] = field(default_factory=dict)
    lost_by_cut: int = 0
    repeated: int = 0
    overtaken: dict[tuple[int, int, int], int] = field(default_factory=dict)


class SimulatedNetwork:
    """All links between processes.

    Args:
        random: decides every delay and every loss.
        schedule: runs arrivals.
        deliver: takes a frame that has arrived; not called for a receiver that died.
        delay_s: (least, most) base delay of a link; jitter comes on top.
    """

    def __init__(self, random: Random, schedule: Schedule, deliver: Deliver, delay_s: tuple[float, float]) -> None:
        self._random = random
        self._schedule = schedule
        self._deliver = deliver
        self._delay_s = delay_s
        self._links: dict[LinkKey, Link] = {}
        self._old: list[Link] = []
        self._dead: set[Incarnation] = set()
        self.counts = NetworkCounts()
        self.slow_factor = 100.0
        self.most_in_flight = 1 << 30

    def send(self, key: LinkKey, frame: bytes, now: float) -> None:
        """Hand a frame over; to a process that has died it is lost without a word."""
        if key[1] in self._dead:
            self._lose(frame)
            return
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(*key, base_s=self._random.uniform(*self._delay_s))
        self._put(link, frame, now)

    def has_room(self, key: LinkKey) -> bool:
        """Whether a link takes another message: fewer than `most_in_flight` are in flight on it."""
        link = self._links.get(key)
        return link is None or len(link.in_flight) < self.most_in_flight

    def links_in_use(self) -> list[Link]:
        """Return the links that have frames in flight, in the order in which they were opened."""
        return [link for link in self._links.values() if link.in_flight]

    def cut(self, link: Link) -> int:
        """Reset a connection: a suffix of the frames in flight is lost. Returns how many, at least 1."""
        count = self._random.randint(1, len(link.in_flight))
        for _ in range(count):
            self._lose(link.in_flight.pop()[1])
        self.counts.lost_by_cut += count
        return count

    def repeat(self, link: Link, now: float) -> int:
        """Hand over a suffix of the frames in flight a second time, as a retry of an unknown outcome would. Returns how many."""
        count = self._random.randint(1, len(link.in_flight))
        for _, frame in list(link.in_flight)[-count:]:
            self._put(link, frame, now)
            self.counts.repeated += sum(one.kind is not FrameKind.CONFIRM for one in frames_of(frame))
        return count

    def reconnect(self, link: Link, now: float) -> int:
        """Begin a new connection while the old one still delivers, late: new frames overtake those in flight."""
        key = (link.sender, link.receiver)
        self._links[key] = Link(*key, base_s=link.base_s)
        delayed = now + self._random.uniform(5, 50) * max(link.base_s, 0.001)
        link.in_flight = deque((max(at, delayed), frame) for at, frame in link.in_flight)
        self._old.append(link)
        self._schedule(delayed, lambda: self._arrive(link, link.in_flight[-1][0] if link.in_flight else delayed))
        for _, frame in link.in_flight:
            _count(self.counts.overtaken, frame)
        return len(link.in_flight)

    def died(self, process: Incarnation) -> None:
        """A process has died: frames in flight to it are lost, and a suffix of those from it."""
        self._dead.add(process)
        for key, link in list(self._links.items()):
            if process not in (link.sender, link.receiver):
                continue
            if link.receiver == process:
                lost = len(link.in_flight)
            else:
                lost = self._random.randint(0, len(link.in_flight)) if link.in_flight else 0
                if lost < len(link.in_flight):
                    self._old.append(link)
            for _ in range(lost):
                self._lose(link.in_flight.pop()[1])
            del self._links[key]
        for link in self._old:
            if link.receiver == process:
                while link.in_flight:
                    self._lose(link.in_flight.pop()[1])
        self._old = [link for link in self._old if link.in_flight]

    def _put(self, link: Link, frame: bytes, now: float) -> None:
        delay = link.base_s * (1.0 + self._random.random())
        if now < link.slow_until:
            delay *= self.slow_factor
        at = link.arrives_last = max(link.arrives_last, now + delay)
        link.in_flight.append((at, frame))
        self._schedule(at, lambda: self._arrive(link, at))

    def _arrive(self, link: Link, now: float) -> None:
        in_flight = link.in_flight
        while in_flight and in_flight[0][0] <= now:
            frame = in_flight.popleft()[1]
            self.counts.delivered += 1
            self._deliver(link, frame)

    def _lose(self, data: bytes) -> None:
        _count(self.counts.lost, data)

    def has_lost(self, epoch: int, sender: int, target: int) -> bool:
        """Whether frames of an edge were lost or overtaken in an epoch."""
        edge = (epoch, sender, target)
        return edge in self.counts.lost or edge in self.counts.overtaken


def stamps_of(message: bytes) -> list[SenderStamp]:
    """Return the stamps of the frames of a message. The rest is not parsed: the receiver does that."""
    headers = [_HEADER.unpack_from(frame) for _, frame in unpack(message)]
    return [SenderStamp(header[7], header[8], header[10]) for header in headers]


def frames_of(message: bytes) -> list[Frame]:
    """Return the frames of a message between workers."""
    return [parse(frame) for _, frame in unpack(message)]


def _count(counts: dict[tuple[int, int, int], int], data: bytes) -> None:
    for frame in frames_of(data):
        if frame.kind is not FrameKind.CONFIRM:
            edge = (frame.epoch, frame.sender, frame.target)
            counts[edge] = counts.get(edge, 0) + 1
