"""Evictors: remove elements of a window's buffer before or after its function sees them.

An evictor makes the window keep its elements one by one, with their timestamps; an evicted element never comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from msgspec import Struct

from topo.api.durations import duration_ms, is_whole
from topo.errors import UserError


class TimestampedValue(NamedTuple):
    """An element of a window's buffer; `timestamp` is None when the element has none."""

    value: Any
    timestamp: int | None


class Evictor:
    """An evictor of your own. Both methods change `elements`, a list in order of arrival, in place."""

    def evict_before(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        """Called at each firing, before the window function."""

    def evict_after(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        """Called at each firing, after the window function."""


class CountEvictor(Struct, frozen=True):
    """Keeps the last `count` elements."""

    count: int
    after: bool = False

    def __post_init__(self) -> None:
        if not is_whole(self.count) or self.count < 0:
            raise UserError(f"a count evictor keeps a whole number of elements, zero or more; got {self.count!r}")


class TimeEvictor(Struct, frozen=True):
    """Keeps the elements that are younger than `span_ms`, counted back from the greatest timestamp in the buffer."""

    span_ms: int
    after: bool = False

    def __post_init__(self) -> None:
        given: Any = self.span_ms
        if not isinstance(given, int):
            raise UserError(f"a TimeEvictor takes milliseconds; got {given!r}: write TimeEvictor.of({given!r})")

    @classmethod
    def of(cls, span: str | timedelta, *, after: bool = False) -> TimeEvictor:
        """Declare an evictor that keeps the last `span` of event time."""
        return cls(duration_ms(span), after)


class DeltaEvictor(Struct, frozen=True):
    """Drops the elements whose distance `delta(element, last element)` is `threshold` or more."""

    threshold: float
    delta: Callable[[Any, Any], float]
    after: bool = False

    def __post_init__(self) -> None:
        if not callable(self.delta):
            raise UserError(f"a delta evictor needs a function of two elements; got {self.delta!r}")


EvictorLike = CountEvictor | TimeEvictor | DeltaEvictor | Evictor
