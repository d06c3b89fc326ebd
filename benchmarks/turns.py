"""What a record costs each worker at a low rate, where it is alone in its frame: turns, messages, processor time of the turns.

    python -m benchmarks.turns                    1,000 records a second through a spout, two bolts and an acker, four workers
    python -m benchmarks.turns --sleep 0.0005     the same with seconds of sleep between rounds, which leave caches cold

As in `many_tasks` the real loops run in one process, on a manual clock and a transport in memory: turns and messages are exact,
and processor time is that of the code alone. An acker rests as `Loop.run` has it rest.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from benchmarks.many_tasks_cluster import Cluster, Process
from topo.api.bolt import BasicBolt
from topo.api.spout import Spout
from topo.api.topology import Topology
from topo.builder import TopologyBuilder

ROUND_S = 0.0001


class Paced(Spout):
    """Emits one record in each interval."""

    outputs = ("value", "due")

    def __init__(self, records: int, interval_s: float) -> None:
        self.records, self.interval_s = records, interval_s

    def open(self, context: Any, collector: Any) -> None:
        self.next, self.collector = 0, collector

    def next_tuple(self) -> None:
        if self.next < self.records:
            self.collector.emit((self.next, 12345), message_id=self.next)
            self.next += 1
        self.collector.nothing_before(self.interval_s if self.next < self.records else 3600.0)


class Pass(BasicBolt):
    """Emits its input."""

    outputs = ("value", "due")

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


class Drop(BasicBolt):
    """Emits nothing."""

    outputs = ()

    def execute(self, tup: Any, collector: Any) -> None: ...


class RestingCluster(Cluster):
    """Workers turn again when they have rested for as long as their tasks want."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology, ROUND_S)
        self._turned_at: dict[int, float] = {}

    def turn(self, process: Process, now: float) -> bool | None:
        rest_s = min(task.rest_s for task in process.worker.tasks.values())
        if now < self._turned_at.get(process.id, 0.0) + rest_s:
            return False
        if has_turned := process.turn(now):
            self._turned_at[process.id] = now
        return has_turned


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000)
    parser.add_argument("--rate", type=float, default=1_000.0, help="records a second (%(default)s)")
    parser.add_argument("--sleep", type=float, default=0.0, help="seconds between two rounds")
    options = parser.parse_args()
    builder = TopologyBuilder("turns").config(workers=4, ackers=1)
    builder.set_spout("spout", Paced(options.records, 1 / options.rate))
    builder.set_bolt("identity", Pass).shuffle_grouping("spout")
    builder.set_bolt("sink", Drop).shuffle_grouping("identity")
    cluster = RestingCluster(builder.build())
    cluster.begin()
    cluster.step()
    tasks = {task.component_id: task for process in cluster.processes.values() for task in process.worker.tasks.values()}
    while tasks["spout"].counters.acked < options.records:
        cluster.step()
        if options.sleep:
            time.sleep(options.sleep)
    for process in cluster.processes.values():
        (task,) = process.worker.tasks.values()
        turns, cost = process.turns / options.records, process.cpu_s / options.records * 1e6
        print(f"{task.component_id:10} {turns:5.2f} turns {cost:6.1f} us a record")
    cpu_s = sum(process.cpu_s for process in cluster.processes.values())
    messages, cost = cluster.sent["messages"] / options.records, cpu_s / options.records * 1e6
    print(f"{'all':10} {messages:5.2f} messages {cost:6.1f} us a record")


if __name__ == "__main__":
    main()
