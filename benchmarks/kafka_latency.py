"""Latency from Kafka to Kafka through a topology: from the moment at which a record was due until a reader has it.

    make kafka                                             in another terminal
    python -m benchmarks.kafka_latency                     at_least_once at 1,000 records a second, for twenty seconds
    python -m benchmarks.kafka_latency --delivery exactly_once --rate 1000

A KafkaSpout and a KafkaSink, one partition each, a worker for each, and a checkpoint a second with `exactly_once`. The reader
reads committed records. Producer and reader are in this process; the first five seconds do not count. Every record has to arrive
once, in order.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from topo import KafkaSink, KafkaSpout, Topology, TopologyBuilder
from topo.launch.local_cluster import LocalCluster
from topo_cli.measurement import percentiles

WARM_UP_S = 5.0
PATIENCE_S = 120.0


def copied(servers: str, source: str, target: str, delivery: str, stop: int) -> Topology:
    """Build the topology."""
    builder = TopologyBuilder("copied").config(delivery=delivery, checkpoint_interval="1s")
    builder.set_spout("source", KafkaSpout(source, bootstrap_servers=servers, stop={f"{source}-0": stop}))
    sink = KafkaSink(target, bootstrap_servers=servers, value="value", value_serializer="bytes", flush_interval="5ms")
    builder.set_bolt("sink", sink).shuffle_grouping("source")
    return builder.build()


def produce(servers: str, topic: str, rate: float, count: int) -> None:
    """Append records at a rate, each with the time at which it was due."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    began = time.monotonic_ns()
    for number in range(count):
        due = began + round(number / rate * 1e9)
        # A shorter poll than a millisecond is one without a wait.
        if (left := due - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)
        producer.poll(0)
        producer.produce(topic, f"{number} {due}", partition=0)
    producer.flush(60)


def read(servers: str, topic: str, count: int) -> list[tuple[int, float]]:
    """Return number and latency in milliseconds of each record."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "latency", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, float]] = []
    until = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until:
        # The reader waits without turning: the processors are for what is measured.
        first = consumer.poll(0.2)
        for message in [first, *consumer.consume(1000, 0)] if first is not None else []:
            if message.error() is None:
                number, due = message.value().split()
                found.append((int(number), (time.monotonic_ns() - int(due)) / 1e6))
    consumer.close()
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--delivery", default="at_least_once", choices=("at_least_once", "exactly_once"))
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    servers, count = options.servers, round(options.rate * (options.seconds + WARM_UP_S))
    source, target = (f"bench-{secrets.token_hex(4)}" for _ in range(2))
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(source, 1, 1), NewTopic(target, 1, 1)]).values():
        created.result(30)
    given = {"servers": servers, "source": source, "target": target, "delivery": options.delivery, "stop": count}
    with tempfile.TemporaryDirectory() as home, LocalCluster(Path(home)) as cluster, ThreadPoolExecutor(2) as threads:
        running = cluster.submit(f"{Path(__file__).absolute()}:copied", parameters=given)
        running.wait_until(lambda status: status["status"] == "RUNNING", timeout_s=PATIENCE_S)
        reading = threads.submit(read, servers, target, count)
        threads.submit(produce, servers, source, options.rate, count).result()
        records = reading.result()
        running.wait()
    for deleted in admin.delete_topics([source, target]).values():
        deleted.result(30)
    assert [number for number, _ in records] == list(range(count)), f"{len(records)} of {count} records"
    found = percentiles([latency for number, latency in records if number >= options.rate * WARM_UP_S])
    if options.json:
        print(json.dumps(found))
        return
    shown = ", ".join(f"{name} {value:.1f} ms" for name, value in found.items())
    print(f"{options.delivery}, {options.rate:,.0f} records/s: {shown}")


if __name__ == "__main__":
    main()
