"""Bytes that one message in flight takes in its spout and in its acker.

    python benchmarks/pending.py [--messages 500000] [--json]

The bolt never acks, so the spout emits until `max_spout_pending` and then waits. The memory that the processes have gained by
then, for each message, is what is printed; message ids and values are small integers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import psutil

from topo import Bolt, Collector, RetryingSpout, SpoutCollector, TaskContext, Topology, TopologyBuilder, Tuple
from topo.launch.local_cluster import LocalCluster
from topo_cli.workloads import ClosedLoop

SETTLE_S = 3.0
FEW = 1000
"""Messages in flight at the first look: everything that is made on first use is there by then."""


class Numbers(ClosedLoop):
    outputs = ("number",)


class RetryingNumbers(RetryingSpout):
    outputs = ("number",)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        self.emit = collector.emit
        self.number = 0

    def next_tuple(self) -> None:
        self.emit((self.number,), self.number)
        self.number += 1


class Hold(Bolt):
    """Neither acks nor keeps what it gets."""

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        pass

    def execute(self, tup: Tuple) -> None:
        pass


def topology(retrying: bool = False) -> Topology:
    builder = TopologyBuilder("pending")
    builder.set_spout("spout", RetryingNumbers() if retrying else Numbers(0.0))
    builder.set_bolt("hold", Hold()).shuffle_grouping("spout")
    return builder.build()


def resident(messages: int, retrying: bool) -> dict[str, int]:
    """Return the resident bytes of each component's process with so many messages in flight."""
    settings = {"max_spout_pending": messages, "message_timeout": "10m"}
    with tempfile.TemporaryDirectory() as home, LocalCluster(Path(home)) as cluster:
        running = cluster.submit(str(Path(__file__).absolute()), parameters={"retrying": retrying}, settings=settings)
        running.wait_until(lambda status: status["totals"]["pending"] >= messages, timeout_s=120)
        time.sleep(SETTLE_S)
        status = running.status()
        components = {task["task"]: task["component"] for task in status["tasks"]}
        return {
            components[worker["tasks"][0]]: int(psutil.Process(worker["pid"]).memory_info().rss) for worker in status["workers"]
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, dict[str, float]] = {}
    for kind, retrying in (("Spout", False), ("RetryingSpout", True)):
        few, many = resident(FEW, retrying), resident(arguments.messages, retrying)
        result[kind] = {
            component: round((many[component] - few[component]) / (arguments.messages - FEW), 1)
            for component in ("spout", "__acker")
        }
    if arguments.json:
        print(json.dumps(result))
        return
    for kind, sizes in result.items():
        print(f"{kind}: {sizes['spout']} bytes in the spout, {sizes['__acker']} in the acker, for each message in flight")


if __name__ == "__main__":
    main()
