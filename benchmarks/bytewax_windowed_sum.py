"""The job of `topo bench windowed-sum` in bytewax: the same JSON events, summed up by key in ten seconds of event time.

    python benchmarks/bytewax_windowed_sum.py [--events 500000] [--snapshot SECONDS] [--json]

One process. Run it with the Python of an environment that has bytewax (see README.md). Nothing is tracked; `--snapshot 1` stores
the windows in bytewax's recovery store every second, which is its way to lose nothing. Its watermarks, one for each key, follow
the events alone: the clock is made to stand, elements need no order within a window.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

EVENTS_AT_ONCE = 512
KEYS = 10_000
DISORDER_MS = 5_000
FIRST_MS = 1_700_000_000_000
VARIANTS = 50_000
EPOCH = datetime.fromtimestamp(0, UTC)


def parts_of_events() -> list[tuple[str, int, str, int]]:
    """Return text up to the timestamp, lateness in ms, text after it, and value, as topo's benchmark draws them."""
    draw = random.Random(1).randrange
    drawn = [(draw(KEYS), draw(DISORDER_MS), draw(100)) for _ in range(VARIANTS)]
    return [(f'{{"key": "k{key}", "ts": ', late, f', "value": {value}}}', value) for key, late, value in drawn]


class Events(StatefulSourcePartition[str, int]):
    """Emits events; its state is how many."""

    def __init__(self, total: int, done: int) -> None:
        self.parts = parts_of_events()
        self.total = total
        self.done = done

    def next_batch(self) -> list[str]:
        if self.done >= self.total:
            raise StopIteration
        first, parts = self.done, self.parts
        self.done = min(self.total, first + EVENTS_AT_ONCE)
        lines = []
        for number in range(first, self.done):
            begin, late, end, _ = parts[number % VARIANTS]
            lines.append(f"{begin}{FIRST_MS + number // 10 - late}{end}")
        return lines

    def snapshot(self) -> int:
        return self.done


class EventSource(FixedPartitionedSource[str, int]):
    def __init__(self, total: int) -> None:
        self.total = total

    def list_parts(self) -> list[str]:
        return ["events"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Events:
        return Events(self.total, resume_state or 0)


class Total(DynamicSink[tuple[str, tuple[int, Any]]]):
    """Adds up what comes: sums of windows, or late events."""

    def __init__(self) -> None:
        self.items = self.sum = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[tuple[str, tuple[int, Any]]]:
        total = self

        class Part(StatelessSinkPartition[tuple[str, tuple[int, Any]]]):
            def write_batch(self, items: list[tuple[str, tuple[int, Any]]]) -> None:
                for _, (_, value) in items:
                    total.items += 1
                    total.sum += value if isinstance(value, int) else value["value"]

        return Part()


def parse(line: str) -> tuple[str, dict[str, Any]]:
    event = json.loads(line)
    return event["key"], event


def moment(event: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(event["ts"] / 1000, UTC)


def add(total: int, event: dict[str, Any]) -> int:
    return total + event["value"]


def windowed_sum(count: int, sums: Total, late: Total) -> Dataflow:
    flow = Dataflow("windowed_sum")
    events = op.map("parse", op.input("events", flow, EventSource(count)), parse)
    disorder = timedelta(milliseconds=DISORDER_MS)
    clock = win.EventClock(moment, disorder, now_getter=lambda: EPOCH, to_system_utc=lambda _moment: None)
    windower = win.TumblingWindower(timedelta(seconds=10), EPOCH)
    windows = win.fold_window("sum", events, clock, windower, int, add, int.__add__, ordered=False)
    op.output("sums", windows.down, sums)
    op.output("late", windows.late, late)
    return flow


def main() -> None:
    """Run it and print events a second and CPU time for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--snapshot", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    sums, late = Total(), Total()
    flow = windowed_sum(given.events, sums, late)
    with tempfile.TemporaryDirectory() as folder:
        recovery = None
        if given.snapshot:
            init_db_dir(Path(folder), 1)
            recovery = RecoveryConfig(folder)
        used = resource.getrusage(resource.RUSAGE_SELF)
        began = time.perf_counter()
        interval = timedelta(seconds=given.snapshot or 10)
        cluster_main(flow, [], 0, worker_count_per_proc=1, recovery_config=recovery, epoch_interval=interval)
        took = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
    values = [part[3] for part in parts_of_events()]
    rounds, rest = divmod(given.events, VARIANTS)
    emitted = rounds * sum(values) + sum(values[:rest])
    if sums.sum + late.sum != emitted:
        raise SystemExit(f"{sums.sum:,} in windows and {late.sum:,} late, of {emitted:,}")
    cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    result = {
        "events_per_second": round(given.events / took),
        "cpu_us_per_event": round(cpu_s / given.events * 1e6, 2),
        "events": given.events,
        "results": sums.items,
        "late": late.items,
        "snapshot_s": given.snapshot,
    }
    if given.json:
        print(json.dumps(result))
    else:
        print(f"{result['events_per_second']:,} events/s, {result['cpu_us_per_event']} us CPU each, {late.items:,} late")


if __name__ == "__main__":
    main()
