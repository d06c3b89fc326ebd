"""Values that cannot change: they are carried as they are, and need no copy."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

Row = tuple[Any, ...]
"""The values of a tuple."""

ATOMS = frozenset((int, float, str, bytes, bool, type(None), date, datetime, time, timedelta, Decimal, UUID))
"""Types whose values never change."""


def stays(value: Any) -> bool:
    """Whether a value can never change: a string, a number, bytes, a moment, or a tuple of such values. Subclasses may."""
    kind = type(value)
    if kind is not tuple:
        return kind in ATOMS
    for one in value:  # a generator costs more than the test, and a look into a set more than two comparisons
        kind = type(one)
        if kind is not str and kind is not int and (kind is tuple or kind not in ATOMS) and not stays(one):
            return False
    return True
