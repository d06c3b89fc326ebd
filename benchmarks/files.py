"""What FilesSpout and the sinks of files cost a row, beside TextFileSpout and bare writing: each alone, as a task drives it.

    python -m benchmarks.files                      500,000 rows, five runs of each in turn
    python -m benchmarks.files --rows 100000 --runs 9
    python -m benchmarks.files --commits 500        steps of 500 checkpoints of a DeltaSink, beside write_deltalake
    python -m benchmarks.files --commits 500 --table iceberg        of an IcebergSink, beside `append` of pyiceberg
    python -m benchmarks.files --commits 100 --store http://127.0.0.1:5000      of a table in S3 (python -m moto.server)

Figures are processor time of the process, which other work on the machine changes little. A spout's messages are dropped as soon
as they were emitted; a sink has one checkpoint, whose files are durable and published at the end. Those of commits are of a table
that grows by a version and 1,000 rows with each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from topo import DeltaSink, FilesSink, FilesSpout, IcebergSink, TextFileSpout
from topo.api.context import TaskContext
from topo.api.streams import declared_streams
from topo.api.tuples import Origin
from topo.checkpoint.staged_output import StagedOutput
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.emission.message_collectors import MessageCollector
from topo.emission.partition_messages import PartitionMessages

ROOM = 512


def _refuse(error: BaseException) -> None:
    raise error


def read_bare(folder: Path) -> int:
    """Read lines as a program without topo does."""
    count = 0
    for path in sorted(folder.iterdir()):
        with path.open() as file:
            count += sum(1 for _ in file)
    return count


def read_text_file_spout(folder: Path) -> int:
    """Read lines with a TextFileSpout."""
    spout = TextFileSpout(folder)
    collector = MessageCollector("lines", declared_streams(spout.outputs), _refuse)
    return drain(spout, collector)


def read_files_spout(folder: Path) -> int:
    """Read lines with a FilesSpout."""
    spout = FilesSpout(folder, settle="0s", discovery_interval=None)
    collector = PartitionMessages("lines", declared_streams(spout.outputs), _refuse)
    return drain(spout, collector)


def drain(spout: Any, collector: Any) -> int:
    """Call a spout until its input ends; return the number of rows."""
    spout.open(TaskContext("bench", "lines", 1), collector)
    stream, count = collector.streams[0], 0
    collector.wanted = ROOM
    while not collector.ended:
        # As in a burst of its task.
        before = -1
        while before < len(stream.rows) < ROOM and not collector.ended:
            before = len(stream.rows)
            spout.next_tuple()
        count += len(stream.rows)
        collector.clear()
    spout.close()
    return count


def write_bare(folder: Path, rows: list[tuple[Any, ...]], fields: tuple[str, ...]) -> int:
    """Write lines of JSON as a program without topo does: encode each row, write many at once, sync."""
    encode = msgspec.json.Encoder().encode
    with (folder / "rows.json").open("wb") as file:
        for first in range(0, len(rows), 10_000):
            lines = [encode(dict(zip(fields, row, strict=True))) for row in rows[first : first + 10_000]]
            file.write(b"\n".join(lines) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return len(rows)


def write_bare_parquet(folder: Path, rows: list[tuple[Any, ...]], fields: tuple[str, ...]) -> int:
    """Write parquet as a program without topo does, in row groups of the same size."""
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema(list(zip(fields, (pa.int64(), pa.string(), pa.float64()), strict=True)))
    with parquet.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for first in range(0, len(rows), 10_000):
            columns = zip(*rows[first : first + 10_000], strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return len(rows)


class _SinkTask:
    """A task with a sink of files, and its checkpoints."""

    def __init__(self, sink: Any) -> None:
        self.sink, self._collector = sink, BoltCollector("sink", (), _refuse)
        context = TaskContext("bench", "sink", 1, config=replace(TopologyConfig(), delivery="exactly_once"))
        sink.prepare(context, self._collector)
        self.output = StagedOutput(sink)
        self.output.restore(None)

    def write(self, rows: list[tuple[Any, ...]], fields: tuple[str, ...]) -> None:
        """Have the sink process rows."""
        for first in range(0, len(rows), ROOM):
            origin = Origin("source", 2, "default", fields)
            for row in rows[first : first + ROOM]:
                self.sink.execute(TrackedTuple.made(row, origin, None, 1, (), ()))
            self._collector.clear()


def write_sink(folder: Path, rows: list[tuple[Any, ...]], fields: tuple[str, ...], kind: Any = FilesSink, **settings: Any) -> int:
    """Write rows with a sink of files, in one checkpoint."""
    task = _SinkTask(kind(folder / "sink", **settings))
    task.write(rows, fields)
    task.output.snapshot(1)
    task.output.complete(1)
    task.sink.cleanup()
    return len(rows)


def write_bare_delta(
    folder: Path | str, rows: list[tuple[Any, ...]], fields: tuple[str, ...], store: dict[str, str] | None = None
) -> int:
    """Add to a Delta table as a program without topo does: one table in memory, one version."""
    import pyarrow as pa
    from deltalake import write_deltalake

    kinds = (pa.int64(), pa.string(), pa.float64())
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    write_deltalake(f"{folder}/table", pa.table(arrays, names=list(fields)), mode="append", storage_options=store)
    return len(rows)


def iceberg_catalog(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog whose tables are below a folder."""
    return {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder}"}


def iceberg_sink(folder: Path, store: dict[str, str] | None = None, **settings: Any) -> IcebergSink:
    """Return a sink whose catalog is in a folder."""
    folder.mkdir()
    return IcebergSink({**iceberg_catalog(folder), **(store or {})}, "made.sink", **settings)


def write_bare_iceberg(
    folder: Path, rows: list[tuple[Any, ...]], fields: tuple[str, ...], store: dict[str, str] | None = None
) -> int:
    """Add to an Iceberg table as a program without topo does: one table in memory, one snapshot."""
    import pyarrow as pa
    from pyiceberg.catalog import load_catalog

    kinds = (pa.int64(), pa.string(), pa.float64())
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    table = pa.table(arrays, names=list(fields))
    catalog = load_catalog("topo", **{**iceberg_catalog(folder), **(store or {})})
    catalog.create_namespace_if_not_exists("bare")
    catalog.create_table_if_not_exists("bare.table", table.schema).append(table)
    return len(rows)


def new_bucket(endpoint: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Make a bucket in a server of S3; return its URL and the settings of deltalake and of pyiceberg for it."""
    from s3fs import S3FileSystem

    key, region = "bench", "us-east-1"
    bucket = f"bench-{os.getpid()}"
    S3FileSystem(key=key, secret=key, endpoint_url=endpoint).mkdir(bucket)
    delta = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": key, "AWS_REGION": region, "AWS_ENDPOINT_URL": endpoint}
    iceberg = {"s3.access-key-id": key, "s3.secret-access-key": key, "s3.region": region, "s3.endpoint": endpoint}
    return f"s3://{bucket}", {**delta, "AWS_ALLOW_HTTP": "true"}, {**iceberg, "warehouse": f"s3://{bucket}"}


def measure_commits(
    sink: Any, bare: Callable[[], object], count: int, rows: list[tuple[Any, ...]], fields: tuple[str, ...]
) -> None:
    """Print how long the steps of checkpoints of a sink take, and what the same rows take without topo: milliseconds."""
    task = _SinkTask(sink)
    steps: dict[str, list[tuple[float, float]]] = {"pre_commit": [], "commit": [], "without topo": []}

    def timed(step: str, call: Callable[[], object]) -> None:
        began, cpu = time.perf_counter(), time.process_time()
        call()
        steps[step].append(((time.perf_counter() - began) * 1e3, (time.process_time() - cpu) * 1e3))

    for number in range(1, count + 1):
        task.write(rows, fields)
        timed("pre_commit", partial(task.output.snapshot, number))
        timed("commit", partial(task.output.complete, number))
        timed("without topo", bare)
    task.sink.cleanup()
    part = max(1, count // 10)
    for name, taken in steps.items():
        waits, cpu = zip(*taken, strict=True)
        ends = statistics.median(waits[:part]), statistics.median(waits[-part:])
        print(
            f"{name:16} median {statistics.median(waits):6.1f} ms, longest {max(waits):7.1f} ms, of processor time "
            f"{statistics.median(cpu):6.1f} ms; median of the first and last {part}: {ends[0]:.1f} ms, {ends[1]:.1f} ms"
        )


def measured(cases: dict[str, Callable[[Path], int]], runs: int, given: Path | None) -> dict[str, float]:
    """Run all cases in turn, several times; return the median of each in microseconds of processor time a row."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(runs):
        for name, case in cases.items():
            with tempfile.TemporaryDirectory() as made:
                began = time.process_time()
                count = case(given if given is not None else Path(made))
                found[name].append((time.process_time() - began) / count * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--commits", type=int)
    parser.add_argument("--table", choices=["delta", "iceberg"], default="delta", help="with --commits")
    parser.add_argument("--store", help="with --commits: address of a server of S3")
    options = parser.parse_args()
    fields = ("number", "word", "price")
    rows = [(n, f"word-{n % 10_000}", n / 7) for n in range(options.rows)]
    schema = {"number": "bigint", "word": "string", "price": "double"}
    if options.commits is not None:
        with tempfile.TemporaryDirectory() as made:
            folder, few = Path(made), rows[:1000]
            place, delta, iceberg = (made, None, None) if options.store is None else new_bucket(options.store)
            sink: Any
            if options.table == "delta":
                sink = DeltaSink(f"{place}/sink", schema=schema, storage_options=delta)
                bare = partial(write_bare_delta, place, few, fields, delta)
            else:
                sink = iceberg_sink(folder / "sink", iceberg, schema=schema)
                bare = partial(write_bare_iceberg, folder, few, fields, iceberg)
            measure_commits(sink, bare, options.commits, few, fields)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for part in range(4):
            lines = (f"{n:08} {'x' * 90}\n" for n in range(options.rows // 4))
            (folder / f"{part}.log").write_text("".join(lines))
        reading = {"bare lines": read_bare, "TextFileSpout": read_text_file_spout, "FilesSpout": read_files_spout}
        times = measured(reading, options.runs, folder)
    writing: dict[str, Callable[[Path], int]] = {
        "bare JSON": lambda target: write_bare(target, rows, fields),
        "FilesSink JSON": lambda target: write_sink(target, rows, fields),
        "FilesSink CSV": lambda target: write_sink(target, rows, fields, format="csv"),
        "bare parquet": lambda target: write_bare_parquet(target, rows, fields),
        "FilesSink parquet": lambda target: write_sink(target, rows, fields, format="parquet", schema=schema),
    }
    if find_spec("deltalake") is not None:
        writing |= {
            "bare Delta": lambda target: write_bare_delta(target, rows, fields),
            "DeltaSink": lambda target: write_sink(target, rows, fields, DeltaSink, schema=schema),
        }
    if find_spec("pyiceberg") is not None:
        writing |= {
            "bare Iceberg": lambda target: write_bare_iceberg(target, rows, fields),
            "IcebergSink": lambda target: write_sink(target, rows, fields, iceberg_sink, schema=schema),
        }
    times |= measured(writing, options.runs, None)
    if options.json:
        print(json.dumps(times))
        return
    for name, value in times.items():
        print(f"{name:18} {value:6.2f} us of processor time a row")


if __name__ == "__main__":
    main()
