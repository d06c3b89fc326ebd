"""A sink that adds tuples to an Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from topo.api.batch_limits import batch_within_pending, check_batch_age
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.config import parse_size
from topo.connectors.row_formats import ParquetFormat
from topo.connectors.secrets import masked_settings
from topo.connectors.staged_files import StagedFiles
from topo.connectors.table_publisher import TablePublisher
from topo.errors import ConfigError, StagedRowsLostError, UserError
from topo.extras import EXTRAS, pip_install

if TYPE_CHECKING:
    import pyarrow as pa


class IcebergSink(TwoPhaseSink):
    """Adds tuples to an Iceberg table, as rows of parquet files. Other tasks, topologies and writers may add to it, too.

        catalog = {"type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "file:///data/warehouse"}
        builder.set_bolt("orders", IcebergSink(catalog, "shop.orders", schema={"user": "string", "cents": "bigint"}))

    | delivery | promise |
    | --- | --- |
    | `exactly_once` | each row once, in a snapshot of the table, when its checkpoint is complete |
    | `at_least_once` | no row is missing; some repeat after a recovery |
    | `at_most_once` | rows can be missing |

    With `exactly_once` each task adds one snapshot for each checkpoint in which it had rows, together with a marker: a property
    of the table with the number of its last transaction. A commit that is repeated, by any process, finds the marker and adds
    nothing. With the other modes a batch is a snapshot, when it has `roll_rows` or `roll_size`, or after `roll_interval`.
    """

    def __init__(
        self,
        catalog: str | Mapping[str, str],
        table: str,
        *,
        partition_by: str | Sequence[str] = (),
        schema: pa.Schema | Mapping[str, Any] | None = None,
        compression: Literal["gzip", "snappy", "zstd", "none"] | None = None,
        roll_rows: int = 1_000_000,
        roll_size: str | int = "128MiB",
        roll_interval: str | timedelta | float = "5s",
    ) -> None:
        """Keep where to write; nothing is opened yet.

        Args:
            catalog: its properties as pyiceberg takes them, such as {"type": "rest", "uri": "https://..."}; or the name of a
                catalog in the file .pyiceberg.yaml, which each worker's host must have.
            table: its name, with its namespace: "shop.orders".
            partition_by: columns whose values the table that is made is partitioned by. It takes a schema.
            schema: types by column, such as {"user": "string", "cents": "bigint", "price": "decimal(10,2)"}, with the names that
                Spark's SQL has; or a pyarrow.Schema. A missing table is made with it, and an existing table must have it.
                None: the table exists, and its schema and partitions are taken.
            compression: of the files; None: snappy.
            roll_rows: the most rows of a file.
            roll_size: about the most bytes of a file.
            roll_interval: the longest that a tuple waits for others, but with `exactly_once`. At most half of `message_timeout`.

        Raises:
            ConfigError: an argument cannot be used, or pyiceberg is not installed.
        """
        if roll_rows < 1:
            raise ConfigError(f"roll_rows={roll_rows!r} must be at least 1")
        super().__init__(max_batch=roll_rows, flush_interval=roll_interval)
        if find_spec("pyiceberg") is None or find_spec("pyarrow") is None:
            raise ConfigError(f"IcebergSink needs pyiceberg and pyarrow: {pip_install(EXTRAS['iceberg'])}")
        from topo.connectors.iceberg.target import declared_columns

        if not isinstance(catalog, str | Mapping):
            raise ConfigError(f"catalog={catalog!r} must be the name of a catalog, or its properties")
        if not isinstance(catalog, str):
            catalog = dict(catalog)
            if any(not isinstance(value, str) for value in catalog.values()):
                raise ConfigError("catalog= must have texts as values, as pyiceberg takes them: 'true' and not True")
        if not isinstance(table, str) or not all(table.split(".")) or "." not in table:
            raise ConfigError(f"table={table!r} must have a namespace and a name, such as 'shop.orders'")
        self._catalog, self._table = catalog, table
        self._by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if schema is None and self._by:
            raise ConfigError(f"partition_by={self._by!r} needs schema=; without it the table exists, and has its own partitions")
        self._declared = None if schema is None else declared_columns(schema, self._by)
        if compression not in (None, "gzip", "snappy", "zstd", "none"):
            raise ConfigError(f"compression={compression!r} must be None, 'snappy', 'zstd', 'gzip' or 'none'")
        self._compression = compression
        self._roll_rows, self._roll_size = roll_rows, parse_size(roll_size)
        if self._roll_size < 1:
            raise ConfigError(f"roll_size={roll_size!r} must be at least one byte")

    def __repr__(self) -> str:
        catalog = self._catalog if isinstance(self._catalog, str) else masked_settings(self._catalog)
        return f"IcebergSink({catalog!r}, {self._table!r})"

    def open(self, context: TaskContext) -> None:
        """Open the table, or make it.

        Raises:
            ConfigError: the table is missing, or does not fit the schema; or `roll_interval` is too long for `message_timeout`.
            TopoEnvironmentError: the catalog or the store of the table is not reached.
        """
        from topo.connectors.iceberg.table import IcebergTable

        check_batch_age(context, "IcebergSink", "roll_interval")
        self.max_batch = batch_within_pending(context, self.max_batch, "roll_rows")
        self._log = IcebergTable(self._catalog, self._table)
        columns, self._partitions = self._log.open(self._declared, self._by)
        self._format = ParquetFormat(columns, self._compression)
        self._files: StagedFiles[tuple[Any, ...]] = StagedFiles(
            context,
            self._log.location,
            self._log.place(),
            self._format,
            roll_rows=self._roll_rows,
            roll_size=self._roll_size,
            report=self._report,
        )
        self._publisher = TablePublisher(context, self._log, self._files, self._report, is_staged=self._is_staged)
        self._rejected = context.metrics.counter("rejected_rows")

    def _report(self, error: BaseException) -> None:
        self._collector.report_error(error)

    def begin(self) -> None:
        """Start with no files."""
        self._files.begin()

    def execute(self, tup: Tuple) -> None:
        """Write the tuple; publish when a file has its size, which with `exactly_once` the checkpoint does."""
        super().execute(tup)
        if not self._is_staged and self._token is None and self._files.has_full:
            self._publish_held()

    def write(self, tup: Tuple) -> None:
        """Add a row. Raises UserError for a tuple that the table does not take, and SinkBlockedError."""
        record = tup.as_dict()
        try:
            row = self._format.row(record, tup.component)
            partition = self._partitions.of(record, tup.component)
        except UserError:
            self._rejected.add()
            raise
        self._files.add(partition, row)

    def pre_commit(self) -> Any:
        """Make the files durable under their hidden names. The token: writer, number, and of each file its name and size."""
        return self._publisher.token(self._files.seal())

    def commit(self, token: Any) -> None:
        """Give the files their own names, and add them to the table in one snapshot, which has the marker."""
        self._publisher.commit(token)

    def publish(self) -> None:
        """Publish a batch; one of which a file is gone is given up, so that its tuples fail."""
        try:
            super().publish()
        except StagedRowsLostError:
            self._token = None
            raise

    def abort(self, token: Any) -> None:
        """Remove the files of a transaction; None: of the open one."""
        self._publisher.abort(token)

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._log.close()

    def recover(self, tokens: Sequence[Any]) -> None:
        """Publish what counts; remove the other staged files of this task, and of tasks that no longer exist."""
        if self._is_staged:
            super().recover(tokens)
        self._publisher.recovered()
