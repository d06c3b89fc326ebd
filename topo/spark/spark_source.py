"""The source of a SparkSpout: defined by its arguments, and read by Spark in a separate process (`topo.spark.staging`)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from topo.durable import local_path as path_of
from topo.errors import ConfigError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Query = Callable[..., Any]
"""`spark -> DataFrame`."""


@dataclass(frozen=True, slots=True)
class SparkSource:
    """One of: files of a format, a table, a SQL text, a function.

    Attributes:
        kind: "files", "table", "sql" or "query".
        value: the paths, the name, the text or the function.
        format: of files, as `spark.read.format` takes it.
        options: of files, as `spark.read.options` takes them.
    """

    kind: str
    value: Any
    format: str = "parquet"
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        if self.kind == "query":
            return f"query {self._name}"
        shown = ", ".join(self.value) if self.kind == "files" else self.value
        return f"{self.kind} {shown}"

    @property
    def function(self) -> Query:
        """The function of a query, without the arguments that it may have been bound to."""
        found: Query = self.value
        while isinstance(found, partial):
            found = found.func
        return found

    @property
    def _name(self) -> str:
        function = self.function
        return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"

    def digest(self, columns: Sequence[str], config: Mapping[str, str]) -> str:
        """Return a digest of this source, equal in all processes. A function counts by its name and bound arguments."""
        value = self.value
        if self.kind == "query":
            bound = (self.value.args, self.value.keywords) if isinstance(self.value, partial) else ()
            value = [self._name, _Steady().repr(bound)]
        identity = [self.kind, value, self.format, self.options, list(columns), sorted(config.items())]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    def read(self, spark: SparkSession, columns: Sequence[str]) -> DataFrame:
        """Return the rows, only those columns. What Spark and the function raise is theirs."""
        from pyspark.sql import DataFrame
        from pyspark.sql.functions import col

        if self.kind == "files":
            frame = spark.read.format(self.format).options(**dict(self.options)).load(list(self.value))
        elif self.kind == "table":
            frame = spark.table(self.value)
        elif self.kind == "sql":
            frame = spark.sql(self.value)
        else:
            frame = self.value(spark)
            if not isinstance(frame, DataFrame):
                raise TypeError(f"{self} returned a {type(frame).__name__}, and not a DataFrame")
        return frame.select([col("`" + name.replace("`", "``") + "`").alias(name) for name in columns])


class _Steady(reprlib.Repr):
    """`repr`, but for what differs from process to process: sets are sorted, and addresses left out."""

    def __init__(self) -> None:
        super().__init__()
        vars(self).update((name, sys.maxsize) for name in list(vars(self)) if name.startswith("max"))

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        return "{" + ", ".join(f"{self.repr1(key, level - 1)}: {self.repr1(value, level - 1)}" for key, value in x.items()) + "}"

    def repr_instance(self, x: Any, level: int) -> str:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(x))


def source_of(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None,
    table: str | None,
    sql: str | None,
    query: Query | None,
    format: str,
    options: Mapping[str, Any],
) -> SparkSource:
    """Return the one source that is given.

    Raises:
        ConfigError: none or several are, or they do not go together.
    """
    given = {"files": files, "table": table, "sql": sql, "query": query}
    named = [kind for kind, value in given.items() if value is not None]
    if len(named) != 1:
        raise ConfigError(f"SparkSpout reads one of files=, table=, sql= and query=; got {' and '.join(named) or 'none'}")
    kind = named[0]
    if kind != "files":
        if options or format != "parquet":
            raise ConfigError(f"format= and options= are about files=, and {kind}= is given; leave them out")
        return SparkSource(kind, given[kind])
    assert files is not None
    paths = [files] if isinstance(files, str | os.PathLike) else list(files)
    if not paths:
        raise ConfigError("files= is empty; name at least one file or folder")
    return SparkSource("files", tuple(local_path(os.fspath(path)) for path in paths), format, _options(options))


def local_path(path: str) -> str:
    """Return a path that means the same in every process: absolute, or an address with a scheme as it is.

    Raises:
        NotFoundError: the working folder is gone.
    """
    if "://" in path and not path.startswith("file://"):
        return path
    try:
        return os.path.abspath(path_of(path))
    except FileNotFoundError as error:
        raise NotFoundError(f"{path!r} is relative to a folder that is gone") from error


def _options(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    # Spark writes booleans in lower case.
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return tuple((name, text) for name, text in texts.items() if options[name] is not None)
