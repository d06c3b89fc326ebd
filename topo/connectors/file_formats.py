"""Records in files: lines of text, JSON lines, CSV, parquet. Each reader yields rows behind a place, many at once.

A place is the offset behind a line, in the decompressed file, for lines and JSON; and the number of the record, from 1, for
others: a record of CSV may hold line ends. So places rise, and name the same record whenever a file is read.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from typing import Any, BinaryIO, NamedTuple

from topo.connectors.compressed_files import UnpackedFile
from topo.connectors.record_decoder import Decode
from topo.errors import ConfigError, UserError
from topo.extras import EXTRAS, pip_install

BLOCK = 1 << 16
"""Bytes that are read at once."""
MOST_ROWS = 1000
_SKIP = 4 << 20
"""Bytes of a compressed file that are passed over at once."""
_SKIP_RECORDS = 50_000


class FilePiece(NamedTuple):
    """Rows of a file with their places; then a record that cannot be decoded, if there is one: place, bytes and fault."""

    rows: list[tuple[Any, ...]]
    places: list[int]
    bad: tuple[int, Any, Exception] | None = None


ReadFile = Callable[[BinaryIO, int], Iterator[FilePiece]]


class TooLongError(UserError):
    """A line is longer than `max_line`."""

    def __init__(self, most: int) -> None:
        super().__init__(f"a line is longer than max_line, {most} bytes, and is given up in pieces; raise max_line to read it")


def read_lines(decode: Decode, *, max_line: int, skip_blank: bool = False, mark: bytes = b"") -> ReadFile:
    """Return a reader of lines, which `decode` makes rows of; blank ones may be passed over, and too long ones are given up.

    With a `mark` a file may begin with these bytes, which are no part of its first line.
    """

    def read(file: BinaryIO, place: int) -> Iterator[FilePiece]:
        is_inside = yield from _go_behind(file, place)
        at, rest = place, b""
        has_more = True
        while has_more:
            # As much again as there is of a line, so that a long one is not copied for each block.
            data = file.read(max(BLOCK, len(rest)))
            has_more = data != b""
            lines = io.BytesIO(rest + data).readlines()
            # Of a line of the most bytes the carriage return may be here, and the newline in the next block.
            is_cut = has_more and not lines[-1].endswith(b"\n") and len(lines[-1]) <= max_line + 1
            rest = lines.pop() if is_cut else b""
            if at == 0 and mark and lines and lines[0].startswith(mark):
                at, first = len(mark), lines[0].removeprefix(mark)
                lines[:1] = [first] if first else []
            are_long = any(map(max_line.__lt__, map(len, lines)))
            rows: list[tuple[Any, ...]] = []
            places: list[int] = []
            for line in lines:
                at += len(line)
                if is_inside or (are_long and len(line.removesuffix(b"\n").removesuffix(b"\r")) > max_line):
                    is_inside = not line.endswith(b"\n")
                    yield FilePiece(rows, places, (at, line, TooLongError(max_line)))
                    rows, places = [], []
                    continue
                if skip_blank and not line.strip():
                    continue
                try:
                    rows.append(decode(line.rstrip(b"\r\n")))
                except Exception as error:
                    yield FilePiece(rows, places, (at, line, error))
                    rows, places = [], []
                else:
                    places.append(at)
            yield FilePiece(rows, places)

    return read


def _go_behind(file: BinaryIO, place: int) -> Generator[FilePiece, None, bool]:
    """Go to a place, which takes long in a compressed file: now and then yield nothing. Returns whether it is inside a line."""
    if place == 0:
        return False
    if isinstance(file, gzip.GzipFile | UnpackedFile):
        left = place - 1
        while left and (skipped := len(file.read(min(left, _SKIP)))):
            left -= skipped
            yield FilePiece([], [])
    else:
        file.seek(place - 1)
    return file.read(1) not in (b"\n", b"")


def read_csv(fields: Sequence[str], encoding: str, max_line: int) -> ReadFile:
    """Return a reader of CSV whose first record names the columns; lines above `max_line` characters are given up."""

    def read(file: BinaryIO, place: int) -> Iterator[FilePiece]:
        # Bytes that are no text are kept, and found by record: else they would end the reading, with the good rows before them.
        lines = _Lines(io.TextIOWrapper(file, encoding, "surrogateescape", newline=""), max_line)
        records = csv.reader(lines)
        header = next(records, None)
        if header is None:
            # An empty file has no records, as one of lines.
            return
        row_of = picker(fields, header)
        rows: list[tuple[Any, ...]] = []
        places: list[int] = []
        for number in count(1):
            record: list[str] | None = None
            try:
                record = next(records)
                if number <= place or not record:
                    if number % _SKIP_RECORDS == 0:
                        yield FilePiece([], [])
                    continue
                _check_text(record, encoding)
                if len(record) != len(header):
                    raise ValueError(f"{len(record)} values for {len(header)} columns")
                rows.append(row_of(record))
            except StopIteration:
                break
            except Exception as error:
                if record is None and not isinstance(error, csv.Error):
                    # The file cannot be read on.
                    yield FilePiece(rows, places)
                    raise
                if number > place:
                    text = lines.last if record is None else ",".join(record)
                    yield FilePiece(rows, places, (number, _text_or_bytes(text, encoding), error))
                    rows, places = [], []
            else:
                places.append(number)
            if len(rows) >= MOST_ROWS:
                yield FilePiece(rows, places)
                rows, places = [], []
        yield FilePiece(rows, places)

    return read


class _Lines:
    """Lines of a text, of which the last one is kept for the report of a fault."""

    def __init__(self, text: io.TextIOWrapper, most: int) -> None:
        self._text = text
        self._most = most
        self._is_first = True
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._text.readline(self._most + len("\r\n"))
        if self._is_first:
            # A byte order mark, with which spreadsheets begin a file of UTF-8.
            self._is_first, line = False, line.removeprefix("\ufeff")
        self.last = line
        if not line:
            raise StopIteration
        if len(line.rstrip("\r\n")) > self._most:
            while line and not line.endswith(("\n", "\r")):
                line = self._text.readline(self._most)
            raise csv.Error(f"a line is longer than max_line, {self._most} characters, and the rest of it is dropped; raise it")
        return line


def _check_text(record: Sequence[str], encoding: str) -> None:
    """Raise UnicodeDecodeError for values with bytes that are no text."""
    text = ",".join(record)
    if not text.isascii() and isinstance(kept := _text_or_bytes(text, encoding), bytes):
        kept.decode(encoding)
        raise ValueError(f"bytes that are no text in {encoding}")


def _text_or_bytes(text: str, encoding: str) -> str | bytes:
    """Return a text, or its bytes where some of them are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(encoding, "surrogateescape")
    return text


def read_parquet(fields: Sequence[str]) -> ReadFile:
    """Return a reader of parquet. Raises ConfigError without pyarrow."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(f"format='parquet' needs pyarrow: {pip_install(EXTRAS['arrow'])}") from error

    def in_microseconds(kind: Any) -> Any:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if pa.types.is_duration(kind) or pa.types.is_time64(kind):
            return pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")
        if pa.types.is_struct(kind):
            return pa.struct([field.with_type(in_microseconds(field.type)) for field in kind])
        if pa.types.is_map(kind):
            return pa.map_(in_microseconds(kind.key_type), in_microseconds(kind.item_type))
        if pa.types.is_large_list(kind):
            return pa.large_list(kind.value_field.with_type(in_microseconds(kind.value_type)))
        if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
            size = kind.list_size if pa.types.is_fixed_size_list(kind) else -1
            return pa.list_(kind.value_field.with_type(in_microseconds(kind.value_type)), size)
        return kind

    def values_of(name: str, column: Any) -> list[Any]:
        # Where pandas is installed, nanoseconds would come as values of its classes, which no tuple carries.
        wanted = in_microseconds(column.type)
        try:
            values: list[Any] = (column if wanted == column.type else column.cast(wanted)).to_pylist()
        except pa.ArrowInvalid as error:
            raise ValueError(f"column {name!r}: {error}") from error
        return values

    def read(file: BinaryIO, place: int) -> Iterator[FilePiece]:
        table = parquet.ParquetFile(file, coerce_int96_timestamp_unit="us")
        known = [name.removesuffix("?") for name in fields]
        columns = [name for name in known if name in table.schema_arrow.names]
        missing = [name for name, field in zip(known, fields, strict=True) if name not in columns and not field.endswith("?")]
        if missing:
            raise ValueError(f"no column {', '.join(missing)}; there are {', '.join(table.schema_arrow.names)}")
        number, groups = 0, list(range(table.num_row_groups))
        while groups and number + (count := table.metadata.row_group(groups[0]).num_rows) <= place:
            number += count
            del groups[0]
        if not groups:
            return
        for batch in table.iter_batches(MOST_ROWS, row_groups=groups, columns=columns):
            first, number = number, number + batch.num_rows
            if number <= place:
                continue
            skipped = max(0, place - first)
            found = {name: values_of(name, batch.column(at)[skipped:]) for at, name in enumerate(batch.schema.names)}
            values = [found.get(name, [None] * (batch.num_rows - skipped)) for name in known]
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
