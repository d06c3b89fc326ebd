"""Rows into the bytes of a parquet file, a row group at a time."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from topo.connectors.column_classes import check_classes
from topo.connectors.type_names import declared_schema
from topo.errors import ConfigError, UserError

_SHOWN = 80
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1

Check = Callable[[Any, str], None]
"""Raises UserError when a value, from the component that is named, does not fit."""


def parquet_schema(declared: pa.Schema | Mapping[str, str | pa.DataType]) -> pa.Schema:
    """Return a schema as the user has declared it.

    Raises:
        ConfigError: a type is unknown, or no values of Python make it; there are no fields, or two of one name.
    """
    schema = declared_schema(declared)
    if not schema.names:
        raise ConfigError("schema has no field; give types by field, such as {'user': 'string'}")
    _check_names(schema.names, "schema")
    for field in schema:
        try:
            check_classes([], field.type)
        except StopIteration:
            raise ConfigError(f"schema has field {field.name!r} of type {field.type}, which this sink does not write") from None
        for kind in _types_in(field.type):
            if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms"):
                raise ConfigError(
                    f"schema has field {field.name!r} of type {field.type}, which would cut microseconds; take unit 'us' or 'ns'"
                )
            if pa.types.is_struct(kind):
                if not kind.num_fields:
                    raise ConfigError(f"schema has field {field.name!r} of {field.type}; parquet has no struct without fields")
                _check_names([inner.name for inner in kind], f"struct {field.name!r} of the schema")
    return schema


def _check_names(names: Sequence[str], where: str) -> None:
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ConfigError(f"{where} has field {', '.join(map(repr, twice))} more than once; give each field another name")


def _types_in(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Yield a type and all those inside it."""
    yield kind
    for place in range(kind.num_fields):
        yield from _types_in(kind.field(place).type)


def checkers_of(schema: pa.Schema) -> Sequence[Check]:
    """Return for each column of a schema the check of its values."""
    return [partial(_QUICK.get(field.type, _check), field) for field in schema]


def _check(field: pa.Field, value: Any, component: str) -> None:
    """Check by conversion, which is exact."""
    try:
        check_classes([value], field.type)
        array = pa.array([value], field.type)
        if array.null_count and not field.nullable:
            raise TypeError("None")
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        shown = repr(value)
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        kind = f"{field.type}{'' if field.nullable else ' and never None'}"
        why = "" if isinstance(error, TypeError) else f": {error}"
        raise UserError(
            f"field {field.name!r} of a tuple from {component!r} is {kind} in the schema, but got an object of type "
            f"{type(value).__name__}, {shown}{why}"
        ) from None


def _check_int(field: pa.Field, value: Any, component: str) -> None:
    if type(value) is not int or not _LEAST <= value <= _MOST:
        _check(field, value, component)


def _check_text(field: pa.Field, value: Any, component: str) -> None:
    if type(value) is not str or not value.isascii():
        _check(field, value, component)


def _check_float(field: pa.Field, value: Any, component: str) -> None:
    if type(value) is not float:
        _check(field, value, component)


def _check_bool(field: pa.Field, value: Any, component: str) -> None:
    if type(value) is not bool:
        _check(field, value, component)


_QUICK = {pa.int64(): _check_int, pa.string(): _check_text, pa.float64(): _check_float, pa.bool_(): _check_bool}
"""Checks without a conversion of values that certainly fit."""


class _WrittenBytes(io.RawIOBase):
    """Bytes that were written, until they are taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class ParquetEncoder:
    """The encoder of one file; each call makes a row group."""

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        self._schema = schema
        self._bytes = _WrittenBytes()
        self._writer = pq.ParquetWriter(self._bytes, schema, compression=compression)

    def encode(self, rows: list[Any]) -> bytes:
        columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(self._schema)]
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema))
        return self._bytes.take()

    def end(self) -> bytes:
        self._writer.close()
        return self._bytes.take()
