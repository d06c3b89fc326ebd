"""What KafkaSpout costs a record, beside the bare client: the component alone, as a task drives it.

    make kafka                                                  in another terminal
    python -m benchmarks.kafka_spout                            200,000 records of 100 bytes, five runs of each in turn
    python -m benchmarks.kafka_spout --servers 127.0.0.1:9092 --rows 500000

Figures are processor time of the process, threads of the client included, which other work on the machine changes little; that of
the broker is not in it. A topic is created for the runs, and deleted.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.files import ROOM, _refuse
from topo import KafkaSpout
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.emission.partition_messages import PartitionMessages


def read_bare(servers: str, topic: str, count: int) -> None:
    """Read records, and the fields of each, as a program without topo does."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bare", "queued.max.messages.kbytes": 16384})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while count > 0:
        for message in consumer.consume(1000, 1):
            if message.error() is None:
                row = (message.partition(), message.offset(), message.timestamp(), message.key(), message.value())
                count -= len(row) > 0
    consumer.close()


def read_spout(servers: str, topic: str, count: int, **given: Any) -> None:
    """Read records with a KafkaSpout."""
    spout = KafkaSpout(topic, bootstrap_servers=servers, **given)
    collector = PartitionMessages("records", declared_streams(spout.outputs), _refuse)
    spout.open(TaskContext("bench", "records", 1, clock=time.monotonic), collector)
    collector.wanted = ROOM
    while count > 0:
        spout.next_tuple()
        rows = len(collector.streams[0].rows)
        count -= rows
        collector.clear()
        if not rows:
            time.sleep(0.001)
    spout.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    servers, rows, topic = options.servers, options.rows, f"bench-{secrets.token_hex(4)}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    fill(servers, topic, rows)
    cases: dict[str, Callable[[], None]] = {
        "bare consume(1000), fields read": lambda: read_bare(servers, topic, rows),
        "KafkaSpout, bytes": lambda: read_spout(servers, topic, rows),
        "KafkaSpout, bytes and key": lambda: read_spout(servers, topic, rows, metadata=("key",)),
        "KafkaSpout, JSON, two fields": lambda: read_spout(
            servers, topic, rows, value_deserializer="json", fields=("user", "cents")
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.runs):
        for name, case in cases.items():
            began = time.process_time()
            case()
            found[name].append((time.process_time() - began) / rows * 1e6)
    admin.delete_topics([topic])[topic].result(30)
    times = {name: statistics.median(values) for name, values in found.items()}
    if options.json:
        print(json.dumps(times))
        return
    for name, value in times.items():
        print(f"{name:34} {value:6.2f} us of processor time a record")


def fill(servers: str, topic: str, count: int) -> None:
    """Append records of 100 bytes."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        value = json.dumps({"user": f"user-{number % 1000}", "cents": number, "text": ""})
        producer.produce(topic, value.ljust(100), key=str(number), partition=0)
        producer.poll(0)
    producer.flush(60)


if __name__ == "__main__":
    main()
