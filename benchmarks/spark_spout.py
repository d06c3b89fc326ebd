"""Rows a second of a SparkSpout into a counting sink, tracked, and the memory of its processes.

    python benchmarks/spark_spout.py [--rows 5000000] [--tasks 1] [--batches] [--json]

The rows (an int and a string of 8 to 14 characters) are in parquet files, as Spark's one job has left them: its own time is not
in the figure. The rate is that between the first look at which rows were counted and the last, so starting is not in it either.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from topo import (
    BasicBolt,
    BasicCollector,
    ColumnBatch,
    ColumnBolt,
    ColumnCollector,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
)
from topo.launch.local_cluster import LocalCluster
from topo.master_process.client import AnswerTimeout, Unreachable
from topo.spark import SparkSpout

LOOK_S = 0.1
ROWS_A_FILE = 1_000_000


class CountingSink(BasicBolt):
    """Counts what it gets."""

    def prepare(self, context: TaskContext) -> None:
        self.rows = context.metrics.counter("rows")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.rows.add(1)


class CountingBatches(ColumnBolt):
    """Counts the rows of batches."""

    columns = "arrow"

    def prepare(self, context: TaskContext) -> None:
        self.rows = context.metrics.counter("rows")

    def execute_batch(self, batch: ColumnBatch, collector: ColumnCollector) -> None:
        self.rows.add(len(batch))


def topology(folder: str, tasks: int = 1, batches: int = 0) -> Topology:
    builder = TopologyBuilder("spark-spout")
    builder.set_spout("rows", SparkSpout(folder, batches=bool(batches)), tasks)
    builder.set_bolt("sink", CountingBatches() if batches else CountingSink()).local_or_shuffle_grouping("rows")
    return builder.build()


def write_rows(folder: Path, rows: int) -> None:
    """Write the files."""
    folder.mkdir()
    for number, first in enumerate(range(0, rows, ROWS_A_FILE)):
        numbers = range(first, min(first + ROWS_A_FILE, rows))
        table = pa.table({"number": pa.array(numbers, pa.int64()), "name": [f"name-{value % 997_001:x}" for value in numbers]})
        pq.write_table(table, folder / f"part-{number:05}.parquet")


def measure(folder: Path, rows: int, tasks: int, batches: int) -> dict[str, Any]:
    """Run the topology to its end; return figures of it and of each component's processes."""
    seconds: dict[str, float] = {}
    memory: dict[str, float] = {}
    looks: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as home, LocalCluster(Path(home)) as cluster:
        running = cluster.submit(
            str(Path(__file__).absolute()), parameters={"folder": str(folder), "tasks": tasks, "batches": batches}
        )
        while running.outcome() is None:
            try:
                status = running.status()
                for component, process in _processes(status):
                    times = process.cpu_times()
                    seconds[component] = times.user + times.system
                    memory[component] = max(memory.get(component, 0), process.memory_info().rss / 2**20)
            except (Unreachable, AnswerTimeout, psutil.Error):
                # It is starting, or it has just ended.
                continue
            counted = sum(row["user"]["counters"].get("rows", 0) for row in status["components"] if row["component"] == "sink")
            if status["totals"]["acked"] and counted:
                looks.append((time.monotonic(), counted))
            time.sleep(LOOK_S)
        outcome = running.wait(60)
        assert outcome.exit_code == 0, outcome.reason
    (began, first), (ended, last) = looks[0], next(look for look in looks if look[1] == looks[-1][1])
    return {
        "rows": rows,
        # Without two looks that differ there were too few rows.
        "rows_per_s": round((last - first) / (ended - began)) if ended > began else None,
        "cpu_us_per_row": {component: round(one / rows * 1e6, 3) for component, one in seconds.items()},
        "rss_mib": {component: round(one) for component, one in memory.items()},
    }


def _processes(status: dict[str, Any]) -> list[tuple[str, psutil.Process]]:
    names = {task["task"]: f"{task['component']}.{task['index']}" for task in status["tasks"]}
    return [("+".join(names[task] for task in worker["tasks"]), psutil.Process(worker["pid"])) for worker in status["workers"]]


def main() -> None:
    """Write the rows, read them through a topology, print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--batches", action="store_true", help="batches of columns in place of rows")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "rows")
        write_rows(folder, given.rows)
        found = measure(folder, given.rows, given.tasks, int(given.batches))
    print(json.dumps(found) if given.json else "\n".join(f"{name:<16} {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
