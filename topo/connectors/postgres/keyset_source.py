"""The connection of a `PostgresSpout`: looks at tables, and reads their rows by key."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import psycopg

from topo.api.context import TaskContext
from topo.connectors.postgres.keyset import LAST_DRAWN, LEAST, SEQUENCE, TABLES, WRITERS, Horizon, KeysetBatch, KeysetStatements
from topo.connectors.postgres.loaders import adapt
from topo.connectors.postgres.session import TEXT_FORMS, Session
from topo.connectors.postgres.settings import KeysetSettings, TableName
from topo.errors import ConfigError, TopoEnvironmentError

_KEY, _STAMP, _VALUES = itemgetter(0), itemgetter(1), itemgetter(slice(2, None))
_INTEGERS = (20, 21, 23)
"""The types bigint, smallint and integer."""


class KeysetSource:
    """Reads the rows of the tables of one spout. All calls may block, and none raises for lack of rows.

    Args:
        settings: of the spout.
        context: of the task that reads; None: for a list of tables.

    Raises:
        ConfigError: the server refuses the user, or is a standby, and there is no `settle`.
        TopoEnvironmentError: it cannot be reached.
    """

    def __init__(self, settings: KeysetSettings, context: TaskContext) -> None:
        self._settings = settings
        self._session = Session("PostgresSpout", settings.dsn, context, self._prepare)
        self._session.open()
        self._horizons: dict[str, Horizon] = {}

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Have values come in texts that are read exactly, and refuse a standby: one of several hosts may have become one."""
        adapt(connection.adapters)
        for name, value in TEXT_FORMS.items():
            connection.execute("select set_config($1, $2, false)", (name, value))
        if self._settings.settle_s is None and connection.execute("select pg_is_in_recovery()").fetchone() == (True,):
            raise ConfigError(
                f"PostgresSpout: {self._session.where} is a standby, which does not show the transactions that write on its "
                "primary: rows would be missed; read from the primary (target_session_attrs=primary in dsn=), or give timestamp= "
                "and settle="
            )

    def tables(self) -> list[str]:
        """Return the tables that the pattern names now, as `to_regclass` reads them."""
        schema, pattern = self._settings.schema, self._settings.like
        found = self._session.connection().execute(TABLES, (pattern, schema)).fetchall()
        return [TableName(schema and found_schema, name).sql() for found_schema, name in found]

    def check(self, source: str) -> None:
        """Check that a table can be read by its key.

        Raises:
            ConfigError: it does not exist, columns are missing, or nothing shows when all rows up to a key are there.
        """
        settings = self._settings
        statements = settings.statements(source, 0)
        where = f"PostgresSpout: {source} in {self._session.where}"
        connection = self._session.connection()
        try:
            described = connection.execute(f"{statements.greatest} limit 0").description
            if described is None or described[0].type_code not in _INTEGERS:
                raise ConfigError(f"{where}: key={settings.key!r} is no smallint, integer or bigint; give a column that is")
            connection.execute(statements.read, (0, 0, 0))
        except (psycopg.ProgrammingError, psycopg.NotSupportedError) as error:
            is_right = isinstance(error, psycopg.errors.InsufficientPrivilege)
            grant = "; grant this user select on it, and usage on its schema" if is_right else ""
            raise ConfigError(f"{where}: {str(error).strip()}{grant}") from error
        if settings.settle_s is not None:
            return
        needs = "give timestamp= and settle=, so that rows are read when no earlier ones can be missing"
        if settings.is_query:
            raise ConfigError(f"PostgresSpout: a query does not show which transactions are writing; {needs}")
        drawn = connection.execute(SEQUENCE, (source, settings.key)).fetchone()
        if drawn is None:
            raise ConfigError(f"{where}: key={settings.key!r} is drawn from no sequence (serial, identity); {needs}")
        cache, increment, cycles = drawn
        if cache != 1 or increment < 1 or cycles:
            raise ConfigError(
                f"{where}: the sequence of key={settings.key!r} does not rise from each insert to the next, since it has "
                f"cache {cache}, increment {increment}{' and cycles' if cycles else ''}; alter it to cache 1, or {needs}"
            )

    def greatest(self, source: str) -> int | None:
        """Return the greatest key that is visible."""
        found = self._session.connection().execute(self._settings.statements(source, 0).greatest).fetchone()
        return None if found is None else found[0]

    def read(self, source: str, number: int, behind: int, limit: int) -> KeysetBatch:
        """Read at most `limit` rows of a partition behind a key, as far as no row can come between them any more."""
        statements = self._settings.statements(source, number)
        horizon = self._horizons.setdefault(source, Horizon())
        if behind >= horizon.bound:
            self._look(source, statements, horizon, behind)
        if behind >= horizon.bound:
            return KeysetBatch([], None, [], behind, horizon.greatest)
        bound = horizon.bound
        connection = self._session.connection()
        while True:
            try:
                rows: list[Any] = connection.execute(statements.read, (behind, bound, limit)).fetchall()
                break
            except (psycopg.DataError, psycopg.NotSupportedError) as error:
                # One of them has a value that has no like in Python: a date before the year 1, an infinite time.
                if limit > 1:
                    limit //= 2
                    continue
                found = connection.execute(statements.read_text, (behind, bound, 1)).fetchone()
                if found is None:
                    raise
                return KeysetBatch([], None, [], found[0], horizon.greatest, (found[0], found[1], error))
        keys = list(map(_KEY, rows))
        stamps = None if self._settings.timestamp is None else list(map(_STAMP, rows))
        read_to = bound if len(rows) < limit else keys[-1]
        return KeysetBatch(keys, stamps, list(map(_VALUES, rows)), read_to, horizon.greatest)

    def _look(self, source: str, statements: KeysetStatements, horizon: Horizon, behind: int) -> None:
        """See whether the bound can rise."""
        connection = self._session.connection()
        if self._settings.settle_s is not None:
            (found,) = connection.execute(statements.greatest_settled, (self._settings.settle_s,)).fetchone() or (None,)
            horizon.seen(found, ())
            return
        if horizon.is_waiting:
            horizon.look(self._writers(source))
        if not horizon.is_waiting:
            # In this order: a transaction that begins to write after the first look draws a greater key.
            greatest = self.greatest(source)
            horizon.seen(greatest, self._writers(source))
            if greatest is None or greatest < behind:
                self._check_sequence(source, behind)

    def _check_sequence(self, source: str, behind: int) -> None:
        """Check that the next row gets a key that was not read yet. Rows that were read may be gone.

        Raises:
            TopoEnvironmentError: it gets a lesser one.
        """
        found = self._session.connection().execute(LAST_DRAWN, (source, self._settings.key)).fetchone()
        if found is not None and behind > LEAST and found[1] < behind:
            sequence, last = found
            raise TopoEnvironmentError(
                f"PostgresSpout: {source} in {self._session.where} was read up to {self._settings.key}={behind}, and its "
                f"sequence is at {last}: the table is a new one, or the sequence was reset. Rows with keys up to {behind} would "
                f"not be read: set it with `select setval('{sequence}', {behind})` and insert those rows again, or start the "
                "topology from the beginning"
            )

    def _writers(self, source: str) -> list[str]:
        return [name for (name,) in self._session.connection().execute(WRITERS, (source,)).fetchall()]

    def close(self) -> None:
        """Close the connection."""
        self._session.close()
