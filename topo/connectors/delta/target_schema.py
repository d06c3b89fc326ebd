"""The schema of a table as its sink writes it: which columns are in its files, and which are partitions. Without a client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa

from topo.connectors.parquet_file import checkers_of, parquet_schema
from topo.errors import ConfigError, UserError

PartitionKey = tuple[str | None, ...]
"""The values of the partition columns, as the log of a table has them."""
_NOT_APPLIED = ("delta.invariants", "delta.generationExpression", "delta.identity.start", "delta.columnMapping.id")
"""What a column can have that a writer would have to check or to fill in."""


class TargetSchema(NamedTuple):
    """The columns of a table.

    Attributes:
        columns: all of them.
        partition_by: those that are in no file.
    """

    columns: pa.Schema
    partition_by: tuple[str, ...]

    @property
    def in_files(self) -> pa.Schema:
        """The columns of the files."""
        return pa.schema([field for field in self.columns if field.name not in self.partition_by])


def checked_target(columns: Any, partition_by: Sequence[str]) -> TargetSchema:
    """Return the schema of a table.

    Args:
        columns: types by name, or a schema of pyarrow's.
        partition_by: names of columns.

    Raises:
        ConfigError: no table has such columns, or this sink does not write them.
    """
    schema = parquet_schema(columns)
    missing = [name for name in partition_by if name not in schema.names]
    if missing:
        raise ConfigError(f"partition_by has {', '.join(map(repr, missing))}; schema has {', '.join(map(repr, schema.names))}")
    if set(schema.names) == set(partition_by):
        raise ConfigError(f"partition_by={tuple(partition_by)!r} has every field, and none is left for the files")
    if len({name.lower() for name in schema.names}) < len(schema.names):
        raise ConfigError("schema has two fields that differ only in upper and lower case, which readers do not distinguish")
    for name in partition_by:
        kind = schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_date32(kind)):
            raise ConfigError(f"partition_by has {name!r} of type {kind}; partition by a string, an integer, a boolean or a date")
    return TargetSchema(schema, tuple(partition_by))


def check_writable(table: str, configuration: Mapping[str, str], columns: pa.Schema) -> None:
    """Check that a table has no rules that a writer has to apply: files are added to it as they are.

    Args:
        table: for messages.
        configuration: the properties of the table.
        columns: with the metadata that the table has of them.

    Raises:
        ConfigError: it has a rule.
    """
    rules = [key for key in configuration if key.startswith("delta.constraints.")]
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        rules.append("delta.columnMapping.mode")
    for field in columns:
        found = {key.decode() for key in field.metadata or ()}
        rules += [f"{key} of column {field.name!r}" for key in _NOT_APPLIED if key in found]
    if rules:
        raise ConfigError(f"DeltaSink does not apply {', '.join(rules)} of {table}: drop the rule, or write to another table")


class PartitionValues:
    """Takes the partition of a row out of its tuple."""

    def __init__(self, target: TargetSchema) -> None:
        fields = pa.schema([target.columns.field(name) for name in target.partition_by])
        self._checks = list(zip(target.partition_by, checkers_of(fields), strict=True))

    def of(self, record: Mapping[str, Any], component: str) -> PartitionKey:
        """Return the partition of a tuple. Raises UserError, which names the field."""
        return tuple([self._value(name, check, record, component) for name, check in self._checks])

    def _value(self, name: str, check: Any, record: Mapping[str, Any], component: str) -> str | None:
        if name not in record:
            raise UserError(f"a tuple from {component!r} has no field {name!r}, by which this sink partitions")
        value = record[name]
        check(value, component)
        if value == "":
            raise UserError(f"field {name!r} of a tuple from {component!r} is empty, and as a partition would be read as None")
        return partition_text(value)


def partition_text(value: str | int | bool | date | None) -> str | None:
    """Return a partition value as the log of a table has it."""
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
