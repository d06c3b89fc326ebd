"""The two-phase sinks that there are, and a task that drives one through checkpoints as the engine does.

A further sink joins by a row in KINDS; every test of the contract then runs over it.
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgpack

from tests.contract.copying_store import STORE
from tests.unit.connectors.drive import tracked
from topo import DeltaSink, FilesSink, JsonLinesSink, SqliteSink, TaskContext, TopologyConfig, TwoPhaseSink
from topo.api.streams import declared_streams
from topo.checkpoint.staged_output import StagedOutput
from topo.emission.collectors import BoltCollector

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class SinkKind:
    """One kind of sink, its output below a folder.

    Attributes:
        name: shown by the tests.
        make: the sink, as a topology makes it. It writes tuples with one field, `n`.
        rows: what a reader from outside finds: the values of `n`.
        staged: what a reader who knows the sink finds staged: one entry or more for each transaction.
        takes_one_by_one: it judges and acks each tuple when it comes; in the other modes it is as the base class is.
        is_slow: a process with it takes long to start, so that fewer of them are killed.
    """

    name: str
    make: Callable[[Path], TwoPhaseSink]
    rows: Callable[[Path], list[int]]
    staged: Callable[[Path], list[str]]
    takes_one_by_one: bool = True
    is_slow: bool = False


def _lines_of(files: list[Path]) -> list[int]:
    # A last line without its newline is not finished.
    return [json.loads(line)["n"] for file in files for line in file.read_text().split("\n")[:-1]]


def _select(path: Path, statement: str) -> list[Any]:
    if not path.exists():
        return []
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute(statement)]
    except sqlite3.OperationalError as error:
        assert "no such table" in str(error)
        return []
    finally:
        connection.close()


def _documented() -> Callable[[Path], TwoPhaseSink]:
    """The example of docs/sinks.md."""
    (block,) = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "sinks.md").read_text(), re.MULTILINE | re.DOTALL)
        if "class FilePerCheckpoint" in block
    ]
    names: dict[str, Any] = {"__name__": "documented"}
    exec(block, names)
    made: Callable[[Path], TwoPhaseSink] = names["FilePerCheckpoint"]
    return made


_FilePerCheckpoint = _documented()


def _sqlite(name: str, **options: Any) -> SinkKind:
    return SinkKind(
        name,
        lambda folder: SqliteSink(folder / "db", "out", ["n"], **options),
        lambda folder: _select(folder / "db", "select n from out order by rowid"),
        lambda folder: _select(folder / "db", "select __process from out__staged"),
    )


def _spark() -> SinkKind:
    import pyarrow.parquet

    from topo.spark import SparkSink

    def rows(folder: Path) -> list[int]:
        # By the time of their making, which the names of one process show and those of several do not.
        files = sorted(folder.glob("out/part-*.parquet"))
        return sorted(row["n"] for file in files for row in pyarrow.parquet.read_table(file).to_pylist())

    return SinkKind(
        "spark",
        lambda folder: SparkSink(folder / "out", schema={"n": "bigint"}),
        rows,
        lambda folder: [path.name for path in folder.glob("out/_topo/*/*.tmp")],
        takes_one_by_one=False,
    )


def _files(name: str, read: Callable[[Path], list[int]], url: str = "{}/out", **options: Any) -> SinkKind:
    def rows(folder: Path) -> list[int]:
        # By name, which shows the order within one process alone.
        return sorted(number for file in folder.glob("out/[!.]*") for number in read(file))

    return SinkKind(
        name,
        lambda folder: FilesSink(url.format(folder), **options),
        rows,
        lambda folder: [path.name for path in folder.glob("out/.staged/*")],
    )


def _csv_rows(file: Path) -> list[int]:
    header, *records = csv.reader(file.read_text().splitlines())
    assert header == ["n"]
    return [int(record[0]) for record in records]


def _parquet_rows(file: Path) -> list[int]:
    import pyarrow.parquet

    return [row["n"] for row in pyarrow.parquet.read_table(file).to_pylist()]


def _delta() -> SinkKind:
    import deltalake

    def rows(folder: Path) -> list[int]:
        table = folder / "out"
        if not deltalake.DeltaTable.is_deltatable(str(table)):
            return []
        return sorted(deltalake.DeltaTable(table).to_pyarrow_table()["n"].to_pylist())

    return SinkKind(
        "delta",
        lambda folder: DeltaSink(folder / "out", schema={"n": "bigint"}),
        rows,
        lambda folder: [path.name for path in folder.glob("out/.staged/*")],
        is_slow=True,
    )


KINDS = [
    SinkKind(
        "lines",
        lambda folder: JsonLinesSink(folder / "out"),
        lambda folder: _lines_of(sorted(folder.glob("out*"))),
        lambda folder: [path.name for path in folder.glob(".out*")],
    ),
    _sqlite("rows"),
    _sqlite("rows with a key", key="n"),
    SinkKind(
        "documented",
        lambda folder: _FilePerCheckpoint(folder),
        lambda folder: sorted(_lines_of(list(folder.glob("[!.]*.jsonl")))),
        lambda folder: [path.name for path in folder.glob(".*.jsonl")],
    ),
    _files("files of JSON lines", lambda file: _lines_of([file])),
    _files("files of CSV", _csv_rows, format="csv"),
    _files("files in a store", lambda file: _lines_of([file]), url=f"{STORE}://{{}}/out"),
]
if find_spec("pyarrow") is not None:
    KINDS += [_files("files of parquet", _parquet_rows, format="parquet", schema={"n": "bigint"}), _spark()]

if find_spec("deltalake") is not None:
    KINDS += [_delta()]

SEVERAL_FILES = _files("several files", lambda file: _lines_of([file]), roll_rows=2)
"""Each transaction has several files, so that its token is not small."""


def carried(state: Any) -> Any:
    """A state as it comes back from a checkpoint."""
    return msgpack.unpackb(msgpack.packb(state), use_list=False, strict_map_key=False)


def started(
    sink: TwoPhaseSink,
    index: int = 0,
    parallelism: int = 1,
    delivery: str = "exactly_once",
    writer: tuple[str, str] = ("test", "sink"),
) -> BoltCollector:
    """Prepare a sink for a mode of delivery; the collector shows its acks, and raises its reported errors."""

    def refuse(error: BaseException) -> None:
        raise error

    collector = BoltCollector(writer[1], declared_streams(sink.outputs), refuse)
    config = replace(TopologyConfig(), delivery=delivery)  # type: ignore[arg-type]
    sink.prepare(TaskContext(*writer, 1 + index, index, parallelism, config), collector)
    return collector


class SinkTask:
    """One task with a sink, in a separate process as the sink sees it."""

    def __init__(
        self,
        kind: SinkKind,
        folder: Path,
        index: int = 0,
        parallelism: int = 1,
        state: Any = None,
        writer: tuple[str, str] = ("test", "sink"),
    ) -> None:
        self.sink = kind.make(folder)
        self.collector = started(self.sink, index, parallelism, writer=writer)
        self.output = StagedOutput(self.sink)
        self.output.restore(state)

    def write(self, *numbers: int) -> None:
        """Process tuples."""
        for number in numbers:
            self.sink.execute(tracked(n=number))

    def snapshot(self, checkpoint: int) -> Any:
        """Take a snapshot; returns the state as it comes back."""
        return carried(self.output.snapshot(checkpoint))

    def die(self) -> None:
        """Do nothing that a killed process would not do; the kernel takes the descriptors."""
        self.sink.close()
