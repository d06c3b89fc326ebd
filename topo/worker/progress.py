"""Progress that user code reports in long calls, for the watchdog and for the status."""

from __future__ import annotations

from collections.abc import Callable

SLICE_S = 0.1
"""A call that has lasted this long keeps the worker's other tasks, and its messages, waiting."""
SHOWN_S = 3.0
"""A text is shown this long after the last report."""


class Progress:
    """The last report of a worker's tasks.

    Args:
        clock: monotonic seconds.
        turned_at: when the worker's loop last turned.

    Attributes:
        at: when the last report was made.
    """

    def __init__(self, clock: Callable[[], float], turned_at: Callable[[], float]) -> None:
        self._clock = clock
        self._turned_at = turned_at
        self._text = ""
        self.at = float("-inf")

    def of(self, component: str) -> Callable[[str], bool]:
        """Return what a task of the component reports by: takes a text, and returns whether the call has lasted long."""

        def report(text: str) -> bool:
            now = self.at = self._clock()
            if text:
                self._text = f"{component}: {text}"
            return now - self._turned_at() > SLICE_S

        return report

    def shown(self) -> str:
        """Return the text of the last report, with its component; "" when that was too long ago."""
        return self._text if self._clock() - self.at < SHOWN_S else ""
