"""Rows of a sink as bytes of files: lines of JSON, CSV, parquet.

A format checks and encodes a tuple when it comes, so that one which cannot be written fails alone. The encoder of a file turns
such rows into the bytes that follow those before; nothing here does I/O.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from topo.connectors.json_rows import encode_json, json_line
from topo.errors import ConfigError, UserError
from topo.extras import EXTRAS, pip_install

_CELL = 8
"""About the bytes of a number or a moment in a column, or of the length of a text."""


class FileEncoder(Protocol):
    """The encoder of one file."""

    def encode(self, rows: list[Any]) -> bytes:
        """Return the bytes of rows, which `RowFormat.row` has made."""

    def end(self) -> bytes:
        """Return the last bytes of the file."""


class RowFormat(Protocol):
    """One format.

    Attributes:
        suffix: of the names of files.
    """

    suffix: str

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The fields that a tuple must have; None: any do."""

    def row(self, record: dict[str, Any], component: str) -> Any:
        """Return a row for the encoders; `record` may be changed.

        Raises:
            UserError: it cannot be written; the message names the field.
        """

    def size(self, row: Any) -> int:
        """Return about how many bytes a row takes before it is compressed."""

    def encoder(self) -> FileEncoder:
        """Begin a file."""


def _as_is(data: bytes) -> bytes:
    return data


def _packed(data: bytes) -> bytes:
    # One member for each call: they follow each other in a file, which is as good a file of gzip. 6 is what gzip itself takes.
    return gzip.compress(data, 6, mtime=0)


def _text_packing(compression: str | None) -> tuple[Callable[[bytes], bytes], str]:
    """Return how text is compressed, and the end of the file's name. Raises ConfigError."""
    if compression not in (None, "gzip"):
        raise ConfigError(f"compression={compression!r} must be None or 'gzip' for json and csv")
    return (_as_is, "") if compression is None else (_packed, ".gz")


class JsonFormat:
    """An object for each line.

    Args:
        fields: the only ones; None: all of each tuple.
        compression: None or "gzip".
    """

    def __init__(self, fields: Sequence[str] | None, compression: str | None) -> None:
        self.fields = None if fields is None else tuple(fields)
        self._pack, suffix = _text_packing(compression)
        self.suffix = f".json{suffix}"

    def row(self, record: dict[str, Any], component: str) -> bytes:
        if self.fields is not None:
            record = _picked(record, self.fields, component)
        return json_line(record, component)

    def size(self, row: bytes) -> int:
        return len(row) + 1

    def encoder(self) -> FileEncoder:
        return self

    def encode(self, rows: list[bytes]) -> bytes:
        return self._pack(b"\n".join(rows) + b"\n")

    def end(self) -> bytes:
        return b""


class CsvFormat:
    """CSV after RFC 4180, with a header: texts as they are, None as nothing, other values as in JSON.

    Args:
        fields: the columns; None: the fields of the first tuple.
        compression: None or "gzip".
    """

    def __init__(self, fields: Sequence[str] | None, compression: str | None) -> None:
        self.fields = None if fields is None else tuple(fields)
        self._pack, suffix = _text_packing(compression)
        self.suffix = f".csv{suffix}"

    def row(self, record: dict[str, Any], component: str) -> list[str]:
        if self.fields is None:
            if not record:
                # Readers would skip its lines, which are empty.
                raise UserError(f"a tuple from {component!r} has no field for a column")
            fields = tuple(record)
            row = [_cell(name, value, component) for name, value in record.items()]
            # Not before: the columns are not those of a tuple that cannot be written.
            self.fields = fields
            return row
        if record.keys() != set(self.fields):
            record = _picked(record, self.fields, component)
        return [_cell(name, record[name], component) for name in self.fields]

    def size(self, row: list[str]) -> int:
        return sum(map(len, row)) + len(row) + 1

    def encoder(self) -> FileEncoder:
        assert self.fields is not None
        return _CsvEncoder(self.fields, self._pack)


class _CsvEncoder:
    def __init__(self, fields: tuple[str, ...], pack: Callable[[bytes], bytes]) -> None:
        self._header: list[tuple[str, ...]] = [fields]
        self._pack = pack

    def encode(self, rows: list[list[str]]) -> bytes:
        text = io.StringIO(newline="")
        records = csv.writer(text)
        records.writerows(self._header)
        records.writerows(rows)
        self._header = []
        return self._pack(text.getvalue().encode())

    def end(self) -> bytes:
        return b""


def _cell(name: str, value: Any, component: str) -> str:
    """Return a value as text. Raises UserError."""
    kind = type(value)
    if value is None:
        return ""
    if kind is int or kind is float:
        return repr(value)
    if kind is str and value.isascii():
        return str(value)
    # A text that is no Unicode fails here, too.
    json_line({name: value}, component)
    if kind is str:
        return str(value)
    encoded = encode_json(value)
    return msgspec.json.decode(encoded, type=str) if encoded.startswith(b'"') else encoded.decode()


class ParquetFormat:
    """Parquet with the columns of a schema.

    Args:
        schema: types by field, such as "string" and "bigint", or a schema of pyarrow's.
        compression: of parquet; None: snappy.
        left_out: fields that are in no column.

    Raises:
        ConfigError: pyarrow is missing, or an argument cannot be used.
    """

    suffix = ".parquet"

    def __init__(self, schema: Any, compression: str | None, left_out: Sequence[str] = ()) -> None:
        try:
            from topo.connectors.parquet_file import checkers_of, parquet_schema
        except ImportError as error:
            raise ConfigError(f"format='parquet' needs pyarrow: {pip_install(EXTRAS['arrow'])}") from error
        allowed = (None, "snappy", "zstd", "gzip", "none")
        if compression not in allowed:
            raise ConfigError(f"compression={compression!r} must be one of {', '.join(map(repr, allowed))} for parquet")
        self._schema = parquet_schema(schema)
        if both := [name for name in left_out if name in self._schema.names]:
            raise ConfigError(
                f"schema= has {', '.join(map(repr, both))}, which partition_by takes out of the files; leave it out"
            )
        self._compression = compression or "snappy"
        self._checkers = checkers_of(self._schema)
        self.fields = tuple(self._schema.names)

    def row(self, record: dict[str, Any], component: str) -> tuple[Any, ...]:
        if record.keys() != set(self.fields):
            record = _picked(record, self.fields, component)
        row = tuple([record[name] for name in self.fields])
        for check, value in zip(self._checkers, row, strict=True):
            check(value, component)
        return row

    def size(self, row: tuple[Any, ...]) -> int:
        return sum(map(_size_of, row))

    def encoder(self) -> FileEncoder:
        from topo.connectors.parquet_file import ParquetEncoder

        return ParquetEncoder(self._schema, self._compression)


def _size_of(value: Any) -> int:
    """Return about how many bytes a value takes."""
    kind = type(value)
    if kind is str or kind is bytes:
        return _CELL + len(value)
    if kind is list or kind is tuple:
        return _CELL + sum(map(_size_of, value))
    return _CELL + sum(map(_size_of, value.values())) if kind is dict else _CELL


def _picked(record: Mapping[str, Any], fields: Sequence[str], component: str) -> dict[str, Any]:
    """Return these fields of a tuple. Raises UserError when it has not all of them."""
    missing = [name for name in fields if name not in record]
    if missing:
        raise UserError(
            f"a tuple from {component!r} has no field {', '.join(map(repr, missing))}, which this sink writes; "
            f"it has {', '.join(map(repr, record)) or 'none'}"
        )
    return {name: record[name] for name in fields}
