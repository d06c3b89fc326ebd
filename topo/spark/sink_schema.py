"""The schema of a dataset that Spark is to read: as declared, and its mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from topo.connectors.type_names import spark_reads
from topo.errors import ConfigError
from topo.spark.hive_partitions import may_partition


def checked_schema(schema: pa.Schema, path: Path, partition_by: Sequence[str], key: Sequence[str]) -> pa.Schema:
    """Return the schema, with the key's fields never None.

    Raises:
        ConfigError: Spark could not read it, or `partition_by` or `key` do not go with it.
    """
    names = schema.names
    problems = [f"no field {name!r} for partition_by or key" for name in (*partition_by, *key) if name not in names]
    if len({name.lower() for name in names}) < len(names):
        problems.append("two fields that differ at most in upper and lower case, which Spark cannot distinguish")
    if set(names) <= set(partition_by):
        problems.append("no field that is not in partition_by")
    for field in schema:
        if not spark_reads(field.type):
            problems.append(f"field {field.name!r} of type {field.type}, which Spark does not read")
        elif field.name in partition_by and not may_partition(field.type):
            problems.append(f"{field.type} for {field.name!r} in partition_by: use a string, an integer, a boolean or a date")
    if problems:
        raise ConfigError(f"SparkSink for {path} has " + "; ".join(problems))
    return pa.schema([field.with_nullable(False) if field.name in key else field for field in schema])


def schema_text(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}{'' if field.nullable else ' not null'}" for field in schema)
