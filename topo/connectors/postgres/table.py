"""A table of PostgreSQL with its staged rows and its marks, as `StagedTable` drives it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from topo.api.context import TaskContext
from topo.connectors.postgres.column_types import ColumnInfo, check_of, within_encoding
from topo.connectors.postgres.halving import halved
from topo.connectors.postgres.session import Session, named
from topo.connectors.postgres.settings import TableName
from topo.connectors.postgres.statements import COLUMNS_OF, DURABLE, LOCK, SinkStatements
from topo.connectors.staged_table import RowBuilder, TableColumns, TableRow
from topo.errors import ConfigError, RightMissingError

_NOT_OF_ROWS = ("08", "0A", "25", "28", "40", "42", "53", "55", "57", "58")
"""The classes of SQLSTATE that hold for all rows: connections, unsupported statements, a standby, logins, conflicts of
transactions, rights and tables that are missing, resources, locks, shutdowns, the system. All rows would be given up for them."""


def is_of_row(error: Exception) -> bool:
    """Return whether a row is at fault for an error: as the server judges it, or a trigger, or psycopg, which cannot send it."""
    if not isinstance(error, psycopg.Error):
        return False
    if error.sqlstate is None:
        return isinstance(error, (psycopg.DataError, psycopg.ProgrammingError))
    return error.sqlstate[:2] not in _NOT_OF_ROWS


class PostgresTable:
    """The table as one task writes to it. Several tasks and processes may write to one table.

    Args:
        dsn: connection string of libpq.
        table: name of the table, which exists.
        columns: those that are written.
        context: of the task that writes.
        is_staged: whether rows are staged; the tables beside it are made then.

    Attributes:
        builder: makes rows of tuples.
        where: the database, for messages.

    Raises:
        ConfigError: the server refuses the user, or the table does not exist or does not fit.
        TopoEnvironmentError: the server cannot be reached.
    """

    refusals: tuple[type[Exception], ...] = (psycopg.Error,)

    def __init__(self, dsn: str, table: TableName, columns: TableColumns, context: TaskContext, is_staged: bool) -> None:
        self._table, self._columns = table, columns
        self._writer = f"{context.topology}.{context.component}"
        self._task, self._tasks = context.task_index, context.parallelism
        self._is_staged = is_staged
        self._session = Session("PostgresSink", dsn, context)
        self.where = self._session.where
        self._session.open()
        try:
            self._describe(self._session.connection())
        except BaseException:
            self._session.close()
            raise
        # From now on each new connection is prepared as the first one was.
        self._session.close()
        self._session = Session("PostgresSink", dsn, context, self._prepare)
        self._session.open()

    def _describe(self, connection: psycopg.Connection[Any]) -> None:
        """Read the types of the columns, and make the tables beside the table."""
        found = [ColumnInfo(*row) for row in connection.execute(COLUMNS_OF, (self._table.sql(),))]
        by_name = {column.name: column for column in found}
        types = [by_name[name] for name in self._columns.names if name in by_name]
        self._sql = SinkStatements(self._table, self._columns, types)
        checks = [check_of(column) for column in types]
        for encoding in _encodings(connection):
            checks = [(within_encoding(check, encoding), is_complete) for check, is_complete in checks]
        required = [column.name for column in types if column.is_required]
        if len(types) == len(self._columns.names):
            self.builder = RowBuilder(self._columns, [check for check, _ in checks], [column.sql for column in types], required)
        problem = self._problem(found, types)
        if problem is None and self._is_staged:
            unknown = next((column for column, (_, is_complete) in zip(types, checks, strict=True) if not is_complete), None)
            if unknown is not None:
                problem = (
                    f"column {unknown.name!r} has the type {unknown.sql}, of which no value can be checked before it is staged: "
                    "with exactly_once a bad one would hold up all others; make it text"
                )
        if problem is None:
            needs = f"; its key needs a unique index on exactly {self._columns.key!r}" if self._columns.key else ""
            try:
                connection.execute(self._sql.check)
                if self._is_staged:
                    self._make_tables(connection, types)
                elif not self._columns.key:
                    needs = "; rows without a key are copied; delivery='exactly_once' inserts them, and so does a key"
                    # A server that is read-only is waited for when there are rows.
                    with suppress(psycopg.InternalError), connection.transaction(force_rollback=True):
                        self._copy(connection, self._sql.copy, ())
            except psycopg.errors.InsufficientPrivilege as error:
                problem = self._lacking(error)
            except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
                problem = f"{str(error).strip()}{needs}"
        if problem is not None:
            raise ConfigError(f"PostgresSink: table {str(self._table)!r} in {self.where}: {problem}")

    def _lacking(self, error: Exception) -> str:
        rights = "insert on it" + (", with a key select and update, too" if self._columns.key else "")
        tables = ", and create in its schema for the tables of staged rows" if self._is_staged else ""
        return f"{str(error).partition(chr(10))[0]}; grant this user {rights}{tables}"

    def explained(self, error: Exception) -> Exception:
        """Return an error of a transaction with the table and the database; of a right with the way to mend it."""
        table = f"PostgresSink: table {str(self._table)!r} in {self.where}"
        if not isinstance(error, psycopg.errors.InsufficientPrivilege):
            return named(error, table)
        return RightMissingError(f"{table}: {self._lacking(error)}")

    def _problem(self, found: list[ColumnInfo], types: list[ColumnInfo]) -> str | None:
        """Return why the table does not fit, as far as its columns show."""
        if not found:
            return "it does not exist, or its schema may not be read; create it, since only you know the types of its columns"
        names = {column.name for column in found}
        missing = [name for name in self._columns.names if name not in names]
        if missing:
            return f"it has no columns {', '.join(map(repr, missing))}; it has {', '.join(repr(column.name) for column in found)}"
        generated = [column.name for column in types if column.is_generated]
        if generated:
            return f"the server works out column {generated[0]!r} itself; leave it out of columns="
        needed = [column.name for column in found if column.is_required and not column.has_default and column not in types]
        if needed:
            return f"its column {needed[0]!r} refuses null and has no default; add it to columns="
        return None

    def _make_tables(self, connection: psycopg.Connection[Any], types: list[ColumnInfo]) -> None:
        with connection.transaction():
            connection.execute(LOCK, (self._sql.common.staged,))
            common = self._sql.common
            for name, make in ((common.staged, self._sql.create_staged), (common.committed, common.create_committed)):
                # `if not exists` wants the right to create also where the table exists.
                if connection.execute("select to_regclass($1)", (name,)).fetchone() == (None,):
                    connection.execute(make)
        staged = connection.execute(COLUMNS_OF, (self._sql.common.staged,)).fetchall()
        kinds = {name: sql for name, sql, *_ in staged if not name.startswith("__")}
        if kinds != {column.name: column.sql for column in types}:
            raise psycopg.ProgrammingError(
                f"table '{self._table}__staged' has other columns or types than the table: {kinds}. When no topology that writes "
                "to it is to be resumed, drop it"
            )

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        if self._is_staged:
            connection.execute(DURABLE)
        elif self._columns.key:
            connection.execute(self._sql.create_batch)

    # -- batches -------------------------------------------------------------------------------------------------------------

    def insert(self, rows: Sequence[TableRow]) -> dict[int, Exception]:
        """Insert rows, or replace those with their keys. Returns the error of each row that the table refuses, by its index.

        All others are durable then. When it raises, some may be.
        """
        return halved(rows, self._insert_all, self._is_of_row)

    def _is_of_row(self, error: Exception) -> bool:
        return self._session.is_open and is_of_row(error)

    def _insert_all(self, rows: Sequence[TableRow]) -> None:
        with self._session.transaction() as connection:
            if not self._columns.key:
                self._copy(connection, self._sql.copy, rows)
                return
            self._copy(connection, self._sql.copy_batch, [(number, *row) for number, row in enumerate(rows)])
            connection.execute(self._sql.upsert)

    def _copy(self, connection: psycopg.Connection[Any], statement: str, rows: Sequence[TableRow]) -> None:
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            write = copy.write_row
            for row in rows:
                write(row)

    # -- the two phases ------------------------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._session.transaction() as connection:
            self._current = connection
            yield

    def stage(self, process: str, number: int, first: int, rows: Sequence[TableRow]) -> None:
        # A connection that was lost at the end of a transaction leaves open whether the rows are there.
        self._current.execute(self._sql.unstage, (process, number, first))
        head = (self._writer, self._task, process, number)
        self._copy(self._current, self._sql.stage, [(*head, first + place, *row) for place, row in enumerate(rows)])

    def mark(self, process: str, number: int) -> bool:
        # It waits for another session that has marked the same process, until that one's transaction is over.
        return bool(self._current.execute(self._sql.common.mark, (process, number)).rowcount)

    def count(self, process: str, number: int) -> int:
        (found,) = self._current.execute(self._sql.common.count, (process, number)).fetchone() or (0,)
        return int(found)

    def move(self, process: str, number: int) -> None:
        self._current.execute(self._sql.move, (process, number))

    def drop(self, process: str, number: int) -> None:
        self._current.execute(self._sql.common.drop, (process, number))

    def drop_left(self) -> None:
        self._current.execute(self._sql.drop_left, (self._writer, self._tasks, self._task))

    def close(self) -> None:
        """Close the connection."""
        self._session.close()


def _encodings(connection: psycopg.Connection[Any]) -> set[str]:
    """Return those besides UTF-8 that texts have to fit: of the client, which the user may have set, and of the database."""
    found = {connection.info.encoding}
    # psycopg has no name for some. Texts that do not fit these are found by the server.
    with suppress(psycopg.NotSupportedError), connection.transaction(force_rollback=True):
        connection.execute("select set_config('client_encoding', current_setting('server_encoding'), true)")
        found.add(connection.info.encoding)
    # psycopg takes ASCII for bytes of any kind.
    return found - {"utf-8", "ascii"}
