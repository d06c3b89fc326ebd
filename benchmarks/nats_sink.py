"""What NatsSink costs a message, beside the bare client: the sink alone, as a task drives it.

    make nats                                                   in another terminal
    python -m benchmarks.nats_sink                              20,000 messages of 100 bytes, five runs of each in turn

Figures are processor time of the process, which other work on the machine changes little; that of the server is not in it. The
stream `BENCH` is made, and removed. With `exactly_once` a checkpoint has `--checkpoint` messages.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from typing import Any, Literal

import nats

from benchmarks.kafka_sink import Rows, drive
from benchmarks.nats_spout import empty, fill
from topo import NatsSink


async def bare(servers: str, rows: Rows) -> None:
    """Publish as a program without topo does: 500 messages at a time, each with its acknowledgement."""
    client = await nats.connect(servers)
    stream = client.jetstream()
    for first in range(0, len(rows), 500):
        await asyncio.gather(*[stream.publish("bench.a", value) for _, value in rows[first : first + 500]])
    await client.close()


def sink(servers: str, rows: Rows, delivery: Literal["at_least_once", "exactly_once"], staging: str, checkpoint: int) -> None:
    """Publish with a NatsSink."""
    made = NatsSink(servers, "bench.a", stream="BENCH", value="value", value_serializer="bytes", staging=staging)
    drive(made, rows, delivery, checkpoint)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="nats://127.0.0.1:4222")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--checkpoint", type=int, default=5_000)
    options = parser.parse_args()
    servers, rows = options.servers, [("", b"x" * 100)] * options.rows
    asyncio.run(fill(servers, 0))
    with tempfile.TemporaryDirectory() as staging:
        cases: dict[str, Any] = {
            "bare publish": lambda: asyncio.run(bare(servers, rows)),
            "at_least_once": lambda: sink(servers, rows, "at_least_once", staging, options.checkpoint),
            "exactly_once": lambda: sink(servers, rows, "exactly_once", staging, options.checkpoint),
        }
        found: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(options.runs):
            for name, case in cases.items():
                began = time.process_time()
                case()
                found[name].append((time.process_time() - began) / len(rows) * 1e6)
    asyncio.run(empty(servers))
    for name, values in found.items():
        print(f"{name:18} {statistics.median(values):6.2f} us of processor time a message")


if __name__ == "__main__":
    main()
