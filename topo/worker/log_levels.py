"""Log levels that operators have changed for a while. Loggers belong to the process: a level holds for all tasks of a worker."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec import Struct

from topo.wire import control

_LOG = logging.getLogger(__name__)


class LogLevels:
    """The changed levels of this process. The last of several changes counts; without any, a logger has its own level back."""

    def __init__(self) -> None:
        self._own: dict[str, int] = {}
        self._changes: dict[int, Mapping[str, str]] = {}

    def begin(self, message: control.Observe) -> _Change:
        """Change levels: `spec["levels"]` has them by logger, "" is the root."""
        self._changes[message.id] = message.spec["levels"]
        self._apply()
        _LOG.info("log levels for %.0f s: %s", message.for_s, message.spec["levels"])
        return _Change(self, message.id)

    def end(self, number: int) -> None:
        """Take a change back."""
        levels = self._changes.pop(number)
        self._apply()
        _LOG.info("log levels as before: %s", ", ".join(name or "root" for name in levels))

    def _apply(self) -> None:
        wanted = {name: level for change in self._changes.values() for name, level in change.items()}
        for name in wanted.keys() - self._own.keys():
            self._own[name] = logging.getLogger(name).level
        for name, own in list(self._own.items()):
            logging.getLogger(name).setLevel(wanted.get(name, own))
            if name not in wanted:
                del self._own[name]


class _Change(Struct, frozen=True):
    levels: LogLevels
    number: int

    def reports(self) -> list[control.Observed]:
        return []

    def end(self) -> None:
        self.levels.end(self.number)
