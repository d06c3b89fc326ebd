"""The content of a column batch on the wire: the stream of Arrow's IPC format, or msgpack of fields, columns and timestamps.

Timestamps are one more Arrow column, whose name no field can have.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from topo.api.column_batch import ColumnBatch, pyarrow

_TIMESTAMPS = "__timestamps"


def content_of(batch: ColumnBatch) -> tuple[Any, ...]:
    """Return the content of the ext value of a batch."""
    if not batch.is_arrow:
        return batch.fields, batch.columns, batch.timestamps
    names, arrays = list(batch.fields), list(batch.columns)
    if batch.timestamps is not None:
        names.append(_TIMESTAMPS)
        arrays.append(batch.timestamps)
    pa = pyarrow()
    table = pa.RecordBatch.from_arrays(arrays, names)
    sink = pa.BufferOutputStream()
    with import_module("pyarrow.ipc").new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    return (memoryview(sink.getvalue()),)


def build_batch(content: Any) -> ColumnBatch:
    """Return the batch of some content. Raises any error when that is not what `content_of` returns."""
    if len(content) == 1:
        return _read_arrow(content[0])
    fields, columns, timestamps = content
    lengths = set(map(len, columns))
    if len(fields) != len(columns) or len(lengths) != 1 or lengths == {0} or set(map(type, columns)) != {tuple}:
        raise ValueError("columns of different lengths, or none")
    return ColumnBatch(fields, columns, timestamps, is_arrow=False)


def _read_arrow(data: bytes) -> ColumnBatch:
    with import_module("pyarrow.ipc").open_stream(data) as reader:
        (table,) = reader
    _check(table)
    if not table.num_rows:
        raise ValueError("a batch without rows")
    names, arrays = list(table.schema.names), list(table.columns)
    timestamps = arrays.pop() if names[-1:] == [_TIMESTAMPS] else None
    return ColumnBatch(names[: len(arrays)], arrays, timestamps, is_arrow=True)


def _check(table: Any) -> None:
    """Check offsets and lengths against the buffers: a value that is out of bounds would end the process."""
    table.validate()
    pa = pyarrow()
    for column in table.columns:
        # Arrow checks text after text. Where all are ASCII, as one look at the buffer shows, only places are left to check.
        texts = column.buffers()[2] if pa.types.is_string(column.type) else None
        if texts is not None and texts.to_pybytes().isascii():
            column = column.view(pa.binary())
        column.validate(full=True)
