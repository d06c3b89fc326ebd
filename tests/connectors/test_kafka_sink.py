"""KafkaSink keeps the promises of two-phase sinks, on a real broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import KindContract, SinkKind, SinkTask, started
from tests.servers.kafka import Broker
from tests.unit.connectors.drive import tracked

pytest.importorskip("confluent_kafka")

from topo import Tuple
from topo.connectors.kafka import KafkaSink

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("kafka-out")]


class Topics:
    """One topic for each folder that a test of the contract writes to."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._names: dict[Path, str] = {}

    def of(self, folder: Path) -> str:
        if folder not in self._names:
            self._names[folder] = self.broker.create_topic()
        return self._names[folder]

    def rows(self, folder: Path) -> list[int]:
        return [json.loads(record.value())["n"] for record in self.broker.records(self.of(folder))]


@pytest.fixture
def kind(broker: Broker) -> SinkKind:
    topics = Topics(broker)
    # Writers are named by topology and component, which the tests of the contract share: markers are stored by topic.
    return SinkKind(
        "kafka",
        lambda folder: KafkaSink(topics.of(folder), bootstrap_servers=broker.address, staging=folder),
        topics.rows,
        lambda folder: [path.name for path in folder.glob(".staged/*")],
    )


class TestContract(KindContract):
    """The promises of every two-phase sink."""


MOMENT = int(time.time()) * 1000


def stamped(broker: Broker, topic: str, folder: Path) -> KafkaSink:
    """A sink whose records have a time, and a header where that is even."""

    def headers(tup: Tuple) -> dict[str, str]:
        return {"a": "b"} if tup["n"] % 2 == 0 else {}

    return KafkaSink(topic, bootstrap_servers=broker.address, staging=folder, timestamp="n", headers=headers)


def stamps(broker: Broker, topic: str) -> list[Any]:
    return [(record.timestamp()[1], record.headers()) for record in broker.records(topic)]


@pytest.mark.parametrize("is_other", [False, True])
def test_the_time_and_the_headers_of_staged_records_arrive(broker: Broker, tmp_path: Path, is_other: bool) -> None:
    """Also where another process commits them."""
    topic = broker.create_topic()
    kind = SinkKind("kafka", lambda folder: stamped(broker, topic, folder), lambda folder: [], lambda folder: [])
    task = SinkTask(kind, tmp_path)
    task.write(MOMENT, MOMENT + 1)
    state = task.snapshot(1)
    if is_other:
        SinkTask(kind, tmp_path, state=state)
    else:
        task.output.complete(1)
    assert stamps(broker, topic) == [(MOMENT, [("a", b"b")]), (MOMENT + 1, None)]


def test_the_time_and_the_headers_of_records_arrive(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic()
    sink = stamped(broker, topic, tmp_path)
    started(sink, delivery="at_least_once")
    sink.execute(tracked(n=MOMENT))
    sink.end_of_input()
    sink.close()
    assert stamps(broker, topic) == [(MOMENT, [("a", b"b")])]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_records_for_which_the_queue_of_the_client_has_no_room_wait_for_the_others(
    broker: Broker, tmp_path: Path, delivery: str
) -> None:
    topic = broker.create_topic()
    config = {"queue.buffering.max.messages": 10}
    sink = KafkaSink(topic, bootstrap_servers=broker.address, staging=tmp_path, config=config)
    task = ReportingTask(sink, delivery)
    for n in range(25):
        sink.execute(tracked(n=n))
    sink.end_of_input()
    if delivery == "exactly_once":
        task.snapshot(1)
        task.output.complete(1)
    sink.close()
    assert [json.loads(record.value())["n"] for record in broker.records(topic)] == list(range(25))
    assert task.texts() == []


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_records_of_one_key_are_in_the_partition_of_the_client_of_java_an_empty_key_too(
    broker: Broker, tmp_path: Path, delivery: str
) -> None:
    topic = broker.create_topic(4)
    sink = KafkaSink(topic, bootstrap_servers=broker.address, staging=tmp_path, key="n", value="n", max_batch=1)
    task = ReportingTask(sink, delivery)
    # Murmur2 of these, without its sign, modulo 4; "21" and "foobar" are in the tests of Kafka's client of Java.
    expected = {"": 1, "21": 0, "foobar": 2}
    for key in [*expected] * 40:
        sink.execute(tracked(n=key))
    sink.end_of_input()
    if delivery == "exactly_once":
        task.snapshot(1)
        task.output.complete(1)
    sink.close()
    found = {(record.key().decode(), record.partition()) for record in broker.records(topic)}
    assert found == set(expected.items())


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_records_that_their_topic_removes_at_once_are_reported_once(broker: Broker, tmp_path: Path, delivery: str) -> None:
    topic = broker.create_topic(retention_ms="3600000")
    sink = KafkaSink(topic, bootstrap_servers=broker.address, staging=tmp_path, key="n", key_serializer="json", timestamp="n")
    task = ReportingTask(sink, delivery)
    now = int(time.time() * 1000)
    sink.execute(tracked(n=now - 1_000_000))
    assert task.texts() == []
    for n in (now - 4_000_000, now - 5_000_000, now):
        sink.execute(tracked(n=n))
    (error,) = task.texts()
    assert f"was written to topic '{topic}', which removes records 1.0 hours behind their time" in error
    sink.close()
