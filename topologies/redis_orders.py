"""Orders in Redis streams are summed by shop: a hash for each shop, and a stream of the large orders. Each order counts once.

    make redis                                                  # in another terminal: a server at redis://127.0.0.1:6379
    .venv/bin/python topologies/redis_orders.py 20000           # puts orders into orders:north and others
    topo run topologies/redis_orders.py                         # reads them
    redis-cli hgetall total:north

It reads until it is stopped, and takes part in `redis-cli xadd orders:north '*' shop '"north"' cents 450` at once.
"""

from __future__ import annotations

import random
import sys

import redis

from topo import (
    BasicBolt,
    BasicCollector,
    RedisSink,
    RedisStreamSink,
    RedisStreamSpout,
    StatefulBolt,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)

URL = "redis://127.0.0.1:6379"
SHOPS = ("north", "south", "east", "west")


class Large(BasicBolt):
    """Passes on the orders of at least so much."""

    outputs = ("shop", "cents")

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["cents"] >= self.cents:
            collector.emit((tup["shop"], tup["cents"]))


class Total(StatefulBolt):
    """Sums the orders of each shop."""

    outputs = ("shop", "orders", "cents")
    key = "shop"

    def prepare(self, context: TaskContext) -> None:
        self.totals: dict[str, tuple[int, int]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        orders, cents = self.totals.get(tup["shop"], (0, 0))
        self.totals[tup["shop"]] = total = (orders + 1, cents + tup["cents"])
        collector.emit((tup["shop"], *total))

    def snapshot(self) -> dict[str, tuple[int, int]]:
        return self.totals

    def restore(self, state: dict[str, tuple[int, int]] | None) -> None:
        self.totals = {shop: (orders, cents) for shop, (orders, cents) in (state or {}).items()}


def put_orders(url: str, count: int) -> None:
    """Append orders to a stream for each shop, the same every time."""
    chance = random.Random(1)
    client = redis.Redis.from_url(url)
    pipeline = client.pipeline(transaction=False)
    for _ in range(count):
        shop = chance.choice(SHOPS)
        pipeline.xadd(f"orders:{shop}", {"shop": f'"{shop}"', "cents": chance.randrange(100, 10_000)})
    pipeline.execute()
    client.close()


def topology(url: str = URL) -> Topology:
    """Build the topology.

    Args:
        url: of the server.
    """
    builder = TopologyBuilder("redis-orders").config(delivery="exactly_once", checkpoint_interval="1s")
    source = RedisStreamSpout(url, pattern="orders:*", fields=("shop", "cents"), value_deserializer="json")
    builder.set_spout("orders", source, 2)
    builder.set_bolt("total", Total(), 2).fields_grouping("orders", "shop")
    builder.set_bolt("totals", RedisSink(url, key="total:{shop}"), 2).fields_grouping("total", "shop")
    builder.set_bolt("large", Large(9_000)).shuffle_grouping("orders")
    builder.set_bolt("alerts", RedisStreamSink(url, "large-orders", maxlen=100_000)).shuffle_grouping("large")
    return builder.build()


if __name__ == "__main__":
    # Every process of the topology calls `topology`, so orders are put here.
    put_orders(URL, int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
