"""A sink that writes tuples as rows of a table in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from topo.api.batch_limits import batch_within_pending, check_batch_age
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.postgres.settings import check_dsn, table_name
from topo.connectors.staged_count import StagedCount
from topo.connectors.staged_table import StagedTable, TableColumns


class PostgresSink(TwoPhaseSink):
    """Writes one row for each tuple. Several tasks, sinks and topologies may write to one table.

        builder.set_bolt("sums", PostgresSink("host=db dbname=shop", "sums", ["item", "cents"], key="item"))

    | delivery | without a key | with a key |
    | --- | --- | --- |
    | `at_least_once` | no row is missing; some repeat after a recovery | the last row of each key |
    | `exactly_once` | each row once, when the checkpoint that covers it is complete | the last row of each key, then |
    | `at_most_once` | rows can be missing | rows can be missing |

    With `exactly_once` rows are staged in the table `TABLE__staged` and moved when their checkpoint is complete: none may be
    taken back. `TABLE__committed` records the moved rows, in the same SQL transaction. With the other modes rows are copied in
    batches and acked then. A row that breaks a constraint is found by halving the batch, and fails alone.

    With a `key` a row replaces the one with the same key (an *upsert*). Give the bolt a fields grouping by the key: then the last
    row of a key is the last one emitted.

    The table exists, and with a `key` has a unique index on exactly its columns. Values must fit the types of the columns; one
    that does not fails its tuple. With `exactly_once` the table has no other constraint that a row could break.
    """

    @checks_arguments
    def __init__(
        self,
        dsn: str,
        table: str,
        columns: Sequence[str],
        *,
        key: str | Sequence[str] | None = None,
        max_batch: int = 1000,
        flush_interval: str | timedelta | float = "100ms",
    ) -> None:
        """Keep where to write.

        Args:
            dsn: connection string of libpq: "host=db dbname=shop user=topo" or "postgresql://topo@db/shop". The environment
                (PGPASSWORD, PGSERVICE) and `~/.pgpass` of each worker count, too.
            table: name of the table, with its schema where that is not on the search path: "shop.sums".
            columns: fields of the tuples, which are also names of columns. Other fields are left out.
            key: the column or columns that rows replace each other by; None: every row is inserted.
            max_batch: tuples that are copied together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`. At most half of `message_timeout`.

        Raises:
            ConfigError: an argument cannot be used, or psycopg is missing.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        check_dsn("PostgresSink", dsn)
        self._dsn = dsn
        self._table = table_name("PostgresSink", table, beside="__committed")
        self._columns = TableColumns("PostgresSink", columns, key)
        self.required_fields = self._columns.names

    def __repr__(self) -> str:
        return f"PostgresSink({str(self._table)!r}, {self._columns.names!r})"

    def open(self, context: TaskContext) -> None:
        """Connect, compare the columns with the table's, and make the tables of staged rows and marks where they are missing.

        Raises:
            ConfigError: the server refuses the user, or the table does not exist or does not fit.
            TopoEnvironmentError: the server cannot be reached.
        """
        from topo.connectors.postgres.table import PostgresTable

        check_batch_age(context, "PostgresSink", "flush_interval")
        self.max_batch = batch_within_pending(context, self.max_batch, "max_batch")
        self._clock = context.clock
        self._store = PostgresTable(self._dsn, self._table, self._columns, context, self._is_staged)
        self._staging = StagedTable(self._store, str(self._table), self._store.where, self._collector.report_error)
        metrics = context.metrics
        self._rows_counter, self._rejected = metrics.counter("rows"), metrics.counter("rejected_rows")
        self._retries, self._staged_count = metrics.counter("retries"), StagedCount(metrics)
        self._publish_ms, self._commit_ms = metrics.histogram("publish_ms"), metrics.histogram("commit_ms")

    def begin(self) -> None:
        """Start with no rows."""
        self._staging.begin()

    def write(self, tup: Tuple) -> None:
        """Add a row.

        Raises:
            UnsupportedValueError: a column does not take a value, or a field of the key is None.
            SinkBlockedError: nothing can be written for now.
        """
        row = self._store.builder.row(tup)
        if self._is_staged:
            self._staging.add(row)
        else:
            self._staging.rows.append(row)

    def pre_commit(self) -> Any:
        """Have all rows in the staging table, and return a token for them; with the other modes the rows of the batch."""
        if not self._is_staged:
            return self._staging.rows
        with self._explaining():
            token = self._staging.pre_commit()
        if token is not None:
            self._staged_count.set(_name_of(token), token[2])
        return token

    def commit(self, token: Any) -> None:
        """Move staged rows to the table and record that they were moved, in one SQL transaction; or copy a batch.

        A batch that the server does not take, since it cannot be reached, is kept: it is copied at a later tick.
        """
        began = self._clock()
        with self._explaining(self._retries.add):
            if self._is_staged:
                self._rows_counter.add(self._staging.commit(token))
                self._staged_count.set(_name_of(token), 0)
                self._commit_ms.record(1000 * (self._clock() - began))
            else:
                self._copy(token)
                self._publish_ms.record(1000 * (self._clock() - began))

    @contextmanager
    def _explaining(self, first: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Have an error of the server leave the block with the table and the database."""
        try:
            yield
        except self._store.refusals as error:
            first()
            raise self._store.explained(error) from error.__cause__

    def _copy(self, rows: list[Any]) -> None:
        bad = self._store.insert(rows)
        self._rows_counter.add(len(rows) - len(bad))
        self._rejected.add(len(bad))
        for error in bad.values():
            self._collector.report_error(error)
        # After a reset they are replayed.
        if bad and self._committing:
            for place in bad:
                self._collector.fail(self._committing[place])
            self._committing = [tup for place, tup in enumerate(self._committing) if place not in bad]

    def abort(self, token: Any) -> None:
        """Remove staged rows."""
        if self._is_staged:
            with self._explaining():
                self._staging.abort(token)
            if token is not None:
                self._staged_count.set(_name_of(token), 0)

    def recover(self, tokens: Sequence[Any]) -> None:
        """Move the committed rows; remove the others that this task, or a task that no longer exists, has staged."""
        if self._is_staged:
            super().recover(tokens)
            with self._explaining():
                self._staging.drop_left()

    def close(self) -> None:
        """Close the connection."""
        self._store.close()


def _name_of(token: Any) -> str:
    """Return a text for the transaction of a token: its process, and its number there."""
    return f"{token[0]}.{token[1]}"
