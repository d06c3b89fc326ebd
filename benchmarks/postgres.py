"""Costs a row of PostgresSink and PostgresSpout, beside a bare COPY and a bare loop by key: the component alone in its task.

    make postgres                                                  # prints dsn="..."
    python -m benchmarks.postgres "host=... dbname=postgres user=topo"
    python -m benchmarks.postgres DSN --rows 100000 --runs 9

Figures are processor time of the client's process, which other work on the machine changes little; the server's is not in them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg

from topo import PostgresSink, PostgresSpout, Tuple, TwoPhaseSink
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.api.tuples import Origin
from topo.checkpoint.staged_output import StagedOutput
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.emission.partition_messages import PartitionMessages

ROOM = 512
FIELDS = ("number", "word", "price")
TABLE = "create table topo_bench (id bigserial primary key, number bigint, word text, price double precision)"


def _refuse(error: BaseException) -> None:
    raise error


def empty(dsn: str) -> None:
    """Make the table, without rows."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"drop table if exists topo_bench, topo_bench__staged, topo_bench__committed; {TABLE}")


def write_bare(dsn: str, rows: list[tuple[Any, ...]]) -> int:
    """Copy rows as a program without topo does, 10,000 in a transaction."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for first in range(0, len(rows), 10_000):
            with connection.cursor() as cursor, cursor.copy("copy topo_bench (number, word, price) from stdin") as copy:
                for row in rows[first : first + 10_000]:
                    copy.write_row(row)
    return len(rows)


class Drop(TwoPhaseSink):
    """Takes tuples, and writes none: the cost of a tuple before any sink does something with it."""

    def write(self, tup: Tuple) -> None:
        """Drop it."""

    def pre_commit(self) -> Any:
        """Return no token."""

    def commit(self, token: Any) -> None:
        """Do nothing."""

    def abort(self, token: Any) -> None:
        """Do nothing."""


def write_sink(sink: TwoPhaseSink, rows: list[tuple[Any, ...]], delivery: str) -> int:
    """Write rows with a sink; with exactly_once in one checkpoint."""
    collector = BoltCollector("sink", (), _refuse)
    config = replace(TopologyConfig(), delivery=delivery, max_spout_pending=20_000)  # type: ignore[arg-type]
    sink.prepare(TaskContext("bench", "sink", 1, config=config, clock=time.monotonic), collector)
    output = StagedOutput(sink)
    if delivery == "exactly_once":
        output.restore(None)
    origin = Origin("source", 2, "default", FIELDS)
    for first in range(0, len(rows), ROOM):
        for row in rows[first : first + ROOM]:
            sink.execute(TrackedTuple.made(row, origin, None, 1, (), ()))
        collector.clear()
    if delivery == "exactly_once":
        output.snapshot(1)
        output.complete(1)
    sink.end_of_input()
    sink.cleanup()
    return len(rows)


def read_bare(dsn: str) -> int:
    """Read rows by key as a program without topo does, 5,000 at a time."""
    count, key = 0, 0
    statement = "select id, number, word, price from topo_bench where id > %s order by id limit 5000"
    with psycopg.connect(dsn, autocommit=True) as connection:
        while rows := connection.execute(statement, (key,)).fetchall():
            key = rows[-1][0]
            count += len(rows)
    return count


def read_spout(dsn: str, count: int) -> int:
    """Read rows with a PostgresSpout."""
    spout = PostgresSpout(dsn, "topo_bench", FIELDS, key="id")
    collector = PartitionMessages("rows", declared_streams(spout.outputs), _refuse)
    spout.open(TaskContext("bench", "rows", 1, clock=time.monotonic), collector)
    collector.wanted = ROOM
    found = 0
    while found < count:
        spout.next_tuple()
        found += len(collector.streams[0].rows)
        collector.clear()
    spout.close()
    return found


def measured(cases: dict[str, Callable[[], int]], runs: int, before: Callable[[], None]) -> dict[str, float]:
    """Run all cases in turn, several times; return the median of each in microseconds of processor time a row."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            before()
            began = time.process_time()
            count = case()
            found[name].append((time.process_time() - began) / count * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dsn", help="of a database in which the table topo_bench may be made")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    dsn = options.dsn
    rows = [(n, f"word-{n % 10_000}", n / 7) for n in range(options.rows)]
    writing: dict[str, Callable[[], int]] = {
        "bare COPY": lambda: write_bare(dsn, rows),
        "tuples that are dropped": lambda: write_sink(Drop(), rows, "at_least_once"),
        "PostgresSink at_least_once": lambda: write_sink(PostgresSink(dsn, "topo_bench", FIELDS), rows, "at_least_once"),
        "PostgresSink exactly_once": lambda: write_sink(PostgresSink(dsn, "topo_bench", FIELDS), rows, "exactly_once"),
    }
    times = measured(writing, options.runs, lambda: empty(dsn))
    empty(dsn)
    write_bare(dsn, rows)
    reading: dict[str, Callable[[], int]] = {
        "bare loop by key": lambda: read_bare(dsn),
        "PostgresSpout": lambda: read_spout(dsn, len(rows)),
    }
    times |= measured(reading, options.runs, lambda: None)
    if options.json:
        print(json.dumps(times))
        return
    bare = 0.0
    for name, value in times.items():
        bare = value if name.startswith("bare") else bare
        print(f"{name:28} {value:6.2f} us of processor time a row, {bare / value:.2f} of the bare rate")


if __name__ == "__main__":
    main()
