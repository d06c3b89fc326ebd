"""Topologies on a real MQTT broker: it is restarted, killed and frozen, and processes are killed. Arguments."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.mqtt_peers import Peer, broker
from tests.integration.conftest import no_process_is_left, scene
from tests.integration.support import Scene, eventually, flow, kill, pid_of
from tests.servers import mosquitto
from topo import MqttSink, MqttSpout
from topo.errors import ConfigError

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("mqtt")]
__all__ = ["broker", "no_process_is_left", "scene"]


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
