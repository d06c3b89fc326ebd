"""When a lost worker is started again.

The n-th loss in a row is followed by a wait of first_s * 2 ** (n - 1), at most longest_s. After the first there is none if the
worker had registered and its process has ended. A worker that has lived for HEALTHY_AFTER_S since it registered ends the row.
Three losses in a row are a crash loop, until the worker has been healthy.
"""

from __future__ import annotations

HEALTHY_AFTER_S = 60.0
CRASH_LOOP = 3
"""Losses in a row."""


class RestartPolicy:
    """The losses of one worker slot.

    Args:
        first_s: the wait after the first loss, in seconds.
        longest_s: the longest wait.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._healthy_since: float | None = None
        self.losses_in_a_row = 0
        self.losses = 0
        """Since the master started."""

    def registered(self, now: float) -> None:
        """The worker is up: its health counts from here."""
        self._healthy_since = now

    def lost(self, now: float, *, has_ended: bool = False) -> float:
        """Count a loss; return when the replacement may be started.

        Args:
            now: monotonic seconds.
            has_ended: whether the process has ended, so that nothing of it can be in the way of the next one.
        """
        was_up = self._healthy_since is not None
        if self._is_healthy(now):
            self.losses_in_a_row = 0
        self._healthy_since = None
        self.losses_in_a_row += 1
        self.losses += 1
        if was_up and has_ended and self.losses_in_a_row == 1:
            return now
        # The exponent is bounded so that a row of a thousand losses is not a float overflow.
        return now + min(self._longest_s, self._first_s * 2.0 ** min(self.losses_in_a_row - 1, 60))

    def is_crash_loop(self, now: float) -> bool:
        """Whether the worker was lost several times without having been healthy since."""
        return self.losses_in_a_row >= CRASH_LOOP and not self._is_healthy(now)

    def _is_healthy(self, now: float) -> bool:
        return self._healthy_since is not None and now - self._healthy_since >= HEALTHY_AFTER_S
