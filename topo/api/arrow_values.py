"""Values of Arrow's columns as tuples carry them: a column at a time, never value by value through Arrow scalars.

docs/spark.md has the table. Sequences are tuples and structs are dicts, as they are after the wire, so that a bolt sees the same
whether a tuple came through a socket or not. Imports pyarrow, so import it only where there are Arrow columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from topo.errors import UnsupportedValueError

Values = list[Any]

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class NotRepresentable(UnsupportedValueError):
    """A value of a column has no Python value, or a column's type has no place in a tuple."""


def values_of(column: pa.Array) -> Values:
    """Return the values of a column as tuples carry them, None for a null.

    Raises:
        NotRepresentable: a timestamp outside the years 1 to 9999 or finer than microseconds, or a type that is not carried.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return values_of(column.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(column.storage)
    if pa.types.is_interval(kind):
        raise NotRepresentable(f"values of type {kind} are not carried; cast the column")
    convert = next((convert for is_one, convert in _CONVERTERS if is_one(kind)), _plain)
    try:
        return convert(column)
    except (OverflowError, pa.ArrowInvalid) as error:
        raise NotRepresentable(f"a value of type {kind} that Python cannot hold: {error}") from error


def milliseconds_of(column: pa.Array) -> pa.Array:
    """Return event times as whole milliseconds since the epoch, 64 bits wide; a null stays null.

    Args:
        column: timestamps, of which one without zone is taken as UTC; dates, which stand for their midnight; or milliseconds.

    Raises:
        NotRepresentable: the column holds something else.
    """
    kind = column.type
    try:
        if pa.types.is_timestamp(kind):
            # A cast to a coarser unit cuts towards the epoch, which would give two moments around it one millisecond.
            column = pc.floor_temporal(column.cast(pa.timestamp(kind.unit)), unit="millisecond").cast(pa.timestamp("ms"))
        elif pa.types.is_date(kind):
            column = column.cast(pa.timestamp("ms"))
        elif not pa.types.is_integer(kind):
            raise NotRepresentable(f"event time comes from a timestamp, a date or whole milliseconds, and not from {kind}")
        return column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise NotRepresentable(f"event time that does not fit 64 bits: {error}") from error


def rows_of(columns: Sequence[pa.Array], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Return the rows of columns of equal length.

    Raises:
        NotRepresentable: as `values_of`; names the column.
    """
    return zip(*[named_values(column, name) for column, name in zip(columns, names, strict=True)], strict=True)


def named_values(column: pa.Array, name: str, read: Callable[[pa.Array], Any] = values_of) -> Any:
    """Return what `read` makes of a column. Raises NotRepresentable with the column's name."""
    try:
        return read(column)
    except NotRepresentable as error:
        raise NotRepresentable(f"column {name!r}: {error}") from error


def _plain(column: pa.Array) -> Values:
    values: Values = column.to_pylist()
    return values


def _integers(column: pa.Array) -> Values:
    return _plain(column.cast(pa.int64()))


def _in_microseconds(column: pa.Array, kind: pa.DataType) -> Values:
    # A cast that would lose something raises.
    return _integers(column.cast(kind))


def _timestamps(column: pa.Array) -> Values:
    epoch = _EPOCH if column.type.tz is None else _EPOCH_UTC
    values = _in_microseconds(column, pa.timestamp("us", column.type.tz))
    return [None if value is None else epoch + timedelta(microseconds=value) for value in values]


def _durations(column: pa.Array) -> Values:
    values = _in_microseconds(column, pa.duration("us"))
    return [None if value is None else timedelta(microseconds=value) for value in values]


def _times(column: pa.Array) -> Values:
    return _plain(column.cast(pa.time64("us")))


def _dates(column: pa.Array) -> Values:
    days = _plain(column.cast(pa.date32()).cast(pa.int32()))
    try:
        return [None if day is None else date.fromordinal(day + _EPOCH_DAY) for day in days]
    except ValueError as error:
        raise NotRepresentable(f"a date outside the years 1 to 9999: {error}") from error


def _lists(column: pa.Array) -> Values:
    return [None if part is None else tuple(part) for part in _parts(column, values_of(column.flatten()))]


def _maps(column: pa.Array) -> Values:
    kind = column.type
    entries = column.cast(pa.list_(pa.struct([kind.key_field.with_name("key"), kind.item_field.with_name("value")])))
    keys, items = entries.flatten().flatten()
    pairs = list(zip(values_of(keys), values_of(items), strict=True))
    try:
        return [None if part is None else dict(part) for part in _parts(entries, pairs)]
    except TypeError as error:
        raise NotRepresentable(f"a map whose keys are {column.type.key_type} is not carried; cast them") from error


def _parts(column: pa.Array, flat: Values) -> Iterator[Values | None]:
    start = 0
    for length in _plain(pc.list_value_length(column)):
        if length is None:
            yield None
        else:
            yield flat[start : start + length]
            start += length


def _structs(column: pa.Array) -> Values:
    names = [field.name for field in column.type]
    fields = [values_of(field) for field in column.flatten()]
    rows = zip(*fields, strict=True) if fields else iter([()] * len(column))
    is_there = _plain(column.is_valid())
    return [dict(zip(names, row, strict=True)) if there else None for row, there in zip(rows, is_there, strict=True)]


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


_CONVERTERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], Values]], ...] = (
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_date, _dates),
    (pa.types.is_duration, _durations),
    (pa.types.is_time64, _times),
    (is_list, _lists),
    (pa.types.is_map, _maps),
    (pa.types.is_struct, _structs),
)
"""Of types whose values Arrow gives in another form: lists, pairs, zones of pytz, numbers of pandas."""
