"""Checks of values that functions of a program return: keys, timestamps, lists of records, and results of windows."""

from __future__ import annotations

import logging
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from topo.errors import UserError
from topo.streams.functions import list_problem
from topo.streams.records import has_fields

_log = logging.getLogger("topo.streams")
KEYS = frozenset({str, int, bytes, bool, type(None)})
_OTHER_KEYS = (float, datetime, date, time, timedelta, Decimal, UUID)


def check_result(value: Any) -> None:
    """Refuse a NamedTuple in a window's result whose type is not declared: it would arrive as a tuple, in silence."""
    if type(value) in (list, tuple, dict):
        for part in value.values() if type(value) is dict else value:
            check_result(part)
    elif isinstance(value, tuple):
        name = type(value).__name__
        what = f"the result of a window has a {name}, and its type is not known here, so it would arrive as a tuple"
        raise UserError(f"{what}; give a function whose return type is annotated, or the class itself, as in into={name}")


def check_items(given: Any) -> None:
    """Refuse one record in the place of a list of records."""
    if (problem := list_problem(given)) is not None:
        raise UserError(f"flat_map was given the {type(given).__name__} {given!r:.80}, {problem}")


class TimeCheck:
    """Refuses a timestamp that is no int, and warns once of seconds since the epoch (of 2001 to 2286)."""

    def __init__(self, label: str) -> None:
        self._label, self._has_warned = label, False

    def __call__(self, given: object) -> None:
        if type(given) is not int:
            what = f"with_event_time was given {given!r:.80} ({type(given).__name__})"
            fix = "int(when.timestamp() * 1000)" if isinstance(given, datetime) else "int(seconds * 1000)"
            raise UserError(f"{what}; return whole milliseconds since the epoch, such as {fix}")
        if given >= 1_000_000_000 and not self._has_warned:
            self._has_warned = True
            _log.warning("%s was given %d, which looks like seconds; it takes milliseconds: multiply by 1000", self._label, given)


def _key_of(given: object) -> str:
    """Return what to give in the place of this key; "" where that is not known."""
    if isinstance(given, Enum):
        return ": give its .value or .name"
    if isinstance(given, tuple | list):
        return ": give tuple(...) of it"
    return ": give a tuple of the fields that count" if has_fields(type(given)) else ""


def check_key(key: Any) -> None:
    """Refuse what cannot be a key: it would arrive as something else, or not in the same task each time."""
    if type(key) is tuple:
        for part in key:
            check_key(part)
    elif type(key) not in KEYS and type(key) not in _OTHER_KEYS:
        kinds = "a str, int, float, bool, bytes, None, a date or time, a Decimal, a UUID, or a tuple of these"
        raise UserError(f"the key function returned {key!r:.80} ({type(key).__name__}); a key is {kinds}{_key_of(key)}")
    elif (isinstance(key, float) and math.isnan(key)) or (isinstance(key, Decimal) and key.is_nan()):
        raise UserError("the key function returned NaN, which is not equal to itself; filter such records out before")
