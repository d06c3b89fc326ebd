"""Triggers: when a window's contents go to its function, and when they are dropped.

The built-in ones are descriptions that `topo.operators.windows.triggers` gives behaviour. A trigger of your own derives from
`Trigger`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import Any, Protocol, Self

from msgspec import Struct

from topo.api.durations import duration_ms, is_whole
from topo.errors import UserError


class TriggerResult(Enum):
    """A trigger's decision for the window operator."""

    CONTINUE = "continue"
    """Nothing."""
    FIRE = "fire"
    """Calls the window function and keeps the contents."""
    PURGE = "purge"
    """Drops the contents; timers, the trigger's state and the window itself stay."""
    FIRE_AND_PURGE = "fire_and_purge"
    """Both, in this order."""


class TriggerContext(Protocol):
    """The context of a trigger; timers and state belong to one key and window."""

    @property
    def current_watermark(self) -> int:
        """Milliseconds; -2**63 before the first watermark."""

    @property
    def current_processing_time(self) -> int:
        """The clock, in milliseconds."""

    def register_event_time_timer(self, timestamp: int) -> None:
        """Have `on_event_time` called when the watermark reaches `timestamp`."""

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Have `on_processing_time` called when the clock reaches `timestamp`."""

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Undo a registration; nothing happens when there is none."""

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Undo a registration; nothing happens when there is none."""

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value kept under `name`, or `default`."""

    def put(self, name: str, value: Any) -> None:
        """Keep a value (of a type that tuples carry) under `name`."""

    def forget(self, name: str) -> None:
        """Drop the value under `name`."""


class OnMergeContext(TriggerContext, Protocol):
    """The context of a trigger when windows were merged; it belongs to the window that resulted."""

    def merge(self, name: str, combine: Callable[[Any, Any], Any]) -> Any:
        """Combine the values of the merged windows under `name` in the result; return it, or None when there is no value."""


class Trigger(ABC):
    """A trigger of your own. One instance serves all keys and windows: keep what belongs to one of them in the context."""

    @property
    def can_merge(self) -> bool:
        """Whether `on_merge` is supported; session windows refuse a trigger without it."""
        return False

    @abstractmethod
    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        """Called for each element, after it was added to the window. `timestamp` is -2**63 when it has none."""

    @abstractmethod
    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        """Called when a timer of this window is due by the watermark; also by timers that others registered for it."""

    @abstractmethod
    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        """Called when a timer of this window is due by the clock."""

    def on_merge(self, window: Any, context: OnMergeContext) -> None:
        """Called when windows were merged into `window`, before `clear` is called for each of them."""
        raise UserError(f"{type(self).__name__} cannot merge windows")

    @abstractmethod
    def clear(self, window: Any, context: TriggerContext) -> None:
        """Called when the window is cleaned up or was merged into another: drop the state and the timers it still has."""


class EventTimeTrigger(Struct, frozen=True):
    """Fires when the watermark passes the end of the window, and again at once for each late element that is still allowed."""


class ProcessingTimeTrigger(Struct, frozen=True):
    """Fires when the clock passes the end of the window."""


class CountTrigger(Struct, frozen=True):
    """Fires each time `count` elements have come."""

    count: int

    def __post_init__(self) -> None:
        if not is_whole(self.count) or self.count <= 0:
            raise UserError(f"a count trigger needs a whole number above zero; got {self.count!r}")


class _ContinuousTrigger(Struct, frozen=True):
    """Fires every `interval_ms`."""

    interval_ms: int

    def __post_init__(self) -> None:
        given, name = self.interval_ms, type(self).__name__
        if not is_whole(given):
            raise UserError(f"a {name} takes milliseconds; got {given!r}: write {name}.of({given!r})")
        if given <= 0:
            raise UserError(f"a continuous trigger needs an interval above zero; got {given} ms")

    @classmethod
    def of(cls, interval: str | timedelta) -> Self:
        """Declare a trigger that fires every `interval`."""
        return cls(duration_ms(interval))


class ContinuousEventTimeTrigger(_ContinuousTrigger, frozen=True):
    """Fires every `interval_ms` of event time from the first element on, and at the end of the window.

    One watermark that passes several intervals fires once for each; a jump over more than a hundred fires for
    the first and the last of them, since all show the same contents.
    """


class ContinuousProcessingTimeTrigger(_ContinuousTrigger, frozen=True):
    """Fires every `interval_ms` of the clock from the first element on.

    A clock that advances by more than a hundred intervals at once, as after a restore, fires for the first and the last of them.
    """


class DeltaTrigger(Struct, frozen=True):
    """Fires when `delta(element of the last firing, element)` is greater than `threshold`."""

    threshold: float
    delta: Callable[[Any, Any], float]

    def __post_init__(self) -> None:
        if not callable(self.delta):
            raise UserError(f"a delta trigger needs a function of two elements; got {self.delta!r}")


class NeverTrigger(Struct, frozen=True):
    """Never fires."""


class EndOfStreamTrigger(Struct, frozen=True):
    """Fires once, when the input has ended."""


class PurgingTrigger(Struct, frozen=True):
    """Does what `inner` does, and drops the contents at each firing."""

    inner: TriggerLike

    @classmethod
    def of(cls, inner: TriggerLike) -> PurgingTrigger:
        """Declare the purging form of `inner`."""
        return cls(inner)


class ProcessingTimeoutTrigger(Struct, frozen=True):
    """Does what `inner` does, and fires as well when it has not fired for `timeout_ms` since the first element.

    Attributes:
        resets_on_element: each element starts the time-out again.
        clears_on_timeout: the time-out clears the state of `inner`.
    """

    inner: TriggerLike
    timeout_ms: int
    resets_on_element: bool = False
    clears_on_timeout: bool = True

    def __post_init__(self) -> None:
        given: Any = self.timeout_ms
        if not isinstance(given, int):
            fix = f"write ProcessingTimeoutTrigger.of(..., {given!r})"
            raise UserError(f"a ProcessingTimeoutTrigger takes milliseconds; got {given!r}: {fix}")

    @classmethod
    def of(
        cls, inner: TriggerLike, timeout: str | timedelta, *, resets_on_element: bool = False, clears_on_timeout: bool = True
    ) -> ProcessingTimeoutTrigger:
        """Declare `inner` with a time-out by the clock."""
        return cls(inner, duration_ms(timeout), resets_on_element, clears_on_timeout)


TriggerLike = (
    EventTimeTrigger
    | ProcessingTimeTrigger
    | CountTrigger
    | ContinuousEventTimeTrigger
    | ContinuousProcessingTimeTrigger
    | DeltaTrigger
    | NeverTrigger
    | EndOfStreamTrigger
    | PurgingTrigger
    | ProcessingTimeoutTrigger
    | Trigger
)
