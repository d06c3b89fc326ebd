"""MqttSpout on a real broker: messages in, the broker restarted, errors."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import self_signed
from tests.connectors.mqtt_peers import Peer, broker, peer
from tests.servers import mosquitto
from tests.servers.server import need
from topo import MqttSpout
from topo.connectors.mqtt.settings import broker_address
from topo.errors import ConfigError
from topo.testing.partition_harness import PartitionHarness

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("mqtt")]
__all__ = ["broker", "peer"]

PLUGINS = [*Path("/usr").glob("l*/*/mosquitto_dynamic_security.so"), *Path("/usr").glob("l*/mosquitto_dynamic_security.so")]


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


def test_a_topic_that_is_refused_is_reported_once_and_read_when_the_right_is_granted(reading: Any, tmp_path: Path) -> None:
    if not PLUGINS:
        pytest.skip("this Mosquitto has no plugin for dynamic security")
    control = {"acltype": "publishClientSend", "topic": "$CONTROL/#", "allow": True}
    rules = {
        "defaultACLAccess": {"publishClientSend": True, "publishClientReceive": True, "subscribe": False},
        "roles": [{"rolename": "all", "acls": [control]}],
        "groups": [{"groupname": "all", "roles": [{"rolename": "all"}]}],
        "anonymousGroup": "all",
    }
    (tmp_path / "rules.json").write_text(json.dumps(rules))
    broker = mosquitto.start(tmp_path, settings=[f"plugin {PLUGINS[0]}", f"plugin_opt_config_file {tmp_path / 'rules.json'}"])
    peer = Peer(broker)
    task = reading("in/#", broker.address)
    task.until(lambda: task.errors)
    assert "refuses the topic 'in/#', and it is tried again: Not authorized; give this user the right" in task.errors[0]
    grant = {"command": "setDefaultACLAccess", "acls": [{"acltype": "subscribe", "allow": True}]}
    peer.publish("$CONTROL/dynamic-security/v1", json.dumps({"commands": [grant]}))

    def is_taken() -> bool:
        task.harness.clock.advance("1s")
        return len(task.errors) == 2

    task.until(is_taken)
    assert "takes the topic 'in/#' now" in task.errors[1]
    peer.publish("in/a", "1")
    assert task.values(1) == ["1"]
    peer.close()
    broker.stop()


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


def test_a_retained_message_is_read_once_whatever_connections_follow(
    reading: Any, peer: Peer, broker: mosquitto.Mosquitto
) -> None:
    peer.client.publish("in/a", "kept", qos=1, retain=True).wait_for_publish(20)
    task = reading()
    assert task.values(1) == ["kept"]
    task.commit_to_the_broker()
    broker.stop()
    task.until(lambda: not task.is_connected)
    broker.start_again()
    task.until(lambda: task.is_connected)
    peer.publish("in/a", "1")
    assert task.values(2) == ["kept", "1"]
    task.commit_to_the_broker()
    task.harness.stop()
    task.harness.start(1)
    peer.publish("in/a", "2")
    assert task.values(3) == ["kept", "1", "2"]


def test_messages_of_topics_that_are_no_longer_read_are_left_out_and_named_once(reading: Any, peer: Peer) -> None:
    topics = ["in/#", "old/#"]
    task = reading(topics)
    subscribed(task, peer)
    before = len(task.harness.all_rows())
    task.harness.stop()
    topics.remove("old/#")
    peer.publish("old/a", "1", "2")
    peer.publish("in/a", "3")
    task.harness.start(1)
    assert task.values(before + 1)[before:] == ["3"]
    (error,) = task.errors
    assert "has subscriptions of before: messages such as that of topic 'old/a' are left out" in error
    # They are acked: the broker sends them no more.
    task.commit_to_the_broker()
    task.harness.stop()
    topics.append("old/#")
    task.harness.start(1)
    peer.publish("in/a", "4")
    assert task.values(before + 2)[before:] == ["3", "4"]


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
    subscribed(task, peer)
    session = task.session
    session.client.on_message = session.guarded(lambda *_: 1 / 0)
    peer.publish("in/a", "1")
    task.until(lambda: task.errors)
    assert "ZeroDivisionError" in task.errors[0] and session.client._thread.is_alive()


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


def test_a_broker_with_a_certificate_of_its_own_is_read_with_one_that_it_knows(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path, "127.0.0.1")
    broker = mosquitto.start(tmp_path, certificate=(cert, key))
    url = f"mqtts://127.0.0.1:{broker.tls_port}"
    try:
        task = Reading(lambda: MqttSpout(url, "a", tls={"ca_certs": cert, "certfile": cert, "keyfile": str(key)}))
        task.until(lambda: task.is_connected)
        assert task.errors == []
        task.harness.stop()
        for files, cause in (({}, "CERTIFICATE_VERIFY_FAILED"), ({"ca_certs": str(cert)}, "before the broker has answered")):
            task = Reading(lambda files=files: MqttSpout(url, "a", tls=files))
            task.until(lambda task=task: task.errors)
            assert cause in task.errors[0] and not task.is_connected
            task.harness.stop()
    finally:
        broker.kill()


def test_a_file_of_certificates_that_is_missing_is_named() -> None:
    from topo.connectors.mqtt.session import MqttSession

    address = broker_address("mqtts://h", {"ca_certs": "nowhere.pem", "keyfile_password": "planted", "certfile": "c"})
    with pytest.raises(ConfigError, match=r"MqttSink mqtts://h: tls: ca_certs='nowhere\.pem' cannot be read") as caught:
        MqttSession("MqttSink", address, "id", 30, 0, 100, None, print, print)
    assert "planted" not in str(caught.value)
