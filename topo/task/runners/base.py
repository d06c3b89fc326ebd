"""What a `Task` asks of the kind of component that it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from topo.task.events import RoutesChanged

MessageHandlers = Mapping[type, Callable[[Any, float], None]]
"""The handler of each message of the master, by the class of the message."""


class Timed(Protocol):
    """Work of a part that is due by the clock."""

    def on_time(self, now: float) -> None:
        """Do all that is due."""

    def deadlines(self) -> Iterable[float | None]:
        """Return when it wants a turn, in monotonic seconds."""


class Runner(Protocol):
    """What a kind of component does: user code, or the ledger of an acker. Knows nothing of how delivery is made safe.

    All calls come on the task's thread, and only while the component is open, `begin_epoch` aside.
    """

    def begin_epoch(self, event: RoutesChanged, now: float, *, is_first: bool) -> None:
        """Bring the component to where the epoch begins, send OPEN on all edges, then any rows that it emitted meanwhile.

        Args:
            event: the routes.
            now: monotonic seconds.
            is_first: the component is not open yet in this process.
        """

    def on_time(self, now: float) -> None:
        """Do all that is due by the clock, before mails and before `act`."""

    def act(self, now: float) -> None:
        """Do one action: a slice of input, a burst of messages, or whatever waits for its call."""

    def deadlines(self, now: float) -> Iterable[float | None]:
        """Return when it wants a turn, in monotonic seconds. When a spout's next replay is due depends on `now`."""

    @property
    def has_work(self) -> bool:
        """Whether `act` would do something now."""

    def levels(self) -> dict[str, float]:
        """Return what there is of it now, by name of the statistic."""


class UserRunner(Runner, Protocol):
    """A runner of user code.

    Attributes:
        messages: the master's messages that this kind acts on.
    """

    messages: MessageHandlers

    def close(self) -> None:
        """Close the component, if it is open."""

    @property
    def is_blocked(self) -> bool:
        """Whether `act` would do something if only there were room for what comes of it."""

    @property
    def has_ended(self) -> bool:
        """Whether no input will come any more, replays aside."""

    @property
    def pending(self) -> int:
        """How many messages' outcome is open."""

    def unfinished(self) -> str:
        """Describe the work that it holds besides `pending`; "" when nothing."""

    def refusal(self) -> str:
        """Return the right without which a sink can publish nothing, in words; "" when none is missing."""

    def latencies(self) -> dict[str, Any]:
        """Return how long calls or messages took, by name of the statistic."""
