"""Kafka to Kafka with exactly_once, while workers, the master and the broker are killed at random.

`KILL_SECONDS=60 pytest -s tests/connectors/test_kafka_to_kafka.py` kills for a minute, and shows the counts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.conftest import no_process_is_left, scene
from tests.integration.random_kills import SECONDS, SEED, SETTINGS, Killer
from tests.integration.support import Scene
from tests.servers.kafka import Broker
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.server,
    pytest.mark.xdist_group("kafka"),
    pytest.mark.timeout(400 + 4 * SECONDS),
]
__all__ = ["no_process_is_left", "scene"]
PARTITIONS = 2
RECORDS = round(400 * SECONDS)
"""Of each partition."""
TOPOLOGY = """
from topo import KafkaSink, KafkaSpout, TopologyBuilder


def copied():
    builder = TopologyBuilder("copied").config(delivery="exactly_once")
    source = KafkaSpout({source!r}, bootstrap_servers={servers!r}, stop={stop!r})
    builder.set_spout("source", source, 2)
    sink = KafkaSink({target!r}, bootstrap_servers={servers!r}, value="value", value_serializer="bytes")
    builder.set_bolt("sink", sink, 2).shuffle_grouping("source")
    return builder.build()
"""


def produce(broker: Broker, topic: str, hurry: Path) -> None:
    """Append the records, for longer than there are kills; all that are left when the file "hurry" exists."""
    from confluent_kafka import Producer

    settings = {"enable.idempotence": True, "delivery.timeout.ms": 300_000, "reconnect.backoff.max.ms": 500, "log_level": 0}
    producer = Producer({"bootstrap.servers": broker.address, **settings})
    for number in range(RECORDS):
        for partition in range(PARTITIONS):
            producer.produce(topic, f"{partition}/{number}", partition=partition)
        producer.poll(0)
        if number % 20 == 0 and not hurry.exists():
            time.sleep(20 * 3 * SECONDS / RECORDS)
    assert producer.flush(120) == 0


def kill_the_broker(broker: Broker, until: Callable[[], bool]) -> int:
    """Kill it and start it again until there is an end; return how often. On the thread that the broker has to end with."""
    chance, count = random.Random(SEED), 0
    while not until():
        time.sleep(2 + 4 * chance.random())
        broker.kill()
        count += 1
        time.sleep(chance.random())
        broker.start_again()
    return count


def test_each_record_is_copied_once(scene: Scene, broker: Broker) -> None:
    source, target = broker.create_topic(PARTITIONS), broker.create_topic(PARTITIONS)
    stop = {f"{source}-{partition}": RECORDS for partition in range(PARTITIONS)}
    file = scene.folder / "copied.py"
    file.write_text(TOPOLOGY.format(source=source, target=target, servers=broker.address, stop=stop))
    running = submit_background(RunRequest(f"{file}:copied", settings=SETTINGS, home=scene.home))
    hurry, killer = scene.folder / "hurry", Killer(scene, running)
    with ThreadPoolExecutor(2) as threads:
        produced = threads.submit(produce, broker, source, hurry)
        killed = threads.submit(killer.kill_for_a_while)
        try:
            broker_kills = kill_the_broker(broker, lambda: hurry.exists() or killed.done())
        finally:
            scene.touch("hurry")
        produced.result()
        outcome = killed.result()
    print(f"\nKafka to Kafka: {killer}, broker {broker_kills}")
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed"), str(killer)
    assert broker_kills >= 2
    found = sorted(record.value().decode() for record in broker.records(target))
    assert found == sorted(f"{partition}/{number}" for partition in range(PARTITIONS) for number in range(RECORDS))
