"""A sink that writes tuples as rows of a table in an SQLite database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any
from uuid import UUID

from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.api.two_phase import NotPublishedError, TwoPhaseSink
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.sqlite_table import SqliteTable
from topo.connectors.staged_table import RowBuilder, StagedTable, TableColumns
from topo.durable import make_folder
from topo.errors import ConfigError, UnsupportedValueError

_LARGEST_INTEGER = (1 << 63) - 1
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
"""SQLite takes no notice of the case of ASCII in names of columns, and of no other."""


class SqliteSink(TwoPhaseSink):
    """Writes one row for each tuple. Several tasks may write to one table.

    With `exactly_once` rows are staged in the table `TABLE__staged` and moved when their checkpoint is complete: each is inserted
    once, and none may be taken back. `TABLE__committed` records the moved rows, in the same SQL transaction. With the other modes
    rows are inserted in batches and acked then; after a recovery they may repeat.

    With a `key` a row replaces the one with the same key (an *upsert*), so repeats change nothing and `at_least_once` gives
    the same table. Give the bolt a fields grouping by the key: then the last row of a key is the last one emitted.

    A missing table is created. An existing table must have the columns, for a `key` a unique index on exactly its columns, and no
    constraint that a row could break, but `not null` without a default: a batch is inserted as a whole. Dates, times, decimals
    and UUIDs are stored as texts.
    """

    @checks_arguments
    def __init__(
        self,
        path: str | os.PathLike[str],
        table: str,
        columns: str | Sequence[str],
        *,
        key: str | Sequence[str] | None = None,
        max_batch: int = 1000,
        flush_interval: str | timedelta | float = "100ms",
    ) -> None:
        """Keep where to write.

        Args:
            path: the database's file, on a disk of this machine; its folder is made if need be.
            table: name of the table.
            columns: the field or fields of the tuples, which are also names of columns. Other fields are left out.
            key: the column or columns that rows replace each other by; None: every row is inserted.
            max_batch: tuples that are inserted together, but with `exactly_once`.
            flush_interval: the longest that a tuple waits for others, but with `exactly_once`. Must be well below
                `message_timeout`.

        Raises:
            ConfigError: an argument cannot be used.
        """
        super().__init__(max_batch=max_batch, flush_interval=flush_interval)
        self._path = Path(path)
        self._columns = TableColumns("SqliteSink", columns, key)
        self.required_fields = self._columns.names
        if len({name.translate(_LOWER) for name in self._columns.names}) < len(self._columns.names):
            raise ConfigError(
                f"SqliteSink: columns={columns!r} has names that differ in case alone, one column to SQLite; rename one"
            )
        if not table:
            raise ConfigError(f"SqliteSink: table={table!r} must be the name of a table")
        self._name = table

    def open(self, context: TaskContext) -> None:
        """Connect, and make the tables that are missing.

        Raises:
            ConfigError: the table exists and does not fit.
        """
        make_folder(self._path.parent)
        count = len(self._columns.names)
        self._store = SqliteTable(self._path, self._name, self._columns, context, self._is_staged)
        self._builder = RowBuilder(self._columns, [_storable] * count, [""] * count, self._store.required)
        self._staging = StagedTable(self._store, self._name, str(self._path), self._collector.report_error)

    def begin(self) -> None:
        """Start with no rows."""
        self._staging.begin()

    def write(self, tup: Tuple) -> None:
        """Add a row.

        Raises:
            UnsupportedValueError: SQLite cannot store a value, or one is None whose column refuses that.
            SinkBlockedError: nothing can be written for now.
        """
        row = self._builder.row(tup)
        if self._is_staged:
            self._staging.add(row)
        else:
            self._staging.rows.append(row)

    def pre_commit(self) -> Any:
        """Have all rows in the staging table, and return a token for them."""
        return self._staging.pre_commit()

    def commit(self, token: Any) -> None:
        """Move staged rows to the table and record that they were moved, in one SQL transaction."""
        self._staging.commit(token)

    def abort(self, token: Any) -> None:
        """Remove staged rows."""
        if self._is_staged:
            self._staging.abort(token)

    def recover(self, tokens: Sequence[Any]) -> None:
        """Move the committed rows; remove the others that this task, or a task that no longer exists, has staged."""
        if not self._is_staged:
            return
        super().recover(tokens)
        self._staging.drop_left()

    def publish(self) -> None:
        """Insert the rows, in one SQL transaction, which is repeated where the disk is full or the database locked."""
        try:
            with self._store.transaction():
                self._store.insert(self._staging.rows)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
                raise
            raise NotPublishedError from error

    def close(self) -> None:
        """Close the connection."""
        self._store.close()


def _storable(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        value.encode()
        return value
    if kind is int and -_LARGEST_INTEGER - 1 <= value <= _LARGEST_INTEGER:
        return value
    if kind is float:
        # SQLite stores NaN as null, which is no key.
        return None if value != value else value
    if kind in (bool, bytes):
        return value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    what = f"{value!r} is beyond 64 bits" if kind is int else f"SQLite has no type for {kind.__name__}"
    raise UnsupportedValueError(f"{what}; emit it as a text")
