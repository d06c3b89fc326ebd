"""When the next checkpoint is due: an interval apart, further when they fail, closer when processes die before one is complete.

- Checkpoints that fail one after the other back off: the second failure in a row doubles the wait, and so on.
- Where two epochs in a row ended sooner than an interval after they began, the next one comes within an eighth of the length of
  the last. So a topology whose processes do not live for an interval, as with a leak of memory, still gets on: a barrier has to
  pass all that waits before the slowest bolt while the process lives. An epoch that lasts ends that.
"""

from __future__ import annotations

LONGEST_WAIT_S = 600.0
"""Bound on the wait after failures, unless the interval is longer."""
SHORTEST_INTERVAL_S = 0.1
_SOON_S = 1.0
"""What waits of checkpoints that somebody waits for (a savepoint, the end) are counted in after failures."""
_RESTS = 4
_SHORTEST_REST_S = 0.02
"""Confirmations that wait for others to join them have left by then."""
_LONGEST_REST_S = 10.0


class CheckpointPace:
    """The times of one run's checkpoints, in monotonic seconds. It knows no reason for any of them.

    Args:
        interval_s: from the beginning of one to the beginning of the next.
        pause_s: at least, from the end of one to the beginning of the next.
    """

    def __init__(self, interval_s: float, pause_s: float) -> None:
        self._interval_s = interval_s
        self._pause_s = pause_s
        self._short_s = interval_s
        """The interval while epochs are short: an eighth of the length of the last."""
        self._short_epochs = 0
        """How many were shorter than the interval, one after the other."""
        self._ran_at: float | None = None
        """When the epoch that runs began; None while none does."""
        self.began_at: float | None = None
        """When the last checkpoint began, or else the first epoch; None before."""
        self.ended_at: float | None = None
        """When the last checkpoint ended, well or not."""
        self._failures = 0
        """How many have failed one after the other."""
        self._in_vain = 0
        """How many began one after the other while everything had ended."""

    def epoch_runs(self, now: float) -> None:
        """An epoch begins."""
        self._ran_at = now
        self.began_at = now if self.began_at is None else self.began_at

    def epoch_broken(self, now: float) -> None:
        """The epoch ends. A repeated call changes nothing."""
        if self._ran_at is not None:
            length_s, self._ran_at = now - self._ran_at, None
            self._short_epochs = self._short_epochs + 1 if length_s < self._interval_s else 0
            self._short_s = min(self._interval_s, max(length_s / 8, SHORTEST_INTERVAL_S))

    def began(self, now: float, *, has_ended: bool = False) -> None:
        """A checkpoint begins; `has_ended`: every input has ended."""
        self._in_vain = self._in_vain + 1 if has_ended else 0
        self.began_at = now

    def ended(self, now: float) -> None:
        """A checkpoint is over; `complete` or `failed` reports its result."""
        self.ended_at = now

    def complete(self, now: float) -> None:
        """The checkpoint is complete."""
        self._failures = 0
        if self._ran_at is not None and now - self._ran_at >= self._interval_s:
            self._short_epochs = 0

    def failed(self) -> None:
        """The checkpoint was given up for another reason than a recovery."""
        self._failures += 1

    def earliest(self) -> float:
        """Return when a requested checkpoint may begin."""
        assert self.began_at is not None
        return self.began_at if self.ended_at is None else self.ended_at + max(self._pause_s, self._wait_s(_SOON_S))

    def due(self) -> float:
        """Return when the next periodic checkpoint is due."""
        assert self.began_at is not None
        due = self.began_at + self._interval_s
        if self._ran_at is not None and self._short_epochs > 1:
            due = min(due, max(self.began_at, self._ran_at) + self._short_s)
        if self.ended_at is not None:
            due = max(due, self.ended_at + self._wait_s(self._interval_s))
        return max(due, self.earliest())

    def rests_until(self) -> float:
        """Return until when no checkpoint begins where every input has ended: nothing is quiet while barriers move.

        A rest is a multiple of the duration of the last checkpoint, and each one is twice as long as the one before.
        """
        if self.began_at is None or self.ended_at is None:
            return 0.0
        enough_s = max(_RESTS * (self.ended_at - self.began_at), _SHORTEST_REST_S)
        return self.ended_at + min(enough_s * 2.0 ** min(self._in_vain, 30), max(enough_s, _LONGEST_REST_S))

    def _wait_s(self, unit_s: float) -> float:
        if self._failures < 2:
            return 0.0
        unit_s = min(unit_s, self._interval_s)
        return min(unit_s * 2.0 ** min(self._failures - 2, 30), max(self._interval_s, LONGEST_WAIT_S))
