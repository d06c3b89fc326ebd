"""Tuples as lines of JSON: an object of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from topo.errors import UserError


def _plain(value: Any) -> Any:
    """Return a numpy value as Python's own: an array as a list, a scalar as a number, moments as texts.

    Raises:
        TypeError: the value is of another type that msgspec does not encode.
    """
    if type(value).__module__ != "numpy":
        raise TypeError(f"values of type {type(value).__qualname__} are not supported")
    return (value.astype(str) if value.dtype.kind == "M" else value).tolist()


encode_json = msgspec.json.Encoder(decimal_format="string", enc_hook=_plain).encode
"""Encode a value. Raises TypeError when JSON cannot represent it, and UnicodeEncodeError for a text that is not Unicode."""


def json_line(record: Mapping[str, Any], component: str) -> bytes:
    """Return the line of a tuple, without its end.

    Raises:
        UserError: JSON cannot represent a value; it names the field.
    """
    try:
        return encode_json(record)
    except (TypeError, ValueError):
        raise _unwritable(record, component) from None


def _unwritable(record: Mapping[str, Any], component: str) -> UserError:
    for field, value in record.items():
        try:
            encode_json(value)
        except (TypeError, ValueError) as error:
            fix = "emit a str, number, list or dict with keys of these instead"
            return UserError(f"field {field!r} of a tuple from {component!r} has no form in JSON: {error}; {fix}")
    raise AssertionError("each field can be encoded alone, and all of them together cannot")
