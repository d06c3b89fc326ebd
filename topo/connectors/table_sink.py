"""What sinks of tables have in common: rows become parquet files, which the log of a table takes with a marker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from topo.api.arguments import check_count
from topo.api.batch_limits import batch_within_pending
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.config import parse_size
from topo.connectors.row_formats import ParquetFormat
from topo.connectors.staged_files import StagedFiles
from topo.connectors.staging_places import StagingPlace
from topo.connectors.table_publisher import TableLog, TablePublisher
from topo.errors import ConfigError, StagedRowsLostError, UserError

if TYPE_CHECKING:
    import pyarrow as pa


class PartitionOf(Protocol):
    """Takes the partition of a row out of its tuple."""

    def of(self, record: Mapping[str, Any], component: str) -> tuple[Any, ...]:
        """Return the partition. Raises UserError, which names the field."""


class TableSink(TwoPhaseSink):
    """Writes tuples to files that one commit adds to a table. `open` of a subclass calls `start`.

    Args:
        partition_by, schema, compression, roll_rows, roll_size, roll_interval: as the user has given them.

    Raises:
        ConfigError: an argument cannot be used.
    """

    def __init__(
        self,
        *,
        partition_by: Sequence[str],
        schema: Any,
        compression: str | None,
        roll_rows: int,
        roll_size: str | int,
        roll_interval: str | timedelta | float,
    ) -> None:
        check_count("roll_rows", roll_rows)
        super().__init__(max_batch=roll_rows, flush_interval=roll_interval)
        if schema is None and partition_by:
            raise ConfigError(
                f"partition_by={partition_by!r} needs schema=; without it the table exists, and has its own partitions"
            )
        if compression not in (None, "gzip", "snappy", "zstd", "none"):
            raise ConfigError(f"compression={compression!r} must be None, 'snappy', 'zstd', 'gzip' or 'none'")
        self._compression: Any = compression
        self._is_declared = schema is not None
        self._roll_rows, self._roll_size = roll_rows, parse_size(roll_size)
        if self._roll_size < 1:
            raise ConfigError(f"roll_size={roll_size!r} must be at least one byte")

    def start(
        self,
        context: TaskContext,
        log: TableLog,
        url: str | os.PathLike[str],
        place: StagingPlace,
        columns: pa.Schema,
        partitions: PartitionOf,
        in_log: Sequence[str] = (),
    ) -> None:
        """Take the open table.

        Args:
            log: of the table.
            url: of its files, for messages.
            place: where files are staged.
            columns: of the files.
            partitions: of the table.
            in_log: further columns, by which it is partitioned.
        """
        self.max_batch = batch_within_pending(context, self.max_batch, "roll_rows")
        report = self._collector.report_error
        self._partitions, self._format = partitions, ParquetFormat(columns, self._compression)
        self._files: StagedFiles[tuple[Any, ...]] = StagedFiles(
            context, url, place, self._format, roll_rows=self._roll_rows, roll_size=self._roll_size, report=report
        )
        self._names = {*columns.names, *in_log}
        self._may_lack = {} if self._is_declared else {field.name: None for field in columns if field.nullable}
        """Columns that may be null. Somebody may have added them while the topology ran: from then on it lacks them."""
        self._publisher = TablePublisher(context, log, self._files, report, is_staged=self._is_staged)
        self._rejected = context.metrics.counter("rejected_rows")

    def begin(self) -> None:
        """Start with no files."""
        self._files.begin()

    @property
    def _has_full_output(self) -> bool:
        return self._files.has_full

    def write(self, tup: Tuple) -> None:
        """Add a row. Raises UserError for a tuple that the table does not take, and SinkBlockedError."""
        record = tup.as_dict()
        if self._may_lack and record.keys() < self._names:
            record = self._may_lack | record
        try:
            partition = self._partitions.of(record, tup.component)
            row = self._format.row(record, tup.component)
        except UserError:
            self._rejected.add()
            raise
        self._files.add(partition, row)

    def pre_commit(self) -> Any:
        """Make the files durable under their hidden names. The token: writer, number, and of each file all that the log needs.

        Raises:
            ConfigError: the table has refused staged files, and still would: checkpoints fail until it takes them.
        """
        self._publisher.check()
        return self._publisher.token(self._files.seal())

    def commit(self, token: Any) -> None:
        """Give the files their own names, and add them to the table at once, with the marker."""
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

    def recover(self, tokens: Sequence[Any]) -> None:
        """Publish what counts; remove the other staged files of this task, and of tasks that no longer exist."""
        if self._is_staged:
            super().recover(tokens)
        self._publisher.recovered()
