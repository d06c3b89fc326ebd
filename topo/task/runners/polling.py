"""When a spout is asked for its next message: at once while it has some, ever less often while it has none or raises."""

from __future__ import annotations

FIRST_WAIT_S = 0.000_25
"""How long a spout without a message waits before it is asked again, at least: a spout whose messages are due one after the other
would otherwise send each alone, and keep a processor busy that the tasks after it need."""
PATIENT_POLLS = 10
"""How often it is asked at that pace before the wait doubles each time."""
LONGEST_WAIT_S = 0.02
FIRST_ERROR_WAIT_S = 0.2
LONGEST_ERROR_WAIT_S = 30.0


class Polling:
    """The waits between the polls of one spout.

    Attributes:
        at: when it is asked next, in monotonic seconds.
        idle_polls: how often in a row it had no message.
    """

    def __init__(self) -> None:
        self.at = 0.0
        self.idle_polls = 0
        self._wait_s = FIRST_WAIT_S
        self._error_wait_s = FIRST_ERROR_WAIT_S
        self._silent_s = 0.0
        """The last wait that the spout itself has asked for."""

    def emitted(self) -> None:
        """It had messages: begin with short waits."""
        self._wait_s, self.idle_polls, self._error_wait_s = FIRST_WAIT_S, 0, FIRST_ERROR_WAIT_S
        self._silent_s = 0.0

    def idle(self, now: float) -> None:
        """It had no message, or fewer than there was room for."""
        self.idle_polls += 1
        if self.idle_polls > PATIENT_POLLS:
            self._wait_s = min(self._wait_s * 2, LONGEST_WAIT_S)
        self.at = now + self._wait_s

    def silent(self, now: float, seconds: float) -> None:
        """It has declared that it has no message for that long; the wait counts as the polls that it replaces."""
        self.idle_polls += 1 + int(self._silent_s / LONGEST_WAIT_S)
        self._wait_s, self._silent_s = FIRST_WAIT_S, seconds
        self.at = now + (max(seconds, FIRST_WAIT_S) if seconds else 0.0)

    def raised(self, now: float) -> None:
        """It has raised: back off."""
        self.at = now + self._error_wait_s
        self._error_wait_s = min(self._error_wait_s * 2, LONGEST_ERROR_WAIT_S)

    def wake(self, now: float) -> None:
        """Ask soon, unless it is backing off: there may be a message by now."""
        if self._error_wait_s == FIRST_ERROR_WAIT_S:
            self.at = min(self.at, now)
