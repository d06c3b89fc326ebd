"""What values of PostgreSQL become where psycopg would change one, or make an object that no tuple carries."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import AdaptersMap, Loader, Transformer
from psycopg.types.multirange import MultirangeInfo
from psycopg.types.range import RangeInfo
from psycopg.types.string import TextLoader

_SPAN = re.compile(rb"(?:([-+]?\d+) days? ?)?(?:([-+]?)(\d+):(\d+):(\d+)(?:\.(\d+))?)?")


class _IntervalLoader(Loader):  # type: ignore[misc]
    """psycopg takes a month for 30 days, and a year for 365."""

    def load(self, data: Any) -> timedelta:
        text = bytes(data)
        found = _SPAN.fullmatch(text)
        if found is None:
            raise psycopg.DataError(f"interval {text.decode()!r} is no number of days; cast it to text, or take its epoch")
        days, sign, hours, minutes, seconds, fraction = (part or b"" for part in found.groups())
        try:
            time = timedelta(0, int(seconds or 0), int(fraction.ljust(6, b"0")), 0, int(minutes or 0), int(hours or 0))
            return timedelta(int(days or 0)) + (-time if sign == b"-" else time)
        except OverflowError as error:
            raise psycopg.DataError(f"interval {text.decode()!r} is too long: {error}") from error


def adapt(adapters: AdaptersMap) -> None:
    """Have network addresses and ranges stay texts, and intervals with months or years fail."""
    adapters.register_loader("interval", _IntervalLoader)
    ranges = [type_.oid for type_ in adapters.types if isinstance(type_, RangeInfo | MultirangeInfo)]
    for name in ("inet", "cidr", *ranges):
        adapters.register_loader(name, TextLoader)


def loader() -> Callable[[int, bytes], Any]:
    """Return a function that loads a text by the oid of its type; unknown types stay texts."""
    adapters = AdaptersMap(psycopg.adapters)
    adapt(adapters)
    transformer = Transformer(SimpleNamespace(adapters=adapters, connection=None))

    def load(type_: int, data: bytes) -> Any:
        return transformer.get_loader(type_, pq.Format.TEXT).load(data)

    return load
