"""Timestamps that are no milliseconds: said once, with the first of them, since windows over them are silently wrong."""

from __future__ import annotations

from datetime import UTC, datetime

from topo.errors import UserError

_MS_OF_1985 = 473_385_600_000
_MS_OF_2128 = 4_985_971_200_000
_UNITS = (("seconds", 1000, 1, "multiply by 1000"), ("microseconds", 1, 1000, "divide by 1000"),
          ("nanoseconds", 1, 1_000_000, "divide by 1,000,000"))  # fmt: skip


class SuspiciousTimestamps(UserError):
    """Timestamps are taken for milliseconds, and look like another unit."""


def suspicion(timestamp: int) -> str | None:
    """Say which unit a timestamp looks like, if not milliseconds: a moment between 1985 and 2128 in that unit alone."""
    for unit, times, by, fix in _UNITS:
        at_ms = timestamp * times // by
        if _MS_OF_1985 <= at_ms < _MS_OF_2128 and not _MS_OF_1985 <= timestamp < _MS_OF_2128:
            then = datetime.fromtimestamp(at_ms / 1000, UTC)
            return f"{timestamp} looks like {unit} ({then:%Y-%m-%d %H:%M}); event time is in milliseconds since the epoch: {fix}"
    return None
