"""Rows into folders named column=value, as Spark and Hive name them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from topo.connectors.partition_folders import NAME_BYTES, escaped, folder_of

_ESCAPE_BYTES = 3


def may_partition(kind: pa.DataType) -> bool:
    """Whether values of a type make folder names that Spark reads back as what they were."""
    of = pa.types
    return bool(of.is_string(kind) or of.is_signed_integer(kind) or of.is_boolean(kind) or of.is_date32(kind))


def split_by_partition(table: pa.Table, columns: Sequence[str]) -> dict[str, pa.Table]:
    """Return the rows of each partition, without the columns that name it, by the partition's folder; "" without columns."""
    if not table.num_rows:
        return {}
    if not columns:
        return {"": table}
    numbered = table.select(columns).append_column("", pa.array(range(table.num_rows), pa.int64()))
    groups = numbered.group_by(list(columns), use_threads=False).aggregate([("", "list")])
    rest = table.drop_columns(list(columns))
    keys = zip(*[groups[column].to_pylist() for column in columns], strict=True)
    parts: dict[str, list[pa.Array]] = {}
    for values, rows in zip(keys, groups["_list"].combine_chunks(), strict=True):
        folder = "/".join(folder_of(column, value) for column, value in zip(columns, values, strict=True))
        parts.setdefault(folder, []).append(rows.values)
    return {folder: rest.take(pa.concat_arrays(rows)) for folder, rows in parts.items()}


def too_long(table: pa.Table, column: str) -> list[int]:
    """Return the numbers of the rows whose folder would have a longer name than file systems take."""
    if not pa.types.is_string(table.schema.field(column).type):
        return []
    longest = pc.max(pc.binary_length(table[column])).as_py() or 0
    if len(escaped(column).encode()) + 1 + _ESCAPE_BYTES * longest <= NAME_BYTES:
        return []
    values = table[column].to_pylist()
    return [number for number, value in enumerate(values) if len(folder_of(column, value).encode()) > NAME_BYTES]
