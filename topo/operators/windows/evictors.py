"""Evictors: which elements of a window's buffer are dropped before or after its function sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from topo.api.evictors import CountEvictor, DeltaEvictor, Evictor, EvictorLike, TimeEvictor, TimestampedValue
from topo.errors import UserError
from topo.user_errors import call_for_effect

_IN_PLACE = "change the list in place, such as with elements[:] = ..., and return None"


Evict = Callable[[list[TimestampedValue]], None]


class Eviction(Evictor):
    """Evicts either before or after the window function, by the declared flag."""

    def __init__(self, evict: Evict, after: bool) -> None:
        self._evict = evict
        self._after = after

    def evict_before(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        if not self._after:
            self._evict(elements)

    def evict_after(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        if self._after:
            self._evict(elements)


def _by_count(count: int) -> Evict:
    """Drop from the front until `count` elements remain."""

    def evict(elements: list[TimestampedValue]) -> None:
        if len(elements) > count:
            del elements[: len(elements) - count]

    return evict


def _by_time(span_ms: int) -> Evict:
    """Drop elements as old as the greatest timestamp less the span, or older, at any place.

    Does nothing when the first element has no timestamp.
    """

    def evict(elements: list[TimestampedValue]) -> None:
        if not elements or elements[0].timestamp is None:
            return
        cutoff = max(element.timestamp for element in elements if element.timestamp is not None) - span_ms
        elements[:] = [element for element in elements if element.timestamp is None or element.timestamp > cutoff]

    return evict


def _by_delta(threshold: float, delta: Callable[[Any, Any], float]) -> Evict:
    """Drop elements that are `threshold` or further from the last one."""

    def evict(elements: list[TimestampedValue]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [element for element in elements if not delta(element.value, last) >= threshold]

    return evict


class _OwnEvictor(Evictor):
    """Calls a user's evictor, which changes its argument: a list that it returned instead would have no effect."""

    def __init__(self, evictor: Evictor) -> None:
        self._evictor = evictor

    def evict_before(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        call_for_effect(self._evictor.evict_before, elements, window, watermark, clock, fix=_IN_PLACE)

    def evict_after(self, elements: list[TimestampedValue], window: Any, watermark: int, clock: int) -> None:
        call_for_effect(self._evictor.evict_after, elements, window, watermark, clock, fix=_IN_PLACE)


def build_evictor(declared: EvictorLike) -> Evictor:
    match declared:
        case CountEvictor(count, after):
            return Eviction(_by_count(count), after)
        case TimeEvictor(span_ms, after):
            return Eviction(_by_time(span_ms), after)
        case DeltaEvictor(threshold, delta, after):
            return Eviction(_by_delta(threshold, delta), after)
        case Evictor():
            return _OwnEvictor(declared)
    raise UserError(f"{declared!r} is no evictor; take one of topo.api.windows or derive from Evictor")
