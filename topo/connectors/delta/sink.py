"""A sink that adds tuples to a Delta table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from topo.api.arguments import options_of
from topo.api.batch_limits import check_batch_age
from topo.api.context import TaskContext
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.clients import check_installed
from topo.connectors.file_folders import shown_url
from topo.connectors.secrets import masked_settings
from topo.connectors.table_sink import TableSink
from topo.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from topo.connectors.delta.log import DeltaLog


class DeltaSink(TableSink):
    """Adds tuples to a Delta table, as rows of parquet files. Several tasks, topologies and other writers may add to one table.

        builder.set_bolt("orders", DeltaSink("s3://bucket/orders", schema={"user": "string", "cents": "bigint"}))

    | delivery | promise |
    | --- | --- |
    | `exactly_once` | each row once, in a version of the table, when its checkpoint is complete |
    | `at_least_once` | no row is missing; some repeat after a recovery |
    | `at_most_once` | rows can be missing |

    With `exactly_once` each task adds one version for each checkpoint in which it had rows, together with a marker: the number of
    its last transaction. A commit that is repeated, by any process, finds the marker and adds nothing. With the other modes a
    batch is a version, when it has `roll_rows` or `roll_size`, or after `roll_interval`.

    Until then the files are in the folder `.staged` of the table, which readers and VACUUM leave out.
    """

    @checks_arguments
    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        partition_by: str | Sequence[str] = (),
        schema: pa.Schema | Mapping[str, Any] | None = None,
        compression: Literal["gzip", "snappy", "zstd", "none"] | None = None,
        roll_rows: int = 1_000_000,
        roll_size: str | int = "128MiB",
        roll_interval: str | timedelta | float = "5s",
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Keep where to write; nothing is opened yet.

        Args:
            url: folder of the table, or a URL that deltalake reaches: s3://, gs://, az://.
            partition_by: columns that the table is partitioned by: strings, integers, booleans or dates. It takes a schema.
            schema: types by column, such as {"user": "string", "cents": "bigint", "price": "decimal(10,2)"}, with the names that
                Spark's SQL has; or a pyarrow.Schema. A missing table is made with it, and an existing table must have it.
                None: the table exists, and its schema is taken.
            compression: of the files; None: snappy.
            roll_rows: the most rows of a file.
            roll_size: about the most bytes of a file.
            roll_interval: the longest that a tuple waits for others, but with `exactly_once`. At most half of `message_timeout`.
            storage_options: of the store, by deltalake's names, such as {"AWS_REGION": "us-east-1"}.

        Raises:
            ConfigError: an argument cannot be used, or deltalake is not installed.
        """
        by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        super().__init__(
            partition_by=by,
            schema=schema,
            compression=compression,
            roll_rows=roll_rows,
            roll_size=roll_size,
            roll_interval=roll_interval,
        )
        check_installed("DeltaSink", "delta", "deltalake and pyarrow", "deltalake", "pyarrow")
        from topo.connectors.delta.target_schema import checked_target

        self._declared = None if schema is None else checked_target(schema, by)
        self.required_fields = () if self._declared is None else tuple(self._declared.columns.names)
        options = options_of("storage_options", storage_options)
        if any(not isinstance(value, str) for value in options.values()):
            raise ConfigError("storage_options= must have texts as values, as deltalake takes them: 'true' and not True")
        self._url, self._options = url, options

    def __repr__(self) -> str:
        return f"DeltaSink({shown_url(self._url)!r}, {masked_settings(self._options)})"

    def open(self, context: TaskContext) -> None:
        """Open the table, or make it.

        Raises:
            ConfigError: the table is missing, or does not fit the schema; or `roll_interval` is too long for `message_timeout`.
            TopoEnvironmentError: the store of the table is not reached.
        """
        from topo.connectors.delta.log import DeltaLog
        from topo.connectors.delta.target_schema import PartitionValues

        check_batch_age(context, "DeltaSink", "roll_interval")
        self._log: DeltaLog = DeltaLog(self._url, self._options)
        target = self._log.open(self._declared)
        self.start(
            context, self._log, self._url, self._log.place(), target.in_files, PartitionValues(target), target.partition_by
        )
