"""What SparkSink costs a row, and how long the commit of a batch takes: the sink alone, fed with tuples as a task makes them.

    python -m benchmarks.spark_sink                           a million rows of (bigint, string), 100,000 a batch
    python -m benchmarks.spark_sink --max-rows 1000 --partitions 8
    python -m benchmarks.spark_sink --batches 8192    rows in batches of columns
    python -m benchmarks.spark_sink --folder /on/a/real/disk
    python -m benchmarks.spark_sink --json

Processor time contains what other tuples of a task cost, too: making them and acking them. Commit times contain `fsync`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from topo.api.column_batch import ColumnBatch
from topo.api.context import TaskContext
from topo.api.tuples import Origin
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.spark.spark_sink import SparkSink

FRAME = 512
"""Tuples that arrive together, and share an origin."""


def run(folder: Path, rows: int, max_rows: int, partitions: int, size: int) -> tuple[float, float, list[float]]:
    """Write rows, and return the processor time and the elapsed time in seconds, and the commits' times in milliseconds."""
    sink = SparkSink(folder, max_rows=max_rows, max_age=timedelta(seconds=10), partition_by=("part",) if partitions else ())
    collector = BoltCollector("sink", (), print)
    context = TaskContext("bench", "sink", 1, config=TopologyConfig.from_settings({"max_spout_pending": 4 * max_rows}))
    sink.prepare(context, collector)
    fields = ("number", "word", "part") if partitions else ("number", "word")
    values = [
        (n, f"word-{n % 10_000}", f"p{n % partitions}")[: len(fields)] if partitions else (n, f"word-{n % 10_000}")
        for n in range(rows)
    ]
    inputs: list[tuple[Any, ...]] = values
    if size:
        inputs = [
            (ColumnBatch.of(dict(zip(fields, zip(*values[at : at + size], strict=True), strict=True))).in_form("arrow"),)
            for at in range(0, rows, size)
        ]
    # As in a worker.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    commits, acked = [], 0
    begun, cpu = time.perf_counter(), time.process_time()
    weight = size or 1
    for first in range(0, len(inputs), FRAME):
        origin = Origin("source", 2, "default", fields, columnar=bool(size))
        for number in range(first, min(first + FRAME, len(inputs))):
            at = time.perf_counter() if sink._fill + weight >= max_rows else 0.0
            sink.execute(TrackedTuple.made(inputs[number], origin, None, 1, (number + 1,), (number + 1,)))
            if at:
                commits.append((time.perf_counter() - at) * 1000)
        acked += len(collector.acked)
        collector.clear()
    sink.end_of_input()
    used, elapsed = time.process_time() - cpu, time.perf_counter() - begun
    assert acked + len(collector.acked) == len(inputs)
    sink.cleanup()
    return used, elapsed, commits


def main() -> None:
    """Measure, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--max-rows", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=0, help="values of a column that partitions; 0: none")
    parser.add_argument("--batches", type=int, default=0, help="rows in a batch of columns; 0: single tuples")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        used, elapsed, commits = run(Path(folder, "sink"), given.rows, given.max_rows, given.partitions, given.batches)
    median, highest = statistics.median(commits), max(commits)
    if given.json:
        result = {
            "ns_a_row": used / given.rows * 1e9,
            "rows_per_s": given.rows / elapsed,
            "commit_ms": {"median": median, "max": highest},
        }
        print(json.dumps(result))
        return
    print(
        f"{given.rows} rows, {given.max_rows} a batch, {given.partitions} partitions, {given.batches or 'no'} batches: "
        f"{used / given.rows * 1e9:.0f} ns of processor a row, {given.rows / elapsed:,.0f} rows/s, "
        f"commit {median:.1f} ms in the middle and {highest:.1f} ms at most"
    )


if __name__ == "__main__":
    main()
