"""What KafkaSink costs a record, beside bare `produce`: the sink alone, as a task drives it.

    make kafka                                      in another terminal
    python -m benchmarks.kafka_sink                 200,000 records, five runs of each in turn
    python -m benchmarks.kafka_sink --rows 100000 --runs 9 --servers 127.0.0.1:9092 --topic totals

Figures are processor time of the process with the client's threads, which other work on the machine changes little. Records are
of 100 bytes with a key. With `exactly_once` a checkpoint has `--checkpoint` records, which are staged and committed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from topo import KafkaSink, TwoPhaseSink
from topo.api.context import TaskContext
from topo.api.tuples import Origin
from topo.checkpoint.staged_output import StagedOutput
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple

BATCH = 512
FIELDS = ("key", "value")
Rows = list[tuple[str, bytes]]


def _refuse(error: BaseException) -> None:
    raise error


def bare(servers: str, topic: str, rows: Rows) -> None:
    """Write as a program without topo does: a delivery report for each record, and a flush for each thousand."""
    from confluent_kafka import Producer

    settings = {"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"}
    producer = Producer({"bootstrap.servers": servers, **settings})
    delivered = 0

    def report(error: Any, _message: Any) -> None:
        nonlocal delivered
        assert error is None
        delivered += 1

    for first in range(0, len(rows), 1000):
        for key, value in rows[first : first + 1000]:
            producer.produce(topic, value, key.encode(), on_delivery=report)
        producer.flush()
    assert delivered == len(rows)


def prepared(
    servers: str, topic: str, delivery: Literal["at_least_once", "exactly_once"], staging: str
) -> tuple[KafkaSink, BoltCollector]:
    """Open a sink."""
    sink = KafkaSink(topic, bootstrap_servers=servers, key="key", value="value", value_serializer="bytes", staging=staging)
    collector = BoltCollector("sink", (), _refuse)
    sink.prepare(TaskContext("bench", "sink", 1, config=replace(TopologyConfig(), delivery=delivery)), collector)
    return sink, collector


def feed(sink: TwoPhaseSink, collector: BoltCollector, rows: Rows) -> None:
    """Give rows to a sink, in batches of its task."""
    for first in range(0, len(rows), BATCH):
        origin = Origin("source", 2, "default", FIELDS)
        for row in rows[first : first + BATCH]:
            sink.execute(TrackedTuple.made(row, origin, None, 1, (), ()))
        collector.clear()


def drive(made: TwoPhaseSink, rows: Rows, delivery: Literal["at_least_once", "exactly_once"], checkpoint: int) -> None:
    """Have a sink publish rows as a task does, with `exactly_once` in checkpoints of so many rows; and close it."""
    collector = BoltCollector("sink", (), _refuse)
    made.prepare(TaskContext("bench", "sink", 1, config=replace(TopologyConfig(), delivery=delivery)), collector)
    if delivery == "at_least_once":
        feed(made, collector, rows)
        made.end_of_input()
    else:
        output = StagedOutput(made)
        output.restore(None)
        for number, first in enumerate(range(0, len(rows), checkpoint), 1):
            feed(made, collector, rows[first : first + checkpoint])
            output.snapshot(number)
            output.complete(number)
    made.close()


def at_least_once(servers: str, topic: str, rows: Rows) -> None:
    """Write in batches of a thousand, each acked when it is delivered."""
    sink, collector = prepared(servers, topic, "at_least_once", "")
    feed(sink, collector, rows)
    sink.end_of_input()
    sink.cleanup()


def exactly_once(servers: str, topic: str, rows: Rows, checkpoint: int, commits: list[float]) -> None:
    """Stage and commit."""
    with tempfile.TemporaryDirectory() as staging:
        sink, collector = prepared(servers, topic, "exactly_once", staging)
        output = StagedOutput(sink)
        output.restore(None)
        for number, first in enumerate(range(0, len(rows), checkpoint)):
            feed(sink, collector, rows[first : first + checkpoint])
            output.snapshot(number)
            began = time.monotonic()
            output.complete(number)
            commits.append(time.monotonic() - began)
        sink.cleanup()


def only_tuples(rows: Rows) -> None:
    """Make and ack the tuples, which the task does for each sink."""
    collector = BoltCollector("sink", (), _refuse)
    for first in range(0, len(rows), BATCH):
        origin = Origin("source", 2, "default", FIELDS)
        for row in rows[first : first + BATCH]:
            collector.ack(TrackedTuple.made(row, origin, None, 1, (), ()))
        collector.clear()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="127.0.0.1:9092", help="a broker")
    parser.add_argument("--topic", default="totals", help="an existing topic")
    parser.add_argument("--rows", type=int, default=200_000, help="records of a run")
    parser.add_argument("--runs", type=int, default=5, help="runs of each case")
    parser.add_argument("--checkpoint", type=int, default=50_000, help="records of a checkpoint")
    given = parser.parse_args()
    rows = [(f"key-{number % 1000}", b"%099d" % number) for number in range(given.rows)]
    commits: list[float] = []
    cases: dict[str, Callable[[], None]] = {
        "bare produce": lambda: bare(given.servers, given.topic, rows),
        "tuples alone": lambda: only_tuples(rows),
        "KafkaSink, at_least_once": lambda: at_least_once(given.servers, given.topic, rows),
        "KafkaSink, exactly_once": lambda: exactly_once(given.servers, given.topic, rows, given.checkpoint, commits),
    }
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(given.runs):
        for name, case in cases.items():
            began = time.process_time()
            case()
            found[name].append((time.process_time() - began) / len(rows) * 1e6)
    for name, times in found.items():
        print(f"{name:28}{statistics.median(times):6.2f} us a record")
    print(f"a commit of {given.checkpoint} records: median {statistics.median(commits):.2f} s")


if __name__ == "__main__":
    main()
