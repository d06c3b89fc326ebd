"""Column batches: many rows of one stream as columns, which travel as one tuple.

A batch is in one of two forms: its columns are lists, or Arrow arrays where pyarrow is installed. It travels in the form in which
it was emitted, and is converted once, where a component wants the other. pyarrow is imported by the first batch that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import repeat
from typing import Any

from topo.api.tuples import Origin
from topo.errors import ConfigError, EmitError, NotFoundError, UnsupportedValueError
from topo.extras import EXTRAS, pip_install

LISTS, ARROW = "lists", "arrow"
FORMS = (LISTS, ARROW)
"""The forms of columns that a component can ask for."""
_MIN_MS, _MAX_MS = -(1 << 63) + 1, (1 << 63) - 1

ColumnsLike = Any
"""What `emit_batch` takes: a mapping of fields to columns, a `pyarrow.RecordBatch`, a `pyarrow.Table`, or a `ColumnBatch`."""


def pyarrow() -> Any:
    """Return the module. Raises ConfigError with the fix when it is not installed."""
    try:
        return import_module("pyarrow")
    except ImportError as error:
        fix = pip_install(EXTRAS["arrow"])
        raise ConfigError(f"Arrow columns need pyarrow, which cannot be imported ({error}): {fix}") from error


def compute() -> Any:
    """Return Arrow's functions on columns, where pyarrow is installed."""
    return import_module("pyarrow.compute")


def int64(number: int) -> Any:
    """Return a number as Arrow's functions are to be given it.

    Of a bare number they infer the type, and look for dateutil to do so: where it is not installed, that takes as long as a
    thousand rows, each time.
    """
    return pyarrow().scalar(number, pyarrow().int64())


class ColumnBatch:
    """A batch: `batch["word"]` is a column, `len(batch)` its number of rows.

    It is not changed after it was emitted. Lists that a bolt is given are its own; Arrow arrays never change.

    Attributes:
        fields: names of the columns, in the order of the stream's fields.
        columns: the columns: sequences of values, or Arrow arrays.
        num_rows: how many rows it has.
        timestamps: event time of each row in milliseconds since the epoch, in the form of the columns; None without event time.
        is_arrow: whether the columns are Arrow arrays.
        earliest, latest: the least and the greatest timestamp; None without event time.
        origin: component, task and stream that emitted it; None in a batch that no bolt has been given.
    """

    __slots__ = ("columns", "earliest", "fields", "is_arrow", "latest", "num_rows", "origin", "timestamps")

    def __init__(self, fields: Sequence[str], columns: Sequence[Any], timestamps: Any = None, *, is_arrow: bool) -> None:
        self.fields = tuple(fields)
        self.columns = tuple(columns)
        self.num_rows = len(columns[0])
        self.is_arrow = is_arrow
        self.timestamps: Any = None
        self.earliest: int | None = None
        self.latest: int | None = None
        self.origin: Origin | None = None
        if timestamps is not None:
            self.stamp(timestamps)

    @classmethod
    def of(cls, columns: ColumnsLike, timestamps: Any = None) -> ColumnBatch:
        """Return a batch of columns, for the test of a single bolt. Raises EmitError as `emit_batch` does."""
        names = columns.schema.names if _is_table(columns) else tuple(columns)
        return batch_of(columns, names, timestamps, "a batch:")

    def __getitem__(self, field: str) -> Any:
        try:
            return self.columns[self.fields.index(field)]
        except ValueError:
            close = tuple(get_close_matches(str(field), self.fields, n=2))
            raise NotFoundError(f"a batch of {', '.join(map(repr, self.fields))} has no column {field!r}.", close) from None

    def __len__(self) -> int:
        return self.num_rows

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ColumnBatch):
            return NotImplemented
        return self.fields == other.fields and self.rows() == other.rows() and self.stamp_list() == other.stamp_list()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        first = "".join(f", the first: {row!r}" for row in self.slice(0, 1).rows())
        return f"ColumnBatch({self.num_rows} rows of {_names(self.fields)}{first})"

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows, each with a value for each field."""
        return list(zip(*self._lists(), strict=True))

    def stamp_list(self) -> list[int] | None:
        """Return the timestamps as a list; None without event time."""
        if self.timestamps is None:
            return None
        stamps: list[int] = self.timestamps.to_pylist() if self.is_arrow else list(self.timestamps)
        return stamps

    def to_arrow(self) -> Any:
        """Return it as a `pyarrow.RecordBatch`.

        Raises:
            ConfigError: pyarrow is not installed.
            UnsupportedValueError: a column has values of different types.
        """
        return pyarrow().RecordBatch.from_arrays(list(self.in_form(ARROW).columns), list(self.fields))

    def in_form(self, form: str) -> ColumnBatch:
        """Return the batch with columns as "lists", which are new ones, or as "arrow". Raises as `to_arrow` does."""
        if form == LISTS:
            return self._copy(self._lists(), self.stamp_list(), is_arrow=False)
        if self.is_arrow:
            return self
        arrays = [_array(name, column) for name, column in zip(self.fields, self.columns, strict=True)]
        stamps = None if self.timestamps is None else pyarrow().array(self.timestamps, pyarrow().int64())
        return self._copy(arrays, stamps, is_arrow=True)

    def slice(self, first: int, last: int) -> ColumnBatch:
        """Return the rows [first, last)."""
        columns = [column[first:last] for column in self.columns]
        return self._copy(columns, None if self.timestamps is None else self.timestamps[first:last], is_arrow=self.is_arrow)

    def take(self, places: Any) -> ColumnBatch:
        """Return the rows at these places: a list of them, or where columns are Arrow arrays an array."""
        pick = (lambda column: column.take(places)) if self.is_arrow else (lambda column: [column[place] for place in places])
        stamps = None if self.timestamps is None else pick(self.timestamps)
        return self._copy([pick(column) for column in self.columns], stamps, is_arrow=self.is_arrow)

    def stamp(self, timestamps: Any) -> None:
        """Give each row its timestamp.

        Raises:
            EmitError: they are not one for each row, in whole milliseconds.
        """
        if len(timestamps) != self.num_rows:
            raise EmitError(f"{len(timestamps)} timestamps for {self.num_rows} rows; give each row one")
        if self.is_arrow or _is_arrow(timestamps):
            self._stamp_arrow(timestamps)
            return
        stamps: list[Any]
        if getattr(getattr(timestamps, "dtype", None), "kind", "") == "M":
            # Moments of numpy, in any unit; the list of some units has datetimes, that of others numbers.
            convert = getattr(timestamps, "to_numpy", timestamps.astype)  # pandas has time zones, which astype refuses to drop
            stamps = [_none_or_ms(stamp) for stamp in convert("datetime64[ms]").astype("int64").tolist()]
        else:
            stamps = timestamps.tolist() if hasattr(timestamps, "tolist") else list(timestamps)
        for stamp in stamps:
            if type(stamp) is not int or not _MIN_MS <= stamp <= _MAX_MS:
                raise EmitError(f"timestamp {stamp!r} ({type(stamp).__name__}) of a row; give whole milliseconds since the epoch")
        self.timestamps, self.earliest, self.latest = tuple(stamps), min(stamps), max(stamps)

    def _stamp_arrow(self, timestamps: Any) -> None:
        from topo.api.arrow_values import milliseconds_of

        pa = pyarrow()
        try:
            array = milliseconds_of(_whole(timestamps if _is_arrow(timestamps) else pa.array(_own(timestamps))))
        except (UnsupportedValueError, pa.ArrowException) as error:
            raise EmitError(f"timestamps: {error}") from error
        if array.null_count:
            raise EmitError(f"{array.null_count} of {self.num_rows} rows have no timestamp; give each row one")
        self.timestamps = array if self.is_arrow else tuple(array.to_pylist())
        self.earliest, self.latest = _bounds(array, is_arrow=True)

    def _lists(self) -> list[list[Any]]:
        if not self.is_arrow:
            return [list(column) for column in self.columns]
        from topo.api.arrow_values import named_values

        return [named_values(column, name) for name, column in zip(self.fields, self.columns, strict=True)]

    def _copy(self, columns: Sequence[Any], timestamps: Any, *, is_arrow: bool) -> ColumnBatch:
        batch = ColumnBatch(self.fields, columns, is_arrow=is_arrow)
        batch.origin, batch.timestamps = self.origin, timestamps
        if timestamps is None or batch.num_rows == self.num_rows:
            batch.earliest, batch.latest = self.earliest, self.latest
        elif batch.num_rows:
            batch.earliest, batch.latest = _bounds(timestamps, is_arrow=is_arrow)
        return batch


def batch_of(columns: ColumnsLike, fields: Sequence[str], timestamps: Any, who: str) -> ColumnBatch:
    """Return a batch of what user code has emitted.

    Args:
        columns: see `ColumnsLike`.
        fields: of the stream.
        timestamps: by row, or None.
        who: begins the text of an error.

    Raises:
        EmitError: the columns are not those of the stream, or not of one length.
    """
    if isinstance(columns, ColumnBatch):
        columns = dict(zip(columns.fields, columns.columns, strict=True))
    elif _is_table(columns):
        columns = {name: columns.column(place) for place, name in enumerate(columns.schema.names)}
    if not isinstance(columns, Mapping):
        what = "a mapping of each field to its column, a pyarrow.RecordBatch or a pyarrow.Table"
        raise EmitError(f"{who} emitted {columns!r:.80} ({type(columns).__name__}) as a batch; emit {what}")
    if set(columns) != set(fields):
        missing, unknown = [name for name in fields if name not in columns], [name for name in columns if name not in fields]
        faults = [f"without {_names(missing)}"] if missing else []
        faults += [f"with {_names(unknown)}"] if unknown else []
        raise EmitError(f"{who} emitted a batch {' and '.join(faults)}; its fields are {_names(fields)}")
    given = [_column(name, columns[name], who) for name in fields]
    lengths = {name: len(column) for name, column in zip(fields, given, strict=True)}
    if len(set(lengths.values())) != 1:
        raise EmitError(f"{who} emitted columns of different lengths: {lengths}; give each as many values as there are rows")
    is_arrow = any(map(_is_arrow, given))
    try:
        if is_arrow:
            given = [_checked_array(name, column) for name, column in zip(fields, given, strict=True)]
        batch = ColumnBatch(fields, given, is_arrow=is_arrow)
        if timestamps is not None and batch.num_rows:
            batch.stamp(timestamps)
    except (EmitError, UnsupportedValueError) as error:
        raise type(error)(f"{who}: {error}") from error
    return batch


def batch_of_rows(fields: Sequence[str], rows: Sequence[Sequence[Any]], timestamps: Sequence[int | None]) -> ColumnBatch:
    """Return rows as a batch of lists; it has event time if each row has a timestamp."""
    stamps = None if None in timestamps else timestamps
    return ColumnBatch(fields, list(zip(*rows, strict=True)), stamps, is_arrow=False)


def rows_with_stamps(batch: ColumnBatch) -> Iterator[tuple[tuple[Any, ...], int | None]]:
    """Return each row with its timestamp."""
    return zip(batch.rows(), batch.stamp_list() or repeat(None), strict=False)


def _column(name: str, column: Any, who: str) -> Any:
    if isinstance(column, list | tuple):
        return tuple(column)
    if _is_arrow(column):
        return column
    if hasattr(column, "dtype") and hasattr(column, "tolist"):
        try:
            return pyarrow().array(_own(column))
        except ConfigError:
            return tuple(column.tolist())
    kind = type(column).__name__
    raise EmitError(f"{who}: column {name!r} is {column!r:.80} ({kind}); give a list, an Arrow array or a numpy array")


def _own(column: Any) -> Any:
    """Return a copy of an array of numpy or pandas, which the caller may fill again: Arrow would share its memory."""
    return column.copy() if hasattr(column, "copy") else column


def _checked_array(name: str, column: Any) -> Any:
    array = _whole(column) if _is_arrow(column) else _array(name, column)
    if isinstance(array.type, pyarrow().BaseExtensionType):
        raise UnsupportedValueError(f"column {name!r} has extension type {array.type}, which is not carried; emit its .storage")
    return array


def _array(name: str, column: Sequence[Any]) -> Any:
    pa = pyarrow()
    try:
        return _whole(pa.array(column))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise UnsupportedValueError(
            f"column {name!r} cannot be an Arrow array: {error}; give it values of one type, or read lists (columns = 'lists')"
        ) from error


def _bounds(stamps: Any, *, is_arrow: bool) -> tuple[int, int]:
    """Return the least and the greatest."""
    if not is_arrow:
        return min(stamps), max(stamps)
    bounds = compute().min_max(stamps)
    return bounds["min"].as_py(), bounds["max"].as_py()


def _none_or_ms(stamp: int) -> int | None:
    # The least number is "not a time" of numpy.
    return None if stamp < _MIN_MS else stamp


def _whole(array: Any) -> Any:
    """Return an array of one chunk."""
    if not hasattr(array, "chunks"):
        return array
    joined = array.combine_chunks()
    return joined if not hasattr(joined, "chunks") else pyarrow().concat_arrays(joined.chunks)


def _is_arrow(column: Any) -> bool:
    # A value of pyarrow can only be there if it has been imported.
    pa = sys.modules.get("pyarrow")
    return pa is not None and isinstance(column, pa.Array | pa.ChunkedArray)


def _is_table(columns: Any) -> bool:
    pa = sys.modules.get("pyarrow")
    return pa is not None and isinstance(columns, pa.RecordBatch | pa.Table)


def _names(names: Sequence[Any]) -> str:
    return ", ".join(map(repr, names))
