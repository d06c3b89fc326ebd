"""The arguments that all components of PostgreSQL have, checked without a connection; and names as SQL has them."""

from __future__ import annotations

import re
from typing import NamedTuple

from topo.connectors.clients import check_installed
from topo.connectors.postgres.keyset import KeysetStatements
from topo.connectors.staged_table import quoted
from topo.errors import ConfigError

_NAME_BYTES = 63
"""PostgreSQL cuts longer names off."""
_QUERY = re.compile(r"\s*(select|with)\s", re.I)


class TableName(NamedTuple):
    """A table: its name, and its schema where one is given."""

    schema: str
    name: str

    def sql(self, suffix: str = "") -> str:
        """Return the quoted name of the table, or of one beside it."""
        return ".".join(quoted(part) for part in (self.schema, f"{self.name}{suffix}") if part)

    def __str__(self) -> str:
        return ".".join(part for part in self if part)


def table_name(owner: str, table: str, beside: str = "") -> TableName:
    """Return the name that an argument stands for: "orders" or "shop.orders".

    Args:
        owner: the class, for messages.
        table: the argument.
        beside: the longest ending of names of tables that are made beside it.

    Raises:
        ConfigError: it cannot be used.
    """
    schema, _, name = table.rpartition(".")
    if not name or "." in schema or "\0" in table:
        raise ConfigError(f"{owner}: table={table!r} must be a name, or a schema and a name, such as 'shop.orders'")
    most = _NAME_BYTES - len(beside)
    if len(name.encode()) > most:
        raise ConfigError(f"{owner}: table={table!r} has more than {most} bytes")
    return TableName(schema, name)


def check_dsn(owner: str, dsn: str) -> None:
    """Check that psycopg is installed and can read a connection string, without showing it, since it may have a password.

    Raises:
        ConfigError: it is not, or cannot.
    """
    check_installed(owner, "postgres", "psycopg", "psycopg")
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(dsn)
    except ProgrammingError:
        # Neither the error nor its cause may show: they quote parts of the string.
        reason = "it must be 'host=... dbname=... user=...' or 'postgresql://user@host/dbname'"
    else:
        return
    raise ConfigError(f"{owner}: dsn= cannot be read; {reason}")


class KeysetSettings(NamedTuple):
    """What a `PostgresSpout` reads.

    Attributes:
        dsn: connection string of libpq.
        source: a table, a pattern of names, or a query, as it was given.
        columns: the values of each row.
        key: the integer column in whose order rows are read.
        timestamp: the column with the event time.
        settle_s: how old the timestamp of a row must be, in seconds; None: the transactions that write show it.
        partitions: how many each table has.
    """

    dsn: str
    source: str
    columns: tuple[str, ...]
    key: str
    timestamp: str | None
    settle_s: float | None
    partitions: int

    @property
    def is_query(self) -> bool:
        return _QUERY.match(self.source) is not None

    @property
    def is_pattern(self) -> bool:
        return "*" in self.source and not self.is_query

    @property
    def schema(self) -> str:
        return self.source.rpartition(".")[0]

    @property
    def like(self) -> str:
        """The pattern as `like` has it."""
        return re.sub(r"([\\%_])", r"\\\1", self.source.rpartition(".")[2]).replace("*", "%")

    def statements(self, source: str, number: int) -> KeysetStatements:
        """Return the SQL for a partition of a table, by its quoted name, or of the query."""
        sql = f"({self.source})" if self.is_query else source
        return KeysetStatements(sql, self.columns, self.key, self.timestamp, (number, self.partitions))
