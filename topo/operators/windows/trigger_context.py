"""The context of triggers: their timers, and their values for each key and window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from topo.operators.state.keyed_state import MapState
from topo.operators.time.timers import TimerClocks, TimerService


class WindowTriggerContext(TimerClocks):
    """The context of triggers; one object for all, pointed at the window at hand before each call."""

    def __init__(self, timers: TimerService, values: MapState) -> None:
        super().__init__(timers)
        self.window: Any = None
        self.merged: Sequence[Any] = ()
        self._values = values

    def register_event_time_timer(self, timestamp: int) -> None:
        self._timers.register_event_timer(self.window, timestamp)

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._timers.register_processing_timer(self.window, timestamp)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._timers.delete_event_timer(self.window, timestamp)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._timers.delete_processing_timer(self.window, timestamp)

    def get(self, name: str, default: Any = None) -> Any:
        self._values.namespace = self.window
        return self._values.get(name, default)

    def put(self, name: str, value: Any) -> None:
        self._values.namespace = self.window
        self._values.put(name, value)

    def forget(self, name: str) -> None:
        self._values.namespace = self.window
        self._values.remove(name)

    def merge(self, name: str, combine: Callable[[Any, Any], Any]) -> Any:
        values, merged = self._values, None
        for window in dict.fromkeys((self.window, *self.merged)):
            values.namespace = window
            value = values.get(name)
            if value is not None:
                values.remove(name)
                merged = value if merged is None else combine(merged, value)
        if merged is not None:
            self.put(name, merged)
        return merged
