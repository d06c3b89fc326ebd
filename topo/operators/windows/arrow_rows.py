"""Rows of Arrow batches on their way into accumulators: they wait for others, and are summed in Arrow, by slot and key.

A call of Arrow's `group_by` costs as much as thousands of rows in it. So rows wait until there are many, or until their
accumulators are needed. Only rows wait whose sums Arrow makes as Python does: no integers that might not fit 64 bits, no nulls,
no comparison with a not-a-number, nothing but numbers. The sum of floats may differ in its last digits, for it is made in
another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from msgspec import Struct

from topo.api.aggregates import AggregateFunction, Count, Max, Mean, Min, Sum
from topo.api.column_batch import ColumnBatch, compute, int64, pyarrow
from topo.operators.windows.column_aggregates import ColumnAggregate

MAX_ROWS = 65_536
"""Rows that wait: enough to make the cost of a call little for each. A few megabytes where keys are short: only the columns that
their accumulators need are kept."""
MOST_HELD = 4
"""Times its size that a column may keep in memory: more, such as the frame with columns that are not needed, and it is copied."""
TOO_MUCH = 1 << 63

FUNCTIONS: dict[type, tuple[str, ...]] = {Count: (), Sum: ("sum",), Min: ("min",), Max: ("max",), Mean: ("sum",)}
COUNT = "count_all"


class ArrowColumns(Struct, frozen=True):
    """What a batch adds to its accumulators.

    Attributes:
        count: how many rows.
        arrays: the key columns, then those of the aggregated fields.
        most: an upper bound of the absolute sum of any column of integers.
    """

    count: int
    arrays: list[Any]
    most: int

    def take(self, places: Any) -> ArrowColumns:
        """Return some rows."""
        return ArrowColumns(len(places), [array.take(places) for array in self.arrays], self.most)


class ArrowRows:
    """Rows that wait.

    Args:
        aggregate: makes their accumulators.
        keys: places of the key fields in a batch.
        no_key: the key of all rows, where there are no key fields.
        most_rows: how many rows wait.
    """

    def __init__(self, aggregate: ColumnAggregate, keys: Sequence[int], no_key: Any, most_rows: int) -> None:
        self._aggregate = aggregate
        self._keys = keys
        self._no_key = no_key
        self.most_rows = most_rows
        parts: list[Any] = list(aggregate.parts)
        self._is_known = all(type(part) in FUNCTIONS for part in parts)
        self._fields = sorted({part.field for part in parts if type(part) in FUNCTIONS and type(part) is not Count})
        self._added = {part.field for part in parts if type(part) in (Sum, Mean)}
        self._compared = {part.field for part in parts if type(part) in (Min, Max)}
        self._by = [f"k{place}" for place in range(len(keys))]
        self._names = ["slot", *self._by, *(f"v{field}" for field in self._fields)]
        self._calls: list[tuple[Any, str]] = sorted(
            {(f"v{part.field}", name) for part in parts for name in FUNCTIONS.get(type(part), ())}
        )
        if any(type(part) in (Count, Mean) for part in parts):
            self._calls.append(([], COUNT))
        self._results = [(COUNT, "sum") if call == COUNT else (f"{name}_{call}", call) for name, call in self._calls]
        """The columns that the calls make, and how those of several tables are put together."""
        self._waiting: list[Any] = []
        self._rows = self._most = 0

    def columns_of(self, batch: ColumnBatch) -> ArrowColumns | None:
        """Return what a batch of Arrow arrays adds; None where Arrow might make other sums of it than Python."""
        if not self._is_known:
            return None
        arrays = [_plain(batch.columns[place]) for place in (*self._keys, *self._fields)]
        values = arrays[len(self._keys) :]
        if not all(map(_is_key, arrays[: len(self._keys)])) or not all(map(_is_number, values)):
            return None
        most = 0
        for field, column in zip(self._fields, values, strict=True):
            if field in self._compared and _has_nan(column):
                return None
            if field in self._added:
                most = max(most, _most_of(column))
        return ArrowColumns(batch.num_rows, arrays, most) if most < TOO_MUCH else None

    def fits(self, columns: ArrowColumns) -> bool:
        """Whether these rows can wait with the others; if not, `take` those first."""
        if not self._waiting:
            return True
        types = [array.type for array in columns.arrays]
        is_alike = self._waiting[-1].schema.types[1:] == types
        return is_alike and self._rows < self.most_rows and self._most + columns.most < TOO_MUCH

    def add(self, columns: ArrowColumns, slots: Any) -> None:
        """Have rows wait.

        Args:
            columns: of the rows.
            slots: the start of each row's slot, as an array; or one number for all.
        """
        pa = pyarrow()
        if isinstance(slots, int):
            slots = pa.repeat(int64(slots), columns.count)
        self._waiting.append(pa.RecordBatch.from_arrays([slots, *_kept(columns.arrays)], self._names))
        self._rows += columns.count
        self._most += columns.most

    def take(self) -> tuple[Any, int]:
        """Forget the rows. Returns a table of them, None without any: a row for each key of a slot, and the bound of its sums.

        The columns are "slot", the keys, and what `accumulators` reads.
        """
        waiting, self._waiting = self._waiting, []
        most, self._rows, self._most = self._most, 0, 0
        return (self._grouped(pyarrow().Table.from_batches(waiting), ["slot", *self._by], self._calls) if waiting else None), most

    def together(self, tables: list[Any]) -> Any:
        """Return one table of several without slots, with one row for each key."""
        if len(tables) == 1:
            return tables[0]
        table = self._grouped(pyarrow().concat_tables(tables), self._by, [(name, again) for name, again in self._results])
        return table.rename_columns([*self._by, *(name for name, _ in self._results)])

    @staticmethod
    def _grouped(table: Any, by: list[str], calls: list[tuple[Any, str]]) -> Any:
        names = [COUNT if function == COUNT else f"{name}_{function}" for name, function in calls]
        # Threads would not help: a worker has one task at work, and its neighbours have the other cores.
        return pyarrow().TableGroupBy(table, by, use_threads=False).aggregate(calls).select([*by, *names])

    def accumulators(self, table: Any) -> Iterator[tuple[Any, Any]]:
        """Return keys and accumulators of the rows of a table."""
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
        keys = [columns[name] for name in self._by]
        all_keys = repeat(self._no_key) if not keys else keys[0] if len(keys) == 1 else zip(*keys, strict=True)
        accumulators = self._aggregate.together([_accumulators(part, columns) for part in self._aggregate.parts])
        return zip(all_keys, accumulators)  # noqa: B905


def _accumulators(part: AggregateFunction, columns: dict[str, list[Any]]) -> list[Any]:
    if isinstance(part, Count):
        return columns[COUNT]
    (function,), field = FUNCTIONS[type(part)], part.field  # type: ignore[attr-defined]
    results = columns[f"v{field}_{function}"]
    return list(zip(results, columns[COUNT], strict=True)) if isinstance(part, Mean) else results


def _kept(arrays: list[Any]) -> list[Any]:
    """Return the arrays, or copies where they are small parts of the memory that they keep."""
    held: dict[int, int] = {}
    for array in arrays:
        for buffer in array.buffers():
            while buffer is not None and buffer.parent is not None:
                buffer = buffer.parent
            if buffer is not None:
                held[buffer.address] = buffer.size
    if sum(held.values()) <= MOST_HELD * sum(array.nbytes for array in arrays):
        return arrays
    return [pyarrow().concat_arrays([array]) for array in arrays]


def _plain(column: Any) -> Any:
    return column.dictionary_decode() if hasattr(column, "dictionary_decode") else column


def _is_key(column: Any) -> bool:
    """Whether equal values of the column are equal keys of a dict, and the others are not."""
    types = pyarrow().types
    return any(is_it(column.type) for is_it in (types.is_integer, types.is_string, types.is_large_string, types.is_boolean))


def _is_number(column: Any) -> bool:
    types = pyarrow().types
    is_number = types.is_integer(column.type) or types.is_float32(column.type) or types.is_float64(column.type)
    return is_number and not column.null_count


def _has_nan(column: Any) -> bool:
    return pyarrow().types.is_floating(column.type) and bool(compute().any(compute().is_nan(column)).as_py())


def _most_of(column: Any) -> int:
    """Return an upper bound of the absolute sum of any rows of the column."""
    if not pyarrow().types.is_integer(column.type):
        return 0
    if column.type.bit_width <= 32:
        return len(column) << 32
    bounds = compute().min_max(column)
    return len(column) * int(max(abs(bounds["min"].as_py()), abs(bounds["max"].as_py())))
