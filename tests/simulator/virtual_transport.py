"""The transport of one simulated process: `topo.transport.base.Transport` over the virtual network and the line to the master."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from tests.simulator.control_line import ControlLine
from tests.simulator.network import LinkKey, SimulatedNetwork
from topo.ids import Incarnation
from topo.transport.base import MAX_FRAME, Outlet, TransportStatistics
from topo.worker.loop import LINK

_MASTER = Outlet(0)


def endpoint_of(incarnation: Incarnation) -> str:
    """Return where the inbox of a life of a worker is bound."""
    return f"inbox-{incarnation}"


class VirtualTransport:
    """Inboxes and outlets of one life of a worker. Never waits: the simulation turns the loop when something has arrived.

    Args:
        clock: the time of the process.
        before_send: called before each frame or message leaves; the process may die there.
        wake: has the process turn.
        connects_in_s: draws how long it takes until a new connection stands; frames are refused before.
    """

    public_key = None

    def __init__(
        self,
        incarnation: Incarnation,
        network: SimulatedNetwork,
        line: ControlLine,
        reads_at_once: int,
        clock: Callable[[], float],
        before_send: Callable[[], None],
        wake: Callable[[float], None],
        connects_in_s: Callable[[], float],
    ) -> None:
        self._incarnation = incarnation
        self._network = network
        self._line = line
        self._reads_at_once = reads_at_once
        self._clock = clock
        self._before_send = before_send
        self._wake = wake
        self._connects_in_s = connects_in_s
        self._frames: dict[str, deque[bytes]] = {LINK: deque()}
        self._targets: dict[Outlet, LinkKey] = {}
        self._connected_at: dict[Outlet, float] = {}
        """Of outlets whose connection may not stand yet."""
        self._refused: set[Outlet] = set()
        self._last = _MASTER
        self._is_line_full = False
        self.on_full: Callable[[], None] = lambda: None
        self.on_full_line: Callable[[], None] = lambda: None
        line.on_room = self._line_has_room

    def put(self, inbox: str, data: bytes) -> None:
        """A frame or a message has arrived."""
        self._frames[inbox].append(data)

    def ready(self) -> list[str]:
        """Return the inboxes that are readable."""
        return [name for name, frames in self._frames.items() if frames]

    # -- called by the loop ---------------------------------------------------------------------------------------------

    def bind(self, inbox: str, *, max_frame: int = MAX_FRAME, endpoint: str | None = None) -> str:
        self._frames[inbox] = deque()
        return endpoint or inbox

    def unbind(self, inbox: str) -> None:
        del self._frames[inbox]

    def listen_again(self) -> int:
        return 0

    def connect(self, endpoint: str, public_key: str | None = None, *, max_frame: int = MAX_FRAME) -> Outlet:
        incarnation = endpoint.removeprefix("inbox-")
        self._last = outlet = Outlet(self._last + 1)
        self._targets[outlet] = (self._incarnation, Incarnation(int(incarnation)))
        self._connected_at[outlet] = self._clock() + self._connects_in_s()
        return outlet

    def disconnect(self, outlet: Outlet) -> None:
        del self._targets[outlet]
        self._refused.discard(outlet)

    def link(self, inbox: str, endpoint: str, identity: bytes, public_key: str | None = None) -> Outlet:
        return _MASTER

    def send(self, outlet: Outlet, frame: bytes) -> bool:
        self._before_send()
        now = self._clock()
        if outlet == _MASTER:
            if self._line.send_up(frame, now):
                return True
            self._is_line_full = True
            self.on_full_line()
            return False
        if outlet in self._connected_at:
            connected_at = self._connected_at[outlet]
            if now < connected_at:
                self._refused.add(outlet)
                self._wake(connected_at)
                return False
            del self._connected_at[outlet]
        if not self._network.has_room(self._targets[outlet]):
            self._refused.add(outlet)
            self.on_full()
            return False
        self._network.send(self._targets[outlet], frame, now)
        return True

    def wait(self, timeout_s: float | None) -> list[str]:
        return self.ready()

    def recovered(self) -> list[Outlet]:
        if not self._refused:
            return []
        now = self._clock()
        standing = [outlet for outlet in self._refused if self._connected_at.get(outlet, 0.0) <= now]
        recovered = sorted(outlet for outlet in standing if self._network.has_room(self._targets[outlet]))
        self._refused.difference_update(recovered)
        return recovered

    def drained(self, receiver: Incarnation) -> None:
        """A message to a process has arrived, so that its connection has room for another one."""
        if any(self._targets[outlet][1] == receiver for outlet in self._refused):
            self._wake(0.0)

    def _line_has_room(self) -> None:
        if self._is_line_full:
            self._is_line_full = False
            self._wake(0.0)

    def receive(self, inbox: str, limit: int) -> list[bytes]:
        frames = self._frames[inbox]
        if inbox != LINK:
            limit = min(limit, self._reads_at_once)
        return [frames.popleft() for _ in range(min(len(frames), limit))]

    def wake(self) -> None:
        self._wake(self._clock())

    def allow(self, public_keys: Iterable[str]) -> None:
        pass

    def statistics(self) -> TransportStatistics:
        return TransportStatistics(0, 0, 0, 0, 0, 0)

    def close(self, linger_s: float = 0.0) -> None:
        pass
