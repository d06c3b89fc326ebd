"""The columns and partitions of an Iceberg table, as its sink writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, DoubleType, FloatType, IcebergType, IntegerType, LongType

from topo.connectors.parquet_file import Check, checkers_of, parquet_schema
from topo.errors import ConfigError, UserError

_LARGE = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


def declared_columns(columns: Any, partition_by: Sequence[str]) -> pa.Schema:
    """Return declared columns with the types that Iceberg stores.

    Args:
        columns: types by name, or a schema of pyarrow's.
        partition_by: names of columns.

    Raises:
        ConfigError: no Iceberg table has such columns.
    """
    schema = parquet_schema(columns)
    if missing := [name for name in partition_by if name not in schema.names]:
        raise ConfigError(f"partition_by has {', '.join(map(repr, missing))}; schema has {', '.join(map(repr, schema.names))}")
    if twice := [name for place, name in enumerate(partition_by) if name in partition_by[:place]]:
        raise ConfigError(f"partition_by has {twice[0]!r} twice")
    if dotted := [name for name in schema.names if "." in name]:
        raise ConfigError(f"schema has field {dotted[0]!r}; pyiceberg does not read columns with a dot in their names")
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise ConfigError("schema has two fields that differ only in upper and lower case, which readers do not distinguish")
    fields = [field.with_type(_stored(field.type, field.name)) for field in schema]
    for name in partition_by:
        kind = schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise ConfigError(
                f"partition_by has {name!r} of type {kind}; partition by a text, a whole number, a date or the like"
            )
    return pa.schema(fields)


def _stored(kind: pa.DataType, name: str) -> pa.DataType:
    """Return the type that a declared one has when it is read back."""
    if kind in _LARGE:
        return _LARGE[kind]
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    is_lacking = pa.types.is_timestamp, pa.types.is_unsigned_integer, pa.types.is_float16, pa.types.is_decimal256
    if any(is_one(kind) for is_one in is_lacking):
        raise ConfigError(f"schema has field {name!r} of type {kind}, which Iceberg does not have")
    return _inside(kind, lambda inner: _stored(inner, name))


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return a type of pyiceberg's with offsets of the usual size."""
    return _inside(_LARGE.get(kind, kind), _plain)


def _inside(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(change(kind.value_type)).with_name("element"))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(change(kind.key_type)), kind.item_field.with_type(change(kind.item_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(change(field.type)) for field in kind])
    return kind


def columns_of(table: Table) -> pa.Schema:
    """Return the columns of a table, with their ids as a file has them. Raises ConfigError for types that are not written."""
    return parquet_schema(pa.schema([field.with_type(_plain(field.type)) for field in schema_to_pyarrow(table.schema())]))


def is_void(field: PartitionField) -> bool:
    """Whether a field was removed from the partitions of a table of format 1. Its column may be gone."""
    return isinstance(field.transform, VoidTransform)


class Partitions:
    """Takes the partition of a row out of its tuple, so that each file is in one partition.

    Raises:
        ConfigError: the table is partitioned in a way that this sink does not write.
    """

    def __init__(self, table: Table, columns: pa.Schema) -> None:
        self._parts: list[tuple[str, Check, Callable[[Any], Any]] | None] = []
        self._spec_id = table.spec().spec_id
        for field in table.spec().fields:
            if is_void(field):
                self._parts.append(None)
                continue
            source = table.schema().find_field(field.source_id)
            kind, place = source.field_type, columns.get_field_index(source.name)
            # Floats: 0.0 and -0.0 are equal here and not in Iceberg, and NaN is equal to nothing.
            if place < 0 or not field.transform.preserves_order or isinstance(kind, FloatType | DoubleType):
                raise ConfigError(
                    f"table {'.'.join(table.name())} is partitioned by {field.transform} of {source.name!r} ({kind}), which "
                    "IcebergSink does not write: partition by identity, year, month, day, hour or truncate of a column without "
                    "floats"
                )
            check = checkers_of(pa.schema([columns.field(place)]))[0]
            self._parts.append((source.name, check, _transforming(kind, field.transform.transform(kind))))

    def of(self, record: Mapping[str, Any], component: str) -> tuple[Any, ...]:
        """Return the partition of a tuple, decimals as texts, and the id of the spec. Raises UserError, which names the field."""
        found: list[Any] = []
        for part in self._parts:
            if part is None:
                found.append(None)
                continue
            name, check, transformed = part
            if name not in record:
                raise UserError(f"a tuple from {component!r} has no field {name!r}, by which this table is partitioned")
            value = record[name]
            check(value, component)
            found.append(None if value is None else transformed(value))
        return (*found, self._spec_id)


def _transforming(kind: IcebergType, transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return how a value of a type becomes one of a partition."""
    if isinstance(kind, DecimalType):
        last, exact = Decimal(1).scaleb(-kind.scale), Context(prec=kind.precision)
        # As a text, since a checkpoint carries no decimals.
        return lambda value: str(transform(value.quantize(last, context=exact)))
    if isinstance(kind, IntegerType | LongType):
        return lambda value: _in_range(transform(value), kind, value)
    return lambda value: transform(literal(value).to(kind).value)


def _in_range(found: Any, kind: IcebergType, value: int) -> Any:
    """Return a value of a partition. Raises UserError where it is below all numbers of its type, as truncate can make it."""
    if isinstance(found, int) and found < -(1 << (31 if isinstance(kind, IntegerType) else 63)):
        raise UserError(f"{value} is in no partition of this table: {found} is below all values of the type {kind}")
    return found


def partition_record(table: Table, partition: Sequence[Any]) -> Record | None:
    """Return what `Partitions.of` has returned as pyiceberg has it; None when the table has other partitions now."""
    *values, spec_id = partition or (None,)
    types = [field.field_type for field in table.spec().partition_type(table.schema()).fields]
    if spec_id != table.spec().spec_id or len(values) != len(types):
        return None
    pairs = zip(values, types, strict=True)
    return Record(*(Decimal(value) if isinstance(kind, DecimalType) and value is not None else value for value, kind in pairs))
