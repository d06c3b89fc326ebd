"""Orders in a topic of Kafka are summed by user, and the totals written to a file. Each order counts once.

    make kafka                                                   # in another terminal: a broker, with the topic `orders`
    topo run topologies/kafka_orders.py -p orders_count=20000    # puts orders into the topic, and reads them
    tail -f build/totals.jsonl

It reads until it is stopped, and takes further orders as they come: {"user": "ann", "cents": 450}.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from topo import BasicCollector, JsonLinesSink, KafkaSpout, StatefulBolt, TaskContext, Topology, TopologyBuilder, Tuple

USERS = ("ann", "bob", "cem", "dot")


class Total(StatefulBolt):
    """Sums the orders of each user."""

    outputs = ("user", "orders", "cents")
    key = "user"

    def prepare(self, context: TaskContext) -> None:
        self.totals: dict[str, tuple[int, int]] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        orders, cents = self.totals.get(tup["user"], (0, 0))
        self.totals[tup["user"]] = total = (orders + 1, cents + tup["cents"])
        collector.emit((tup["user"], *total))

    def snapshot(self) -> dict[str, tuple[int, int]]:
        return self.totals

    def restore(self, state: dict[str, tuple[int, int]] | None) -> None:
        self.totals = {user: (orders, cents) for user, (orders, cents) in (state or {}).items()}


def orders(count: int) -> list[tuple[str, int]]:
    """Return orders, the same every time: user and amount."""
    chance = random.Random(1)
    return [(chance.choice(USERS), chance.randrange(100, 10_000)) for _ in range(count)]


def put_orders(servers: str, count: int) -> None:
    """Append orders to the topic; those of a user to one partition, by the key."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    for user, cents in orders(count):
        producer.produce("orders", json.dumps({"user": user, "cents": cents}), key=user)
        producer.poll(0)
    producer.flush(30)


def topology(servers: str = "127.0.0.1:9092", out: str = "build/totals.jsonl", orders_count: int = 0) -> Topology:
    """Build the topology.

    Args:
        servers: addresses of brokers.
        out: the file for the totals.
        orders_count: how many orders to put into the topic first.
    """
    if orders_count:
        put_orders(servers, orders_count)
    builder = TopologyBuilder("kafka-orders").config(delivery="exactly_once", checkpoint_interval="1s")
    source = KafkaSpout("orders", bootstrap_servers=servers, value_deserializer="json", fields=("user", "cents"))
    builder.set_spout("orders", source, 2)
    builder.set_bolt("total", Total(), 2).fields_grouping("orders", "user")
    builder.set_bolt("totals", JsonLinesSink(Path(out))).shuffle_grouping("total")
    return builder.build()
