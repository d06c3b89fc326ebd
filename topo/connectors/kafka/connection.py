"""Follows whether a client has a broker: one error when the connection is lost, one when it is back, and a gauge.

The client connects again without help, and reports only losses. So while it has none, a small request is tried every second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from topo.api.context import TaskContext
from topo.connectors.kafka.settings import explained
from topo.errors import TopoEnvironmentError

PROBE_S = 1.0
"""Between two tries, and how long one may take."""
_LOST = {"_ALL_BROKERS_DOWN", "_AUTHENTICATION", "_SSL"}


class BrokerConnection:
    """The connection of one reader.

    Args:
        settings: of the client.
        context: of the task.
        report: takes the errors.
        needs_group: whether the rights on the group count.
        probe: asks a broker for a topic, and raises when none answers; on the helper thread.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        context: TaskContext,
        report: Callable[[BaseException], None],
        probe: Callable[[str], object],
        *,
        needs_group: bool,
    ) -> None:
        self._settings, self._context, self._report, self._probe = settings, context, report, probe
        self._needs_group = needs_group
        self._events: deque[Any] = deque()
        """Errors of the client; None: a broker has answered."""
        self._gauge = context.metrics.gauge("connected")
        self._gauge.set(1)
        self._probe_at = inf
        self._is_lost = False
        self._reported: set[str] = set()

    def failed(self, error: Any) -> None:
        """Take an error that the client reports, which is of no partition. On any thread."""
        self._events.append(error)

    def look(self, topic: str | None) -> None:
        """Take over the news; ask for `topic` when a try is due. On the task's thread."""
        while self._events:
            self._take(self._events.popleft())
        if self._is_lost and topic is not None and self._context.clock() >= self._probe_at:
            self._probe_at = inf
            self._context.run_beside(lambda: self._try(topic))

    def _take(self, error: Any) -> None:
        if error is None:
            if self._is_lost:
                self._is_lost = False
                self._gauge.set(1)
                self._reported.clear()
                self._report(TopoEnvironmentError(f"Kafka at {self._settings['bootstrap.servers']!r} answers: reading continues"))
            return
        name = error.name()
        if name in _LOST:
            self._gauge.set(0)
            if not self._is_lost:
                self._is_lost = True
                self._probe_at = self._context.clock() + PROBE_S
        elif name.startswith("_") or (name == "GROUP_AUTHORIZATION_FAILED" and not self._needs_group):
            # One broker of several, or one request: the client tries it once more.
            self._context.logger.info("Kafka's client: %s", error.str())
            return
        if name not in self._reported:
            self._reported.add(name)
            self._report(explained(error, "nothing can be read", self._settings))

    def _try(self, topic: str) -> None:
        try:
            self._probe(topic)
        except Exception:
            self._probe_at = self._context.clock() + PROBE_S
        else:
            self._events.append(None)
