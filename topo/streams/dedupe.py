"""The first record of each key, once, or once in a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from topo.streams.process import KeyedProcess, KeyedValue, StreamContext, StreamOutput


def first_of_key(within: str | timedelta | None) -> KeyedProcess[Any, Any, Any]:
    """Return a process that emits the first record of each key, and again the first one after `within` by the clock."""

    class First(KeyedProcess[Any, Any, Any]):
        seen = KeyedValue(bool, ttl=within)

        def process(self, record: Any, context: StreamContext[Any], out: StreamOutput[Any]) -> None:
            if self.seen.get() is None:
                self.seen.set(True)
                out.emit(record)

    return First()
