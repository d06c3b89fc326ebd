"""A table of an SQLite database with its staged rows and its marks, as `StagedTable` drives it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from topo.api.context import TaskContext
from topo.connectors.staged_table import TableColumns, TableRow, TableStatements, quoted
from topo.errors import ConfigError

_LOCK_TIMEOUT_S = 10.0
"""How long a task waits for others that write to the same database. Below `progress_timeout`."""


class SqliteTable:
    """One connection of one task. Several tasks and processes may write to one table.

    Args:
        path: the database's file; its folder exists.
        table: name of the table. Made if it is missing, as are those beside it.
        columns: those that are written.
        context: of the task that writes.
        is_staged: whether rows are staged.

    Raises:
        ConfigError: the table exists and does not fit.

    Attributes:
        required: the columns, of those that are written, which refuse null and have no default.
    """

    refusals: tuple[type[Exception], ...] = (sqlite3.OperationalError,)

    def __init__(self, path: Path, table: str, columns: TableColumns, context: TaskContext, is_staged: bool) -> None:
        self._writer = f"{context.topology}.{context.component}"
        self._task, self._tasks = context.task_index, context.parallelism
        self._statements(table, columns)
        self._connection = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None)
        self._connection.execute("pragma synchronous = full")
        with self.transaction():
            self._connection.execute(self._create_target)
            if is_staged:
                self._connection.execute(self._create_staged)
                found = self._connection.execute("select name from pragma_table_info(?)", (f"{table}__staged",))
                if ("__writer",) not in found.fetchall():
                    # Earlier versions have made it.
                    self._connection.execute(self._add_writer)
                self._connection.execute(self._common.create_committed)
        self._check_tables(path, table, columns, is_staged)

    def _statements(self, table: str, columns: TableColumns) -> None:
        target, staged, committed = (quoted(f"{table}{suffix}") for suffix in ("", "__staged", "__committed"))
        common = self._common = TableStatements((target, staged, committed), columns, lambda _place: "?")
        primary = f", primary key ({common.key})" if common.key else ""
        self._create_target = f"create table if not exists {target} ({common.names}{primary})"
        self._create_staged = (
            f"create table if not exists {staged} (__task integer, __process text, __number integer, __row integer, "
            f"{common.names}, __writer text, primary key (__process, __number, __row)) without rowid"
        )
        self._add_writer = f"alter table {staged} add column __writer text"
        slots = ", ".join("?" * len(columns.names))
        self._insert = f"insert into {target} ({common.names}) values ({slots}){common.on_conflict}"
        head = "__writer, __task, __process, __number, __row"
        self._stage = f"insert into {staged} ({head}, {common.names}) values (?, ?, ?, ?, ?, {slots})"
        self._drop_left = f"delete from {staged} where __task % ? = ? and ifnull(__writer, ?) = ?"

    def _check_tables(self, path: Path, table: str, columns: TableColumns, is_staged: bool) -> None:
        slots = (None,) * len(columns.names)
        try:
            self._connection.execute(f"explain {self._insert}", slots)
            if is_staged:
                self._connection.execute(f"explain {self._stage}", (None, None, None, None, None, *slots))
                self._connection.execute(f"explain {self._common.move}", (None, None))
        except sqlite3.OperationalError as error:
            self._connection.close()
            needs = f"columns {columns.names!r}" + (f" and a unique index on {columns.key!r}" if columns.key else "")
            raise ConfigError(
                f"SqliteSink: {path}: table {table!r} needs {needs}; {table}__staged, if it exists, the same columns: {error}"
            ) from error
        # A number takes the place of null in a primary key of integers.
        strict = "\"notnull\" and dflt_value is null and not (pk and lower(type) = 'integer')"
        found = [name for (name,) in self._connection.execute(f"select name from pragma_table_info(?) where {strict}", (table,))]
        names = {name.lower(): name for name in columns.names}
        if needed := [name for name in found if name.lower() not in names]:
            self._connection.close()
            raise ConfigError(
                f"SqliteSink: {path}: column {needed[0]!r} of table {table!r} refuses null and has no default; add it to columns="
            )
        self.required = {names[name.lower()] for name in found}

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One SQL transaction: all of it or, if something raises, nothing."""
        self._connection.execute("begin immediate")
        try:
            yield
            self._connection.execute("commit")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            raise

    def insert(self, rows: Sequence[TableRow]) -> None:
        """Insert rows into the table."""
        self._connection.executemany(self._insert, rows)

    def stage(self, process: str, number: int, first: int, rows: Sequence[TableRow]) -> None:
        head = (self._writer, self._task, process, number)
        self._connection.executemany(self._stage, [(*head, first + n, *row) for n, row in enumerate(rows)])

    def mark(self, process: str, number: int) -> bool:
        return self._connection.execute(self._common.mark, (process, number)).rowcount == 1

    def count(self, process: str, number: int) -> int:
        (found,) = self._connection.execute(self._common.count, (process, number)).fetchone()
        return int(found)

    def move(self, process: str, number: int) -> None:
        self._connection.execute(self._common.move, (process, number))

    def drop(self, process: str, number: int) -> None:
        self._connection.execute(self._common.drop, (process, number))

    def drop_left(self) -> None:
        self._connection.execute(self._drop_left, (self._tasks, self._task, self._writer, self._writer))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
