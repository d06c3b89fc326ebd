"""Which values a column of PostgreSQL takes, decided before they are sent: one bad row of a COPY spoils all of them.

A check takes a value other than None. It returns the value to send, or raises UnsupportedValueError with the reason, or
UnicodeEncodeError.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

import msgspec

from topo.errors import UnsupportedValueError

ValueCheck = Callable[[Any], Any]

_MOST_DIGITS = 16_000
"""A numeric without a precision has up to 16,383 digits behind the point."""
_EXACT = Context(prec=5000)
"""Has all digits of a numeric with a precision, which has up to 1,000, and a scale of as many."""
_NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class ColumnInfo(NamedTuple):
    """A column as the catalog describes it.

    Attributes:
        name: of the column.
        sql: its type as SQL has it, such as "numeric(10,2)".
        type: name of the type in the catalog, such as "numeric"; of an array that of its elements.
        modifier: of the type: its length, or precision and scale; -1 where it has none.
        is_array: whether its values are lists.
        is_required: whether it refuses null.
        has_default: whether a row may leave it out, where it refuses null.
        is_generated: whether the server works its values out.
        labels: of an enum.
    """

    name: str
    sql: str
    type: str
    modifier: int = -1
    is_array: bool = False
    is_required: bool = False
    has_default: bool = False
    is_generated: bool = False
    labels: tuple[str, ...] | None = None


def check_of(column: ColumnInfo) -> tuple[ValueCheck, bool]:
    """Return the check of a column, and whether it finds everything that the server would refuse but None."""
    found: ValueCheck | None = None
    if column.labels is not None:
        found = _one_of(column.labels)
    elif column.type in _CHECKS:
        found = _CHECKS[column.type](column.modifier)
    check = _anything if found is None else found
    return _each(check) if column.is_array else check, found is not None


def within_encoding(check: ValueCheck, encoding: str) -> ValueCheck:
    """Return a check that refuses texts, also in lists, that a database cannot store: one whose texts are not UTF-8."""

    def checked(value: Any) -> Any:
        value = check(value)
        if isinstance(value, str | list):
            str(value).encode(encoding)
        return value

    return checked


def _refuse(value: Any, fix: str) -> NoReturn:
    raise UnsupportedValueError(f"takes no {type(value).__name__} such as {_shown(value)}; {fix}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _integer(bits: int) -> Callable[[int], ValueCheck]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: Any) -> Any:
        if type(value) is not int or not low <= value <= high:
            _refuse(value, f"emit an int of {bits} bits")
        return value

    return lambda _modifier: check


def _floating(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is not int and not isinstance(value, Decimal):
        _refuse(value, "emit a float")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    # A Decimal becomes infinite without an error.
    if math.isinf(found) and value != found:
        _refuse(value, "it is beyond the range of a float")
    return found


def _real(value: Any) -> Any:
    value = _floating(value)
    if value and math.isfinite(value):
        try:
            (kept,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            kept = 0.0
        if kept == 0.0:
            _refuse(value, "it is beyond the range of real; make the column double precision")
    return value


def _numeric(modifier: int) -> ValueCheck:
    precision, scale = ((modifier - 4) >> 16, (modifier - 4) & 0x7FF) if modifier >= 4 else (None, 0)
    if scale > 1000:
        # Since version 15 it may be less than 0, in eleven bits.
        scale -= 2048
    # Rounded to its scale a value may have a digit more. Python's own context has 28 digits.
    limit = Decimal("inf")
    if precision is not None:
        limit = _EXACT.subtract(_EXACT.power(10, precision - scale), Decimal(5).scaleb(-scale - 1))

    def check(value: Any) -> Any:
        if type(value) is int:
            value = Decimal(value)
        elif type(value) is float:
            value = Decimal(repr(value))
        elif not isinstance(value, Decimal):
            _refuse(value, "emit an int, a float or a Decimal")
        if value.is_nan() and not value.is_snan():
            return value
        if not value.is_finite():
            _refuse(value, "emit a finite number")
        if precision is None:
            if abs(value.adjusted()) > _MOST_DIGITS or value.as_tuple().exponent < -_MOST_DIGITS:
                _refuse(value, "it has too many digits")
        elif value.copy_abs() >= limit:
            _refuse(value, f"it has more than {precision - scale} digits before the point")
        return value

    return check


def _text(value: Any) -> Any:
    if type(value) is not str:
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Decimal | UUID):
            return str(value)
        if not isinstance(value, str):
            _refuse(value, "emit a str")
        value = str(value)
    if "\0" in value:
        _refuse(value, "PostgreSQL stores no character 0")
    if not value.isascii():
        value.encode()
    return value


def _text_of(modifier: int) -> ValueCheck:
    most = modifier - 4
    if most < 0:
        return _text

    def check(value: Any) -> Any:
        value = _text(value)
        if len(value) > most:
            _refuse(value, f"it has more than {most} characters")
        return value

    return check


def _of(kinds: type | tuple[type, ...], fix: str) -> Callable[[int], ValueCheck]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds):
            _refuse(value, fix)
        return value

    return lambda _modifier: check


def _date(value: Any) -> Any:
    if not isinstance(value, date) or isinstance(value, datetime):
        _refuse(value, "emit a date")
    return value


def _moment(is_aware: bool) -> Callable[[int], ValueCheck]:
    fix = "emit a datetime with a time zone" if is_aware else "emit a datetime without a time zone"

    def check(value: Any) -> Any:
        if not isinstance(value, datetime) or (value.utcoffset() is not None) is not is_aware:
            _refuse(value, fix)
        return value

    return lambda _modifier: check


def _time(value: Any) -> Any:
    if not isinstance(value, time) or value.tzinfo is not None:
        _refuse(value, "emit a time without a time zone")
    return value


def _uuid(value: Any) -> Any:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        _refuse(value, "emit a UUID")


def _json(is_binary: bool) -> Callable[[int], ValueCheck]:
    def check(value: Any) -> Any:
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UnsupportedValueError(f"JSON cannot represent {_shown(value)}: {error}") from error
        if is_binary and "u0000" in text and _NUL_IN_JSON.search(text):
            _refuse(value, "jsonb stores no character 0")
        return text

    return lambda _modifier: check


def _each(check: ValueCheck) -> ValueCheck:
    def checked(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            _refuse(value, "emit a list")
        return [None if one is None else check(one) for one in value]

    return checked


def _one_of(labels: tuple[str, ...]) -> ValueCheck:
    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in labels:
            _refuse(value, f"emit one of {', '.join(labels)}")
        return value

    return check


def _anything(value: Any) -> Any:
    return _text(value) if isinstance(value, str) else value


_CHECKS: dict[str, Callable[[int], ValueCheck]] = {
    "int2": _integer(16),
    "int4": _integer(32),
    "int8": _integer(64),
    "float4": lambda _modifier: _real,
    "float8": lambda _modifier: _floating,
    "numeric": _numeric,
    "text": lambda _modifier: _text,
    "citext": lambda _modifier: _text,
    "varchar": _text_of,
    "bpchar": _text_of,
    "bool": _of(bool, "emit a bool"),
    "bytea": _of((bytes, bytearray, memoryview), "emit bytes"),
    "date": lambda _modifier: _date,
    "time": lambda _modifier: _time,
    "timestamp": _moment(False),
    "timestamptz": _moment(True),
    "interval": _of(timedelta, "emit a timedelta"),
    "uuid": lambda _modifier: _uuid,
    "json": _json(False),
    "jsonb": _json(True),
}
