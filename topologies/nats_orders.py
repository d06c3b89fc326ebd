"""Orders in a JetStream stream are summed by shop; the sums go to another stream, and to lines of JSON. Each order counts once.

    make nats                                                   # in another terminal: a server at nats://127.0.0.1:4222
    .venv/bin/python topologies/nats_orders.py 2000             # makes the streams ORDERS and TOTALS, and appends orders
    topo run topologies/nats_orders.py                          # reads them

It reads until it is stopped. The last message of the subject totals.SHOP has the total of a shop, and so has its last line in
build/totals.jsonl.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys

import nats

from topo import BasicCollector, JsonLinesSink, NatsSink, NatsSpout, StatefulBolt, TaskContext, Topology, TopologyBuilder, Tuple

SERVERS = "nats://127.0.0.1:4222"
SHOPS = ("north", "south", "east", "west")


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


async def put_orders(servers: str, count: int) -> None:
    """Make the streams if need be, and append orders, a subject for each shop; the same every time."""
    chance = random.Random(1)
    client = await nats.connect(servers)
    stream = client.jetstream()
    await stream.add_stream(name="ORDERS", subjects=["orders.>"])
    await stream.add_stream(name="TOTALS", subjects=["totals.>"])
    for _ in range(count):
        order = {"shop": chance.choice(SHOPS), "cents": chance.randrange(100, 10_000)}
        await stream.publish(f"orders.{order['shop']}", json.dumps(order).encode())
    await client.close()


def topology(servers: str = SERVERS, out: str = "build/totals.jsonl") -> Topology:
    """Build the topology.

    Args:
        servers: URL of the server.
        out: the file of totals.
    """
    builder = TopologyBuilder("nats-orders").config(delivery="exactly_once", checkpoint_interval="1s")
    source = NatsSpout(servers, "ORDERS", pattern="orders.*", value_deserializer="json", fields=("shop", "cents"))
    builder.set_spout("orders", source, 2)
    builder.set_bolt("total", Total(), 2).fields_grouping("orders", "shop")
    builder.set_bolt("lines", JsonLinesSink(out)).global_grouping("total")
    builder.set_bolt("totals", NatsSink(servers, "totals.{shop}", stream="TOTALS", staging=f"{out}.staged")).fields_grouping(
        "total", "shop"
    )
    return builder.build()


if __name__ == "__main__":
    # Every process of the topology calls `topology`, so orders are appended here.
    asyncio.run(put_orders(SERVERS, int(sys.argv[1]) if len(sys.argv) > 1 else 2_000))
