"""The offsets of a consumer group, which follow the records that are done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from topo.api.partition_values import Partition
from topo.connectors.kafka.cluster import client_partition
from topo.connectors.kafka.offsets import BEGINNING
from topo.connectors.kafka.settings import explained


class GroupOffsets:
    """Those of one reader.

    The client runs one call at a time, and from version 2.16 on a thread that waits for records again and again leaves those of
    others no turn. So offsets are sent by the thread that may call it.

    Args:
        settings: of the client, with its group.
        report: takes the errors.
    """

    def __init__(self, settings: Mapping[str, Any], report: Callable[[BaseException], object]) -> None:
        self._settings, self._report = settings, report
        self._lock = Lock()
        self._waiting: dict[str, Any] = {}
        """Those to commit, by partition."""
        self._errors: deque[Any] = deque()
        self._has_error = False

    def add(self, positions: Mapping[str, Any]) -> None:
        """Keep positions until they are sent."""
        with self._lock:
            for name, (_, last) in positions.items():
                topic, _, number = name.rpartition("-")
                if last != BEGINNING:
                    self._waiting[name] = client_partition(Partition(name, topic, int(number)), last + 1)

    def send(self, consumer: Any) -> None:
        """Have the client commit the offsets that are kept. By the thread that may call it."""
        from confluent_kafka import KafkaException

        if not self._waiting:
            return
        with self._lock:
            offsets, self._waiting = [*self._waiting.values()], {}
            try:
                consumer.commit(offsets=offsets, asynchronous=True)
            except KafkaException as error:
                self._errors.append(error.args[0])

    def taken(self, error: Any, _partitions: Any) -> None:
        """The group has taken offsets, or has not. Called by the client, on either thread."""
        self._errors.append(error)

    def look(self) -> None:
        """Report that the group does not take positions: once, until it does. On the task's thread."""
        while self._errors:
            error = self._errors.popleft()
            if error is not None and not self._has_error:
                group = self._settings.get("group.id")
                what = f"group {group!r} does not take the positions; topo's own are stored, and reading continues"
                self._report(explained(error, what, self._settings))
            self._has_error = error is not None
