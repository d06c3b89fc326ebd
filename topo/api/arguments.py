"""Checks of the arguments of constructors. An error names the argument, the value given, and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from topo.config import parse_duration
from topo.errors import ConfigError


def _refused(argument: str, given: object, needed: str) -> ConfigError:
    return ConfigError(f"{argument}={given!r:.60} ({type(given).__name__}) must be {needed}")


def is_number(given: Any) -> bool:
    """Whether a value is a number, and not True or False."""
    return isinstance(given, Real) and not isinstance(given, bool)


def check_count(argument: str, given: Any) -> None:
    """Raise ConfigError for anything but a whole number from 1 upwards."""
    if not is_number(given) or given % 1 != 0:
        raise _refused(argument, given, "a whole number, such as 1000")
    if given < 1:
        raise ConfigError(f"{argument}={given!r} must be at least 1")


def check_interval(argument: str, given: Any) -> None:
    """Raise ConfigError for anything but a duration above zero."""
    try:
        is_interval = parse_duration(given) > 0
    except ConfigError:
        is_interval = False
    if not is_interval:
        raise _refused(argument, given, "a duration above zero, such as '100ms'")


def check_text(argument: str, given: Any, example: str) -> None:
    """Raise ConfigError for anything but a text."""
    if not isinstance(given, str):
        raise _refused(argument, given, f"a text, such as {example!r}")


def texts_of(argument: str, given: Any, example: tuple[str, ...]) -> tuple[str, ...]:
    """Return the texts of an iterable, which the caller knows to be no text. Raises ConfigError for anything else."""
    texts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, bytes) else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise _refused(argument, given, f"texts, such as {example!r}")
    return texts


def options_of(argument: str, given: Any) -> dict[str, Any]:
    """Return options by name, none for an empty value. Raises ConfigError for anything but a mapping."""
    if given and not isinstance(given, Mapping):
        raise _refused(argument, given, "a dict of options, or None")
    return dict(given or {})
