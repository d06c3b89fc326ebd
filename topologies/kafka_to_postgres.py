"""Orders in a topic of Kafka are summed by shop and minute of event time, and the sums are rows in PostgreSQL, each of them once.

    make kafka TOPICS=orders:4                                              # in another terminal: a broker at 127.0.0.1:9092
    make postgres                                                           # in another terminal: a server that prints dsn="..."
    python topologies/kafka_to_postgres.py "host=... dbname=postgres user=topo"      # makes the table, puts orders into the topic
    topo run topologies/kafka_to_postgres.py -p dsn="host=... dbname=postgres user=topo"

It reads all records that the topic has when it starts, and ends. A window's sum is inserted, and no key of the table would hide a
second one: whatever is killed meanwhile, the rows are those of a run without kills.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from typing import Any

from topo import KafkaSpout, PostgresSink, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows

SHOPS = ("north", "south", "east", "west")
SERVERS = "127.0.0.1:9092"
COLUMNS = ("shop", "window_start", "orders", "cents")
TABLE = "create table if not exists {} (shop text, window_start bigint, orders bigint not null, cents bigint not null)"


def orders(count: int) -> Iterator[dict[str, Any]]:
    """Yield orders, the same every time: shop, time in milliseconds, cents. Some are up to 5 s late."""
    chance = random.Random(1)
    for number in range(count):
        at = 1_772_000_000_000 + 50 * number - chance.randrange(5000)
        yield {"shop": chance.choice(SHOPS), "at": at, "cents": chance.randrange(100, 10_000)}


def topology(
    servers: str = SERVERS, dsn: str = "dbname=postgres", topic: str = "orders", table: str = "revenue", stop: Any = "latest"
) -> Topology:
    """Build the topology.

    Args:
        servers: addresses of brokers.
        dsn: connection string of the database.
        topic, table: where orders come from, and sums go.
        stop: where reading ends, as of `KafkaSpout`.
    """
    builder = TopologyBuilder("kafka-to-postgres").config(delivery="exactly_once", checkpoint_interval="1s")
    source = KafkaSpout(
        topic,
        bootstrap_servers=servers,
        value_deserializer="json",
        fields=("shop", "at", "cents"),
        timestamp="at",
        stop=stop,
    )
    builder.set_spout("orders", source, 2, watermarks=WatermarkStrategy.bounded_out_of_orderness("5s"))
    sums = WindowBolt(
        key="shop",
        window=windows.TumblingEventTimeWindows.of("1m"),
        aggregate=aggregates.Together(orders=aggregates.Count(), cents=aggregates.Sum("cents")),
    )
    builder.set_bolt("sums", sums, 2).fields_grouping("orders", "shop")
    builder.set_bolt("revenue", PostgresSink(dsn, table, COLUMNS), 2).shuffle_grouping("sums")
    return builder.build()


def prepare(dsn: str, servers: str = SERVERS, count: int = 20_000) -> None:
    """Make the table if it is missing, and append orders to the topic."""
    import psycopg
    from confluent_kafka import Producer

    with psycopg.connect(dsn, autocommit=True) as database:
        database.execute(TABLE.format("revenue"))
    producer = Producer({"bootstrap.servers": servers})
    for number, order in enumerate(orders(count)):
        producer.produce("orders", json.dumps(order), partition=number % 4)
        producer.poll(0)
    producer.flush(30)


if __name__ == "__main__":
    prepare(sys.argv[1])
