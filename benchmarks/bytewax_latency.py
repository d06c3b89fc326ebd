"""The latency of `topo bench pipe --rate R` in bytewax: an open-loop source, a map, a sink, in one process.

    python benchmarks/bytewax_latency.py --rate 1000 [--seconds 10] [--warm-up 2] [--json]

A record's latency counts from when it was due. Run it with the Python of an environment that has bytewax (see README.md).
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main

PAUSE = timedelta(microseconds=250)
"""How long the source rests when nothing is due, as topo's spouts do."""

Record = tuple[int, int]


class Schedule(StatelessSourcePartition[Record]):
    def __init__(self, rate: float, seconds: float) -> None:
        self.rate = rate
        self.total = int(rate * seconds)
        self.number = 0
        self.began = time.monotonic_ns() + 50_000_000
        self.awake_at: datetime | None = None

    def next_batch(self) -> list[Record]:
        if self.number >= self.total:
            raise StopIteration
        due = min(self.total, int((time.monotonic_ns() - self.began) * self.rate / 1e9) + 1)
        records = [(number, self.began + int(number * 1e9 / self.rate)) for number in range(self.number, due)]
        self.number = max(self.number, due)
        self.awake_at = None if records else datetime.now(UTC) + PAUSE
        return records

    def next_awake(self) -> datetime | None:
        return self.awake_at


class Source(DynamicSource[Record]):
    def __init__(self, rate: float, seconds: float) -> None:
        self.rate = rate
        self.seconds = seconds

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Schedule:
        return Schedule(self.rate, self.seconds)


class Sink(DynamicSink[Record]):
    def __init__(self) -> None:
        self.arrived: list[tuple[int, int]] = []

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[Record]:
        arrived = self.arrived

        class Part(StatelessSinkPartition[Record]):
            def write_batch(self, items: list[Record]) -> None:
                for _, due in items:
                    arrived.append((due, time.monotonic_ns()))

        return Part()


def percentile(ordered: list[float], share: float) -> float:
    return round(ordered[max(0, -int(-share * len(ordered) // 1) - 1)], 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--warm-up", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sink = Sink()
    flow = Dataflow("pipe")
    stream: Any = op.input("in", flow, Source(arguments.rate, arguments.warm_up + arguments.seconds))
    op.output("out", op.map("identity", stream, lambda record: record), sink)
    before = resource.getrusage(resource.RUSAGE_SELF)
    cluster_main(flow, [], 0, worker_count_per_proc=1)
    after = resource.getrusage(resource.RUSAGE_SELF)
    since = sink.arrived[0][0] + int(arguments.warm_up * 1e9)
    ordered = sorted((at - due) / 1e6 for due, at in sink.arrived if due >= since)
    result = {
        "latency_ms": {"p50": percentile(ordered, 0.5), "p99": percentile(ordered, 0.99), "p999": percentile(ordered, 0.999)},
        "records": len(ordered),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
    }
    print(
        json.dumps(result) if arguments.json else "  ".join(f"{name} {value} ms" for name, value in result["latency_ms"].items())
    )


if __name__ == "__main__":
    main()
