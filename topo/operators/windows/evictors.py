"""Evictors: which elements of a window's buffer are dropped before or after its function sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.api.evictors import CountEvictor, DeltaEvictor, Evictor, EvictorLike, TimeEvictor, TimestampedValue
from topo.errors import UserError
from topo.user_errors import call_for_effect

_IN_PLACE = "change the list in place, such as with elements[:] = ..., and return None"


class _OneSided(Evictor):
    """Evicts either before or after the window function, by the declared flag."""

    def __init__(self, after: bool) -> None:
        self._after = after

    def _evict(self, elements: list[TimestampedValue]) -> None:
        raise NotImplementedError

    def evict_before(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        """Evict, unless declared to do so after."""
        if not self._after:
            self._evict(elements)

    def evict_after(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        """Evict, if declared to do so after."""
        if self._after:
            self._evict(elements)


class CountEviction(_OneSided):
    """Drops from the front until `count` elements remain."""

    def __init__(self, count: int, after: bool) -> None:
        super().__init__(after)
        self._count = count

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if len(elements) > self._count:
            del elements[: len(elements) - self._count]


class TimeEviction(_OneSided):
    """Drops what is as old as the greatest timestamp less the span, or older, wherever it stands.

    Does nothing when the first element has no timestamp.
    """

    def __init__(self, span_ms: int, after: bool) -> None:
        super().__init__(after)
        self._span_ms = span_ms

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if not elements or elements[0].timestamp is None:
            return
        cutoff = max(element.timestamp for element in elements if element.timestamp is not None) - self._span_ms
        elements[:] = [element for element in elements if element.timestamp is None or element.timestamp > cutoff]


class DeltaEviction(_OneSided):
    """Drops what is `threshold` or further from the last element."""

    def __init__(self, threshold: float, delta: Callable[[Any, Any], float], after: bool) -> None:
        super().__init__(after)
        self._threshold = threshold
        self._delta = delta

    def _evict(self, elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [element for element in elements if not self._delta(element.value, last) >= self._threshold]


class _Own(Evictor):
    """Calls a user's evictor, which changes its argument: a list that it returned instead would have no effect."""

    def __init__(self, evictor: Evictor) -> None:
        self._evictor = evictor

    def evict_before(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        call_for_effect(self._evictor.evict_before, elements, window, watermark, clock, fix=_IN_PLACE)

    def evict_after(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        call_for_effect(self._evictor.evict_after, elements, window, watermark, clock, fix=_IN_PLACE)


def build_evictor(declared: EvictorLike) -> Evictor:
    """Give a declared evictor its behaviour."""
    match declared:
        case CountEvictor(count, after):
            return CountEviction(count, after)
        case TimeEvictor(span_ms, after):
            return TimeEviction(span_ms, after)
        case DeltaEvictor(threshold, delta, after):
            return DeltaEviction(threshold, delta, after)
        case Evictor():
            return _Own(declared)
    raise UserError(f"{declared!r} is no evictor; take one of topo.api.windows or derive from Evictor")
