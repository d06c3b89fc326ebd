"""A sink that writes tuples as rows of a table in an SQLite database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import TwoPhaseSink
from topo.connectors.spilling import Spilling
from topo.durable import make_folder
from topo.errors import ConfigError, StagedRowsLostError, UnsupportedValueError

_LOCK_TIMEOUT_S = 10.0
"""How long a task waits for others that write to the same database. Below `progress_timeout`."""
_SPILL_ROWS = 10_000
"""Rows of a transaction that wait in memory before they go to the staging table."""
_LARGEST_INTEGER = (1 << 63) - 1


class SqliteSink(TwoPhaseSink):
    """Writes one row for each tuple. Several tasks may write to one table.

    With `exactly_once` rows are staged in the table `TABLE__staged` and moved when their checkpoint is complete: each is inserted
    once, and none may be taken back. `TABLE__committed` records the moved rows, in the same SQL transaction. With the other modes
    rows are inserted in batches and acked then; after a recovery they may repeat.

    With a `key` a row replaces the one with the same key (an *upsert*), so repeats change nothing and `at_least_once` gives
    the same table. Give the bolt a fields grouping by the key: then the last row of a key is the last one emitted.

    A missing table is created. An existing table must have the columns, for a `key` a unique index on exactly its columns, and no
    constraint that a row could break: a batch is inserted as a whole. Dates, times, decimals and UUIDs are stored as texts.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        columns: Sequence[str],
        *,
        key: str | Sequence[str] | None = None,
        max_batch: int = 1000,
        flush_interval: str | timedelta | float = "100ms",
    ) -> None:
        """Keep where to write.

        Args:
            path: the database's file, on a disk of this machine; its folder is made if need be.
            table: name of the table.
            columns: fields of the tuples, which are also names of columns. Other fields are left out.
            key: the column or columns that rows replace each other by; None: every row is inserted.
            max_batch: tuples that are inserted together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`. Must be well below
                `message_timeout`.

        Raises:
            ConfigError: an argument cannot be used.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        self._path = Path(path)
        self._columns = (columns,) if isinstance(columns, str) else tuple(columns)
        self._key = (key,) if isinstance(key, str) else tuple(key or ())
        if not self._columns or len(set(self._columns)) < len(self._columns):
            raise ConfigError(f"SqliteSink: columns={columns!r} must be different names, one at least")
        if any(name.startswith("__") for name in self._columns):
            raise ConfigError(f"SqliteSink: no name in columns={columns!r} may begin with '__'")
        if not set(self._key) <= set(self._columns):
            raise ConfigError(f"SqliteSink: key={key!r} must be among columns={columns!r}")
        self._key_places = [self._columns.index(name) for name in self._key]
        self._name = table
        self._statements(table)

    def _statements(self, table: str) -> None:
        names = ", ".join(map(_quoted, self._columns))
        slots = ", ".join("?" * len(self._columns))
        on_conflict = ""
        if self._key:
            updates = ", ".join(f"{_quoted(c)} = excluded.{_quoted(c)}" for c in self._columns if c not in self._key)
            action = f"do update set {updates}" if updates else "do nothing"
            on_conflict = f" on conflict ({', '.join(map(_quoted, self._key))}) {action}"
        target, staged, committed = (_quoted(f"{table}{suffix}") for suffix in ("", "__staged", "__committed"))
        primary = f", primary key ({', '.join(map(_quoted, self._key))})" if self._key else ""
        one = "where __process = ? and __number = ?"
        self._create_target = f"create table if not exists {target} ({names}{primary})"
        self._create_staged = (
            f"create table if not exists {staged} (__task integer, __process text, __number integer, __row integer, {names}, "
            "__writer text, primary key (__process, __number, __row)) without rowid"
        )
        self._add_writer = f"alter table {staged} add column __writer text"
        self._create_committed = f"create table if not exists {committed} (__process text primary key, __number integer)"
        self._insert = f"insert into {target} ({names}) values ({slots}){on_conflict}"
        head = "__writer, __task, __process, __number, __row"
        self._stage = f"insert into {staged} ({head}, {names}) values (?, ?, ?, ?, ?, {slots})"
        self._count = f"select count(*) from {staged} {one}"
        self._move = f"insert into {target} ({names}) select {names} from {staged} {one} order by __row{on_conflict}"
        self._drop = f"delete from {staged} {one}"
        self._drop_left = f"delete from {staged} where __task % ? = ? and ifnull(__writer, ?) = ?"
        self._last = f"select __number from {committed} where __process = ?"
        self._note = f"insert or replace into {committed} values (?, ?)"

    def open(self, context: TaskContext) -> None:
        """Connect, and make the tables that are missing.

        Raises:
            ConfigError: the table exists and does not fit.
        """
        self._writer = f"{context.topology}.{context.component}"
        self._task, self._tasks = context.task_index, context.parallelism
        # A replacement must never name rows as its predecessor did, which may be alive still.
        self._process = os.urandom(6).hex()
        self._number = 0
        target = f"table {self._name!r} in {self._path}"
        self._spilling = Spilling(target, _SPILL_ROWS, lambda error: self._collector.report_error(error))
        make_folder(self._path.parent)
        self._connection = sqlite3.connect(self._path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        self._connection.execute("pragma synchronous = full")
        with self._transaction():
            self._connection.execute(self._create_target)
            if self._is_staged:
                self._connection.execute(self._create_staged)
                if "__writer" not in self._staged_columns():
                    # Earlier versions have made it.
                    self._connection.execute(self._add_writer)
                self._connection.execute(self._create_committed)
        self._check_tables()

    def _staged_columns(self) -> set[str]:
        found = self._connection.execute("select name from pragma_table_info(?)", (f"{self._name}__staged",))
        return {name for (name,) in found}

    def _check_tables(self) -> None:
        slots = (None,) * len(self._columns)
        try:
            self._connection.execute(f"explain {self._insert}", slots)
            if self._is_staged:
                self._connection.execute(f"explain {self._stage}", (None, None, None, None, None, *slots))
                self._connection.execute(f"explain {self._move}", (None, None))
        except sqlite3.OperationalError as error:
            self._connection.close()
            needs = f"columns {self._columns!r}" + (f" and a unique index on {self._key!r}" if self._key else "")
            raise ConfigError(
                f"SqliteSink: {self._path}: table {self._name!r} needs {needs}; {self._name}__staged, if it exists, the same "
                f"columns: {error}"
            ) from error

    def begin(self) -> None:
        """Start with no rows."""
        self._rows: list[tuple[Any, ...]] = []
        self._staged = 0
        self._spilling.done()

    def write(self, tup: Tuple) -> None:
        """Add a row.

        Raises:
            UnsupportedValueError: SQLite cannot store a value, or a field of the key is None.
            SinkBlockedError: nothing can be written for now.
        """
        row = tuple([self._storable(tup[name], name) for name in self._columns])
        for place in self._key_places:
            if row[place] is None:
                raise UnsupportedValueError(f"column {self._columns[place]!r} is part of the key and must have a value")
        if self._is_staged and len(self._rows) >= self._spilling.at:
            try:
                self._spill()
            except sqlite3.OperationalError as error:
                self._spilling.refused(error, len(self._rows))
        self._rows.append(row)

    def pre_commit(self) -> Any:
        """Have all rows in the staging table. The token: the process, the transaction's number, how many rows it has."""
        self._spill()
        if not self._staged:
            return None
        token = [self._process, self._number, self._staged]
        self._number += 1
        return token

    def commit(self, token: Any) -> None:
        """Move staged rows to the table and note that they were moved, in one SQL transaction."""
        process, number, count = token
        with self._transaction():
            noted = self._connection.execute(self._last, (process,)).fetchone()
            if noted is not None and noted[0] >= number:
                return
            (found,) = self._connection.execute(self._count, (process, number)).fetchone()
            if found == count:
                self._connection.execute(self._move, (process, number))
                self._connection.execute(self._drop, (process, number))
                self._connection.execute(self._note, (process, number))
                return
        self._collector.report_error(
            StagedRowsLostError(
                f"{count} rows were staged for table {self._name!r}, and {found} of them are in {self._path}. Either somebody "
                "has changed it, or it is not the database that an earlier worker has written to."
            )
        )

    def abort(self, token: Any) -> None:
        """Remove staged rows."""
        if token is not None:
            with self._transaction():
                self._connection.execute(self._drop, (token[0], token[1]))
        elif self._is_staged:
            with self._transaction():
                self._connection.execute(self._drop, (self._process, self._number))

    def recover(self, tokens: Sequence[Any]) -> None:
        """Move the committed rows; remove the others that this task, or a task that no longer exists, has staged."""
        if not self._is_staged:
            return
        super().recover(tokens)
        with self._transaction():
            self._connection.execute(self._drop_left, (self._tasks, self._task, self._writer, self._writer))

    def publish(self) -> None:
        """Insert the rows, in one SQL transaction."""
        with self._transaction():
            self._connection.executemany(self._insert, self._rows)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _spill(self) -> None:
        """Move the rows from memory to the staging table. If it fails they stay."""
        if not self._rows:
            return
        first = self._staged
        head = (self._writer, self._task, self._process, self._number)
        with self._transaction():
            self._connection.executemany(self._stage, [(*head, first + n, *row) for n, row in enumerate(self._rows)])
        self._staged += len(self._rows)
        self._rows = []
        self._spilling.done()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """One SQL transaction: all of it or, if something raises, nothing."""
        self._connection.execute("begin immediate")
        try:
            yield
            self._connection.execute("commit")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise

    def _storable(self, value: Any, column: str) -> Any:
        kind = type(value)
        if kind is str:
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise UnsupportedValueError(f"column {column!r}: {error}") from error
            return value
        if kind is int and -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
            return value
        if value is None or kind in (float, bool, bytes):
            return value
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, Decimal | UUID):
            return str(value)
        what = f"{value!r} is beyond 64 bits" if kind is int else f"SQLite has no type for {kind.__name__}"
        raise UnsupportedValueError(f"column {column!r}: {what}; emit it as a text")


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
