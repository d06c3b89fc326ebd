"""A clock that stands until it is moved."""

from __future__ import annotations

from datetime import timedelta

from topo.config import format_duration, parse_duration
from topo.errors import UserError

ClockDuration = str | timedelta | float
"""A duration: "10s", a timedelta, or a number of seconds."""


class ManualClock:
    """The clock of a test. Called, it returns monotonic seconds, as `time.monotonic` does.

    Args:
        start_s: its first time, in seconds.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self._now_s

    @property
    def now_ms(self) -> int:
        """The time in whole milliseconds, as event time and processing time are given."""
        return round(self._now_s * 1000)

    def advance(self, by: ClockDuration) -> None:
        """Move it forward. Raises ConfigError for a value that is no duration, or negative."""
        self._now_s += parse_duration(by)

    def advance_to(self, at_s: float) -> None:
        """Set it.

        Raises:
            UserError: that would be backwards.
        """
        if at_s < self._now_s:
            raise UserError(f"a clock does not go back: it shows {self._now_s:g} s, and was to be set to {at_s:g} s")
        self._now_s = at_s

    def __repr__(self) -> str:
        return f"ManualClock({format_duration(self._now_s)})"
