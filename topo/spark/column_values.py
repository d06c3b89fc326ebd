"""From rows of Python values, or from columns, to columns of declared types: exactly, or with the name of what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from topo.api.arrow_values import NotRepresentable, values_of
from topo.api.column_batch import ColumnBatch
from topo.connectors.column_classes import check_classes
from topo.connectors.type_names import is_same_type, spark_reads
from topo.errors import UserError

SparkRow = tuple[Any, ...]
_SHOWN = 80
_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError, NotRepresentable)


class DoesNotFit(UserError):
    """Tuples that the schema of a dataset has no place for.

    Attributes:
        field: the field that does not fit; empty when the fields themselves are others.
        expected: its type in the schema.
        found: class and value of the first misfit, or a description of it.
        count: how many tuples of the batch have the same trouble.
    """

    def __init__(self, field: str, expected: str, found: str, count: int = 1) -> None:
        super().__init__(field, expected, found, count)
        self.field, self.expected, self.found, self.count = field, expected, found, count

    def __str__(self) -> str:
        who = "a tuple does not fit" if self.count == 1 else f"{self.count} tuples do not fit"
        where = f"field {self.field!r} is {self.expected}, but got" if self.field else f"the fields are {self.expected}, but got"
        return f"{who}: {where} {self.found}"


@dataclass(frozen=True, slots=True)
class Fitted:
    """What became of rows.

    Attributes:
        table: the rows that fit, in order.
        unfit: numbers of the rows that do not.
        problems: their mistakes, one for each field concerned.
    """

    table: pa.Table
    unfit: frozenset[int]
    problems: tuple[DoesNotFit, ...]


def fit_rows(rows: Sequence[SparkRow], schema: pa.Schema) -> Fitted:
    """Turn rows, their values in the schema's order, into a table; leave out those that do not fit."""
    arrays, unfit, problems = [], set[int](), []
    for place, field in enumerate(schema):
        # `zip(*rows)` would make an iterator for each row: five times as slow.
        values = list(map(itemgetter(place), rows))
        try:
            arrays.append(_array(values, field))
        except _REFUSALS:
            bad = _unfit(values, field, 0)
            unfit.update(bad)
            problems.append(DoesNotFit(field.name, _named(field), _shown(values[bad[0]], field.type), len(bad)))
    if not unfit:
        return Fitted(pa.Table.from_arrays(arrays, schema=schema), frozenset(), ())
    rest = fit_rows([row for number, row in enumerate(rows) if number not in unfit], schema)
    return Fitted(rest.table, frozenset(unfit), tuple(problems))


def fit_columns(batch: ColumnBatch, schema: pa.Schema) -> pa.Table:
    """Return the columns of a batch as a table.

    An Arrow array of the type in the schema, or of its kind, is taken as a whole; other columns count by their values, as those
    of rows do.

    Raises:
        DoesNotFit: a column has another type, or a value that its type in the schema has no place for.
    """
    arrays = []
    for field in schema:
        column = batch[field.name]
        try:
            arrays.append(_fitted(column, field))
        except _REFUSALS as error:
            found = f"{_misfit(column, field, error)} in a batch of {len(batch)} rows"
            raise DoesNotFit(field.name, _named(field), found) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _fitted(column: Any, field: pa.Field) -> pa.Array:
    if not isinstance(column, pa.Array):
        return _array(column, field)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not is_same_type(column.type, field.type):
        return _array(values_of(column), field)
    if column.type.equals(field.type):
        return _not_null(column, field)
    # A cast that would lose something raises, but from double to float it rounds, and makes infinities.
    cast = column.cast(field.type)
    is_narrowed = pa.types.is_float32(field.type) and pa.types.is_float64(column.type)
    if is_narrowed and pc.sum(pc.is_inf(cast)).as_py() != pc.sum(pc.is_inf(column)).as_py():
        raise OverflowError("a number above 3.4e38 is infinite in 32 bits")
    return _not_null(cast, field)


def _misfit(column: Any, field: pa.Field, error: Exception) -> str:
    """Return the first value of a column that does not fit, in words."""
    is_arrow = isinstance(column, pa.Array)
    try:
        values = values_of(column) if is_arrow else column
    except NotRepresentable as unreadable:
        return str(unreadable)
    bad = _unfit(values, field, 0)
    return _shown(values[bad[0]], field.type) if bad else f"{column.type if is_arrow else 'values'}: {error}"


def infer_schema(columns: Mapping[str, Any], count: int) -> pa.Schema:
    """Return the schema that values show: bigint, double, string, timestamp in UTC, decimal(38,18) and so on.

    Args:
        columns: by field: values, or an Arrow array, whose own type counts.
        count: how many tuples have them.

    Raises:
        DoesNotFit: a field shows no type that Spark reads, or several.
    """
    fields = []
    for name, values in columns.items():
        is_arrow = isinstance(values, pa.Array)
        classes = "a column" if is_arrow else ", ".join(sorted({cls.__name__ for cls in map(type, values)} - {"NoneType"}))
        advice = "give SparkSink a schema that has this field"
        try:
            kind = _read_back(values.type) if is_arrow else _widened(pa.array(values).type)
        except _REFUSALS:
            found = f"values of {classes}, which have no common type; {advice}"
            raise DoesNotFit(name, "not declared", found, count) from None
        if pa.types.is_null(kind):
            raise DoesNotFit(name, "not declared", f"None alone in the first batch; {advice}", count)
        if not spark_reads(kind):
            raise DoesNotFit(name, "not declared", f"{classes}, which Spark cannot read as {kind}; {advice}", count)
        fields.append(pa.field(name, kind))
    return pa.schema(fields)


def _read_back(kind: pa.DataType) -> pa.DataType:
    """The type that a column of an Arrow type gets: nanoseconds have none in Spark, and categories are their values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.timestamp("us", tz="UTC" if kind.tz else None) if pa.types.is_timestamp(kind) else kind


def _widened(kind: pa.DataType) -> pa.DataType:
    """The type of which the one seen in a first batch is a case."""
    of = pa.types
    if of.is_decimal(kind):
        return pa.decimal128(38, 18)
    if of.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if of.is_list(kind):
        return pa.list_(_widened(kind.value_type))
    if of.is_struct(kind):
        return pa.struct([pa.field(field.name, _widened(field.type)) for field in kind])
    return kind


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    check_classes(values, field.type)
    return _not_null(pa.array(values, field.type), field)


def _not_null(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.null_count and not field.nullable:
        raise ValueError("None")
    return array


def _unfit(values: Sequence[Any], field: pa.Field, offset: int) -> list[int]:
    """Numbers of the values that do not fit, found by halving."""
    try:
        _array(values, field)
        return []
    except _REFUSALS:
        if len(values) == 1:
            return [offset]
    middle = len(values) // 2
    return _unfit(values[:middle], field, offset) + _unfit(values[middle:], field, offset + middle)


def _named(field: pa.Field) -> str:
    return f"{field.type}" if field.nullable else f"{field.type} and never None"


def _shown(value: Any, kind: pa.DataType) -> str:
    text = repr(value)
    text = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    zone = ""
    if pa.types.is_timestamp(kind) and isinstance(value, datetime):
        zone = " without a zone" if value.tzinfo is None else " with a zone"
    return f"{type(value).__name__}{zone} {text}"
