"""Partitions whose next record has a schema that is not known yet. It is asked for on the helper thread; others are read on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from topo.api.context import TaskContext
from topo.connectors.kafka.schemas import SchemaNeeded
from topo.connectors.server_link import RequestLine, ServerLink

Reading = TypeVar("Reading")


class SchemaWaits(Generic[Reading]):
    """The waits of one task.

    Args:
        context: of the task.
        report: takes the errors: one when the registry is lost, one when it answers again.
    """

    def __init__(self, context: TaskContext, report: Callable[[BaseException], None]) -> None:
        self._context, self._report = context, report
        self._line: RequestLine[bool] | None = None
        self._waiting: list[tuple[Reading, SchemaNeeded]] = []

    def add(self, reading: Reading, needed: SchemaNeeded) -> None:
        """Have a partition wait."""
        self._waiting.append((reading, needed))

    def ready(self) -> Sequence[Reading]:
        """Return the partitions that are to be read on: those that wait for another schema are added again."""
        if not self._waiting:
            return ()
        if self._line is None:
            link = ServerLink("the schema registry", self._context, self._report, gauge="registry_connected")
            self._line = RequestLine(self._context, link)
        answer = self._line.take()
        if answer is True:
            found, self._waiting = self._waiting, []
            return [reading for reading, _ in found]
        if isinstance(answer, Exception):
            self._report(answer)
        if self._line.is_free:
            # In turn: a schema that cannot be had holds up no other.
            self._waiting.append(self._waiting.pop(0))
            self._line.ask(self._waiting[-1][1].fetch, always_wakes=True)
        return ()
