"""MqttSink on a real broker: acks, messages that the broker refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mqtt_peers import Peer, broker
from tests.integration.support import eventually
from tests.servers import mosquitto
from topo import MqttSink, TaskContext, TopologyConfig, Tuple
from topo.api.tuples import Origin
from topo.errors import TopoEnvironmentError, UnsupportedValueError
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("mqtt")]
__all__ = ["broker"]


class SinkTask:
    """A task with a sink whose tuples the test sees."""

    def __init__(self, url: str, delivery: Any = "auto", **options: Any) -> None:
        self.acked: list[int] = []
        self.failed: list[int] = []
        self.errors: list[str] = []
        self.mailbox = TaskMailbox()
        executor = MailboxExecutor(self.mailbox)
        config = TopologyConfig(delivery=delivery)
        context = TaskContext("topology", "out", 1, config=config, executor=executor)
        self.sink = MqttSink(url, "out/a", value="n", value_serializer="json", **options)
        self.sink.prepare(context, self)  # type: ignore[arg-type]
        self.turn: Callable[[], object] = executor.try_yield

    def ack(self, tup: Tuple) -> None:
        self.acked.append(tup["n"])

    def fail(self, tup: Tuple) -> None:
        self.failed.append(tup["n"])

    def report_error(self, error: BaseException) -> None:
        self.errors.append(str(error))

    def execute(self, n: int) -> None:
        self.sink.execute(Tuple((n,), Origin("rows", 1, fields=("n",))))

    def until(self, condition: Callable[[], object]) -> None:
        def check() -> object:
            while self.turn():
                pass
            return condition()

        eventually(check, what="a sink")


def test_numbers_that_come_again_ack_no_other_message(broker: mosquitto.Mosquitto) -> None:
    peer = Peer(broker, "out/#")
    task = SinkTask(broker.address, max_waiting=4)
    task.until(lambda: task.sink._session.is_connected)
    broker.stop()
    task.execute(1)
    task.execute(2)
    task.sink.on_reset()
    # The numbers have gone round.
    task.sink._session.client._last_mid = 0
    with pytest.raises(TopoEnvironmentError, match="not taken"):
        task.execute(3)
    with pytest.raises(TopoEnvironmentError, match="not taken"):
        task.execute(4)
    task.execute(5)
    task.execute(6)
    with pytest.raises(TopoEnvironmentError, match=r"4 rows wait for .*, and this one fails"):
        task.execute(7)
    broker.start_again()
    task.until(lambda: task.acked == [5, 6])
    eventually(lambda: {payload for _, payload in peer.got} >= {b"1", b"2", b"5", b"6"}, what="the messages")
    task.execute(8)
    task.until(lambda: task.acked == [5, 6, 8])
    assert task.failed == []
    task.sink.cleanup()
    peer.close()


def test_a_message_that_is_too_large_for_the_broker_fails_alone(tmp_path: Path) -> None:
    broker = mosquitto.start(tmp_path, most_bytes=1000)
    task = SinkTask(broker.address)
    # 1,000 bytes with 13 for the packet and the topic.
    largest = 10**987 - 1
    try:
        # Before there is a connection, which names the limit.
        for n in (1, largest + 1, 2):
            task.execute(n)
        task.until(lambda: task.acked == [1, 2])
        assert task.failed == [largest + 1]
        task.execute(largest)
        with pytest.raises(UnsupportedValueError, match="a message of 1001 bytes; the broker takes 1000"):
            task.execute(largest + 1)
        task.execute(3)
        task.until(lambda: task.acked == [1, 2, largest, 3])
    finally:
        task.sink.cleanup()
        broker.kill()


def test_a_message_above_a_limit_that_the_broker_does_not_state_fails_alone(tmp_path: Path) -> None:
    broker = mosquitto.start(tmp_path, most_payload=100)
    task = SinkTask(broker.address)
    try:
        for n in (1, 10**100, 2):
            task.execute(n)
        task.until(lambda: task.acked == [1, 2] and task.failed)
        assert task.failed == [10**100]
        assert f"MqttSink: {broker.address} refuses a message of topic 'out/a': Packet too large" in task.errors
    finally:
        task.sink.cleanup()
        broker.kill()


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once"])
def test_rows_without_a_replay_are_counted_when_they_are_lost_at_the_end(
    broker: mosquitto.Mosquitto, caplog: pytest.LogCaptureFixture, delivery: str
) -> None:
    task = SinkTask(broker.address, delivery)
    task.execute(1)
    task.until(lambda: task.acked)
    broker.kill()
    for n in (2, 3):
        task.execute(n)
    task.sink.cleanup()
    lost = [record.getMessage() for record in caplog.records if "are lost" in record.getMessage()]
    text = f"2 rows still waited for {broker.address}, and are lost: delivery is at_most_once"
    assert lost == ([text] if delivery == "at_most_once" else [])
