"""Orders are summed by shop and minute of event time, and the sums are rows of a table in PostgreSQL, each of them once.

    make postgres                                                           # in another terminal: a server that prints dsn="..."
    python topologies/postgres_orders.py "host=... dbname=postgres user=topo"        # makes the table `revenue`
    topo run topologies/postgres_orders.py -p dsn="host=... dbname=postgres user=topo"

A row replaces the one of the same shop and minute, so a second run changes nothing.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

from topo import IterableSpout, PostgresSink, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows

SHOPS = ("north", "south", "east", "west")
TABLE = """create table if not exists revenue (
    shop text, window_start bigint, orders bigint not null, cents bigint not null, primary key (shop, window_start))"""


def orders(count: int) -> Iterator[tuple[str, int, int]]:
    """Yield orders, the same every time: shop, time in milliseconds, cents. Some are up to 5 s late."""
    chance = random.Random(1)
    for number in range(count):
        yield chance.choice(SHOPS), 1_772_000_000_000 + 50 * number - chance.randrange(5000), chance.randrange(100, 10_000)


def topology(dsn: str = "dbname=postgres", orders_count: int = 20_000) -> Topology:
    """Build the topology.

    Args:
        dsn: connection string of the database.
        orders_count: how many orders to make up.
    """
    builder = TopologyBuilder("postgres-orders").config(delivery="exactly_once", checkpoint_interval="1s")
    source = IterableSpout(list(orders(orders_count)), ("shop", "at", "cents"))
    builder.set_spout("orders", source, watermarks=WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at"))
    sums = WindowBolt(
        key="shop",
        window=windows.TumblingEventTimeWindows.of("1m"),
        aggregate=aggregates.Together(orders=aggregates.Count(), cents=aggregates.Sum("cents")),
    )
    builder.set_bolt("sums", sums, 2).fields_grouping("orders", "shop")
    sink = PostgresSink(dsn, "revenue", ["shop", "window_start", "orders", "cents"], key=["shop", "window_start"])
    builder.set_bolt("revenue", sink, 2).fields_grouping("sums", "shop")
    return builder.build()


def make_table(dsn: str) -> None:
    """Make the table if it is missing."""
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as database:
        database.execute(TABLE)


if __name__ == "__main__":
    make_table(sys.argv[1])
