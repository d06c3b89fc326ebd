"""A `KafkaSink` on one topic, and the records of that: for the tests of its faults and of its refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.two_phase_sinks import SinkKind
from tests.servers.kafka import Broker

pytest.importorskip("confluent_kafka")


from topo.connectors.kafka import KafkaSink


def kind_of(address: str, topic: str, **options: Any) -> SinkKind:
    """A sink on one topic; reading is up to the test."""
    return SinkKind(
        "kafka",
        lambda folder: KafkaSink(topic, bootstrap_servers=address, staging=folder, **options),
        lambda _folder: [],
        lambda folder: [path.name for path in folder.glob(".staged/*")],
    )


def rows(broker: Broker, topic: str) -> list[int]:
    return [json.loads(record.value())["n"] for record in broker.records(topic)]
