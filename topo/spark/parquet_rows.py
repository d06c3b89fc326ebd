"""Rows of parquet files with their positions, a bounded batch at a time, as tuples or as columns.

A position is (file, row group, row), counted from 0. Row group g of file f is read by task (f + g) modulo the number of tasks: a
rule that needs no look into any file, spreads one large file and many small ones, and is the same in every life of a task.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from topo.api.arrow_values import NotRepresentable, is_list, milliseconds_of, named_values, rows_of
from topo.connectors.type_names import is_same_type
from topo.errors import TopoEnvironmentError, UserError
from topo.spark.record_batches import Piece, pieces_of

Position = tuple[int, int, int]
T = TypeVar("T")

_MOST_ROWS = 4096
_MOST_BYTES = 8 << 20
"""What a batch may take, going by the average row of its row group."""
_MOST_COLUMN_BYTES = 1 << 20
"""The same for a batch that is emitted as columns."""
_READING = {"buffer_size": 1 << 20, "pre_buffer": False, "coerce_int96_timestamp_unit": "us"}
"""A column is read a little ahead; by pyarrow's defaults all of a row group would be in memory."""


class TornFile(TopoEnvironmentError):
    """A file that is no whole parquet file, or was replaced after the source was listed."""


class SchemaDiffers(UserError):
    """A file that has not the columns, or not the types, of the first."""


class ParquetBatch(NamedTuple):
    """Some rows of one row group, each with its position and, if asked for, its event time in milliseconds."""

    rows: Iterator[tuple[Any, ...]]
    positions: Iterator[Position]
    stamps: list[int | None] | None


class Block(NamedTuple):
    """Some rows of one row group as they are read.

    Attributes:
        columns: by name.
        file, group, first: the position of the first row.
        skip: how many of the rows have been read before.
    """

    columns: Mapping[str, pa.Array]
    file: int
    group: int
    first: int
    skip: int


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
        return self._read(after, _MOST_ROWS, _MOST_BYTES, self._rows)

    def column_batches(self, after: Position | None, most_rows: int) -> Iterator[tuple[Position, Piece]]:
        """Yield all rows behind a position as columns, with the position of the last row of each. Raises as `batches` does.

        Batches are counted from the first row of a row group: the same rows are in each whenever they are read with the same
        `most_rows`.
        """
        return self._read(after, most_rows, _MOST_COLUMN_BYTES, lambda block: self._pieces(block, most_rows))

    def _read(self, after: Position | None, most_rows: int, most_bytes: int, make: Callable[[Block], Iterator[T]]) -> Iterator[T]:
        first_file, first_group, row = after if after is not None else (0, 0, -1)
        if after is not None and first_file >= len(self._files):
            raise TornFile(f"position {tuple(after)} is in none of the {len(self._files)} files of the source: it is another one")
        for number in range(first_file, len(self._files)):
            path = self._path(number)
            try:
                for block in self._of_file(path, number, (first_group, row + 1), most_rows, most_bytes):
                    yield from make(block)
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

    def _of_file(self, path: Path, number: int, first: tuple[int, int], most_rows: int, most_bytes: int) -> Iterator[Block]:
        first_group, first_row = first
        with pq.ParquetFile(path, **_READING) as file:
            moments = self._check(path, file)
            for group in range(first_group, file.num_row_groups):
                if (number + group) % self._tasks == self._index:
                    about = file.metadata.row_group(group)
                    row_bytes = about.total_byte_size // max(about.num_rows, 1) + 1
                    size = max(1, min(most_rows, most_bytes // row_bytes))
                    start = 0
                    for batch in file.iter_batches(size, row_groups=[group], columns=self._columns, use_threads=False):
                        skip = max(0, first_row - start) if group == first_group else 0
                        if skip < batch.num_rows:
                            yield Block(self._of_batch(batch, moments), number, group, start, skip)
                        start += batch.num_rows

    def _of_batch(self, batch: pa.RecordBatch, moments: frozenset[str]) -> Mapping[str, pa.Array]:
        columns = {name: batch.column(batch.schema.get_field_index(name)) for name in self._columns}
        return columns | {name: columns[name].cast(pa.timestamp("us", "UTC")) for name in moments}

    def _rows(self, block: Block) -> Iterator[ParquetBatch]:
        columns = {name: column[block.skip :] for name, column in block.columns.items()}
        stamps = None
        if self._timestamp is not None:
            stamps = named_values(columns[self._timestamp], self._timestamp, milliseconds_of).to_pylist()
        rows = rows_of([columns[name] for name in self._fields], self._fields)
        places = range(block.first + block.skip, block.first + len(next(iter(block.columns.values()))))
        positions = zip(repeat(block.file), repeat(block.group), places, strict=False)
        yield ParquetBatch(rows, positions, stamps)

    def _pieces(self, block: Block, most_rows: int) -> Iterator[tuple[Position, Piece]]:
        for piece in pieces_of(block.columns, self._fields, self._timestamp, most_rows, block.skip):
            yield (block.file, block.group, block.first + piece.last), piece

    def _check(self, path: Path, file: pq.ParquetFile) -> frozenset[str]:
        """Compare a file with the first; return its columns that hold moments without saying so (Spark's INT96)."""
        if not self._types:
            self._types = self._first_types(path, file)
        types = _types_of(file, self._columns)
        for name, first in self._types.items():
            if name not in types:
                raise SchemaDiffers(f"{path} has no column {name!r}; it has {', '.join(map(repr, file.schema_arrow.names))}")
            if not _is_alike(types[name], first):
                raise SchemaDiffers(f"{path}: column {name!r} is {types[name]}, and {first} in {self._root / self._files[0][0]}")
        return frozenset(name for name, kind in types.items() if not kind.equals(file.schema_arrow.field(name).type))

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


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of both types are of one type in a tuple, also inside of lists, maps and structs."""
    of = pa.types
    one, other = (kind.value_type if of.is_dictionary(kind) else kind for kind in (one, other))
    if of.is_map(one) and of.is_map(other):
        return _is_alike(one.key_type, other.key_type) and _is_alike(one.item_type, other.item_type)
    if of.is_struct(one) and of.is_struct(other):
        fields, others = list(one), list(other)
        same_names = [field.name for field in fields] == [field.name for field in others]
        return same_names and all(_is_alike(field.type, its.type) for field, its in zip(fields, others, strict=True))
    if is_list(one) and is_list(other):
        return _is_alike(one.value_type, other.value_type)
    return is_same_type(one, other)


def _types_of(file: pq.ParquetFile, columns: Sequence[str]) -> dict[str, pa.DataType]:
    schema = file.schema_arrow
    types = {name: schema.field(name).type for name in columns if schema.get_field_index(name) >= 0}
    leaves = [file.schema.column(index) for index in range(len(file.schema))]
    moments = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"} & set(types)
    return types | dict.fromkeys(moments, pa.timestamp("us", "UTC"))


def columns_of(path: Path) -> tuple[str, ...]:
    """Return the names of the columns of a parquet file. Raises TornFile when it is none."""
    try:
        return tuple(pq.read_schema(path).names)
    except (pa.ArrowException, OSError) as error:
        raise TornFile(f"{path} cannot be read as parquet: {error}") from error
