"""What NatsSpout costs a message, beside the bare client: the component alone, as a task drives it.

    make nats                                                   in another terminal
    python -m benchmarks.nats_spout                             50,000 messages of 100 bytes, five runs of each in turn

Figures are processor time of the process, which other work on the machine changes little; that of the server is not in it. The
stream `BENCH` is made, and removed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from typing import Any

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from benchmarks.files import ROOM, _refuse
from topo import NatsSpout
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.emission.partition_messages import PartitionMessages


async def read_bare(servers: str, count: int) -> None:
    """Read messages without acknowledgements as a program without topo does, 500 at a time."""
    client = await nats.connect(servers)
    consumer = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await client.jetstream().pull_subscribe("bench.a", stream="BENCH", config=consumer)
    while count > 0:
        values = [message.data for message in await subscription.fetch(500, timeout=10)]
        count -= len(values)
    await client.close()


def read_spout(servers: str, count: int) -> None:
    """Read messages with a NatsSpout."""
    spout = NatsSpout(servers, "BENCH", subjects="bench.a")
    collector = PartitionMessages("messages", declared_streams(spout.outputs), _refuse)
    spout.open(TaskContext("bench", "messages", 1), collector)
    collector.wanted = ROOM
    while count > 0:
        spout.next_tuple()
        count -= len(collector.streams[0].rows)
        collector.clear()
    spout.close()


async def fill(servers: str, count: int) -> None:
    """Make the stream and its messages."""
    client = await nats.connect(servers)
    stream = client.jetstream()
    await stream.add_stream(name="BENCH", subjects=["bench.*"])
    for first in range(0, count, 500):
        await asyncio.gather(*[stream.publish("bench.a", b"x" * 100) for _ in range(first, min(first + 500, count))])
    await client.close()


async def empty(servers: str) -> None:
    """Remove the stream."""
    client = await nats.connect(servers)
    await client.jetstream().delete_stream("BENCH")
    await client.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="nats://127.0.0.1:4222")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    servers, count = options.servers, options.rows
    asyncio.run(fill(servers, count))
    cases: dict[str, Any] = {
        "bare fetch(500)": lambda: asyncio.run(read_bare(servers, count)),
        "NatsSpout": lambda: read_spout(servers, count),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.runs):
        for name, case in cases.items():
            began = time.process_time()
            case()
            found[name].append((time.process_time() - began) / count * 1e6)
    asyncio.run(empty(servers))
    times = {name: statistics.median(values) for name, values in found.items()}
    if options.json:
        print(json.dumps(times))
        return
    for name, value in times.items():
        print(f"{name:18} {value:6.2f} us of processor time a message")


if __name__ == "__main__":
    main()
