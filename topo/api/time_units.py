"""Detects timestamps that are no milliseconds."""

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
    """Return a warning with the unit that a timestamp fits, if not milliseconds: 1985 to 2128 in that unit alone."""
    if _MS_OF_1985 <= timestamp < _MS_OF_2128:
        return None
    for unit, times, by, fix in _UNITS:
        at_ms = timestamp * times // by
        if _MS_OF_1985 <= at_ms < _MS_OF_2128:
            then = datetime.fromtimestamp(at_ms / 1000, UTC)
            return f"{timestamp} looks like {unit} ({then:%Y-%m-%d %H:%M}); timestamps are in milliseconds since the epoch: {fix}"
    return None
