"""Follows whether a client has a broker: one error when the connection is lost, one when it is back, and a gauge.

The client connects again without help, and reports only losses: each one of a broker, but not each one of all. So behind an error
a small request is tried every second until it is answered. When several in a row are not, all brokers are lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf
from typing import Any

from topo.api.context import TaskContext
from topo.connectors.kafka.settings import explained, refuses_login
from topo.errors import TopoEnvironmentError

PROBE_S = 1.0
"""Between two tries."""
TRIES = 3
"""In a row without an answer they are a loss: one may be late on a busy machine."""
_BROKEN = {"_TRANSPORT", "_RESOLVE"}
"""Of one broker; others may answer."""


class BrokerConnection:
    """The connection of one reader.

    Args:
        settings: of the client.
        context: of the task.
        report: takes the errors.
        probe: asks a broker for a topic, and raises when none answers; on the helper thread.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        context: TaskContext,
        report: Callable[[BaseException], None],
        probe: Callable[[str], object],
    ) -> None:
        self._settings, self._context, self._report, self._probe = settings, context, report, probe
        self._events: deque[Any] = deque()
        """Errors of the client; of tries the exception, or None: a broker has answered."""
        self._gauge = context.metrics.gauge("connected")
        self._gauge.set(1)
        self._probe_at = inf
        self._is_lost = self._is_trying = False
        self._unanswered = 0
        self._reported: set[str] = set()
        self._login: Any = None
        """The error of a broker that refuses the login, until it is known whether others answer."""

    def failed(self, error: Any) -> None:
        """Take an error that the client reports, which is of no partition. On any thread."""
        self._events.append(error)

    def look(self, topic: str | None) -> None:
        """Take over the news; ask for `topic` when a try is due. On the task's thread."""
        while self._events:
            self._take(self._events.popleft())
        if topic is not None and self._context.clock() >= self._probe_at:
            self._probe_at, self._is_trying = inf, True
            self._context.run_beside(lambda: self._try(topic))

    def _take(self, news: Any) -> None:
        if news is None:
            self._returned()
        elif isinstance(news, Exception):
            self._is_trying = False
            self._unanswered += 1
            self._try_later()
            if self._unanswered >= TRIES and not self._is_lost:
                self._lose(news.args[0])
        else:
            self._take_error(news)

    def _take_error(self, error: Any) -> None:
        name = error.name()
        if name == "_ALL_BROKERS_DOWN":
            self._lose(error)
        elif refuses_login(error):
            self._login = error
            self._try_later()
        elif name.startswith("_") or name == "GROUP_AUTHORIZATION_FAILED":
            # One broker of several, or one request: the client tries it once more. Reading needs no right to the group.
            self._context.logger.info("Kafka's client: %s", error.str())
            if name in _BROKEN:
                self._try_later()
        else:
            self._report_once(name, error)

    def _lose(self, error: Any) -> None:
        self._is_lost = True
        self._gauge.set(0)
        self._try_later()
        self._report_once("_ALL_BROKERS_DOWN", self._login or error)

    def _returned(self) -> None:
        self._is_trying = False
        self._unanswered = 0
        if self._is_lost:
            self._is_lost = False
            self._gauge.set(1)
            self._reported.clear()
            self._report(TopoEnvironmentError(f"Kafka at {self._settings['bootstrap.servers']!r} answers: reading continues"))
        elif self._login is not None:
            self._report_once(self._login.name(), self._login, "a broker of several cannot be read")
        self._login = None

    def _report_once(self, name: str, error: Any, what: str = "nothing can be read") -> None:
        if name not in self._reported:
            self._reported.add(name)
            self._report(explained(error, what, self._settings))

    def _try_later(self) -> None:
        if self._probe_at == inf and not self._is_trying:
            self._probe_at = self._context.clock() + PROBE_S

    def _try(self, topic: str) -> None:
        """Ask a broker. On the helper thread."""
        from confluent_kafka import KafkaException

        try:
            self._probe(topic)
        except KafkaException as error:
            self._events.append(error)
        except Exception:
            # This shows nothing of the brokers: the client was closed meanwhile, as a rule.
            self._is_trying = False
            self._try_later()
        else:
            self._events.append(None)
