"""Tables of a real server that sinks write to and spouts read."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.postgres import PostgresServer
from topo import PostgresSink
from topo.testing.partition_harness import PartitionHarness

psycopg = pytest.importorskip("psycopg")


@dataclass
class Table:
    """A table, and what another program sees of it."""

    address: str
    name: str

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, in which T is the table."""
        return run(self.address, re.sub(r"\bT(__\w+)?\b", rf"{self.name}\1", statement))

    def sink(self, columns: Any, dsn: str = "", **options: Any) -> PostgresSink:
        return PostgresSink(dsn or self.address, self.name, columns, **options)


@pytest.fixture
def table(database: PostgresServer) -> Table:
    """A name of which there is no table yet."""
    return Table(database.address, f"t_{secrets.token_hex(6)}")


def run(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement, and return its rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def new_table(dsn: str) -> str:
    """Make a table with a key `id`, a number `n` and the time `at`; returns its name."""
    name = f"t_{secrets.token_hex(6)}"
    run(dsn, f"create table {name} (id bigserial primary key, n int, at timestamptz default now())")
    return name


def values(harness: PartitionHarness) -> list[Any]:
    """Return the first value of each row that a harness has."""
    return [row[0] for _, _, row in harness.all_rows()]
