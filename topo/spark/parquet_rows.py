"""Rows of parquet files with their positions, a bounded batch at a time.

A position is (file, row group, row), counted from 0. Row group g of file f is read by task (f + g) modulo the number of tasks: a
rule that needs no look into any file, spreads one large file and many small ones, and is the same in every life of a task.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from topo.errors import TopoEnvironmentError, UserError
from topo.spark.row_values import NotRepresentable, named_values, rows_of, timestamps_ms_of

Position = tuple[int, int, int]

_MOST_ROWS = 4096
_MOST_BYTES = 8 << 20
"""What a batch may take, going by the average row of its row group."""
_READING = {"buffer_size": 1 << 20, "pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
"""A column is read a little ahead; by pyarrow's defaults all of a row group would be in memory."""

_SAME = (
    ("integer",),
    ("floating",),
    ("string", "large_string"),
    ("binary", "large_binary", "fixed_size_binary"),
    ("decimal",),
    ("timestamp",),
)
"""Types that are one type in a tuple, and so may differ between the files of a source."""


class TornFile(TopoEnvironmentError):
    """A file that is no whole parquet file, or was replaced after the source was listed."""


class SchemaDiffers(UserError):
    """A file that has not the columns, or not the types, of the first."""


class ParquetBatch(NamedTuple):
    """Some rows of one row group, each with its position and, if asked for, its event time in milliseconds."""

    rows: Iterator[tuple[Any, ...]]
    positions: Iterator[Position]
    stamps: list[int | None] | None


class ParquetRows:
    """What one task reads of a source.

    Args:
        root: the folder that relative paths begin at.
        files: path and size of each.
        fields: the columns to read, in the order of the rows.
        timestamp: the column of event time, or None.
        share: the task's number and how many tasks there are.
    """

    def __init__(
        self, root: Path, files: Sequence[tuple[str, int]], fields: Sequence[str], timestamp: str | None, share: tuple[int, int]
    ) -> None:
        self._root = root
        self._files = files
        self._fields = tuple(fields)
        self._timestamp = timestamp
        self._columns = list(dict.fromkeys((*fields, timestamp) if timestamp else fields))
        self._index, self._tasks = share
        self._types: dict[str, pa.DataType] = {}

    def batches(self, after: Position | None = None) -> Iterator[ParquetBatch]:
        """Yield all rows behind a position. After an exception a new call is needed.

        Raises:
            TornFile, SchemaDiffers, NotRepresentable: all name the file.
        """
        first_file, first_group, row = after if after is not None else (0, 0, -1)
        if after is not None and first_file >= len(self._files):
            raise TornFile(f"position {tuple(after)} is in none of the {len(self._files)} files of the source: it is another one")
        for number in range(first_file, len(self._files)):
            path = self._path(number)
            try:
                yield from self._of_file(path, number, first_group, row + 1)
            except (pa.ArrowException, OSError) as error:
                raise TornFile(f"{path} cannot be read as parquet: {error}") from error
            except NotRepresentable as error:
                raise NotRepresentable(f"{path}: {error}") from error
            first_group, row = 0, -1

    def _path(self, number: int) -> Path:
        name, size = self._files[number]
        path = self._root / name
        try:
            now = os.stat(path).st_size
        except OSError as error:
            raise TornFile(f"{path} was there when the source was listed, and is not any more: {error.strerror}") from error
        if now != size:
            raise TornFile(f"{path} has changed: it had {size} bytes when the source was listed, and has {now}")
        return path

    def _of_file(self, path: Path, number: int, first_group: int, first_row: int) -> Iterator[ParquetBatch]:
        with pq.ParquetFile(path, **_READING) as file:
            moments = self._check(path, file)
            for group in range(first_group, file.num_row_groups):
                if (number + group) % self._tasks == self._index:
                    yield from self._of_group(file, number, group, first_row if group == first_group else 0, moments)

    def _of_group(
        self, file: pq.ParquetFile, number: int, group: int, first_row: int, moments: frozenset[str]
    ) -> Iterator[ParquetBatch]:
        about = file.metadata.row_group(group)
        row_bytes = about.total_byte_size // max(about.num_rows, 1) + 1
        size = max(1, min(_MOST_ROWS, _MOST_BYTES // row_bytes))
        start = 0
        for batch in file.iter_batches(size, row_groups=[group], columns=self._columns, use_threads=False):
            end = start + batch.num_rows
            if end > first_row:
                skip = max(0, first_row - start)
                yield self._rows(batch.slice(skip), number, group, start + skip, moments)
            start = end

    def _rows(self, batch: pa.RecordBatch, number: int, group: int, first: int, moments: frozenset[str]) -> ParquetBatch:
        columns = {name: batch.column(batch.schema.get_field_index(name)) for name in self._columns}
        for name in moments:
            columns[name] = columns[name].cast(pa.timestamp("us", "UTC"))
        stamps = None
        if self._timestamp is not None:
            stamps = named_values(columns[self._timestamp], self._timestamp, timestamps_ms_of)
        rows = rows_of([columns[name] for name in self._fields], self._fields)
        return ParquetBatch(rows, zip(repeat(number), repeat(group), range(first, first + batch.num_rows), strict=False), stamps)

    def _check(self, path: Path, file: pq.ParquetFile) -> frozenset[str]:
        """Compare a file with the first; return its columns that hold moments without saying so (Spark's INT96)."""
        if not self._types:
            self._types = self._first_types(path, file)
        types = _types_of(file, self._columns)
        for name, first in self._types.items():
            if name not in types:
                raise SchemaDiffers(f"{path} has no column {name!r}; it has {', '.join(map(repr, file.schema_arrow.names))}")
            if not _is_same(types[name], first):
                raise SchemaDiffers(f"{path}: column {name!r} is {types[name]}, and {first} in {self._root / self._files[0][0]}")
        moments = {
            column.path
            for column in (file.schema.column(index) for index in range(len(file.schema)))
            if column.physical_type == "INT96"
        }
        return frozenset(moments & set(self._columns))

    def _first_types(self, path: Path, file: pq.ParquetFile) -> dict[str, pa.DataType]:
        first = self._path(0)
        if first == path:
            types = _types_of(file, self._columns)
        else:
            with pq.ParquetFile(first, **_READING) as opened:
                types = _types_of(opened, self._columns)
        for name in self._columns:
            types.setdefault(name, pa.null())
        return types


def _types_of(file: pq.ParquetFile, columns: Sequence[str]) -> dict[str, pa.DataType]:
    schema = file.schema_arrow
    return {name: schema.field(name).type for name in columns if schema.get_field_index(name) >= 0}


def _is_same(one: pa.DataType, other: pa.DataType) -> bool:
    if one.equals(other) or pa.types.is_null(one) or pa.types.is_null(other):
        return True
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.tz is None) == (other.tz is None)
    return any(_is_one_of(one, kinds) and _is_one_of(other, kinds) for kinds in _SAME)


def _is_one_of(kind: pa.DataType, names: Sequence[str]) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def columns_of(path: Path) -> tuple[str, ...]:
    """Return the names of the columns of a parquet file. Raises TornFile when it is none."""
    try:
        return tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise TornFile(f"{path} cannot be read as parquet: {error}") from error
