"""Which classes of Python values a column of Arrow takes without a loss.

pyarrow alone is too kind: it cuts 1.5 to 1 for an integer column, a datetime to its date, and takes a time without a zone for
UTC. So the classes of a column's values are looked at first, all of them in one pass. A column of float (32 bits) takes any
float and rounds it, but not to infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from math import inf
from typing import Any

import pyarrow as pa

_NONE = type(None)
_CLASSES: tuple[tuple[Callable[[pa.DataType], bool], tuple[type, ...], tuple[type, ...]], ...] = (
    (pa.types.is_boolean, (bool,), ()),
    (pa.types.is_integer, (int,), (bool,)),
    (pa.types.is_float64, (float, int), (bool,)),
    (pa.types.is_float32, (float, int), (bool,)),
    (pa.types.is_string, (str,), ()),
    (pa.types.is_large_string, (str,), ()),
    (pa.types.is_binary, (bytes,), ()),
    (pa.types.is_large_binary, (bytes,), ()),
    (pa.types.is_date32, (date,), (datetime,)),
    (pa.types.is_timestamp, (datetime,), ()),
    (pa.types.is_decimal, (Decimal, int), (bool,)),
    (pa.types.is_list, (list, tuple), ()),
    (pa.types.is_struct, (dict,), ()),
    (pa.types.is_map, (dict, list, tuple), ()),
)
"""Of each type: classes of Python that it takes, and subclasses of these that it does not."""


_FLOAT32_END = 2.0**128 - 2.0**103
"""The least number that rounds to infinity in 32 bits: IEEE 754 rounds a half to even."""


def check_classes(values: Sequence[Any], kind: pa.DataType) -> None:
    """Look at values before they become a column.

    Raises:
        TypeError: the type would take a class of them only with a loss, or not a None inside of one.
        OverflowError: a number would become infinite.
    """
    classes = set(map(type, values))
    has_none = _NONE in classes
    classes.discard(_NONE)
    accepted, refused = next((takes, but) for is_of, takes, but in _CLASSES if is_of(kind))
    for cls in classes:
        if not issubclass(cls, accepted) or issubclass(cls, refused):
            raise TypeError(cls)
    if not pa.types.is_nested(kind) and not pa.types.is_timestamp(kind) and not pa.types.is_float32(kind):
        return
    present = [value for value in values if value is not None] if has_none else values
    if pa.types.is_float32(kind):
        if any(_FLOAT32_END <= abs(value) < inf for value in present):
            raise OverflowError("a number above 3.4e38 is infinite in 32 bits; declare the field as double")
        return
    if pa.types.is_timestamp(kind):
        if len({value.tzinfo is None for value in present} | {kind.tz is None}) > 1:
            raise TypeError("zone")
    elif pa.types.is_list(kind):
        _check_inner(list(chain.from_iterable(present)), kind.value_field)
    elif pa.types.is_struct(kind):
        names = {field.name for field in kind}
        if any(value.keys() - names for value in present):
            raise TypeError("unknown field")
        for field in kind:
            _check_inner([value.get(field.name) for value in present], field)
    else:
        pairs = [pair for value in present for pair in (value.items() if isinstance(value, dict) else value)]
        check_classes([key for key, _ in pairs], kind.key_type)
        _check_inner([value for _, value in pairs], kind.item_field)


def _check_inner(values: Sequence[Any], field: pa.Field) -> None:
    # Arrow takes such a None, and fails only when all rows of the column are written.
    if not field.nullable and any(value is None for value in values):
        raise TypeError("None")
    check_classes(values, field.type)
