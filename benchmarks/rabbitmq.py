"""What RabbitSpout and RabbitSink cost a message, beside the bare client: the component alone, as a task drives it.

    make rabbitmq                                               in another terminal
    python -m benchmarks.rabbitmq                               20,000 messages of 100 bytes, five runs of each in turn

Figures are processor time of the process, which other work on the machine changes little; that of the broker is not in it. The
queue `topo-bench` is made, and removed. With `exactly_once` a checkpoint has `--checkpoint` messages.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, Literal

import pika

from benchmarks.files import ROOM, _refuse
from benchmarks.kafka_sink import Rows, drive
from topo import RabbitSink, RabbitSpout
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.emission.partition_messages import PartitionMessages

QUEUE = "topo-bench"
_PREFETCH = 10_000
_DURABLE = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def with_channel(url: str, action: Callable[[Any], None]) -> None:
    """Run an action with a channel of the client alone."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        action(connection.channel())
    finally:
        connection.close()


def refill(url: str, count: int) -> None:
    """Have as many messages in the queue, and no others."""

    def fill(channel: Any) -> None:
        channel.queue_declare(QUEUE, durable=True)
        channel.queue_purge(QUEUE)
        for _ in range(count):
            channel.basic_publish("", QUEUE, b"x" * 100, _DURABLE)

    with_channel(url, fill)

    def wait(channel: Any) -> None:
        while channel.queue_declare(QUEUE, passive=True).method.message_count < count:
            time.sleep(0.01)

    with_channel(url, wait)


def read_bare(channel: Any, count: int) -> None:
    """Read as a program without topo does, with an acknowledgement for every 500 messages."""
    channel.basic_qos(prefetch_count=_PREFETCH)
    for method, _, body in channel.consume(QUEUE):
        assert len(body) == 100
        count -= 1
        if count % 500 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if not count:
            return


def read_spout(url: str, count: int) -> None:
    """Read with a RabbitSpout."""
    spout = RabbitSpout(url, QUEUE, prefetch=_PREFETCH)
    collector = PartitionMessages("messages", declared_streams(spout.outputs), _refuse)
    spout.open(TaskContext("bench", "messages", 1), collector)
    collector.wanted = ROOM
    read = 0
    while read < count:
        spout.next_tuple()
        if rows := len(collector.streams[0].rows):
            read += rows
            spout.on_committed({"consumer-0": read})
        else:
            time.sleep(0.002)
        collector.clear()
    spout.close()


def publish_bare(channel: Any, rows: Rows, *, confirms: bool) -> None:
    """Publish as a program without topo does. A channel that blocks waits for the confirm of each message."""
    if confirms:
        channel.confirm_delivery()
    for _, value in rows:
        channel.basic_publish("", QUEUE, value, _DURABLE, mandatory=confirms)


def publish_sink(url: str, rows: Rows, delivery: Literal["at_least_once", "exactly_once"], staging: str, checkpoint: int) -> None:
    """Publish with a RabbitSink."""
    made = RabbitSink(url, "", QUEUE, value="value", value_serializer="bytes", staging=staging)
    drive(made, rows, delivery, checkpoint)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="amqp://guest:guest@127.0.0.1:5672/%2F")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--checkpoint", type=int, default=5_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    url, count, rows = options.url, options.rows, [("", b"x" * 100)] * options.rows
    with tempfile.TemporaryDirectory() as staging:
        reading: dict[str, Callable[[], None]] = {
            "bare consume": lambda: with_channel(url, lambda channel: read_bare(channel, count)),
            "RabbitSpout": lambda: read_spout(url, count),
        }
        publishing: dict[str, Callable[[], None]] = {
            "bare publish": lambda: with_channel(url, lambda channel: publish_bare(channel, rows, confirms=False)),
            "bare publish, confirms": lambda: with_channel(url, lambda channel: publish_bare(channel, rows, confirms=True)),
            "at_least_once": lambda: publish_sink(url, rows, "at_least_once", staging, options.checkpoint),
            "exactly_once": lambda: publish_sink(url, rows, "exactly_once", staging, options.checkpoint),
        }
        found: dict[str, list[float]] = {name: [] for name in (*reading, *publishing)}
        for _ in range(options.runs):
            for name, case in (*reading.items(), *publishing.items()):
                refill(url, count if name in reading else 0)
                began = time.process_time()
                case()
                found[name].append((time.process_time() - began) / count * 1e6)
    with_channel(url, lambda channel: channel.queue_delete(QUEUE))
    times = {name: statistics.median(values) for name, values in found.items()}
    if options.json:
        print(json.dumps(times))
        return
    for name, value in times.items():
        print(f"{name:24} {value:6.2f} us of processor time a message")


if __name__ == "__main__":
    main()
