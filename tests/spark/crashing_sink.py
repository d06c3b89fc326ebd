"""A process that writes with a sink and ends, as if killed, at the nth step it takes in the file system.

Every change that the sink makes goes through one of the functions below, so each of them is a step: before it and after the one
before it are the same moment. Acks are reported through a pipe at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from topo.api.context import TaskContext
from topo.api.tuples import Origin
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.spark.spark_sink import SparkSink

STEPS = ("open", "mkdir", "rename", "link", "unlink", "rmdir", "fsync")
CRASHED = 42
ROWS_A_BATCH = 4


def write(path: Path, rows: list[int], partitioned: bool, reported: Callable[[int], object]) -> None:
    """Send rows through a sink, in batches of four, and say which are acked."""
    sink = SparkSink(path, max_rows=ROWS_A_BATCH, partition_by=("rest",) if partitioned else ())
    collector = BoltCollector("sink", (), print)
    sink.prepare(TaskContext("crash", "sink", 1), collector)
    origin = Origin("source", 2, "default", ("number", "rest"))

    def report() -> None:
        for tup in collector.acked:
            reported(tup["number"])
        collector.clear()

    for number in rows:
        sink.execute(TrackedTuple.made((number, number % 2), origin, None, 1, (number + 1,), (number + 1,)))
        report()
    sink.end_of_input()
    report()
    sink.cleanup()


def crash(path: Path, rows: list[int], partitioned: bool, step: int, pipe: Any) -> None:
    """Write, and be gone at a step. Runs in a separate process."""
    steps = count(1)

    def at_a_step(function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if next(steps) == step:
                os._exit(CRASHED)
            return function(*args, **kwargs)

        return counted

    for name in STEPS:
        setattr(os, name, at_a_step(getattr(os, name)))
    write(path, rows, partitioned, lambda number: os.write(pipe.fileno(), number.to_bytes(4, "little")))
