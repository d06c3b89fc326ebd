"""Notices that windows hold all messages that a spout may have in flight, and wait for a watermark that only others bring."""

from __future__ import annotations

STALL_S = 5.0
"""How long a spout is out of room, without a verdict, before windows are taken to be the cause."""


class StallWatch:
    """The time that one spout is out of room and gets no verdict."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_reported = False

    def has_room(self) -> None:
        """The spout may emit, or has ended."""
        self._since = None

    def is_full(self, heard_at: float, now: float) -> bool:
        """The spout has no room. Returns whether that is to be reported, which is once for each stall.

        Args:
            heard_at: when it had the last verdict, in monotonic seconds.
            now: monotonic seconds.
        """
        if self._since is None or heard_at > self._since:
            self._since = now
            self._is_reported = False
        if self._is_reported or now < self._since + STALL_S:
            return False
        self._is_reported = True
        return True

    @property
    def deadline(self) -> float | None:
        """When `is_full` would return True, in monotonic seconds."""
        return None if self._since is None or self._is_reported else self._since + STALL_S
