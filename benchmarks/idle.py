"""What a topology of five worker processes uses while nothing happens: memory of each, and CPU time.

    python benchmarks/idle.py [--seconds 30] [--json]

The topology is the word count with two counting tasks, whose spout has nothing to emit.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from topo.launch.local_cluster import LocalCluster
from topo_cli import workloads
from topo_cli.measurement import MEGABYTE, Processes

SETTLE_S = 3.0
ONE_IN_A_WHILE = {"counts": 2, "rate": 1e-6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    processes = Processes()
    with tempfile.TemporaryDirectory() as home, LocalCluster(Path(home)) as cluster:
        running = cluster.submit(f"{Path(workloads.__file__).absolute()}:word_count", parameters=ONE_IN_A_WHILE)
        running.wait_until(lambda status: status["status"] == "RUNNING")
        time.sleep(SETTLE_S)
        processes.look(running.status(), time.monotonic())
        time.sleep(arguments.seconds)
        processes.look(running.status(), time.monotonic())
    rows = [
        {
            "runs": usage.label,
            "rss_mb": round(usage.peak_bytes / MEGABYTE, 1),
            "cpu_percent": round(100 * usage.cpu_growth(0, float("inf")).per_second, 2),
        }
        for usage in processes.usage.values()
    ]
    workers = [row for row in rows if row["runs"] != "topology master"]
    result = {
        "worker_rss_mb": max(row["rss_mb"] for row in workers),
        "workers_cpu_percent": round(sum(row["cpu_percent"] for row in workers), 2),
        "all_cpu_percent": round(sum(row["cpu_percent"] for row in rows), 2),
        "processes": rows,
    }
    if arguments.json:
        print(json.dumps(result))
        return
    print(f"largest worker {result['worker_rss_mb']} MB; all workers {result['workers_cpu_percent']} % of a core")
    for row in rows:
        print(f"  {row['rss_mb']:>8.1f} MB {row['cpu_percent']:>8.2f} %  {row['runs']}")


if __name__ == "__main__":
    main()
