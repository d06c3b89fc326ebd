"""Measures how busy a worker is: the part of its time that its loop does not sleep."""

from __future__ import annotations

INTERVAL_S = 0.1


class WorkerLoad:
    """The load of one worker.

    Attributes:
        percent: of the last whole interval of INTERVAL_S, 0 to 100; a call of user code that waits counts as work.
    """

    __slots__ = ("_since", "_slept_s", "percent")

    def __init__(self, now: float) -> None:
        self.percent = 0
        self._since = now
        self._slept_s = 0.0

    def turned(self, now: float, slept_s: float) -> None:
        """Note a turn of the loop that ended at `now`, and the seconds that the loop slept behind it."""
        self._slept_s += slept_s
        if now >= self._since + INTERVAL_S:
            self.percent = round(100 * (1.0 - min(1.0, self._slept_s / (now - self._since))))
            self._since, self._slept_s = now, 0.0
