"""An MQTT broker of one test, and another program that speaks to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support import eventually
from tests.servers import mosquitto


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
