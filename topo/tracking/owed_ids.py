"""Ids that a task owes the ackers: for each root one value, the XOR of what its calls have processed and emitted.

Values of a root are combined until they leave. They are made when the rows that they stand for have been routed, so each has the
edges of these rows, also of those that wait in a buffer for their frame. A full batch of values may overtake such rows: their
edges keep the root open until their receiver has acked them, and a row that no frame can carry fails its root, whose value
is not zero then. Where all ids leave (`flush`) the rows go first, so that a message is done no later than it need be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from topo.hot import Acks, pack_words
from topo.tracking.acker_routes import AckerRoutes
from topo.wire.frames import FrameKind

IN_PASSING = 0.75
"""The share of their wait after which ids leave with a turn that something else has caused: one of their own costs a wake-up."""


class OwedIds:
    """The ids that one task has not sent yet.

    Args:
        routes: lead to the ackers.
        batch_size: number of acks that leave without waiting for others.
        interval_s: how long fewer acks wait, in seconds.
        report_causes: reports why roots have failed; called before they are sent.

    Attributes:
        acks: values by root.
        fails: roots that have failed.
        touches: roots whose timeouts are to start over.
        trees: root and value of trees that begin at this task.
        since: when the first of the waiting acks was due, in monotonic seconds; None while none waits.
    """

    def __init__(self, routes: AckerRoutes, batch_size: int, interval_s: float, report_causes: Callable[[], None]) -> None:
        self._routes = routes
        self._batch_size = batch_size
        self._interval_s = interval_s
        self._report_causes = report_causes
        self.acks = Acks()
        self.fails: dict[int, None] = {}
        self.touches: dict[int, None] = {}
        self.trees: list[tuple[int, int]] = []
        self.since: float | None = None

    def fail(self, roots: Iterable[int]) -> None:
        """Fail roots."""
        self.fails.update(dict.fromkeys(roots))

    def touch(self, roots: Iterable[int]) -> None:
        """Have the timeouts of roots start over."""
        self.touches.update(dict.fromkeys(roots))

    def clear(self) -> None:
        """Forget everything: another epoch begins."""
        self.acks.clear()
        self.fails.clear()
        self.touches.clear()
        self.trees.clear()
        self.since = None

    @property
    def deadline(self) -> float | None:
        """When the waiting acks have to leave, in monotonic seconds."""
        return None if self.since is None else self.since + self._interval_s

    def is_due(self, now: float) -> bool:
        """Whether the waiting acks leave with a turn at `now`."""
        return self.since is not None and now >= self.since + IN_PASSING * self._interval_s

    def flush_full(self, now: float) -> None:
        """Send the ids if they are a batch, or if a fail or a touch is among them; rows may still be buffered."""
        if len(self.acks) >= self._batch_size or self.fails or self.touches:
            self.flush()
        if self.since is None and (self.acks or self.trees):
            self.since = now

    def flush(self) -> None:
        """Send all ids; the rows that they stand for have been routed."""
        self.since = None
        if self.trees:
            roots, values = zip(*self.trees, strict=True)
            self.trees = []
            self._routes.send(FrameKind.INIT, pack_words(roots), pack_words(values))
        if self.acks or self.fails or self.touches:
            self._report_causes()
            fails, touches = self.fails, self.touches
            self.fails, self.touches = {}, {}
            # Fails before acks: a failed root gets the same verdict in either order, since the value of its failed input never
            # arrives, but in this order it comes sooner.
            self._routes.send(FrameKind.FAIL, pack_words(fails))
            self._routes.send(FrameKind.ACK, *self.acks.take())
            self._routes.send(FrameKind.RESET, pack_words(touches))
