"""Topics of a broker as sources under test, and a spout whose polls wait for the records of the broker."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

from tests.servers.kafka import Broker
from topo import KafkaSpout, TaskContext
from topo.testing.contracts import SourceUnderTest

_PATIENCE_S = 10.0


class PatientSpout(KafkaSpout):
    """A `KafkaSpout` for tests that count turns: a poll returns when there are rows, or nothing is left to read."""

    def reader(self, context: TaskContext) -> Any:
        made = super().reader(context)
        made._wait = None
        poll, consumer = made.poll, _consumer({**self._config, **self._settings(context)})

        def wait_for_rows(output: Any) -> None:
            until, look_at = time.monotonic() + _PATIENCE_S, 0.0
            while True:
                poll(output)
                now = time.monotonic()
                if output.calls or now > until or (now >= look_at and _is_all_read(made, consumer)):
                    return
                # Each look is a request for each partition, which the rows would wait for, too.
                look_at = now + 0.03 if now >= look_at else look_at
                time.sleep(0.002)

        made.poll = wait_for_rows
        return made

    def _settings(self, context: TaskContext) -> dict[str, Any]:
        # A partition that is assigned while the broker holds a request back would wait for its end.
        return {"fetch.wait.max.ms": 20, **super()._settings(context)}


def _consumer(settings: dict[str, Any]) -> Any:
    """A client whose requests do not wait behind one for records."""
    from confluent_kafka import Consumer

    return Consumer({**settings, "log_level": 0})


def _is_all_read(reader: Any, consumer: Any) -> bool:
    from confluent_kafka import KafkaException, TopicPartition

    for reading in reader._readings.values():
        _, topic, number = reading.partition
        if reading.is_paused or _waits_for_registry(reader):
            continue
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=5)
        except KafkaException:
            if number in consumer.list_topics(topic, timeout=5).topics[topic].partitions:
                return False
            continue
        if max(reading.next, 0) < end or reading.is_asking or reading.found is not None or reader._answers:
            return False
    return True


def _waits_for_registry(reader: Any) -> bool:
    """Whether a partition waits for a schema, and the registry is away."""
    line = reader._schemas._line
    return bool(reader._schemas._waiting) and line is not None and not line._link.is_up


class Topics(SourceUnderTest):
    """Each partition of the tests is a topic with one partition, found by a pattern. Records are JSON."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.prefix = f"t{secrets.token_hex(4)}"

    def spout(self) -> KafkaSpout:
        servers = self.broker.address
        return PatientSpout(
            pattern=f"^{self.prefix}-",
            bootstrap_servers=servers,
            value_deserializer="json",
            fields=("n",),
            timestamp=None,
            discovery_interval="10s",
        )

    def add(self, name: str, numbers: Sequence[int | None]) -> None:
        self.broker.create_topic(1, f"{self.prefix}-{name}")
        self.append(name, numbers)

    def append(self, name: str, numbers: Sequence[int | None]) -> None:
        self.broker.produce(f"{self.prefix}-{name}", ["{" if n is None else json.dumps({"n": n}) for n in numbers])

    def remove(self, name: str) -> None:
        self.broker.delete_topic(f"{self.prefix}-{name}")

    def poison(self, name: str, numbers: Sequence[int | None]) -> None:
        self.add(name, numbers)
