"""The transport of frames between processes, as the worker's loop uses it.

A transport owns *inboxes*, which it binds and reads, and *outlets*, each connected to one inbox elsewhere. One thread calls
it; only `wake` may be called from others. Nothing but `wait` and `close` blocks.

A transport promises order within one outlet while its connection lives, and bytes that are whole. It does not promise
delivery: a lost connection loses a run of frames. Edges number their frames and notice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NewType, Protocol

Outlet = NewType("Outlet", int)
"""A connection to one remote inbox; never used twice by the same transport."""

MAX_FRAME = 16 * 1024 * 1024
"""Bytes that a message in an inbox may have, unless `bind` is given another limit."""

MAX_LINK_MESSAGE = 16 * 1024 * 1024
"""Bytes that a message between a worker and the master may have: a dead letter brings its values."""


@dataclass(slots=True)
class TransportStatistics:
    """Totals since the transport was made.

    Attributes:
        refused: sends that returned False. They are ordinary before the connection stands, and rare later, since windows bound
            the frames under way.
        denied: handshakes that the allow-list turned away or that offered no key.
    """

    frames_sent: int = 0
    bytes_sent: int = 0
    frames_received: int = 0
    bytes_received: int = 0
    refused: int = 0
    denied: int = 0


class Transport(Protocol):
    """Inboxes, outlets and one wait set over all of them."""

    @property
    def public_key(self) -> str | None:
        """The key that peers pass to `connect`; None where connections are not encrypted."""

    def bind(self, inbox: str, *, max_frame: int = MAX_FRAME, endpoint: str | None = None) -> str:
        """Open an inbox and return the endpoint that others connect to.

        Args:
            inbox: the caller's name for it, unique among the inboxes that are open.
            max_frame: a longer frame is dropped together with the connection that brought it.
            endpoint: an exact address; by default a fresh one is chosen.

        Raises:
            TopoEnvironmentError: the address is in use, was in use before (ipc), or is not this machine's.
        """

    def unbind(self, inbox: str) -> None:
        """Close an inbox. Frames left in it are dropped."""

    def listen_again(self) -> int:
        """Bind the inboxes again whose addresses were removed under them, and return how many. Connections that stand are kept.

        Raises:
            TopoEnvironmentError: an address cannot be had again.
        """

    def connect(self, endpoint: str, public_key: str | None = None, *, max_frame: int = MAX_FRAME) -> Outlet:
        """Open an outlet to an inbox, which need not be there yet; reconnects automatically until `disconnect`.

        Raises:
            ConfigError: the endpoint needs a key and none is given, or this transport cannot reach it.
        """

    def disconnect(self, outlet: Outlet) -> None:
        """Close an outlet. Undelivered frames are dropped."""

    def link(self, inbox: str, endpoint: str, identity: bytes, public_key: str | None = None) -> Outlet:
        """Connect to the topology master, both ways.

        Messages are sent through the outlet; answers are read from `inbox`, which belongs to the wait set. Messages sent
        before the connection stands are kept. `disconnect` closes both directions.

        Args:
            identity: how the master addresses this end; unique among all workers and incarnations.
        """

    def send(self, outlet: Outlet, frame: bytes) -> bool:
        """Hand over one frame without blocking.

        Returns:
            False when it was refused: not connected yet, or full. The frame still belongs to the caller, who sends it again
            after `recovered` has named the outlet, and nothing else on this outlet before it.

        Raises:
            FrameError: the frame is longer than the outlet's `max_frame`.
        """

    def wait(self, timeout_s: float | None) -> list[str]:
        """Block until an inbox is readable, a refused outlet takes frames again, `wake` is called or the time is up.

        Args:
            timeout_s: seconds, also fractions of a millisecond; 0 polls, None waits without end.

        Returns:
            The inboxes that are readable, each of them, so that a busy one cannot hide a quiet one; empty for all other reasons.
        """

    def recovered(self) -> list[Outlet]:
        """The outlets that refused a frame and, as of the last `wait`, take frames again; each is returned once."""

    def receive(self, inbox: str, limit: int) -> list[bytes]:
        """Take at most `limit` frames without blocking; empty when there are none.

        An inbox that was left with frames is readable at the next `wait`; the caller need not drain it.
        """

    def wake(self) -> None:
        """Make the present `wait`, or else the next, return at once. Any thread, and signal handlers, may call it."""

    def allow(self, public_keys: Iterable[str]) -> None:
        """Replace the list of those who may connect to the inboxes. Connections that stand are not cut."""

    def statistics(self) -> TransportStatistics:
        """Totals so far."""

    def close(self, linger_s: float = 0.0) -> None:
        """Close everything; may block up to `linger_s` for frames that are still on their way out. Idempotent."""
