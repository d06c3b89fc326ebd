"""Topologies between queues of a real RabbitMQ broker: processes and the broker are killed, messages fail."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.connectors.test_rabbitmq import PATIENCE_S, broker, numbers, put, settled, taken
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually, flow, kill, pid_of
from tests.servers.rabbitmq import RabbitBroker

__all__ = ["broker", "no_process_is_left", "scene"]

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("rabbitmq"), pytest.mark.timeout(600)]

PASS = """
class Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup, collector):
        if tup["n"] == 13:
            raise ValueError("planted")
        collector.emit((tup["n"],))

"""


def submit(scene: Scene, broker: RabbitBroker, queue: str, out: str, options: str = "") -> Any:
    given = f'{broker.address!r}, {queue!r}, value_deserializer="json", fields=("n",), heartbeat="2s", timeout="2s"{options}'
    source = f'builder.set_spout("in", RabbitSpout({given}), 2)'
    passed = 'builder.set_bolt("pass", Pass()).shuffle_grouping("in")'
    last = f'builder.set_bolt("out", RabbitSink({broker.address!r}, "", {out!r})).shuffle_grouping("pass")'
    settings = {"delivery": "at_least_once", "message_timeout": "20s", "attempts": 2}
    return scene.submit(scene.file(PASS + flow(source, passed, last)), **settings)


class Reader:
    """What another program has read from a queue so far."""

    def __init__(self, broker: RabbitBroker, queue: str) -> None:
        self.broker, self.queue, self.seen = broker, queue, Counter[int]()

    def has(self, *wanted: int) -> bool:
        self.seen.update(numbers(self.broker, self.queue))
        return set(self.seen) >= set(wanted)


def test_no_message_is_missing_though_processes_and_the_broker_are_killed(scene: Scene, broker: RabbitBroker) -> None:
    queue, out = broker.declare(), broker.declare()
    running = submit(scene, broker, queue, out)
    reader = Reader(broker, out)
    for first, component in ((20, "in"), (220, "out")):
        put(broker, queue, *[json.dumps({"n": n}) for n in range(first, first + 200)])
        eventually(lambda first=first: reader.has(first), PATIENCE_S, what=f"message {first}")  # type: ignore[misc]
        kill(pid_of(running.status(), component))
    put(broker, queue, *[json.dumps({"n": n}) for n in range(420, 620)])
    broker.kill()
    broker.start_again()
    eventually(lambda: reader.has(*range(20, 620)), 2 * PATIENCE_S, what=f"all messages; {len(reader.seen)} have come")
    running.kill()


def test_a_message_that_always_fails_goes_to_the_dead_letter_exchange_of_its_queue(scene: Scene, broker: RabbitBroker) -> None:
    dead, out = broker.declare(), broker.declare()
    queue = broker.declare(**{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    running = submit(scene, broker, queue, out, ', on_dead="reject"')
    reader, bodies = Reader(broker, out), list[bytes]()
    put(broker, queue, '{"n": 12}', '{"n": 13}', "{", '{"n": 14}')

    def has_dead() -> bool:
        bodies.extend(body for body, _ in taken(broker, dead))
        return len(bodies) >= 2

    eventually(has_dead, PATIENCE_S, what="the dead letters")
    eventually(lambda: reader.has(12, 14), PATIENCE_S, what="the others")
    assert set(bodies) == {b'{"n": 13}', b"{"} and set(reader.seen) == {12, 14}
    running.kill()
    settled(broker, queue)
