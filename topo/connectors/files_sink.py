"""A sink that writes tuples to files of a folder, each of which is complete when it shows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from topo.api.arguments import check_count, options_of, texts_of
from topo.api.batch_limits import batch_within_pending, check_batch_age
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.config import parse_size
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.file_folders import shown_url
from topo.connectors.partition_folders import NAME_BYTES, folder_of
from topo.connectors.row_formats import CsvFormat, JsonFormat, ParquetFormat, RowFormat
from topo.connectors.staged_files import StagedFiles
from topo.connectors.staging_places import place_at
from topo.errors import ConfigError, StagedRowsLostError, UserError

if TYPE_CHECKING:
    import pyarrow as pa


class FilesSink(TwoPhaseSink):
    """Writes tuples to files below a folder, of this machine or at a URL, as lines of JSON, CSV or parquet.

        builder.set_bolt("orders", FilesSink("/data/orders", format="csv", fields=("id", "cents")))
        builder.set_bolt("events", FilesSink("s3://bucket/events", format="parquet", schema={"user": "string", "at": "bigint"}))

    | delivery | promise |
    | --- | --- |
    | `at_least_once` | no row is missing; some repeat after a recovery |
    | `exactly_once` | each row once, when the checkpoint that covers it is complete |
    | `at_most_once` | rows can be missing |

    A file shows when it is complete, and never changes then. With `exactly_once` each task writes a file for each checkpoint, and
    several where they would be larger than `roll_size` or `roll_rows`. With the other modes a file shows when it has
    `roll_rows` or `roll_size`, or after `roll_interval`, and its tuples are acked then.

    Until then a file is in the folder `.staged`, which readers leave out. All workers of the sink share the folder.
    """

    @checks_arguments
    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        format: Literal["json", "csv", "parquet"] = "json",
        fields: Sequence[str] | None = None,
        schema: pa.Schema | Mapping[str, Any] | None = None,
        partition_by: str | Sequence[str] = (),
        compression: Literal["gzip", "snappy", "zstd", "none"] | None = None,
        roll_rows: int = 1_000_000,
        roll_size: str | int = "128MiB",
        roll_interval: str | timedelta | float = "5s",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Keep what to write; nothing is opened yet.

        Args:
            url: a folder, which is made if need be; or a URL that fsspec reaches, such as "s3://bucket/folder". Several tasks,
                sinks and topologies may write to one.
            format: "json": an object for each line; "csv" with a header; "parquet".
            fields: the fields that are written. None: for json all of each tuple, for csv those of the first one. For parquet
                the schema has them.
            schema: of parquet: types by field, such as {"user": "string", "cents": "bigint", "price": "decimal(10,2)"}, with
                the names that Spark's SQL has; or a pyarrow.Schema.
            partition_by: fields that become folders, `field=value/`, and are left out of the files: strings, integers, booleans,
                dates (no datetimes) or None.
            compression: "gzip" for json and csv; "snappy", "zstd", "gzip" or "none" for parquet. None: none, and for parquet
                snappy.
            roll_rows: the most rows of a file.
            roll_size: about the most bytes of a file.
            roll_interval: the longest that a tuple waits for others, but with `exactly_once`. At most half of `message_timeout`.
            storage_options: for fsspec.

        Raises:
            ConfigError: an argument cannot be used.
        """
        check_count("roll_rows", roll_rows)
        super().__init__(max_batch=roll_rows, flush_interval=roll_interval)
        if format == "parquet" and (schema is None or fields is not None):
            raise ConfigError("format='parquet' needs schema=, such as {'user': 'string', 'cents': 'bigint'}, and no fields=")
        if format != "parquet" and schema is not None:
            raise ConfigError(f"format={format!r} has no schema; leave schema= out, or take format='parquet'")
        self._partition_by = _names_of("partition_by", (partition_by,) if isinstance(partition_by, str) else partition_by)
        names = None if fields is None else _names_of("fields", fields)
        self._url, self._options = url, options_of("storage_options", storage_options)
        self._roll_rows, self._roll_size = roll_rows, parse_size(roll_size)
        if self._roll_size < 1:
            raise ConfigError(f"roll_size={roll_size!r} must be at least one byte")
        kept = None if names is None else [name for name in names if name not in self._partition_by]
        if kept == []:
            raise ConfigError(f"fields={fields!r} has no field that is left in the files; partition_by takes all of them")
        self._format_settings = (format, kept, schema, compression, self._partition_by)
        # Its mistakes are found here; each task makes another one, since a format learns the columns.
        written = self._new_format().fields or ()
        self.required_fields = tuple(dict.fromkeys((*written, *self._partition_by)))

    def _new_format(self) -> RowFormat:
        format, fields, schema, compression, partition_by = self._format_settings
        if format == "parquet":
            return ParquetFormat(schema, compression, partition_by)
        return (CsvFormat if format == "csv" else JsonFormat)(fields, compression)

    def open(self, context: TaskContext) -> None:
        """Reach the folder.

        Raises:
            ConfigError: a library is missing, the URL cannot be used, or `roll_interval` is too long for `message_timeout`.
        """
        check_batch_age(context, "FilesSink", "roll_interval")
        self.max_batch = batch_within_pending(context, self.max_batch, "roll_rows")
        self._format = self._new_format()
        self._files: StagedFiles[str] = StagedFiles(
            context,
            self._url,
            place_at(self._url, self._options, "FilesSink"),
            self._format,
            roll_rows=self._roll_rows,
            roll_size=self._roll_size,
            report=lambda error: self._collector.report_error(error),
        )

    def begin(self) -> None:
        """Start with no files."""
        self._files.begin()

    @property
    def _has_full_output(self) -> bool:
        return self._files.has_full

    def write(self, tup: Tuple) -> None:
        """Add a row. Raises UserError for a tuple that cannot be written, and SinkBlockedError."""
        record = tup.as_dict()
        folder = self._folder_of(record, tup.component) if self._partition_by else ""
        self._files.add(folder, self._format.row(record, tup.component))

    def _folder_of(self, record: dict[str, Any], component: str) -> str:
        """Return the folder of a row, and take its fields out of the record."""
        parts = []
        for field in self._partition_by:
            if field not in record:
                raise UserError(f"a tuple from {component!r} has no field {field!r}, by which this sink partitions")
            value = record.pop(field)
            if not isinstance(value, str | int | date | None) or isinstance(value, datetime):
                raise UserError(
                    f"field {field!r} of a tuple from {component!r} is a {type(value).__name__}, an object that names no folder; "
                    "partition by a string, an integer, a boolean or a date"
                )
            part = folder_of(field, value)
            if len(part.encode(errors="surrogatepass")) > NAME_BYTES or not _is_unicode(part):
                raise UserError(f"field {field!r} of a tuple from {component!r} names no folder: {value!r}")
            parts.append(part)
        return "/".join(parts)

    def pre_commit(self) -> Any:
        """Make the files durable under their hidden names. The token: name and folder of each."""
        return [[file.name, file.group] for file in self._files.seal()] or None

    def commit(self, token: Any) -> None:
        """Give the files their own names."""
        lost = []
        for name, folder in token:
            is_missed = self._files.is_missed(name)
            if not self._files.publish(name, folder) and is_missed:
                lost.append(name)
        if lost:
            error = StagedRowsLostError(
                f"{', '.join(lost)} is neither staged nor published below {shown_url(self._url)}. Either somebody has "
                "removed it, or an earlier worker has written to another folder."
            )
            if not self._is_staged:
                raise error
            self._collector.report_error(error)

    def publish(self) -> None:
        """Publish a batch; one of which a file is gone is given up, so that its tuples fail."""
        try:
            super().publish()
        except StagedRowsLostError:
            self._token = None
            raise

    def abort(self, token: Any) -> None:
        """Remove the files of a transaction; None: of the open one."""
        if token is None:
            self._files.discard()
            return
        for name, _ in token:
            self._files.remove(name)

    def recover(self, tokens: Sequence[Any]) -> None:
        """Publish the committed files; remove the others that this task, or a task that no longer exists, has staged."""
        super().recover(tokens)
        self._files.clean()


def _names_of(argument: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names of fields. Raises ConfigError for what cannot be such names."""
    if isinstance(given, str):
        raise ConfigError(f"{argument}={given!r} names no columns; give a tuple of names")
    names = texts_of(argument, given, ("id", "cents"))
    if "" in names or len(set(names)) < len(names):
        raise ConfigError(f"{argument}={names!r} has an empty name, or one name more than once; give each field once")
    return names


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
