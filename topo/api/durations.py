"""Durations of the operator core: what users write ("10s", timedelta) as whole milliseconds, and whole numbers."""

from __future__ import annotations

from datetime import timedelta
from typing import SupportsIndex

from topo.config import parse_duration
from topo.errors import ConfigError

_MS = timedelta(milliseconds=1)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, of Python or of a library."""
    return isinstance(value, SupportsIndex)


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
