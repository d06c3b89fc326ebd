"""A spout that emits rows, or batches of columns: of a table, of files, of a SQL text or of a function of the Spark session."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from topo.api.columns import MAX_PENDING_BATCHES
from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout
from topo.connectors.argument_checks import checks_arguments
from topo.errors import ConfigError, UnsupportedValueError
from topo.launch.spark.java import find_java
from topo.spark.parquet_rows import ParquetRows, Position, columns_of
from topo.spark.record_batches import batch_rows_of
from topo.spark.session import check_spark
from topo.spark.snapshot import SparkSnapshot, has_partitions, list_parquet, read_snapshot, write_snapshot
from topo.spark.spark_source import Query, source_of
from topo.spark.staging import Order, StagingFailed, StagingProcess

_MOST_ROWS = 256
"""Rows that one call of `next_tuple` emits, and so may overshoot `max_spout_pending` by."""


class SparkSpout(RetryingSpout):
    """Emits rows, or batches of columns, then ends. A position is (file, row group, row); that of a batch is its last row's.

    Parquet files are read where they lie, without Spark and Java. Everything else is one Spark job, run once in a process of
    its own and as wide as `master` allows; it leaves parquet files, which are kept as long as the topology's positions are. So a
    row has its position in every life of the topology, and what Spark would give another time does not matter.

    Several tasks share the row groups of the files. Each holds a batch of rows at a time, however large a row group is.
    """

    @checks_arguments
    def __init__(
        self,
        files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        *,
        table: str | None = None,
        sql: str | None = None,
        query: Query | None = None,
        fields: Sequence[str] | None = None,
        timestamp: str | None = None,
        format: str = "parquet",
        options: Mapping[str, Any] | None = None,
        master: str = "local[*]",
        config: Mapping[str, Any] | None = None,
        staging: str | os.PathLike[str] | None = None,
        batches: bool = False,
        batch_rows: int | None = None,
    ) -> None:
        """Say what to read: exactly one of `files`, `table`, `sql` and `query`.

        Args:
            files: a file or folder, or several.
            table: the name of a table of Spark's catalog.
            sql: a SELECT.
            query: a function of the Spark session that returns a DataFrame. It is sent to Spark's process by value, with what
                it refers to in its module.
            fields: the columns to emit, in this order. May be left out for parquet files, which say it themselves.
            timestamp: the column of event time: a timestamp, a date, or whole milliseconds. Rows are emitted with it, and
                `set_spout(..., watermarks=WatermarkStrategy.bounded_out_of_orderness("5s"))` makes watermarks of it.
            format: of the files, as Spark knows it: "csv", "json", "orc", ...
            options: for Spark's reader of that format, such as {"header": True}; with them Spark reads parquet files, too.
            master: the Spark cluster that runs the job.
            config: settings of the Spark session.
            staging: the folder for the job's rows; by default one of the topology's own. Needed where tasks run on several
                machines, which must all see it. Its content is used again, by other topologies too, until it is removed.
            batches: emit batches of columns, as a `ColumnSpout` does: Arrow arrays of the types that the files have. Event time
                is that of each row.
            batch_rows: rows in a batch at most, 16,384 by default; fewer where they take more than about a megabyte. May be
                another number in the next run.

        Raises:
            ConfigError: not exactly one source, or one whose columns cannot be known before Spark runs: give `fields`.
            NotFoundError: there are no such files.
        """
        self._source = source_of(files, table, sql, query, format, options or {})
        self._config = {name: str(value) for name, value in (config or {}).items()}
        self._master = master
        self._staging = None if staging is None else Path(staging).absolute()
        self._timestamp = timestamp
        self._batch_rows = batch_rows_of(batches=batches, batch_rows=batch_rows)
        if batches:
            self.emits_batches = True
            self.component_settings = {"max_spout_pending": MAX_PENDING_BATCHES}
        self._reads_in_place = self._source.kind == "files" and format == "parquet" and not self._needs_spark()
        if fields is None:
            fields = self._fields_of_files()
        if not fields:
            raise ConfigError(f"fields={fields!r} names no columns; give a tuple of names")
        self.outputs = self._fields = tuple(fields)
        self._columns = tuple(dict.fromkeys((*self._fields, timestamp) if timestamp else self._fields))
        self._process: StagingProcess | None = None

    def _needs_spark(self) -> bool:
        return bool(self._source.options) or any("://" in path or has_partitions(path) for path in self._source.value)

    def _fields_of_files(self) -> Sequence[str]:
        if self._reads_in_place:
            listed = list_parquet(self._source.value, "").files
            if listed:
                return columns_of(Path(listed[0][0]))
        raise ConfigError(
            f"SparkSpout cannot know the columns of {self._source} before Spark has run: name them with fields=(...)"
        )

    def open(self, context: TaskContext, collector: Any) -> None:
        """List the files, or have Spark make them if they do not exist, and go behind the committed position.

        Raises:
            NotFoundError: the files do not exist.
            TopoEnvironmentError: pyspark or Java is missing.
            ConfigError: there is no folder that the tasks share; or the rows that the position counts are gone.
        """
        self._collector = collector
        self._context = context
        self._last: Position | None = context.committed_position
        self._most = min(_MOST_ROWS, context.config.max_spout_pending or _MOST_ROWS)
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self._reader: Iterator[Any] | None = None
        self._failure: StagingFailed | None = None
        self._folder = self._staging
        if self._folder is None and context.folder is not None:
            self._folder = context.folder / context.component
        self._digest = self._source.digest(self._columns, self._config)
        self._snapshot = read_snapshot(self._folder, self._digest) if self._folder is not None else None
        if self._snapshot is None and self._reads_in_place:
            self._snapshot = self._list()
        elif self._snapshot is None:
            if self._folder is None:
                raise ConfigError(f"SparkSpout needs a folder for the rows of {self._source} that its tasks share: give staging=")
            if self._last is not None:
                raise ConfigError(
                    f"position {tuple(self._last)} counts rows of {self._source} that are not in {self._folder}, and Spark may "
                    "make them in another order: start from the beginning, or give the folder that has them as staging="
                )
            if context.task_index == 0:
                check_spark()
                find_java()
                self._start()

    def _list(self) -> SparkSnapshot:
        # Files that are named one by one are the same list at every start.
        if any(map(os.path.isdir, self._source.value)):
            if self._folder is None and self._context.has_helper_thread:
                self._collector.report_error(
                    ConfigError(
                        f"the list of {self._source} is not kept, since the tasks have no folder that they share: where files "
                        "are added, a restart counts others; give staging=, or name the files one by one"
                    )
                )
            if self._folder is not None and self._last is not None:
                raise ConfigError(
                    f"position {tuple(self._last)} counts files of a list that is not in {self._folder}: start from the "
                    "beginning, give the folder that has it as staging=, or name the files in its order"
                )
        listed = list_parquet(self._source.value, self._digest)
        return listed if self._folder is None else write_snapshot(self._folder, listed)

    def _start(self) -> None:
        assert self._folder is not None
        self._context.logger.info("Spark makes the rows of %s, in %s", self._source, self._folder)
        name = f"topo {self._context.topology} {self._context.component}"
        self._began = time.monotonic()
        order = Order(name, self._folder, self._source, self._columns, self._master, self._config)
        self._process = StagingProcess(order)

    def next_tuple(self) -> None:
        """Emit the next rows, or the next batch; nothing while Spark is still at work.

        Raises:
            StagingFailed: the Spark job failed. It is run again at the next call, unless the query is wrong.
            TornFile, SchemaDiffers, NotRepresentable: a file cannot be read; the next call tries again.
            UnsupportedValueError: a row is larger than a batch may be.
        """
        if self._snapshot is None and not self._is_staged():
            return
        try:
            last = self._emit_batch() if self._batch_rows else self._emit_rows()
            if last is None:
                self._collector.end_of_input()
            else:
                self._last = last
        except Exception:
            # Nothing of this call is emitted: it begins again.
            self._rows, self._reader = iter(()), None
            raise

    def _emit_rows(self) -> Position | None:
        """Return the position of the last row; None when there is no further one."""
        rows = list(islice(self._rows, self._most)) or self._next_rows()
        if rows is None:
            return None
        emit = self._collector.emit
        if self._timestamp is None:
            for values, position in rows:
                emit(values, position)
        else:
            for values, position, stamp in rows:
                emit(values, position, timestamp=stamp)
        last: Position = rows[-1][1]
        return last

    def _next_rows(self) -> list[tuple[Any, ...]] | None:
        if self._reader is None:
            self._reader = self._files().batches(self._last)
        for batch in self._reader:
            if batch.stamps is None:
                self._rows = zip(batch.rows, batch.positions, strict=False)
            else:
                self._rows = zip(batch.rows, batch.positions, batch.stamps, strict=False)
            if rows := list(islice(self._rows, self._most)):
                return rows
        return None

    def _emit_batch(self) -> Position | None:
        """Return the position of the batch; None when there is no further one."""
        if self._reader is None:
            self._reader = self._files().column_batches(self._last, self._batch_rows)
        for position, piece in self._reader:
            try:
                self._collector.emit_batch(piece.columns, position, timestamps=piece.stamps)
            except UnsupportedValueError as error:
                assert self._snapshot is not None
                file, group, row = position
                where = f"{self._snapshot.files[file][0]}, row group {group}, row {row}"
                raise UnsupportedValueError(f"{where}: {error}, or leave the row out in a query") from error
            last: Position = position
            return last
        return None

    def _files(self) -> ParquetRows:
        assert self._snapshot is not None
        share = (self._context.task_index, self._context.parallelism)
        return ParquetRows(self._folder or Path("/"), self._snapshot.files, self._fields, self._timestamp, share)

    def _is_staged(self) -> bool:
        assert self._folder is not None
        if self._failure is not None:
            if self._failure.is_final:
                raise self._failure
            self._start()
            self._failure = None
        if self._process is not None and not self._process.has_ended:
            return False
        self._snapshot = read_snapshot(self._folder, self._digest)
        if self._process is not None:
            process, self._process = self._process, None
            process.close()
            if self._snapshot is None:
                self._failure = process.failure()
                raise self._failure
            seconds = time.monotonic() - self._began
            self._context.logger.info("Spark took %.1f s for %d files", seconds, len(self._snapshot.files))
        return self._snapshot is not None

    def close(self) -> None:
        """End Spark's process if it is at work, and close the files."""
        if self._process is not None:
            self._process.close()
            self._process = None
        self._rows, self._reader = iter(()), None
