"""The two-phase sinks that there are.

A further sink joins by a row in KINDS; every test of the contract then runs over it.
"""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.contract.copying_store import STORE
from topo import DeltaSink, FilesSink, IcebergSink, JsonLinesSink, SqliteSink, TwoPhaseSink
from topo.testing.contracts import PublishesBy
from topo.testing.contracts.checkpoints import CheckpointContract
from topo.testing.contracts.sink_contract import SinkContract
from topo.testing.contracts.sink_tasks import SinkTask, carried, started

__all__ = ["KINDS", "SEVERAL_FILES", "KindContract", "SinkKind", "SinkTask", "carried", "started"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class SinkKind(SinkContract):
    """One kind of sink, its output below a folder.

    Attributes:
        name: shown by the tests.
        make, read, read_staged: `sink`, `rows` and `staged` of the contract.
        stride: every how many steps a process is killed: more where it takes long.
    """

    name: str
    make: Callable[[Path], TwoPhaseSink]
    read: Callable[[Path], list[int]]
    read_staged: Callable[[Path], list[str]]
    judges_each_tuple: bool = True
    publishes_by: PublishesBy = PublishesBy.STAGED_COMMIT
    stride: int = 2

    def sink(self, folder: Path) -> TwoPhaseSink:
        return self.make(folder)

    def rows(self, folder: Path) -> list[int]:
        return self.read(folder)

    def staged(self, folder: Path) -> list[str]:
        return self.read_staged(folder)


class KindContract(CheckpointContract):
    """The promises of the kind that the fixture `kind` gives."""

    kind: SinkKind

    @pytest.fixture(autouse=True)
    def _of_kind(self, kind: SinkKind) -> None:
        self.take(kind)

    def take(self, kind: SinkKind) -> KindContract:
        """Test this kind."""
        self.kind, self.judges_each_tuple, self.publishes_by = kind, kind.judges_each_tuple, kind.publishes_by
        return self

    def sink(self, folder: Path) -> TwoPhaseSink:
        return self.kind.sink(folder)

    def rows(self, folder: Path) -> list[int]:
        return self.kind.rows(folder)

    def staged(self, folder: Path) -> list[str]:
        return self.kind.staged(folder)


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
        publishes_by=PublishesBy.TRANSACTION,
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
        judges_each_tuple=False,
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
        publishes_by=PublishesBy.TRANSACTION,
        stride=8,
    )


def iceberg_catalog(folder: Path) -> dict[str, str]:
    """The properties of a catalog whose tables are below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": f"file://{folder / 'warehouse'}"}


def iceberg_rows(folder: Path, table: str = "shop.out", given: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """The rows of a table of a catalog, by default that of the folder; none while it is missing."""
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("topo", **(given or iceberg_catalog(folder)))
    found: list[dict[str, Any]] = catalog.load_table(table).scan().to_arrow().to_pylist() if catalog.table_exists(table) else []
    return sorted(found, key=repr)


def _iceberg() -> SinkKind:
    import pyiceberg.catalog.sql  # noqa: F401

    return SinkKind(
        "iceberg",
        lambda folder: IcebergSink(iceberg_catalog(folder), "shop.out", schema={"n": "bigint"}),
        lambda folder: sorted(row["n"] for row in iceberg_rows(folder)),
        lambda folder: [path.name for path in folder.glob("warehouse/shop/out/data/.staged/*")],
        publishes_by=PublishesBy.TRANSACTION,
        stride=40,
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

if find_spec("pyiceberg") is not None:
    KINDS += [_iceberg()]

SEVERAL_FILES = _files("several files", lambda file: _lines_of([file]), roll_rows=2)
"""Each transaction has several files, so that its token is not small."""


IN_A_STORE = (
    KindContract.test_a_commit_can_be_repeated_also_by_another_process_and_after_later_ones,
    KindContract.test_a_replacement_publishes_the_tokens_of_the_checkpoint_and_removes_the_rest,
    KindContract.test_after_a_change_of_parallelism_each_row_is_there_once,
    KindContract.test_a_process_that_was_given_up_does_no_harm_to_its_replacement,
    KindContract.test_an_orderly_end_removes_rows_that_no_checkpoint_covers,
)
"""The tests that a store of objects may fail where a disk does not."""
