"""A timer service on its own: timers of keys and namespaces, a watermark and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from topo.keys import DEFAULT_MAX_PARALLELISM, KeyGroupRange
from topo.operators.state.keyed_state import KeyContext
from topo.operators.time.clock import ManualProcessingTime
from topo.operators.time.timers import TimerService, TimerServices


class Fired(NamedTuple):
    """A timer that was due."""

    key: Any
    namespace: Any
    timestamp: int


class TimerHarness:
    """Drives the timer services of one operator, and keeps what fires.

    Args:
        now_ms: the first time of the clock.
        max_parallelism: number of key groups.
        on_event, on_processing: called when a timer fires, after it was written down; may register and delete others.

    Attributes:
        clock: the processing time; `clock.pending` is the number of armed physical timers, `clock.next_due_ms` the first's time.
        services: all services by name; `service` is the one of the harness.
        event_fired, processing_fired: what fired, in order.
    """

    def __init__(
        self,
        now_ms: int = 0,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        on_event: Callable[[Fired], object] = lambda _fired: None,
        on_processing: Callable[[Fired], object] = lambda _fired: None,
    ) -> None:
        self.clock = ManualProcessingTime(now_ms)
        self.keys = KeyContext(max_parallelism)
        self.services = TimerServices(self.keys, self.clock)
        self.event_fired: list[Fired] = []
        self.processing_fired: list[Fired] = []
        self._on_event = on_event
        self._on_processing = on_processing
        self.service: TimerService = self.services.get("timers", self)

    def register_event(self, key: Hashable, timestamp: int, namespace: Hashable = None) -> None:
        """Register an event-time timer of a key."""
        self.keys.key = key
        self.service.register_event_timer(namespace, timestamp)

    def register_processing(self, key: Hashable, timestamp: int, namespace: Hashable = None) -> None:
        """Register a processing-time timer of a key."""
        self.keys.key = key
        self.service.register_processing_timer(namespace, timestamp)

    def delete_event(self, key: Hashable, timestamp: int, namespace: Hashable = None) -> None:
        """Delete an event-time timer of a key."""
        self.keys.key = key
        self.service.delete_event_timer(namespace, timestamp)

    def delete_processing(self, key: Hashable, timestamp: int, namespace: Hashable = None) -> None:
        """Delete a processing-time timer of a key."""
        self.keys.key = key
        self.service.delete_processing_timer(namespace, timestamp)

    def watermark(self, timestamp: int) -> None:
        """Advance event time."""
        self.services.advance_watermark(timestamp)

    def set_clock(self, now_ms: int) -> None:
        """Advance processing time."""
        self.clock.advance_to(now_ms)

    def snapshot(self) -> dict[int, Any]:
        """Return all timers by key group."""
        return self.services.snapshot()

    def restore(self, snapshot: dict[int, Any], groups: KeyGroupRange) -> None:
        """Add the timers of these key groups."""
        self.services.restore({group: timers for group, timers in snapshot.items() if group in groups})

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """A timer fires by the watermark."""
        self.event_fired.append(Fired(key, namespace, timestamp))
        self._on_event(self.event_fired[-1])

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """A timer fires by the clock."""
        self.processing_fired.append(Fired(key, namespace, timestamp))
        self._on_processing(self.processing_fired[-1])
