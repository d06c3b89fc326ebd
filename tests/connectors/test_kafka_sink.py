"""KafkaSink keeps the promises of two-phase sinks, on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.two_phase_sinks import KindContract, SinkKind, SinkTask, started
from tests.servers.kafka import Broker
from tests.unit.connectors.drive import tracked

pytest.importorskip("confluent_kafka")

from topo.connectors.kafka import KafkaSink

pytestmark = [pytest.mark.integration, pytest.mark.server, pytest.mark.xdist_group("kafka")]


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


MOMENT = 1_772_000_000_000


def stamped(broker: Broker, topic: str, folder: Path) -> KafkaSink:
    """A sink whose records have a time and a header."""
    return KafkaSink(topic, bootstrap_servers=broker.address, staging=folder, timestamp="n", headers=lambda tup: {"a": "b"})


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
    assert stamps(broker, topic) == [(MOMENT, [("a", b"b")]), (MOMENT + 1, [("a", b"b")])]


def test_the_time_and_the_headers_of_records_arrive(broker: Broker, tmp_path: Path) -> None:
    topic = broker.create_topic()
    sink = stamped(broker, topic, tmp_path)
    started(sink, delivery="at_least_once")
    sink.execute(tracked(n=MOMENT))
    sink.end_of_input()
    sink.close()
    assert stamps(broker, topic) == [(MOMENT, [("a", b"b")])]
