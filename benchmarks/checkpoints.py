"""What checkpoints of much state take: how long, how many bytes, and how long a task stands still for one.

    python benchmarks/checkpoints.py [--keys 1000000] [--tasks 10] [--kind value|sum|timers|map] [--checkpoints 60] [--json]

A spout gives every key in turn, again and again, as fast as it is let; the bolt keeps state by key:

value   a number in a `ValueState`
timers  the same, and a timer of event time for each key, which is moved at each tuple
map     a `MapState` of two entries
sum     a `WindowBolt` that sums up, one window that stays open

A checkpoint is asked for every second. Those that began before each key had been seen do not count. `pause_ms` is the longest
that any task of the checkpoint stood still, `duration_s` what it took from the first barrier to the manifest.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from topo import (
    BasicCollector,
    ProcessBolt,
    RetryingSpout,
    SpoutCollector,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
    WindowBolt,
    aggregates,
    windows,
)
from topo.launch.local_cluster import LocalCluster

SETTINGS = {"delivery": "exactly_once", "checkpoint_interval": "1s", "checkpoint_timeout": "5m"}
_FAR_MS = 10**12


class Keys(RetryingSpout):
    """Every key in turn, again and again."""

    outputs = ("key", "value")

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.next = 0 if context.committed_position is None else context.committed_position + 1

    def next_tuple(self) -> None:
        number = self.next
        # Scattered as real keys are, and each of them once a round.
        self.collector.emit((number * 7_919 % self.keys, number), number, timestamp=number)
        self.next = number + 1


class Values(ProcessBolt):
    """A number by key."""

    outputs = ("key",)

    def __init__(self) -> None:
        super().__init__("key")

    def open(self, context: Any) -> None:
        self.seen = context.state.value("seen", default=0)

    def process(self, tup: Tuple, context: Any, collector: BasicCollector) -> None:
        self.seen.set(self.seen.get() + 1)


class Timers(Values):
    """A number and a timer by key."""

    def process(self, tup: Tuple, context: Any, collector: BasicCollector) -> None:
        seen = self.seen.get()
        if seen:
            context.delete_event_time_timer(_FAR_MS + seen)
        self.seen.set(seen + 1)
        context.register_event_time_timer(_FAR_MS + seen + 1)


class Maps(ProcessBolt):
    """Two entries by key."""

    outputs = ("key",)

    def __init__(self) -> None:
        super().__init__("key")

    def open(self, context: Any) -> None:
        self.seen = context.state.map("seen")

    def process(self, tup: Tuple, context: Any, collector: BasicCollector) -> None:
        self.seen.put(tup["value"] % 2, tup["value"])


def topology(keys: int, tasks: int, kind: str) -> Topology:
    """Return the topology; all of it in as many workers as it has tasks."""
    builder = TopologyBuilder("state")
    builder.set_spout("keys", Keys(keys))
    bolt: Any = {"value": Values, "timers": Timers, "map": Maps}.get(kind, Values)()
    if kind == "sum":
        bolt = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("1000d"), aggregate=aggregates.Sum("value"))
    builder.set_bolt("state", bolt, parallelism=tasks).fields_grouping("keys", "key")
    return builder.build()


def measure(keys: int, tasks: int, kind: str, checkpoints: int) -> list[dict[str, Any]]:
    """Return what `topo checkpoints` says of so many checkpoints of the full state."""
    parameters = {"keys": keys, "tasks": tasks, "kind": kind}
    rows: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch, LocalCluster(Path(scratch)) as cluster:
        running = cluster.submit(f"{Path(__file__).absolute()}:topology", parameters=parameters, settings=SETTINGS)
        running.wait_until(lambda status: executed(status) >= keys + 100_000, timeout_s=600)
        latest = running.status()["checkpoints"]
        since = latest["under_way"]["checkpoint"] if latest["under_way"] else max(latest["last_complete"], 0)
        while len(rows) < checkpoints:
            time.sleep(0.5)
            for row in running.status()["checkpoints"]["latest"]:
                if row["checkpoint"] > since:
                    rows[row["checkpoint"]] = row
        running.kill()
    return list(rows.values())


def executed(status: dict[str, Any]) -> int:
    """Return how many tuples the bolt has had."""
    found = [component for component in status["components"] if component["component"] == "state"]
    return int(found[0]["counters"].get("executed", 0)) if found else 0


def quantile(numbers: list[float], share: float) -> float:
    """Return the least number that so many of them do not exceed."""
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--keys", type=int, default=1_000_000)
    options.add_argument("--tasks", type=int, default=10)
    options.add_argument("--kind", choices=("value", "timers", "map", "sum"), default="value")
    options.add_argument("--checkpoints", type=int, default=60)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    rows = measure(given.keys, given.tasks, given.kind, given.checkpoints)
    good = [row for row in rows if row["state"] == "complete"]
    result: dict[str, Any] = {
        "keys": given.keys,
        "tasks": given.tasks,
        "kind": given.kind,
        "complete": len(good),
        "failed": len(rows) - len(good),
        "bytes": max(row["bytes"] for row in good),
    }
    for name in ("duration_s", "pause_ms", "alignment_ms"):
        numbers = [row[name] for row in good]
        result[name] = {"p50": round(quantile(numbers, 0.5), 3), "p99": round(quantile(numbers, 0.99), 3)}
    if given.json:
        print(json.dumps(result))
        return
    print(f"{given.keys:,} keys in {given.tasks} tasks ({given.kind}): {len(good)} checkpoints, {result['failed']} failed")
    print(f"  size       {result['bytes'] / 1e6:.1f} MB")
    print(f"  duration   {result['duration_s']['p50']:.2f} s median, {result['duration_s']['p99']:.2f} s p99")
    print(f"  alignment  {result['alignment_ms']['p50']:.0f} ms median, {result['alignment_ms']['p99']:.0f} ms p99")
    print(f"  pause      {result['pause_ms']['p50']:.1f} ms median, {result['pause_ms']['p99']:.1f} ms p99, of the slowest task")


if __name__ == "__main__":
    main()
