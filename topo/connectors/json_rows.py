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


_REFUSALS = (TypeError, ValueError, RecursionError)

encode_json = msgspec.json.Encoder(decimal_format="string", enc_hook=_plain).encode
"""Encode a value.

Raises:
    TypeError: JSON cannot represent it.
    UnicodeEncodeError: a text is not Unicode.
    RecursionError: lists and dicts are nested too deep.
"""


def json_line(record: Mapping[str, Any], component: str) -> bytes:
    """Return the line of a tuple, without its end.

    Raises:
        UserError: JSON cannot represent a value; it names the field.
    """
    try:
        return encode_json(record)
    except _REFUSALS as error:
        raise _unwritable(record, component, error) from None


def _unwritable(record: Mapping[str, Any], component: str, refusal: Exception) -> UserError:
    for field, value in record.items():
        try:
            encode_json(value)
        except _REFUSALS as error:
            fix = "emit a str, number, list or dict with keys of these instead"
            return UserError(f"field {field!r} of a tuple from {component!r} has no form in JSON: {error}; {fix}")
    # The deepest value that can be encoded alone is one level too deep in a record.
    return UserError(f"a tuple from {component!r} has no form in JSON: {refusal}")
