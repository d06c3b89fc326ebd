"""A source of records that lasts as long as a test kills processes, and a broker that is killed meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.integration.random_kills import SECONDS, SEED
from tests.integration.support import eventually
from tests.servers.kafka import Broker

_BURST = 40


def produce_slowly(broker: Broker, topic: str, records: Iterable[tuple[int, str]], count: int, hurry: Path) -> None:
    """Append records, partition and value: all that are left when the file "hurry" exists, and the last ones not before."""
    from confluent_kafka import Producer

    settings = {"enable.idempotence": True, "delivery.timeout.ms": 300_000, "reconnect.backoff.max.ms": 500, "log_level": 0}
    producer = Producer({"bootstrap.servers": broker.address, **settings})
    pause = _BURST * 3 * SECONDS / count
    due = time.monotonic()
    for number, (partition, value) in enumerate(records):
        while True:
            try:
                producer.produce(topic, value, partition=partition)
                break
            except BufferError:
                producer.poll(0.5)
        producer.poll(0)
        if number % _BURST == 0:
            due += pause
            if (wait := due - time.monotonic()) > 0 and not hurry.exists():
                time.sleep(wait)
        if number == count - _BURST:
            eventually(hurry.exists, timeout_s=300, what="the end of the kills")
    assert producer.flush(120) == 0


def restart(broker: Broker, chance: random.Random) -> None:
    """Kill the broker, and start it again; on the thread that it has to end with."""
    broker.kill()
    time.sleep(chance.random())
    broker.start_again()


class BrokerKills:
    """Kills a broker, and starts it again.

    Attributes:
        count: how often it was killed.
    """

    def __init__(self, broker: Broker) -> None:
        self.count = 0
        self._broker = broker

    def strike_until(self, is_over: Callable[[], bool]) -> None:
        """Kill it now and then. On the thread that the broker has to end with."""
        chance = random.Random(SEED)
        while not is_over():
            time.sleep(2 + 4 * chance.random())
            restart(self._broker, chance)
            self.count += 1
