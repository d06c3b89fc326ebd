"""A table of a real server that a sink writes to, for the tests of `PostgresSink`."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.postgres import PostgresServer
from topo import PostgresSink

psycopg = pytest.importorskip("psycopg")


@dataclass
class Table:
    """A table, and what another program sees of it."""

    address: str
    name: str

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement, in which T is the table."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            cursor = connection.execute(re.sub(r"\bT(__\w+)?\b", rf"{self.name}\1", statement))
            return cursor.fetchall() if cursor.description else []

    def sink(self, columns: Any, dsn: str = "", **options: Any) -> PostgresSink:
        return PostgresSink(dsn or self.address, self.name, columns, **options)


@pytest.fixture
def table(database: PostgresServer) -> Table:
    """A name of which there is no table yet."""
    return Table(database.address, f"t_{secrets.token_hex(6)}")
