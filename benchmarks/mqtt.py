"""What MqttSpout and MqttSink cost a message, beside the bare client: the component alone, as a task drives it.

    make mqtt                                                   in another terminal
    python -m benchmarks.mqtt                                   10,000 messages of 100 bytes, five runs of each in turn

Figures are processor time of the process with all threads of the client, which other work on the machine changes little; that of
the broker is not in it. All messages have QoS 1.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.files import ROOM, _refuse
from topo import MqttSink, MqttSpout
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.api.tuples import Origin, Tuple
from topo.emission.partition_messages import PartitionMessages
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox

TOPIC = "topo-bench"
_MOST_OPEN = 10_000


class Bare:
    """A program without topo. Its client runs on a separate thread; `count` is the number of messages received."""

    def __init__(self, url: str, name: str) -> None:
        self.count, self.is_subscribed = 0, False
        self.client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTv5, manual_ack=True)
        self.client.on_message, self.client.on_subscribe = self._take, self._subscribed
        self.client.on_connect = lambda *_: self.client.subscribe(TOPIC, 1)
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval, properties.ReceiveMaximum = 3600, _MOST_OPEN
        parts = urlsplit(url)
        self.client.connect(str(parts.hostname), parts.port or 1883, clean_start=False, properties=properties)
        self.client.loop_start()
        _wait(lambda: self.is_subscribed)

    def _subscribed(self, *_: Any) -> None:
        self.is_subscribed = True

    def _take(self, client: Any, _data: Any, message: Any) -> None:
        self.count += 1
        client.ack(message.mid, 1)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


class Publisher:
    """A client that only publishes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
        self.client.connect(str(parts.hostname), parts.port or 1883)
        self.client.loop_start()

    def publish(self, count: int, topic: str = TOPIC) -> None:
        """Publish messages, and wait until the broker has taken all."""
        for one in [self.client.publish(topic, b"x" * 100, qos=1) for _ in range(count)]:
            one.wait_for_publish(60)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def _wait(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "gave up waiting"
        time.sleep(0.002)


class _Tasks:
    """A mailbox, and the collector of a sink, which counts acks."""

    def __init__(self) -> None:
        self.acked = 0
        self.executor = MailboxExecutor(TaskMailbox())

    def ack(self, _tup: Tuple) -> None:
        self.acked += 1

    def fail(self, _tup: Tuple) -> None:
        raise AssertionError("a message was refused")

    def report_error(self, error: BaseException) -> None:
        raise error

    def run_mails(self) -> None:
        while self.executor.try_yield():
            pass


def read_bare(url: str, name: str, count: int) -> None:
    """Read the session of a name."""
    made = Bare(url, name)
    _wait(lambda: made.count >= count)
    made.close()


def read_spout(url: str, name: str, count: int) -> None:
    """Read the session of a name with an MqttSpout."""
    spout = MqttSpout(url, TOPIC, client_id=name, receive_maximum=_MOST_OPEN)
    collector = PartitionMessages("messages", declared_streams(spout.outputs), _refuse)
    tasks = _Tasks()
    spout.open(TaskContext("bench", "messages", 1, executor=tasks.executor), collector)
    collector.wanted = ROOM
    read = 0
    while read < count:
        tasks.run_mails()
        spout.next_tuple()
        if rows := len(collector.streams[0].rows):
            read += rows
            spout.on_committed({"session": read})
        else:
            time.sleep(0.002)
        collector.clear()
    spout.close()


def publish_sink(url: str, count: int) -> None:
    """Publish with an MqttSink."""
    sink, tasks = MqttSink(url, "topo-bench-out", value="value", value_serializer="bytes", max_waiting=_MOST_OPEN), _Tasks()
    sink.prepare(TaskContext("bench", "sink", 1, executor=tasks.executor), tasks)  # type: ignore[arg-type]
    origin = Origin("source", 2, fields=("value",))
    for number in range(count):
        sink.execute(Tuple((b"x" * 100,), origin))
        if number % 100 == 0:
            tasks.run_mails()
            while number - tasks.acked > _MOST_OPEN - 200:
                time.sleep(0.001)
                tasks.run_mails()
    _wait(lambda: (tasks.run_mails(), tasks.acked >= count)[1])
    sink.cleanup()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="mqtt://127.0.0.1:1883")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    url, count = options.url, options.rows
    publisher = Publisher(url)
    cases: dict[str, tuple[bool, Callable[[str], None]]] = {
        "bare subscription": (True, lambda name: read_bare(url, name, count)),
        "MqttSpout": (True, lambda name: read_spout(url, name, count)),
        "bare publish": (False, lambda _: publisher.publish(count, "topo-bench-out")),
        "MqttSink": (False, lambda _: publish_sink(url, count)),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.runs):
        for name, (reads, case) in cases.items():
            session = f"bench-{secrets.token_hex(4)}"
            if reads:
                # The broker keeps messages for the session from here on.
                Bare(url, session).close()
                publisher.publish(count)
            began = time.process_time()
            case(session)
            found[name].append((time.process_time() - began) / count * 1e6)
    publisher.close()
    times = {name: statistics.median(values) for name, values in found.items()}
    if options.json:
        print(json.dumps(times))
        return
    for name, value in times.items():
        print(f"{name:20} {value:6.2f} us of processor time a message")


if __name__ == "__main__":
    main()
