"""A real MQTT broker: messages in and out, the broker restarted, killed and frozen, processes killed."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually, flow, kill, pid_of
from tests.servers import mosquitto
from tests.servers.server import need
from topo import MqttSink, MqttSpout, TaskContext, TopologyConfig, Tuple
from topo.api.tuples import Origin
from topo.errors import ConfigError, TopoEnvironmentError, UnsupportedValueError
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("mqtt")]
__all__ = ["no_process_is_left", "scene"]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[mosquitto.Mosquitto]:
    """A broker of one test: it takes 0.1 s."""
    folder = tmp_path / "broker"
    folder.mkdir()
    started = mosquitto.start(folder)
    yield started
    started.thaw()
    started.kill()


class Peer:
    """Another program: publishes with QoS 1, and reads topics."""

    def __init__(self, broker: mosquitto.Mosquitto, topic: str = "") -> None:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        self.got: list[tuple[str, bytes]] = []
        self._ready = threading.Event()
        self.client = Client(CallbackAPIVersion.VERSION2, f"peer-{id(self)}", clean_session=False)
        self.client.on_message = lambda _c, _d, message: self.got.append((message.topic, message.payload))
        self.client.on_subscribe = lambda *_: self._ready.set()
        self.client.on_connect = lambda *_: self.client.subscribe(topic, 1) if topic else self._ready.set()
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()
        assert self._ready.wait(20)

    def publish(self, topic: str, *payloads: bytes | str, qos: int = 1) -> None:
        """Publish, and wait until the broker has all."""
        eventually(self.client.is_connected, what="the connection of a peer")
        for one in [self.client.publish(topic, payload, qos=qos) for payload in payloads]:
            one.wait_for_publish(20)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def peer(broker: mosquitto.Mosquitto) -> Iterator[Peer]:
    made = Peer(broker)
    yield made
    made.close()


class Reading:
    """A task that reads; the test decides when rows are done."""

    def __init__(self, make: Callable[[], MqttSpout]) -> None:
        self.harness = PartitionHarness(make)

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, f"gave up waiting; rows {self.harness.all_rows()[-3:]}, errors {self.errors}"
            self.harness.turns(1)
            time.sleep(0.002)

    def values(self, count: int) -> list[Any]:
        self.until(lambda: len(self.harness.all_rows()) >= count)
        self.harness.turns(3)
        return [row[0] if len(row) == 1 else row for _, _, row in self.harness.all_rows()]

    def commit(self) -> None:
        self.harness.tasks[0].commit()

    def commit_to_the_broker(self) -> None:
        """Commit, and wait until the broker has the acks: it answers what follows them on the connection."""
        self.commit()
        self.session.client.publish("answered", qos=1).wait_for_publish(20)

    @property
    def session(self) -> Any:
        return self.harness.tasks[0].spout._loop._reader._session  # type: ignore[union-attr]

    @property
    def is_connected(self) -> bool:
        return bool(self.session.is_connected)

    @property
    def errors(self) -> list[str]:
        return list(map(str, self.harness.errors))


@pytest.fixture
def reading(broker: mosquitto.Mosquitto) -> Iterator[Callable[..., Reading]]:
    made: list[Reading] = []

    def read(topics: Any = "in/#", url: str = "", **options: Any) -> Reading:
        made.append(Reading(lambda: MqttSpout(url or broker.address, topics, **{"value_deserializer": "text", **options})))
        made[-1].until(lambda: made[-1].is_connected or made[-1].errors)
        return made[-1]

    yield read
    for one in made:
        one.harness.stop()


def subscribed(task: Reading, peer: Peer) -> None:
    """Wait until the broker keeps messages for the spout."""
    for number in range(1000):
        peer.publish("in/ready", str(number))
        task.harness.turns(3)
        if task.harness.all_rows():
            break
        time.sleep(0.01)
    count = len(task.harness.all_rows())
    peer.publish("in/ready", "last")
    task.until(lambda: task.harness.all_rows()[-1][2][0] == "last" or len(task.harness.all_rows()) > count + 1000)
    task.commit_to_the_broker()


def test_messages_are_read_with_their_topics(reading: Any, peer: Peer) -> None:
    task = reading(("in/a/+", "in/ready"), value_deserializer="json", metadata=("topic",))
    for _ in range(200):
        peer.publish("in/a/1", '{"n": 1}')
        task.harness.turns(3)
        if task.harness.all_rows():
            break
    assert task.values(1)[0] == ({"n": 1}, "in/a/1") and task.errors == []


def test_what_is_not_done_is_delivered_to_the_next_process_and_the_rest_is_not(reading: Any, peer: Peer) -> None:
    task = reading()
    subscribed(task, peer)
    before = len(task.harness.all_rows())
    peer.publish("in/a", "1", "2")
    task.values(before + 2)
    task.commit_to_the_broker()
    peer.publish("in/a", "3", "4")
    task.values(before + 4)
    # The last two are not done: the positions of a crash are those that were reported before.
    task.harness.stop(store=False)
    peer.publish("in/a", "5")
    task.harness.start(1)
    assert task.values(before + 7)[before:] == ["1", "2", "3", "4", "3", "4", "5"]


def test_a_lost_connection_repeats_nothing_in_the_same_process(reading: Any, peer: Peer, broker: mosquitto.Mosquitto) -> None:
    task = reading()
    subscribed(task, peer)
    before = len(task.harness.all_rows())
    peer.publish("in/a", "1", "2", "3")
    task.values(before + 3)
    broker.stop()
    task.until(lambda: not task.is_connected)
    task.until(lambda: task.errors)
    # Done while no connection takes their acks.
    task.commit()
    broker.start_again()
    task.until(lambda: task.is_connected)
    peer.publish("in/a", "4")
    assert task.values(before + 4)[before:] == ["1", "2", "3", "4"]
    assert len(task.errors) == 1 and "lost the connection" in task.errors[0]
    task.commit_to_the_broker()
    task.harness.stop()
    task.harness.start(1)
    peer.publish("in/a", "5")
    assert task.values(before + 5)[before:] == ["1", "2", "3", "4", "5"], "all were acked"


def test_a_bad_payload_is_a_dead_letter_and_the_next_is_read(reading: Any, peer: Peer) -> None:
    task = reading(value_deserializer="json")
    for _ in range(200):
        peer.publish("in/a", "0")
        task.harness.turns(3)
        if task.harness.all_rows():
            break
    peer.publish("in/a", "{", "7")
    task.until(lambda: task.harness.all_rows()[-1][2] == (7,))
    assert [record for _, _, record in task.harness.given_up] == [b"{"]


def test_what_follows_a_message_that_cannot_be_taken_is_kept(reading: Any, peer: Peer) -> None:
    def decode(data: bytes) -> Any:
        return "mended" if is_mended and data == b"[" else json.loads(data)

    is_mended = False
    task = reading(value_deserializer=decode, on_bad_record="fail")
    for _ in range(200):
        peer.publish("in/a", "0")
        task.harness.turns(3)
        if task.harness.all_rows():
            break
    # All in one poll.
    peer.publish("in/a", "1", "2", "[", "4", "5")
    for _ in range(5):
        task.until(lambda: task.errors)
        task.harness.errors.clear()
        task.harness.clock.advance("1m")
    task.until(lambda: task.harness.all_rows()[-1][2] == (2,))
    task.commit()
    is_mended = True
    task.harness.clock.advance("1m")
    task.until(lambda: task.harness.all_rows()[-1][2] == (5,))
    positions = [position for _, position, _ in task.harness.all_rows()]
    assert positions == list(range(1, len(positions) + 1))
    assert [row[0] for _, _, row in task.harness.all_rows() if row != (0,)] == [1, 2, "mended", 4, 5]
    task.commit_to_the_broker()
    task.harness.stop()
    task.harness.start(1)
    peer.publish("in/a", "6")
    task.until(lambda: task.harness.all_rows()[-1][2] == (6,))
    assert task.harness.all_rows()[-2][2] == (5,), "all were acked"


def test_an_error_in_a_callback_is_reported(reading: Any, peer: Peer) -> None:
    task = reading()
    session = task.session
    session.client.on_message = session.guarded(lambda *_: 1 / 0)
    peer.publish("in/a", "1")
    task.until(lambda: task.errors)
    assert "ZeroDivisionError" in task.errors[0] and session.client._thread.is_alive()


class SinkTask:
    """A task with a sink whose tuples the test sees."""

    def __init__(self, url: str, **options: Any) -> None:
        self.acked: list[int] = []
        self.failed: list[int] = []
        self.errors: list[str] = []
        self.mailbox = TaskMailbox()
        executor = MailboxExecutor(self.mailbox)
        context = TaskContext("topology", "out", 1, config=TopologyConfig(), executor=executor)
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
    with pytest.raises(TopoEnvironmentError, match="4 rows wait"):
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
        assert f"MqttSink: {broker.address} refuses a message: Packet too large" in task.errors
    finally:
        task.sink.cleanup()
        broker.kill()


def test_a_broker_that_is_not_ready_is_not_taken_for_a_wrong_password() -> None:
    need(("paho",), "mqtt")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        task = Reading(lambda: MqttSpout(f"mqtt://127.0.0.1:{listening.getsockname()[1]}", "a"))
        task.harness.turns(1)
        with listening.accept()[0] as client:
            client.recv(1000)
            # "Server unavailable".
            client.sendall(b"\x20\x03\x00\x88\x00")
            task.until(lambda: task.errors)
        task.harness.stop()
    assert "refuses the connection: Server unavailable. It is tried again" in task.errors[0]


def test_a_wrong_password_is_reported_and_shown_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    locked = mosquitto.start(folder, is_locked=True)
    try:
        wrong = f"mqtt://{mosquitto.USER}:planted-wrong@127.0.0.1:{locked.port}"
        task = Reading(lambda: MqttSpout(wrong, "a"))
        task.until(lambda: task.errors)
        assert "check user and password" in task.errors[0]
        assert "planted" not in f"{task.errors} {task.harness.tasks[0].spout!r} {vars(task.harness.tasks[0].spout)}"
        task.harness.stop()
        right = f"mqtt://{mosquitto.USER}:{mosquitto.PASSWORD}@127.0.0.1:{locked.port}"
        task = Reading(lambda: MqttSpout(right, "a"))
        task.until(lambda: task.is_connected)
        assert task.errors == []
        task.harness.stop()
    finally:
        locked.kill()


PASS = """
class Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup, collector):
        time.sleep(0.002)
        collector.emit((tup["n"],))

"""


def numbers(peer: Peer) -> Counter[int]:
    return Counter(json.loads(payload)["n"] for topic, payload in peer.got if topic.startswith("out/"))


def submit(scene: Scene, broker: mosquitto.Mosquitto) -> Any:
    options = 'value_deserializer="json", fields=("n",), keepalive="2s"'
    source = f'builder.set_spout("in", MqttSpout({broker.address!r}, "in/#", {options}))'
    passed = 'builder.set_bolt("pass", Pass()).shuffle_grouping("in")'
    out = f'builder.set_bolt("out", MqttSink({broker.address!r}, "out/{{n}}", keepalive="2s")).shuffle_grouping("pass")'
    running = scene.submit(scene.file(PASS + flow(source, passed, out)), delivery="at_least_once", message_timeout="20s")
    return running


def wait_until_reading(peer: Peer) -> None:
    def is_reading() -> bool:
        peer.publish("in/a", '{"n": 0}')
        return bool(peer.got)

    eventually(is_reading, what="the first message through the topology")


def test_no_message_is_missing_though_processes_are_killed(scene: Scene, broker: mosquitto.Mosquitto) -> None:
    peer = Peer(broker, "out/#")
    running = submit(scene, broker)
    wait_until_reading(peer)
    for first, component in ((1, "in"), (201, "out"), (401, "pass")):
        peer.publish("in/a", *[json.dumps({"n": n}) for n in range(first, first + 200)])
        kill(pid_of(running.status(), component))
    eventually(lambda: set(numbers(peer)) >= set(range(601)), 120, what="all messages")
    running.kill()
    peer.close()


@pytest.mark.parametrize("fault", ["kill", "stop", "freeze"])
def test_no_message_is_missing_though_the_broker_is_lost(scene: Scene, broker: mosquitto.Mosquitto, fault: str) -> None:
    peer = Peer(broker, "out/#")
    running = submit(scene, broker)
    wait_until_reading(peer)
    peer.publish("in/a", *[json.dumps({"n": n}) for n in range(1, 301)])
    if fault == "freeze":
        broker.freeze()
        eventually(lambda: len(running.errors()) > 0, what="a report")
        broker.thaw()
    else:
        # A kill takes the messages since the last second, which the broker's settings are about.
        time.sleep(1.5 if fault == "kill" else 0)
        getattr(broker, fault)()
        broker.start_again()
    eventually(lambda: set(numbers(peer)) >= set(range(301)), 120, what=f"all messages; {len(set(numbers(peer)))} have come")
    peer.publish("in/a", json.dumps({"n": 301}))
    eventually(lambda: 301 in numbers(peer), 120, what="a message after the fault")
    running.kill()
    peer.close()


def test_what_mqtt_cannot_promise_is_refused(broker: mosquitto.Mosquitto, scene: Scene) -> None:
    source = f'builder.set_spout("in", MqttSpout({broker.address!r}, "in/#"){{}})'
    last = 'builder.set_bolt("print", PrintBolt()).shuffle_grouping("in")'
    run = scene.run(scene.file(flow(source.format(""), last)), delivery="exactly_once")
    assert run.outcome.exit_code != 0 and "MQTT has no ids" in json.dumps(run.errors) + run.outcome.reason


def test_the_example_raises_an_alert(scene: Scene, broker: mosquitto.Mosquitto) -> None:
    peer = Peer(broker, "alerts/#")
    example = Path(__file__).parents[2] / "topologies" / "machine_alerts.py"
    running = scene.cluster.submit(str(example), parameters={"url": broker.address})

    def is_raised() -> bool:
        peer.publish("machines/m1/readings", '{"celsius": 93}')
        peer.publish("machines/m2/readings", '{"celsius": 93}', '{"celsius": 20}')
        return bool(peer.got)

    eventually(is_raised, what="an alert")
    assert {topic for topic, _ in peer.got} == {"alerts/m1"} and json.loads(peer.got[0][1])["celsius"] == 93
    running.kill()
    peer.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MqttSpout("http://x", "a"), "url='http://x'"),
        (lambda: MqttSpout("mqtt://x", ()), "one or several topics"),
        (lambda: MqttSpout("mqtt://x", "a", receive_maximum=0), "from 1 to 65535"),
        (lambda: MqttSpout("mqtt://x", "a", metadata=("qos",)), "metadata has 'qos'"),
        (lambda: MqttSink("mqtt://x", "a/#"), "without"),
        (lambda: MqttSpout("mqtt://x", "sensors/#/temperature"), "no filter of topics"),
        (lambda: MqttSpout("mqtt://x", ("a", "sensors/x+")), "no filter of topics"),
        (lambda: MqttSpout("mqtt://x", "$share/group"), "no filter of topics"),
        (lambda: MqttSink("mqtt://x", "a", max_waiting=0), "at least 1"),
        (lambda: MqttSink("mqtt://x", "a", max_waiting=65_000), "at most 60000"),
        (lambda: MqttSink("mqtt://x", "a", value_serializer="text"), "name it by value="),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
