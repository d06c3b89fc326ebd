"""The cost of the short answer of a topology master: processor time and bytes of `overview`, beside those of `status`.

    python -m benchmarks.overview                         400 tasks in 40 workers
    python -m benchmarks.overview --tasks 40 --workers 4 --json

The topology of `many_tasks.py`, with the real master and the real loops of all workers in one process, after its messages have
passed: every task has sent heartbeats. `heartbeat_us` is the processor time of the master for the figures of one task in one
heartbeat.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.many_tasks import FLOW_S
from benchmarks.many_tasks_cluster import Cluster, many
from topo.ids import TaskId
from topo.observability.overview import component_rows, overview
from topo.observability.status import describe
from topo.wire import control

RUNS = 30


def measure(tasks: int, workers: int) -> dict[str, Any]:
    """Return the figures of one size."""
    cluster = Cluster(many(tasks, workers))
    cluster.begin()
    cluster.until(lambda: cluster.is_running)
    cluster.until_time(FLOW_S + 12.0)
    master, now = cluster.master, cluster.clock()
    beats = [process.worker.heartbeat("") for process in cluster.processes.values()]
    decoded = [control.decode_from_worker(control.encode(beat)) for beat in beats]
    figures: dict[TaskId, Any] = {}
    for beat in decoded:
        assert isinstance(beat, control.Heartbeat)
        figures |= beat.tasks
    moment = [now]

    def take_heartbeats() -> None:
        moment[0] += 1.0
        master.figures.add(figures, moment[0])

    rows = {
        "overview": lambda: overview(master, now),
        "component": lambda: component_rows(master, "pass-0", now),
        "status": lambda: describe(master, now),
    }
    found: dict[str, Any] = {"tasks": tasks, "workers": workers}
    for name, ask in rows.items():
        found[f"{name}_ms"] = round(1000 * _cpu_s(ask), 3)
        found[f"{name}_bytes"] = len(control.encode(control.Reply(ok=True, result=ask())))
    found["heartbeat_us"] = round(1e6 * _cpu_s(take_heartbeats) / tasks, 2)
    return found


def _cpu_s(call: Callable[[], object]) -> float:
    """Return the median processor time of a call."""
    times = []
    for _ in range(RUNS):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--workers", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.tasks, options.workers)
    if options.json:
        print(json.dumps(found))
        return
    for name, figure in found.items():
        print(f"{name.replace('_', ' '):18}{figure:>14,}")


if __name__ == "__main__":
    main()
