"""The two phases of a sink whose target is a table: rows are staged in a table beside it, and moved in one SQL transaction.

Pure: the database is a `TableStore`. Each process of a sink numbers its transactions; the table of marks has, for each process,
the number of its last transaction that was moved. The mark, the moved rows and the removal of the staged ones are one SQL
transaction, so a move can be repeated by any process at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from topo.api.tuples import Tuple
from topo.connectors.spilling import Spilling
from topo.errors import ConfigError, StagedRowsLostError, UnsupportedValueError

SPILL_ROWS = 10_000
"""Rows of a transaction that wait in memory before they go to the staging table."""

TableRow = tuple[Any, ...]


class TableStore(Protocol):
    """A database with a table, its staging table and its marks. All calls but `transaction` come inside of a transaction.

    Attributes:
        refusals: the errors that mean that nothing can be written for now.
    """

    refusals: tuple[type[Exception], ...]

    def transaction(self) -> AbstractContextManager[Any]:
        """One SQL transaction: all of it or, if something raises, nothing."""

    def stage(self, process: str, number: int, first: int, rows: Sequence[TableRow]) -> None:
        """Add rows of a transaction to the staging table; `first` is the number of the first of them."""

    def mark(self, process: str, number: int) -> bool:
        """Record that a transaction was moved, and keep other connections from doing so; False: it was before."""

    def count(self, process: str, number: int) -> int:
        """Return how many rows of a transaction are staged."""

    def move(self, process: str, number: int) -> None:
        """Copy the staged rows of a transaction to the table."""

    def drop(self, process: str, number: int) -> None:
        """Remove the staged rows of a transaction."""

    def drop_left(self) -> None:
        """Remove all that this task, or a task that no longer exists, has staged."""


class StagedTable:
    """The transactions of one task.

    Attributes:
        rows: those of the open transaction that are in memory.
    """

    def __init__(self, store: TableStore, name: str, target: str, report: Callable[[BaseException], None]) -> None:
        """Begin with no rows.

        Args:
            store: the database.
            name: of the table, for messages.
            target: where the database is, for messages.
            report: takes errors that no call raises.
        """
        self._store = store
        self._name, self._target = name, target
        self._report = report
        # A replacement must never name rows as its predecessor did, which may be alive still.
        self._process = os.urandom(6).hex()
        self._number = 0
        self._spilling = Spilling(f"table {name!r} in {target}", SPILL_ROWS, report)
        self.begin()

    def begin(self) -> None:
        """Start a transaction with no rows."""
        self.rows: list[TableRow] = []
        self._staged = 0
        self._spilling.done()

    def add(self, row: TableRow) -> None:
        """Add a row; when many are in memory they go to the staging table. Raises SinkBlockedError: nothing can be written."""
        if len(self.rows) >= self._spilling.at:
            try:
                self._spill()
            except self._store.refusals as error:
                self._spilling.refused(error, len(self.rows))
        self.rows.append(row)

    def pre_commit(self) -> Any:
        """Have all rows in the staging table. The token: the process, the transaction's number, how many rows it has."""
        self._spill()
        if not self._staged:
            return None
        token = [self._process, self._number, self._staged]
        self._number += 1
        return token

    def commit(self, token: Any) -> int:
        """Move staged rows to the table and record that they were moved, in one SQL transaction.

        Returns how many rows were moved: 0 where they had been before, or are lost.
        """
        process, number, count = token
        try:
            with self._store.transaction():
                # First of all: a former process may be about to do the same.
                if not self._store.mark(process, number):
                    return 0
                found = self._store.count(process, number)
                if found != count:
                    raise StagedRowsLostError(
                        f"{count} rows were staged for table {self._name!r}, and {found} of them are in {self._target}. Either "
                        "somebody has changed it, or it is not the database that an earlier worker has written to."
                    )
                self._store.move(process, number)
                self._store.drop(process, number)
        except StagedRowsLostError as error:
            self._report(error)
            return 0
        return int(count)

    def abort(self, token: Any) -> None:
        """Remove the staged rows of a transaction; None: of the open one."""
        process, number = (self._process, self._number) if token is None else token[:2]
        with self._store.transaction():
            self._store.drop(process, number)

    def drop_left(self) -> None:
        """Remove all that this task, or a task that no longer exists, has staged."""
        with self._store.transaction():
            self._store.drop_left()

    def _spill(self) -> None:
        """Move the rows from memory to the staging table. If it fails they stay."""
        if not self.rows:
            return
        with self._store.transaction():
            self._store.stage(self._process, self._number, self._staged, self.rows)
        self._staged += len(self.rows)
        self.rows = []
        self._spilling.done()


def _as_names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


class TableColumns:
    """The columns that a sink writes, and those of them that are its key.

    Attributes:
        names: of the columns, which are fields of its tuples.
        key: of the columns that rows replace each other by; empty where every row is inserted.
    """

    def __init__(self, sink: str, columns: str | Sequence[str], key: str | Sequence[str] | None) -> None:
        """Check the arguments of a sink. Raises ConfigError: they cannot be used."""
        self.names, self.key = _as_names(columns), () if key is None else _as_names(key)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ConfigError(f"{sink}: columns={columns!r} must be different names, one at least")
        if any(name.startswith("__") for name in self.names):
            raise ConfigError(f"{sink}: no name in columns={columns!r} may begin with '__'")
        if not set(self.key) <= set(self.names):
            raise ConfigError(f"{sink}: key={key!r} must be among columns={columns!r}")


class RowBuilder:
    """Makes rows of tuples.

    Args:
        columns: those of a row.
        checks: for each column, a function that takes a value other than None. It returns the value to store, or raises
            UnsupportedValueError or UnicodeEncodeError.
        types: for each column, the name of its type for messages; "" where it has none.
        required: the columns, besides those of the key, that take no None.
    """

    def __init__(
        self,
        columns: TableColumns,
        checks: Sequence[Callable[[Any], Any]],
        types: Sequence[str],
        required: Collection[str] = (),
    ) -> None:
        self._names, self._checks = columns.names, checks
        self._labels = [
            f"column {name!r}{type_ and ' of type '}{type_}" for name, type_ in zip(columns.names, types, strict=True)
        ]
        self._required = {
            place: "is part of the key" if name in columns.key else "refuses null"
            for place, name in enumerate(columns.names)
            if name in columns.key or name in required
        }
        self._fields: tuple[str, ...] | None = None
        self._places: list[tuple[int, Callable[[Any], Any]]] = []
        """Of the values in tuples with these fields, with their checks."""

    def row(self, tup: Tuple) -> TableRow:
        """Return the row of a tuple.

        Raises:
            UnsupportedValueError: a value cannot be stored; the message names the column.
            NotFoundError: the tuple has no such field.
        """
        origin = tup.origin
        if origin.fields is not self._fields:
            for name in self._names:
                tup[name]
            self._places = [(origin.index[name], check) for name, check in zip(self._names, self._checks, strict=True)]
            self._fields = origin.fields
        values = tup.values
        try:
            row = tuple([None if (value := values[place]) is None else check(value) for place, check in self._places])
        except (UnsupportedValueError, UnicodeEncodeError):
            self._explain(tup)
            raise
        for place, why in self._required.items():
            if row[place] is None:
                raise UnsupportedValueError(f"{self._labels[place]} {why} and must have a value")
        return row

    def _explain(self, tup: Tuple) -> None:
        """Raise the error of the first value that cannot be stored, with its column."""
        for name, check, label in zip(self._names, self._checks, self._labels, strict=True):
            try:
                tup[name] is None or check(tup[name])
            except (UnsupportedValueError, UnicodeEncodeError) as error:
                raise UnsupportedValueError(f"{label}: {error}") from error


class TableStatements:
    """The SQL that sinks of tables share. All parameters are positional.

    Args:
        tables: quoted names of the table, the table of staged rows, and that of marks.
        columns: those that are written.
        slot: returns the placeholder of parameter n, from 1.
    """

    def __init__(self, tables: tuple[str, str, str], columns: TableColumns, slot: Callable[[int], str]) -> None:
        self.target, self.staged, self.committed = tables
        self.names = ", ".join(map(quoted, columns.names))
        self.key = ", ".join(map(quoted, columns.key))
        one = f"where __process = {slot(1)} and __number = {slot(2)}"
        self.on_conflict = ""
        if columns.key:
            updates = ", ".join(f"{quoted(c)} = excluded.{quoted(c)}" for c in columns.names if c not in columns.key)
            self.on_conflict = f" on conflict ({self.key}) do " + (f"update set {updates}" if updates else "nothing")
        self.create_committed = f"create table if not exists {self.committed} (__process text primary key, __number bigint)"
        self.count = f"select count(*) from {self.staged} {one}"
        self.staged_rows = f"select {self.names} from {self.staged} {one} order by __row"
        self.move = f"insert into {self.target} ({self.names}) {self.staged_rows}{self.on_conflict}"
        self.drop = f"delete from {self.staged} {one}"
        self.mark = (
            f"insert into {self.committed} as c values ({slot(1)}, {slot(2)}) on conflict (__process) do update "
            "set __number = excluded.__number where c.__number < excluded.__number"
        )


def quoted(name: str) -> str:
    """Return a name as SQL takes any text for one."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
