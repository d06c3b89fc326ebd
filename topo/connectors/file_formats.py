"""Records in files: lines of text, JSON lines, CSV, parquet. Each reader yields rows behind a place, many at once.

A place is the offset behind a line, in the decompressed file, for lines and JSON; and the number of the record, from 1, for
others: a record of CSV may hold line ends. So places rise, and name the same record whenever a file is read.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, NamedTuple, cast

from topo.errors import ConfigError
from topo.extras import EXTRAS, pip_install

BLOCK = 1 << 16
"""Bytes that are read at once."""
MOST_ROWS = 1000


COMPRESSIONS: Mapping[str, Callable[[BinaryIO], Any]] = {
    ".gz": partial(gzip.GzipFile, None, "rb", 9),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}


class FilePiece(NamedTuple):
    """Rows of a file with their places; then a record that cannot be decoded, if there is one: place, bytes and fault."""

    rows: list[tuple[Any, ...]]
    places: list[int]
    bad: tuple[int, Any, Exception] | None = None


Decode = Callable[[bytes], tuple[Any, ...]]
ReadFile = Callable[[BinaryIO, int], Iterator[FilePiece]]


def decompressed(file: BinaryIO, name: str) -> BinaryIO:
    """Return the contents of a file, decompressed if its name ends as that of a compressed one."""
    opener = next((opener for suffix, opener in COMPRESSIONS.items() if name.endswith(suffix)), None)
    return file if opener is None else cast(BinaryIO, opener(file))


def read_lines(decode: Decode) -> ReadFile:
    """Return a reader of lines, which `decode` makes rows of."""

    def read(file: BinaryIO, place: int) -> Iterator[FilePiece]:
        file.seek(place)
        at = place
        while lines := file.readlines(BLOCK):
            rows: list[tuple[Any, ...]] = []
            places: list[int] = []
            for line in lines:
                at += len(line)
                try:
                    rows.append(decode(line.rstrip(b"\r\n")))
                except Exception as error:
                    yield FilePiece(rows, places, (at, line, error))
                    rows, places = [], []
                else:
                    places.append(at)
            yield FilePiece(rows, places)

    return read


def read_csv(fields: Sequence[str], encoding: str) -> ReadFile:
    """Return a reader of CSV whose first record names the columns."""

    def read(file: BinaryIO, place: int) -> Iterator[FilePiece]:
        records = csv.reader(io.TextIOWrapper(file, encoding, newline=""))
        header = next(records, [])
        row_of = picker(fields, header)
        rows: list[tuple[Any, ...]] = []
        places: list[int] = []
        for number, record in enumerate(records, 1):
            if number <= place:
                continue
            try:
                if len(record) != len(header):
                    raise ValueError(f"{len(record)} values for {len(header)} columns")
                rows.append(row_of(record))
            except Exception as error:
                yield FilePiece(rows, places, (number, ",".join(record), error))
                rows, places = [], []
            else:
                places.append(number)
            if len(rows) >= MOST_ROWS:
                yield FilePiece(rows, places)
                rows, places = [], []
        yield FilePiece(rows, places)

    return read


def read_parquet(fields: Sequence[str]) -> ReadFile:
    """Return a reader of parquet. Raises ConfigError without pyarrow."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"format='parquet' needs pyarrow: {pip_install(EXTRAS['arrow'])}") from error

    def read(file: BinaryIO, place: int) -> Iterator[FilePiece]:
        table = parquet.ParquetFile(file)
        known = [name.removesuffix("?") for name in fields]
        columns = [name for name in known if name in table.schema_arrow.names]
        missing = [name for name, field in zip(known, fields, strict=True) if name not in columns and not field.endswith("?")]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}; there are {', '.join(table.schema_arrow.names)}")
        number = 0
        for batch in table.iter_batches(MOST_ROWS, columns=columns):
            first, number = number, number + batch.num_rows
            if number <= place:
                continue
            found = batch.to_pydict()
            skipped = max(0, place - first)
            values = [found.get(name, [None] * batch.num_rows)[skipped:] for name in known]
            yield FilePiece(list(zip(*values, strict=True)), list(range(first + skipped + 1, number + 1)))

    return read


def picker(fields: Sequence[str], header: Sequence[str]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return what takes the fields out of a record with these columns. Raises ValueError when one is missing."""
    places: list[int | None] = []
    for field in fields:
        name = field.removesuffix("?")
        if name not in header and not field.endswith("?"):
            raise ValueError(f"no column {name!r}; there are {', '.join(map(repr, header)) or 'none'}")
        places.append(header.index(name) if name in header else None)
    return lambda record: tuple([None if place is None else record[place] for place in places])


def decode_json(fields: Sequence[str] | None) -> Decode:
    """Return what makes a row of a line of JSON: its object, or these keys of it."""
    from msgspec.json import decode

    if fields is None:
        return lambda line: (decode(line),)
    keys = [(field.removesuffix("?"), field.endswith("?")) for field in fields]

    def row_of(line: bytes) -> tuple[Any, ...]:
        record = decode(line)
        if not isinstance(record, dict):
            raise ValueError(f"a {type(record).__name__} where an object is expected")
        missing = [key for key, may_be_missing in keys if not may_be_missing and key not in record]
        if missing:
            raise ValueError(f"no {', '.join(map(repr, missing))} in the object")
        return tuple([record.get(key) for key, _ in keys])

    return row_of
