"""The output of an operator under test, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from topo.api.streams import DEFAULT_STREAM


class Emitted(NamedTuple):
    """An element with its event time in milliseconds, or None; equal to the plain pair."""

    values: Any
    timestamp: int | None


class OnStream(NamedTuple):
    """An element on another stream than the main one."""

    stream: str
    values: Any
    timestamp: int | None


class Watermark(NamedTuple):
    """A watermark that was passed on."""

    timestamp: int


class Status(NamedTuple):
    """The operator has become idle, or active again."""

    is_idle: bool


Event = Emitted | OnStream | Watermark | Status


class RecordedOutput:
    """An operator's output that keeps everything.

    Args:
        check: returns the values of an element as they arrive at the next component, by stream (None is the main one); raises
            for what cannot be emitted.
    """

    def __init__(self, check: Callable[[str | None, Any], Any] = lambda _stream, values: values) -> None:
        self.events: list[Event] = []
        self._check = check

    def mark(self) -> int:
        """Return how much was put out."""
        return len(self.events)

    def rewind(self, mark: int) -> None:
        """Take back the output since a mark."""
        del self.events[mark:]

    def emit(self, value: Any, timestamp: int | None) -> None:
        self.events.append(Emitted(self._check(None, value), timestamp))

    def side(self, stream: str, value: Any, timestamp: int | None) -> None:
        """Keep an element of a side stream; the default one, named, is no side stream."""
        if stream == DEFAULT_STREAM:
            self.emit(value, timestamp)
        else:
            self.events.append(OnStream(stream, self._check(stream, value), timestamp))

    def watermark(self, timestamp: int) -> None:
        self.events.append(Watermark(timestamp))

    def mark_idle(self) -> None:
        self.events.append(Status(True))

    def mark_active(self) -> None:
        self.events.append(Status(False))
