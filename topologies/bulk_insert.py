"""Writes orders into a database in transactions of up to 500 rows: a batching bolt, upserts, a bad row that fails alone.

Each order may arrive again after a failure (at least once); the upsert by its number lets the table have it once. The database
refuses orders without a price, of which `bad` sets the number: they end as dead letters, so the command exits with 1
unless there are none.

    topo run topologies/bulk_insert.py -p path=orders.db
    topo dead-letters bulk-insert
    topo run topologies/bulk_insert.py -p path=orders.db -p bad=0 -p size=1     # see what a row in each transaction costs
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from topo import BatchBolt, BatchCollector, IterableSpout, TaskContext, Topology, TopologyBuilder, Tuple

ITEMS = (("tea", 450), ("salt", 90), ("oil", 700), ("rice", 320))
UPSERT = """
    INSERT INTO orders VALUES (?, ?, ?)
    ON CONFLICT (number) DO UPDATE SET item = excluded.item, cents = excluded.cents
"""


class Orders:
    """The order numbers, with item and price in cents; the last ones have no price. Can be iterated again, after a restart."""

    def __init__(self, orders: int, bad: int) -> None:
        self.orders, self.bad = orders, bad

    def __iter__(self):  # type: ignore[no-untyped-def]
        for number in range(self.orders):
            item, cents = ITEMS[number % len(ITEMS)]
            yield number, item, cents if number < self.orders - self.bad else None


class Insert(BatchBolt):
    """Inserts a batch in one transaction. When it raises, topo finds the rows at fault by halving the batch; these alone fail."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(size=size, wait="50ms")
        self.path = path

    def prepare(self, context: TaskContext) -> None:
        self.batches = context.metrics.counter("transactions")
        self.database = sqlite3.connect(self.path)
        self.database.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item TEXT, cents INTEGER NOT NULL)")

    def execute_batch(self, tuples: Sequence[Tuple], collector: BatchCollector) -> None:
        rows = [(tup["number"], tup["item"], tup["cents"]) for tup in tuples]
        with self.database:  # commits, or rolls back when it raises
            self.database.executemany(UPSERT, rows)
        self.batches.add()

    def end_of_input(self, collector: BatchCollector) -> None:
        totals = self.database.execute("SELECT item, count(*), sum(cents) FROM orders GROUP BY item ORDER BY item")
        for item, count, cents in totals:
            print(f"{item:<6} {count:>8,} orders {cents / 100:>14,.2f}")

    def cleanup(self) -> None:
        self.database.close()


def topology(path: str = "orders.db", orders: int = 20_000, bad: int = 2, size: int = 500) -> Topology:
    """Build the topology.

    Args:
        path: the database file; it is made when it is not there.
        orders: how many orders there are.
        bad: how many of them the database refuses.
        size: rows in a transaction at most.
    """
    builder = TopologyBuilder("bulk-insert")
    builder.config(delivery="at_least_once", attempts=2, backoff=("100ms", "200ms"))
    builder.set_spout("orders", IterableSpout(Orders(orders, bad), fields=("number", "item", "cents")))
    builder.set_bolt("insert", Insert(str(Path(path).absolute()), size)).shuffle_grouping("orders")
    return builder.build()
