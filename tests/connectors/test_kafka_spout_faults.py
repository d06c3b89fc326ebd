"""KafkaSpout in whole topologies whose processes, and whose broker, are killed: rows are counted at both ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import SINK, Scene, counter, eventually, flow, kill, pid_of
from tests.servers.kafka import Broker

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("kafka")]
__all__ = ["no_process_is_left", "scene"]

COUNT = 4000
PARTITIONS = 3


class Producing:
    """A program that appends numbers, each once, to partitions in turn, until there are COUNT."""

    def __init__(self, broker: Broker, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "log_level": 0})
        self._is_over = threading.Event()
        self.sent = 0

    def run(self) -> None:
        while self.sent < COUNT and not self._is_over.wait(0.01):
            for _ in range(20):
                self._producer.produce(self._topic, str(self.sent), partition=self.sent % PARTITIONS)
                self.sent += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._is_over.set()

    def flush(self) -> None:
        assert self._producer.flush(60) == 0


@contextmanager
def producing(broker: Broker, topic: str) -> Iterator[Producing]:
    producer = Producing(broker, topic)
    thread = threading.Thread(target=producer.run)
    thread.start()
    try:
        yield producer
    finally:
        producer.stop()
        thread.join()


def topology(scene: Scene, broker: Broker, topic: str, **given: Any) -> str:
    options = {"bootstrap_servers": broker.address, "value_deserializer": "json", "discovery_interval": "1s", **given}
    arguments = ", ".join(f"{name}={value!r}" for name, value in options.items())
    return scene.file(flow(f'builder.set_spout("in", KafkaSpout({topic!r}, {arguments}), 2)', f'{SINK}.shuffle_grouping("in")'))


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_no_record_is_missing_though_workers_and_the_broker_are_killed(scene: Scene, broker: Broker, delivery: str) -> None:
    topic = broker.create_topic(PARTITIONS)
    running = scene.submit(topology(scene, broker, topic), delivery=delivery, checkpoint_interval="200ms")
    with producing(broker, topic) as producer:
        for share, component in ((0.1, "in"), (0.3, None), (0.6, "sink")):
            eventually(lambda share=share: len(set(scene.lines())) > share * COUNT, 120, what=f"{share} of the rows")
            if component is None:
                broker.kill()
                broker.start_again()
            else:
                kill(pid_of(running.status(), component))
        eventually(lambda: producer.sent == COUNT, 120, what="all records")
        producer.flush()
    eventually(lambda: len(set(scene.lines())) == COUNT, 120, what=f"{COUNT} rows; {len(set(scene.lines()))}")
    rows = scene.lines()
    assert sorted(set(rows)) == list(range(COUNT))
    assert delivery == "at_least_once" or len(rows) == COUNT, "each once"
    status = running.status()
    assert counter(status, "in", "lost_records") == 0
    running.kill()


def test_a_lost_broker_is_reported_when_it_goes_and_when_it_is_back(scene: Scene, broker: Broker) -> None:
    topic = broker.create_topic(PARTITIONS)
    broker.produce(topic, ["1"])
    running = scene.submit(topology(scene, broker, topic), delivery="at_least_once")
    eventually(lambda: scene.lines() == [1], 120)
    pids = [pid_of(running.status(), "in", index) for index in range(2)]
    broker.kill()
    try:
        eventually(lambda: "nothing can be read: no broker" in errors_of(running), 120, what="the loss")
    finally:
        broker.start_again()
    eventually(lambda: "answers: reading continues" in errors_of(running), 120, what="the return, without a record")
    broker.produce(topic, ["2"])
    eventually(lambda: sorted(scene.lines()) == [1, 2], 120, what="the second record")
    assert [pid_of(running.status(), "in", index) for index in range(2)] == pids, "no process has ended"
    running.kill()


def errors_of(running: Any) -> str:
    return "\n".join(str(row) for row in running.errors())


def test_the_group_follows_though_no_further_record_comes(scene: Scene, broker: Broker) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = broker.create_topic(PARTITIONS)
    broker.produce(topic, ["1", "2"])
    running = scene.submit(topology(scene, broker, topic, group_id=f"group-{topic}"), delivery="at_least_once")
    monitor = Consumer({"bootstrap.servers": broker.address, "group.id": f"group-{topic}", "log_level": 0})
    eventually(lambda: monitor.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == 2, 60, what="the offset")
    monitor.close()
    running.kill()


def test_a_frozen_broker_only_delays(scene: Scene, broker: Broker) -> None:
    topic = broker.create_topic(PARTITIONS)
    config = {"socket.timeout.ms": 2000}
    running = scene.submit(topology(scene, broker, topic, config=config), delivery="exactly_once", checkpoint_interval="200ms")
    broker.produce(topic, [str(n) for n in range(100)])
    eventually(lambda: len(scene.lines()) == 100, 120)
    broker.freeze()
    time.sleep(4)
    broker.thaw()
    broker.produce(topic, [str(n) for n in range(100, 200)])
    eventually(lambda: len(scene.lines()) >= 200, 120, what="the rows behind the pause")
    assert sorted(scene.lines()) == list(range(200))
    running.kill()


def test_another_parallelism_continues_from_a_savepoint_and_takes_added_partitions(scene: Scene, broker: Broker) -> None:
    topic = broker.create_topic(PARTITIONS)
    for number in range(PARTITIONS):
        broker.produce(topic, [str(n) for n in range(number, 300, PARTITIONS)], number)
    running = scene.submit(topology(scene, broker, topic), delivery="exactly_once", checkpoint_interval="200ms")
    eventually(lambda: len(scene.lines()) == 300, 120, what="the first rows")
    broker.produce(topic, [str(n) for n in range(300, 400)], 1)
    broker.add_partitions(topic, PARTITIONS + 1)
    broker.produce(topic, [str(n) for n in range(400, 500)], PARTITIONS)
    running.rebalance({"in": 3})
    eventually(lambda: len(scene.lines()) >= 500, 120, what="the rest")
    assert sorted(scene.lines()) == list(range(500))
    running.kill()
