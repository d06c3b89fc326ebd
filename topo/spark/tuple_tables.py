"""Tuples that a sink holds into one table: single tuples through their values, batches of columns as they are."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from topo.api.column_batch import ColumnBatch
from topo.api.tuples import Tuple
from topo.connectors.partition_folders import NAME_BYTES
from topo.spark.column_values import DoesNotFit, Fitted, SparkRow, fit_columns, fit_rows, infer_schema
from topo.spark.hive_partitions import too_long

_values, _origin = attrgetter("values"), attrgetter("origin")


def fit_tuples(held: Sequence[Tuple], schema: pa.Schema, partition_by: Sequence[str]) -> Fitted:
    """Return the table of the tuples that fit: single tuples in order, behind them batches in order. A batch fits as a whole.

    Args:
        held: the tuples, of any origin.
        schema: the table's.
        partition_by: columns whose values become names of folders.
    """
    origins = set(map(_origin, held))
    foreign = {origin for origin in origins if set(origin.fields) != set(schema.names)}
    unfit = {number for number, tup in enumerate(held) if tup.origin in foreign} if foreign else set[int]()
    problems = []
    if foreign:
        found = ", ".join(next(iter(foreign)).fields)
        problems.append(DoesNotFit("", ", ".join(schema.names), found, len(unfit)))
    rows: Sequence[int] = range(len(held))
    batches: list[int] = []
    chosen = held
    if foreign or any(origin.columnar for origin in origins):
        fitting = [number for number in rows if number not in unfit]
        batches = [number for number in fitting if held[number].origin.columnar]
        rows = [number for number in fitting if not held[number].origin.columnar]
        chosen = [held[number] for number in rows]
    fitted = fit_rows(_rows_of(chosen, schema.names), schema)
    table = fitted.table
    problems += fitted.problems
    unfit |= {rows[number] for number in fitted.unfit}
    for column in partition_by:
        if numbers := too_long(table, column):
            problems.append(_too_long(column, len(numbers)))
            kept = [number for number in rows if number not in unfit]
            unfit |= {kept[number] for number in numbers}
            table = table.take([place for place, number in enumerate(kept) if number not in unfit])
    tables = [table]
    of_batches: dict[str, DoesNotFit] = {}
    for number in batches:
        try:
            tables.append(_fit_batch(held[number].values[0], schema, partition_by))
        except DoesNotFit as error:
            unfit.add(number)
            first = of_batches.get(error.field)
            if first is not None:
                error = DoesNotFit(first.field, first.expected, first.found, first.count + 1)
            of_batches[error.field] = error
    return Fitted(pa.concat_tables(tables) if batches else table, frozenset(unfit), (*problems, *of_batches.values()))


def schema_of(held: Sequence[Tuple]) -> pa.Schema:
    """Return the schema that the first batch shows, or the single tuples with the fields of the first. Raises DoesNotFit."""
    first = held[0].origin
    if first.columnar:
        batch: ColumnBatch = held[0].values[0]
        return infer_schema(dict(zip(batch.fields, batch.columns, strict=True)), 1)
    names = set(first.fields)
    alike = [tup for tup in held if not tup.origin.columnar and set(tup.origin.fields) == names]
    columns = zip(*_rows_of(alike, first.fields), strict=True)
    return infer_schema(dict(zip(first.fields, columns, strict=True)), len(alike))


def _fit_batch(batch: ColumnBatch, schema: pa.Schema, partition_by: Sequence[str]) -> pa.Table:
    table = fit_columns(batch, schema)
    for column in partition_by:
        if numbers := too_long(table, column):
            raise _too_long(column, 1, f", in {len(numbers)} of {len(batch)} rows of a batch")
    return table


def _too_long(column: str, count: int, where: str = "") -> DoesNotFit:
    return DoesNotFit(column, "the name of a folder", f"a value of more than {NAME_BYTES} bytes{where}", count)


def _rows_of(tuples: Sequence[Tuple], names: Sequence[str]) -> list[SparkRow]:
    """Return the values of single tuples in the order of the names."""
    if {origin.fields for origin in set(map(_origin, tuples))} <= {tuple(names)}:
        return list(map(_values, tuples))
    return [_in_order(tup, names) for tup in tuples]


def _in_order(tup: Tuple, names: Sequence[str]) -> SparkRow:
    index: dict[str, Any] = tup.origin.index
    return tuple([tup.values[index[name]] for name in names])
