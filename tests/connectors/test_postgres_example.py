"""The example with PostgreSQL, on a real server."""

from __future__ import annotations

import runpy
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgres import PostgresServer
from topo.testing import TopologyTest

psycopg = pytest.importorskip("psycopg", reason="`make connectors` installs it")

pytestmark = pytest.mark.server

EXAMPLE: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[2] / "topologies" / "postgres_orders.py"))
MINUTE = 60_000


def test_each_order_is_in_the_sum_of_its_minute_once(database: PostgresServer, dsn: str) -> None:
    """Also in a second run, which replaces the rows by equal ones."""
    sums: dict[tuple[str, int], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for shop, at, cents in EXAMPLE["orders"](3000):
        orders, total = sums[shop, at // MINUTE * MINUTE]
        sums[shop, at // MINUTE * MINUTE] = orders + 1, total + cents
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("drop table if exists revenue")
    EXAMPLE["make_table"](dsn)
    for crash in ("sums", "revenue"):
        test = TopologyTest(lambda: EXAMPLE["topology"](dsn, 3000))
        test.advance("1500ms")
        test.crash(crash)
        test.run()
        with psycopg.connect(dsn, autocommit=True) as connection:
            rows = connection.execute("select shop, window_start, orders, cents from revenue").fetchall()
        assert {(shop, start): (orders, cents) for shop, start, orders, cents in rows} == sums
        assert len(rows) == len(sums)
