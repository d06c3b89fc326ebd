"""A sink that writes tuples, and batches of columns, to a folder of parquet files, in micro-batches that show as a whole.

In the tracked modes a batch is committed when it is full or at a tick, and its tuples are acked then. With `exactly_once` batches
are staged, and committed when the checkpoint is complete that covers them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any

import pyarrow as pa

from topo.api.batch_limits import check_batch_age
from topo.api.bolt import Collector
from topo.api.columns import MAX_PENDING_BATCHES
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.type_names import declared_schema
from topo.errors import ConfigError, SinkBlockedError, StagedRowsLostError, TopoEnvironmentError
from topo.spark.column_values import DoesNotFit
from topo.spark.hive_partitions import split_by_partition
from topo.spark.parquet_commit import BatchLost, ParquetCommits, Staged, kept_schema
from topo.spark.sink_schema import checked_schema, schema_text
from topo.spark.tuple_tables import fit_tuples, schema_of

_COMPRESSIONS = ("snappy", "zstd", "gzip", "lz4", "brotli", "none")
_HELD_BATCHES = 4
"""How many batches' tuples are kept while the file system refuses to take one."""


class SparkSink(TwoPhaseSink):
    """Writes tuples to a folder that Spark reads, as parquet in micro-batches, and acks them when their batch is committed.

    A batch is committed when it has `max_rows` or at the tick that comes every `max_age`. Nothing that was acked is lost,
    whatever is killed; after a recovery rows may repeat (at least once). A reader sees whole files only.

    With `exactly_once` each row appears once, when the checkpoint that covers it is complete: a file for every
    `max_rows` and every checkpoint.

    Batches of columns are written as they come, with no row made of them; they and single tuples may come to one sink.

    A tuple that does not fit the schema fails and is reported; the others are written. A batch of columns fits or fails as a
    whole. While the file system refuses to write, tuples are held and not acked, and the batch is tried again at every tick;
    with `exactly_once` when a further batch is full, and at checkpoints.
    """

    takes_batches = True

    @checks_arguments
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_rows: int = 100_000,
        max_age: str | timedelta | float = "1s",
        partition_by: str | Sequence[str] = (),
        schema: pa.Schema | Mapping[str, str | pa.DataType] | None = None,
        key: str | Sequence[str] = (),
        compression: str = "snappy",
    ) -> None:
        """Keep what to write and where.

        Args:
            path: the folder, or its `file://` address; it is made if need be. Several tasks and several sinks may write to one.
            max_rows: rows that are written together, at most; fewer when `max_spout_pending` allows fewer, and more by the
                end of a batch of columns, which is never divided.
            max_age: the longest that a tuple waits for others. Must be well below `message_timeout`.
            partition_by: fields that become folders, `field=value/`, instead of columns: strings, integers, booleans or dates.
            schema: types by field, such as `{"origin": "string", "delay": "double"}`, or a pyarrow schema. None: taken from the
                first batch that is ever written to the folder.
            key: fields that identify a row, so that a reader can drop repeated ones; they are never None.
            compression: snappy, zstd, gzip, lz4 or none.

        Raises:
            ConfigError: an argument cannot be used.
        """
        super().__init__()
        if max_rows < 1:
            raise ConfigError(f"max_rows={max_rows!r} must be at least 1")
        if isinstance(compression, str) and compression.lower() not in _COMPRESSIONS:
            raise ConfigError(f"compression={compression!r} is none of {', '.join(_COMPRESSIONS)}")
        place = os.fspath(path).removeprefix("file://")
        if "://" in place:
            raise ConfigError(f"{place!r} is no folder: SparkSink writes to a file system of this machine")
        self.component_settings = {"tick_interval": max_age}
        self._path = Path(place)
        self._max_rows = max_rows
        self._partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        if len(set(self._partition_by)) < len(self._partition_by):
            raise ConfigError(f"partition_by={self._partition_by!r} names a field twice")
        self._key = (key,) if isinstance(key, str) else tuple(key)
        self._compression = compression
        self._declared = None if schema is None else self._checked(declared_schema(schema))
        self.required_fields = (
            tuple(dict.fromkeys((*self._partition_by, *self._key))) if self._declared is None else tuple(self._declared.names)
        )

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        """Finish or undo what a killed process has left, and learn the schema that holds.

        Raises:
            ConfigError: the folder has another schema than is declared, or `max_age` is too long for `message_timeout`.
        """
        self._collector, self._log = collector, context.logger
        self._is_staged = context.config.delivery == "exactly_once"
        check_batch_age(context, "SparkSink", "max_age")
        self._most, self._least_weight = self._batch_limit(context)
        self._life, self._batches = secrets.token_hex(8), 0
        self._commits = ParquetCommits(
            self._path, f"{context.topology}.{context.component}", context.task_index, self._life, self._compression
        )
        self._parallelism = context.parallelism
        if not self._is_staged and (finished := self._commits.recover(context.parallelism)):
            self._log.info("finished %d interrupted commits in %s", finished, self._path)
        self._schema = kept_schema(self._path)
        if self._declared is not None:
            self._hold_to(self._declared)
        elif self._schema is not None:
            self._checked(self._schema)
        self._rows, self._files = context.metrics.counter("rows_written"), context.metrics.counter("files_written")
        self._commit_ms = context.metrics.histogram("commit_ms")
        self._staged: Staged | None
        self._transaction: list[Staged] = []
        self._forget()

    def execute(self, tup: Tuple) -> None:
        """Hold the tuple back until its batch is full, or a tick comes."""
        if tup.is_tick:
            if not self._is_staged:
                self._flush()
            return
        self._held.append(tup)
        if tup.origin.columnar:
            self._extra += self._weight(tup) - 1
        if len(self._held) + self._extra >= self._limit:
            self._full()

    def end_of_input(self) -> None:
        """Write the held tuples. Replays after the end wait for a tick. With `exactly_once` the last checkpoint does it."""
        if not self._is_staged:
            self._flush()

    def on_reset(self) -> None:
        """Drop the held tuples: they are replayed. A commit that has begun is finished."""
        if self._is_staged:
            return
        begun = self._staged
        self._forget()
        self._staged = begun

    # -- with exactly_once -----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start with no batch."""
        self._transaction = []

    def write(self, tup: Tuple) -> None:
        """Hold a tuple; the same as `execute`."""
        self.execute(tup)

    def pre_commit(self) -> Any:
        """Stage the held tuples. Raises, such as OSError, while they cannot be written; they stay held then."""
        self._stage()
        if not self._transaction:
            return None
        return [[staged.name, [list(file) for file in staged.files], staged.rows] for staged in self._transaction]

    def commit(self, token: Any) -> None:
        """Show the batches of a transaction."""
        for staged in _staged_of(token):
            try:
                self._commits.commit(staged)
            except BatchLost as error:
                # A checkpoint counts these rows, so they are never written again: the run must not end as if none were missing.
                self._collector.report_error(StagedRowsLostError(f"{staged.rows} rows are lost: {error}"))
            else:
                self._rows.add(staged.rows)
                self._files.add(len(staged.files))

    def abort(self, token: Any) -> None:
        """Remove the files of a transaction that will not count; None: of the open one, and drop the held tuples."""
        if token is None:
            self._forget()
            transaction, self._transaction = self._transaction, []
        else:
            transaction = _staged_of(token)
        for staged in transaction:
            self._commits.abort(staged)

    def recover(self, tokens: Sequence[Any]) -> None:
        """Show the files that the checkpoint covers; undo all others that earlier processes of this task have left."""
        for token in tokens:
            self.commit(token)
        self._commits.recover(self._parallelism)

    def _stage(self) -> None:
        """Make a batch of the held tuples: durable, and not visible."""
        if self._held:
            staged = self._prepare()
            if staged is not None:
                self._transaction.append(staged)
            self._ack_batch()
        self._is_refused, self._limit = False, self._most

    def cleanup(self) -> None:
        """Leave only committed files in the folder. Held tuples have not been acked."""
        with suppress(OSError):
            if self._is_staged:
                # A checkpoint may still commit the staged files.
                self.abort(None)
            else:
                self._commits.close()

    def _batch_limit(self, context: TaskContext) -> tuple[int, int]:
        """Return how many tuples are written together, and the least number of them that a batch of columns counts for.

        A spout whose messages all lie here would send no more until a tick comes: half of them is enough.
        """
        pending, tasks = context.config.max_spout_pending, 2 * context.parallelism
        if pending is None or not context.config.ackers or self._is_staged:
            return self._max_rows, 1
        limit = max(1, pending // tasks)
        if limit < self._max_rows:
            context.logger.info("batches of %d rows and not max_rows=%d: max_spout_pending is %d", limit, self._max_rows, pending)
        limit = min(limit, self._max_rows)
        return limit, -(-limit // max(1, MAX_PENDING_BATCHES // tasks))

    @property
    def _fill(self) -> int:
        """How many tuples are held; a batch of columns counts for as many as fill the same part of `max_rows`."""
        return len(self._held) + self._extra

    def _weight(self, tup: Tuple) -> int:
        return max(len(tup.values[0]) * self._most // self._max_rows, self._least_weight) if tup.origin.columnar else 1

    def _hold(self, tuples: list[Tuple]) -> None:
        self._held = tuples
        self._extra = sum([self._weight(tup) - 1 for tup in tuples if tup.origin.columnar])

    def _forget(self) -> None:
        self._hold([])
        self._batch: list[Tuple] = []
        self._staged = None
        self._is_refused = False
        self._limit = self._most

    def _full(self) -> None:
        if self._is_staged:
            self._stage_full()
        elif not self._is_refused:
            self._flush()
        else:
            # Tracked tuples are limited by max_spout_pending; untracked ones would fill the memory.
            tup = self._held.pop()
            self._extra -= self._weight(tup) - 1
            self._collector.fail(tup)

    def _stage_full(self) -> None:
        """Stage the held tuples. If that fails they stay: tuples that were failed meanwhile may not be failed once more."""
        try:
            self._stage()
        except Exception as error:
            if self._fill >= _HELD_BATCHES * self._max_rows:
                raise SinkBlockedError(
                    f"SparkSink cannot write to {self._path}: {error}; {len(self._held)} tuples wait"
                ) from error
            self._refused(error)
            self._limit = self._fill + self._max_rows

    def _flush(self) -> None:
        """Commit the held tuples, if the file system lets us, and ack them."""
        try:
            if self._staged is not None:
                self._commit(self._staged)
            if self._held:
                begun = monotonic()
                staged = self._prepare()
                if staged is not None:
                    self._staged = staged
                    self._commit(staged)
                    self._commit_ms.record((monotonic() - begun) * 1000)
        except BatchLost as error:
            self._hold(self._batch + self._held)
            self._staged, self._batch = None, []
            self._refused(error)
        except Exception as error:
            # Also what pyarrow raises: the tuple at hand is one of many, and tuples that do not fit have failed already.
            self._refused(error)
        else:
            if self._is_refused:
                self._log.info("%s can be written again", self._path)
            self._is_refused, self._limit = False, self._most

    def _prepare(self) -> Staged | None:
        tables = split_by_partition(self._table(), self._partition_by)
        if not tables:
            return None
        self._batches += 1
        staged = self._commits.prepare(f"{self._life}-{self._batches:09d}", tables)
        self._batch = self._held
        self._hold([])
        return staged

    def _commit(self, staged: Staged) -> None:
        self._commits.commit(staged)
        self._rows.add(staged.rows)
        self._files.add(len(staged.files))
        self._staged = None
        self._ack_batch()

    def _ack_batch(self) -> None:
        batch, self._batch = self._batch, []
        ack = self._collector.ack
        for tup in batch:
            ack(tup)

    def _refused(self, error: Exception) -> None:
        waiting = [*self._batch, *self._held]
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        message = f"SparkSink cannot write to {self._path}: {reason}; {len(waiting)} tuples wait, not acked, and it tries again"
        self._log.warning("%s", message)
        if not self._is_refused:
            self._collector.report_error(TopoEnvironmentError(message))
        self._is_refused, self._limit = True, _HELD_BATCHES * self._max_rows
        for tup in waiting:
            self._collector.reset_timeout(tup)

    def _table(self) -> pa.Table:
        """Turn the held tuples into a table; fail misfits, and hold the rest."""
        if self._schema is None:
            try:
                self._hold_to(self._checked(schema_of(self._held)))
            except (DoesNotFit, ConfigError) as error:
                self._drop(range(len(self._held)), (error,))
                return pa.table({})
        assert self._schema is not None
        fitted = fit_tuples(self._held, self._schema, self._partition_by)
        self._drop(fitted.unfit, fitted.problems)
        return fitted.table

    def _drop(self, numbers: Sequence[int] | frozenset[int], errors: Sequence[Exception]) -> None:
        if not numbers:
            return
        dropped = frozenset(numbers)
        for number in sorted(dropped):
            self._collector.fail(self._held[number])
        self._hold([tup for number, tup in enumerate(self._held) if number not in dropped])
        for error in errors:
            self._collector.report_error(error)

    def _hold_to(self, schema: pa.Schema) -> None:
        """Store the schema, or adopt the stored one.

        Raises:
            ConfigError: the stored schema differs from the declared one.
        """
        kept = self._schema if self._schema is not None else self._commits.keep_schema(schema)
        if self._declared is not None and not kept.equals(self._declared):
            raise ConfigError(
                f"{self._path} has been written with the schema ({schema_text(kept)}), "
                f"and SparkSink is given ({schema_text(self._declared)}): write to another folder, or give the schema that it has"
            )
        self._schema = self._checked(kept)

    def _checked(self, schema: pa.Schema) -> pa.Schema:
        return checked_schema(schema, self._path, self._partition_by, self._key)


def _staged_of(token: Any) -> list[Staged]:
    return [Staged(name, tuple(tuple(file) for file in files), rows) for name, files, rows in token]
