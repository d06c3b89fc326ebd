"""What RedisStreamSpout and RedisStreamSink cost an entry, beside the bare client: the component alone, as a task drives it.

    make redis                                                  in another terminal
    python -m benchmarks.redis_streams                          100,000 entries of 100 bytes, five runs of each in turn
    python -m benchmarks.redis_streams --url unix:///path/to/redis.socket --rows 200000

Figures are processor time of the process, which other work on the machine changes little; that of the server is not in it. The
keys `bench:in` and `bench:out` are used, and removed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import redis

from benchmarks.files import ROOM, _refuse
from topo import RedisStreamSink, RedisStreamSpout
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.api.tuples import Origin
from topo.checkpoint.staged_output import StagedOutput
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.emission.partition_messages import PartitionMessages

FIELDS = ("user", "cents", "text")


def read_bare(url: str, count: int) -> None:
    """Read entries, and the fields of each, as a program without topo does."""
    client = redis.Redis.from_url(url, decode_responses=True)
    position = "0"
    while count > 0:
        ((_, entries),) = client.xread({"bench:in": position}, count=1000)
        rows = [(entry["user"], entry["cents"], entry["text"]) for _, entry in entries]
        position = entries[-1][0]
        count -= len(rows)
    client.close()


def read_spout(url: str, count: int) -> None:
    """Read entries with a RedisStreamSpout."""
    spout = RedisStreamSpout(url, "bench:in", fields=FIELDS)
    collector = PartitionMessages("entries", declared_streams(spout.outputs), _refuse)
    spout.open(TaskContext("bench", "entries", 1), collector)
    collector.wanted = ROOM
    while count > 0:
        spout.next_tuple()
        count -= len(collector.streams[0].rows)
        collector.clear()
    spout.close()


def write_bare(url: str, rows: list[tuple[Any, ...]]) -> None:
    """Append entries as a program without topo does, a thousand in a pipeline."""
    client = redis.Redis.from_url(url)
    for first in range(0, len(rows), 1000):
        pipeline = client.pipeline(transaction=False)
        for row in rows[first : first + 1000]:
            pipeline.xadd("bench:out", dict(zip(FIELDS, row, strict=True)))
        pipeline.execute()
    client.close()


def write_sink(url: str, rows: list[tuple[Any, ...]], delivery: Any) -> None:
    """Append entries with a RedisStreamSink; with `exactly_once` in one checkpoint."""
    sink = RedisStreamSink(url, "bench:out")
    collector = BoltCollector("sink", (), _refuse)
    sink.prepare(TaskContext("bench", "sink", 1, config=replace(TopologyConfig(), delivery=delivery)), collector)
    output = StagedOutput(sink)
    if delivery == "exactly_once":
        output.restore(None)
    for first in range(0, len(rows), ROOM):
        origin = Origin("source", 2, "default", FIELDS)
        for row in rows[first : first + ROOM]:
            sink.execute(TrackedTuple.made(row, origin, None, 1, (), ()))
        collector.clear()
    if delivery == "exactly_once":
        output.snapshot(1)
        output.complete(1)
    else:
        sink.end_of_input()
    sink.cleanup()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="redis://127.0.0.1:6379")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    url, rows = options.url, [(f"user-{n % 1000}", n, "x" * 80) for n in range(options.rows)]
    client = redis.Redis.from_url(url)
    client.delete("bench:in", "bench:out")
    write_bare(url, rows)
    client.rename("bench:out", "bench:in")
    cases: dict[str, Callable[[], None]] = {
        "bare XREAD": lambda: read_bare(url, len(rows)),
        "RedisStreamSpout": lambda: read_spout(url, len(rows)),
        "bare XADD": lambda: write_bare(url, rows),
        "RedisStreamSink at_least_once": lambda: write_sink(url, rows, "at_least_once"),
        "RedisStreamSink exactly_once": lambda: write_sink(url, rows, "exactly_once"),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.runs):
        for name, case in cases.items():
            began = time.process_time()
            case()
            found[name].append((time.process_time() - began) / len(rows) * 1e6)
            client.delete("bench:out")
    client.delete("bench:in")
    times = {name: statistics.median(values) for name, values in found.items()}
    if options.json:
        print(json.dumps(times))
        return
    for name, value in times.items():
        print(f"{name:30} {value:6.2f} us of processor time an entry")


if __name__ == "__main__":
    main()
