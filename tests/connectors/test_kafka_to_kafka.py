"""Kafka to Kafka with exactly_once, while workers, the master and the broker are killed at random.

`KILL_SECONDS=60 pytest -s tests/connectors/test_kafka_to_kafka.py` kills for a minute, and shows the counts.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.connectors.kafka_kills import BrokerKills, produce_slowly
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.random_kills import SECONDS, SETTINGS, Killer
from tests.integration.support import Scene
from tests.servers.kafka import Broker
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.server,
    pytest.mark.xdist_group("kafka-out"),
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


def test_each_record_is_copied_once(scene: Scene, broker: Broker) -> None:
    source, target = broker.create_topic(PARTITIONS), broker.create_topic(PARTITIONS)
    stop = {f"{source}-{partition}": RECORDS for partition in range(PARTITIONS)}
    file = scene.folder / "copied.py"
    file.write_text(TOPOLOGY.format(source=source, target=target, servers=broker.address, stop=stop))
    running = submit_background(RunRequest(f"{file}:copied", settings=SETTINGS, home=scene.home))
    hurry, killer, broker_kills = scene.folder / "hurry", Killer(scene, running), BrokerKills(broker)
    with ThreadPoolExecutor(2) as threads:
        records = ((partition, f"{partition}/{number}") for number in range(RECORDS) for partition in range(PARTITIONS))
        produced = threads.submit(produce_slowly, broker, source, records, PARTITIONS * RECORDS, hurry)
        # A broker takes long to start on a busy machine: the others are killed until it was killed twice.
        killed = threads.submit(killer.kill_for_a_while, lambda: broker_kills.count < 2)
        try:
            broker_kills.strike_until(lambda: hurry.exists() or killed.done())
        finally:
            scene.touch("hurry")
        produced.result()
        outcome = killed.result()
    print(f"\nKafka to Kafka: {killer}, broker {broker_kills.count}")
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed"), str(killer)
    assert broker_kills.count >= 2
    found = sorted(record.value().decode() for record in broker.records(target))
    assert found == sorted(f"{partition}/{number}" for partition in range(PARTITIONS) for number in range(RECORDS))
