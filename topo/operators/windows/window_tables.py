"""Accumulators of windows as Arrow tables: where a window has many keys, no step of Python is made for each.

A window is in one of two forms: its accumulators are cells of keyed state, or they are here, a list of tables with a row for
each key. The tables are put together when they have grown, and when the window fires; its results leave as columns. A window
goes over to cells when something comes that Arrow cannot add, and never back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from topo.api.aggregates import AggregateFunction, Count, Mean
from topo.api.column_batch import ColumnBatch, int64, pyarrow
from topo.api.windows import TimeWindow
from topo.operators.windows.arrow_rows import COUNT, FUNCTIONS, TOO_MUCH, ArrowRows
from topo.operators.windows.contents import CONTENTS_STATE
from topo.operators.windows.operator import FIRES_WHOLE

MOST_SLOTS = 64
LEAST_KEYS = 512
"""A window begins with tables where the rows of a table are in no more slots, with no fewer keys each: a dict of few keys costs
less than a table."""


@dataclass(slots=True)
class _Tables:
    """The tables of one window; `most` is an upper bound of the absolute sum of any column of integers."""

    parts: list[Any]
    most: int


class WindowTables:
    """The windows whose accumulators are tables.

    Args:
        rows: makes the tables.
        least_keys: keys of a table, at least.
    """

    def __init__(self, rows: ArrowRows, least_keys: float) -> None:
        self._rows = rows
        self._least_keys = least_keys
        self._windows: dict[TimeWindow, _Tables] = {}

    @property
    def open_panes(self) -> int:
        """How many keys the windows have, at least."""
        return sum(max(part.num_rows for part in tables.parts) for tables in self._windows.values())

    def refused(self, windows: set[TimeWindow], keys: int, slots: int) -> set[TimeWindow]:
        """Return those of the windows that should be in cells. The table that they get has `keys` rows, of `slots` slots."""
        if slots > MOST_SLOTS:
            return windows
        return set() if keys >= self._least_keys * slots else windows.difference(self._windows)

    def add(self, window: TimeWindow, part: Any, most: int) -> bool:
        """Add a table to a window; False if it cannot be: the window has to go over to cells.

        Args:
            window: has no cells.
            part: one row for each key.
            most: an upper bound of the absolute sum of any column of integers.
        """
        tables = self._windows.get(window)
        if tables is None:
            self._windows[window] = _Tables([part], most)
            return True
        if tables.parts[-1].schema != part.schema or tables.most + most >= TOO_MUCH:
            return False
        tables.parts.append(part)
        tables.most += most
        # Each row is put together with others as often as the table doubles.
        if sum(part.num_rows for part in tables.parts[1:]) > tables.parts[0].num_rows + self._rows.most_rows:
            tables.parts = [self._rows.together(tables.parts)]
        return True

    def take(self, window: TimeWindow) -> Any:
        """Remove a window and return its table; None if it has none."""
        tables = self._windows.pop(window, None)
        return None if tables is None else self._rows.together(tables.parts)

    def due(self, watermark: int) -> list[TimeWindow]:
        """Return the windows that a watermark reaches, in the order of their ends."""
        return sorted((one for one in self._windows if one.max_timestamp <= watermark), key=lambda one: one.max_timestamp)

    def added_to(self, frozen: Callable[[], Mapping[int, Any]], group_of: Any) -> Callable[[], Mapping[int, Any]]:
        """Return a function that gives a snapshot with the accumulators of these windows, as if they were cells.

        Args:
            frozen: gives the snapshot without them.
            group_of: the key group of each key.
        """
        held = [(window, list(tables.parts)) for window, tables in self._windows.items()]
        rows_of = self._rows

        def sort() -> Mapping[int, Any]:
            keyed = dict(frozen())
            for window, parts in held:
                for key, accumulator in rows_of.accumulators(rows_of.together(parts)):
                    empty: dict[str, Any] = {"state": {}, "timers": {}, FIRES_WHOLE: True}
                    state = keyed.setdefault(group_of[key], empty)["state"]
                    contents = state.setdefault(CONTENTS_STATE, {"kind": "aggregating", "ttl": False, "rows": []})
                    contents["rows"].append((key, window, accumulator))
            return dict(sorted(keyed.items()))

        return sort if held else frozen


def results_of(table: Any, parts: Sequence[AggregateFunction], keys: int, window: TimeWindow) -> ColumnBatch:
    """Return the results of a window: key columns, start, end, and a column for each aggregate."""
    pa = pyarrow()
    count = table.num_rows
    columns = [table.column(place) for place in range(keys)]
    columns += [pa.repeat(int64(bound), count) for bound in (window.start, window.end)]
    columns += [_result(part, table) for part in parts]
    whole = [column.combine_chunks() if hasattr(column, "chunks") else column for column in columns]
    whole = [pa.concat_arrays(column.chunks) if hasattr(column, "chunks") else column for column in whole]
    stamps = pa.repeat(int64(window.max_timestamp), count)
    return ColumnBatch([str(place) for place in range(len(whole))], whole, stamps, is_arrow=True)


def _result(part: AggregateFunction, table: Any) -> Any:
    if isinstance(part, Count):
        return table.column(COUNT)
    (function,) = FUNCTIONS[type(part)]
    values = table.column(f"v{part.field}_{function}")  # type: ignore[attr-defined]
    if not isinstance(part, Mean):
        return values
    pairs = zip(values.to_pylist(), table.column(COUNT).to_pylist(), strict=True)
    # Python divides integers of any size exactly.
    return pyarrow().array([total / count for total, count in pairs], pyarrow().float64())
