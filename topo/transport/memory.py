"""Transports that share one process: the contract of `base` over queues."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from topo.errors import FrameError, TopoEnvironmentError
from topo.transport.base import MAX_FRAME, MAX_LINK_MESSAGE, Outlet, TransportStatistics
from topo.transport.security import AllowList, KeyPair

HIGH_WATER_MARK = 1024


class MemoryNetwork:
    """Where the transports of one process find each other. Its lock guards all their queues; none waits while it holds it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inboxes: dict[str, MemoryInbox] = {}
        self.routers: dict[str, MemoryRouter] = {}
        self.transports: list[MemoryTransport] = []
        self._numbers = itertools.count()
        self._used: set[str] = set()

    def claim(self, endpoint: str | None) -> str:
        """Return `endpoint`, or a fresh one, which from now on belongs to the caller; none is ever given out twice."""
        endpoint = endpoint or f"memory://{next(self._numbers)}"
        if endpoint in self._used:
            raise TopoEnvironmentError(f"{endpoint} is in use or was before; endpoints are never used twice")
        self._used.add(endpoint)
        return endpoint

    def changed(self) -> None:
        """Have everyone whose frame was refused look again."""
        for transport in self.transports:
            transport.room.set()


@dataclass(slots=True)
class MemoryInbox:
    """Frames that wait to be read by `owner`."""

    endpoint: str
    owner: MemoryTransport
    max_frame: int
    frames: deque[bytes] = field(default_factory=deque)


@dataclass(slots=True)
class _MemoryOutlet:
    endpoint: str
    public_key: str | None
    max_frame: int
    denied: bool = False


@dataclass(slots=True)
class _Link:
    endpoint: str
    identity: bytes
    inbox: str
    answers: deque[bytes] = field(default_factory=deque)
    waiting: deque[bytes] = field(default_factory=deque)


class MemoryRouter:
    """The master's end of all links to one endpoint."""

    def __init__(self, network: MemoryNetwork, endpoint: str) -> None:
        self._network = network
        self._arrived: deque[tuple[bytes, bytes]] = deque()
        with network.lock:
            self.endpoint = network.claim(endpoint)
            network.routers[endpoint] = self
            for transport in network.transports:
                transport.flush_links(self)

    def arrive(self, identity: bytes, message: bytes) -> None:
        """Take in one message; the network's lock is held."""
        self._arrived.append((identity, message))

    def receive(self) -> list[tuple[bytes, bytes]]:
        """The messages that have arrived, each with the identity of its sender."""
        with self._network.lock:
            arrived = list(self._arrived)
            self._arrived.clear()
        return arrived

    def send(self, identity: bytes, message: bytes) -> bool:
        """Answer one link; False when no link of that identity is connected."""
        with self._network.lock:
            return any(transport.answer(self.endpoint, identity, message) for transport in self._network.transports)


class MemoryTransport:
    """One end of a `MemoryNetwork`; see `base.Transport` for the contract.

    With `keys` it admits only those whose keys it allows, as CURVE does.
    """

    def __init__(self, network: MemoryNetwork, keys: KeyPair | None = None, high_water_mark: int = HIGH_WATER_MARK) -> None:
        self._network = network
        self._keys = keys
        self._high_water_mark = high_water_mark
        self._allow_list = AllowList()
        self._inboxes: dict[str, MemoryInbox] = {}
        self._outlets: dict[Outlet, _MemoryOutlet | _Link] = {}
        self._links: dict[str, _Link] = {}
        self._numbers = itertools.count(1)
        self._refused: set[Outlet] = set()
        self._recovered: list[Outlet] = []
        self._woken = False
        self._done = TransportStatistics()
        self.room = threading.Event()
        with network.lock:
            network.transports.append(self)

    @property
    def public_key(self) -> str | None:
        return self._keys.public if self._keys else None

    def bind(self, inbox: str, *, max_frame: int = MAX_FRAME, endpoint: str | None = None) -> str:
        with self._network.lock:
            endpoint = self._network.claim(endpoint)
            self._inboxes[inbox] = self._network.inboxes[endpoint] = MemoryInbox(endpoint, self, max_frame)
            self._network.changed()
        return endpoint

    def unbind(self, inbox: str) -> None:
        with self._network.lock:
            del self._network.inboxes[self._inboxes.pop(inbox).endpoint]

    def listen_again(self) -> int:
        return 0

    def connect(self, endpoint: str, public_key: str | None = None, *, max_frame: int = MAX_FRAME) -> Outlet:
        outlet = Outlet(next(self._numbers))
        self._outlets[outlet] = _MemoryOutlet(endpoint, public_key, max_frame)
        return outlet

    def disconnect(self, outlet: Outlet) -> None:
        with self._network.lock:
            gone = self._outlets.pop(outlet)
            self._refused.discard(outlet)
            if isinstance(gone, _Link):
                del self._links[gone.inbox]

    def link(self, inbox: str, endpoint: str, identity: bytes, public_key: str | None = None) -> Outlet:
        outlet = Outlet(next(self._numbers))
        with self._network.lock:
            self._outlets[outlet] = self._links[inbox] = _Link(endpoint, identity, inbox)
        return outlet

    def send(self, outlet: Outlet, frame: bytes) -> bool:
        out = self._outlets[outlet]
        limit = MAX_LINK_MESSAGE if isinstance(out, _Link) else out.max_frame
        if len(frame) > limit:
            raise FrameError(f"frame of {len(frame)} bytes is over the limit of {limit}")
        with self._network.lock:
            taken = self._offer_link(out, frame) if isinstance(out, _Link) else self._offer(out, frame)
            if not taken:
                self._refused.add(outlet)
                self._done.refused += 1
                return False
        self._done.frames_sent += 1
        self._done.bytes_sent += len(frame)
        return True

    def _offer(self, out: _MemoryOutlet, frame: bytes) -> bool:
        inbox = self._reachable(out)
        if inbox is None or len(inbox.frames) >= inbox.owner._high_water_mark:
            return False
        if len(frame) <= inbox.max_frame:
            inbox.frames.append(frame)
            inbox.owner.room.set()
        return True

    def _reachable(self, out: _MemoryOutlet) -> MemoryInbox | None:
        inbox = self._network.inboxes.get(out.endpoint)
        if inbox is None or inbox.owner.public_key is None:
            return inbox
        owner = inbox.owner
        if out.public_key == owner.public_key and self.public_key and owner._allow_list.admits(self.public_key):
            return inbox
        if not out.denied:
            out.denied = True
            owner._allow_list.deny("another transport of this process", "its key is not on the allow-list")
        return None

    def _offer_link(self, link: _Link, message: bytes) -> bool:
        router = self._network.routers.get(link.endpoint)
        if router is not None:
            router.arrive(link.identity, message)
        elif len(link.waiting) >= self._high_water_mark:
            return False
        else:
            link.waiting.append(message)
        return True

    def flush_links(self, router: MemoryRouter) -> None:
        """Deliver what waited for `router`; the network's lock is held."""
        for link in self._links.values():
            if link.endpoint == router.endpoint:
                while link.waiting:
                    router.arrive(link.identity, link.waiting.popleft())
        self.room.set()

    def answer(self, endpoint: str, identity: bytes, message: bytes) -> bool:
        """Take a message of the router at `endpoint` when it is for a link of this transport; the network's lock is held."""
        for link in self._links.values():
            if (link.endpoint, link.identity) == (endpoint, identity):
                link.answers.append(message)
                self.room.set()
                return True
        return False

    def wait(self, timeout_s: float | None) -> list[str]:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            self.room.clear()
            with self._network.lock:
                ready = [name for name, inbox in self._inboxes.items() if inbox.frames]
                ready += [name for name, link in self._links.items() if link.answers]
                recovered = sorted(outlet for outlet in self._refused if self._has_room(self._outlets[outlet]))
                self._refused.difference_update(recovered)
                self._recovered += recovered
            if ready or recovered or self._woken:
                self._woken = False
                return ready
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining <= 0:
                return []
            self.room.wait(remaining)

    def _has_room(self, out: _MemoryOutlet | _Link) -> bool:
        if isinstance(out, _Link):
            return len(out.waiting) < self._high_water_mark
        inbox = self._reachable(out)
        return inbox is not None and len(inbox.frames) < inbox.owner._high_water_mark

    def recovered(self) -> list[Outlet]:
        recovered, self._recovered = self._recovered, []
        return recovered

    def receive(self, inbox: str, limit: int) -> list[bytes]:
        link = self._links.get(inbox)
        frames = self._inboxes[inbox].frames if link is None else link.answers
        with self._network.lock:
            was_full = len(frames) >= self._high_water_mark
            taken = [frames.popleft() for _ in range(min(limit, len(frames)))]
            if was_full:
                self._network.changed()
        self._done.frames_received += len(taken)
        self._done.bytes_received += sum(map(len, taken))
        return taken

    def wake(self) -> None:
        self._woken = True
        self.room.set()

    def allow(self, public_keys: Iterable[str]) -> None:
        self._allow_list.replace(public_keys)
        with self._network.lock:
            self._network.changed()

    def statistics(self) -> TransportStatistics:
        return replace(self._done, denied=self._allow_list.denied)

    def close(self, linger_s: float = 0.0) -> None:
        with self._network.lock:
            if self in self._network.transports:
                self._network.transports.remove(self)
            for inbox in self._inboxes.values():
                self._network.inboxes.pop(inbox.endpoint, None)
        self._inboxes.clear()
        self._links.clear()
        self._outlets.clear()
        self._refused.clear()
