"""Durations of the operator core: what users write ("10s", timedelta) as whole milliseconds."""

from __future__ import annotations

from datetime import timedelta

from topo.config import parse_duration
from topo.errors import ConfigError

_MS = timedelta(milliseconds=1)


def duration_ms(value: str | timedelta) -> int:
    """Return `value` in whole milliseconds, rounded to the nearest; a leading "-" makes a text negative.

    Raises:
        ConfigError: it is neither, or the text is not a duration.
    """
    if isinstance(value, timedelta):
        return round(value / _MS)
    if not isinstance(value, str):
        raise ConfigError(f'{value!r} is not a duration here: write "500ms", "10s", "1m30s", "2h", or a timedelta')
    if value.startswith("-"):
        return -duration_ms(value[1:])
    return round(parse_duration(value) * 1000)
