from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pytest
from pyarrow import parquet

from tests.contract.two_phase_sinks import started
from tests.full_disk import full_disk
from tests.unit.connectors.drive import TICK, tracked
from topo import FilesSink, TaskContext, TopologyConfig
from topo.checkpoint.staged_output import StagedOutput
from topo.connectors.file_folders import shown_url
from topo.errors import ConfigError, SinkBlockedError, StagedRowsLostError, TopoEnvironmentError, UserError
from topo.testing import run_bolt


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".staged" not in path.parts)


def written(folder: Path, *rows: dict[str, Any], **settings: Any) -> list[Path]:
    """Write rows in one checkpoint, and return the files that show."""
    sink = FilesSink(folder, **settings)
    started(sink)
    output = StagedOutput(sink)
    output.restore(None)
    for row in rows:
        sink.execute(tracked(**row))
    output.snapshot(1)
    assert visible(folder) == []
    output.complete(1)
    return visible(folder)


def test_rows_go_to_the_folders_of_their_partitions_without_the_fields_that_name_them(tmp_path: Path) -> None:
    rows = [
        {"n": 1, "shop": "a/b", "day": date(2026, 3, 1)},
        {"n": 2, "shop": None, "day": date(2026, 3, 1)},
        {"n": 3, "shop": "a/b", "day": date(2026, 3, 1)},
    ]
    files = written(tmp_path, *rows, partition_by=("day", "shop"))
    assert {str(file.parent.relative_to(tmp_path)): file.read_text() for file in files} == {
        "day=2026-03-01/shop=a%2Fb": '{"n":1}\n{"n":3}\n',
        "day=2026-03-01/shop=__HIVE_DEFAULT_PARTITION__": '{"n":2}\n',
    }


@pytest.mark.parametrize("value", [1.5, ["a"], "x" * 300, "\ud800", datetime(2026, 3, 1, 12)])
def test_a_value_that_names_no_folder_fails_its_tuple_alone(tmp_path: Path, value: Any) -> None:
    sink = FilesSink(tmp_path, partition_by="shop")
    started(sink, delivery="at_least_once")
    sink.execute(tracked(n=1, shop="a"))
    with pytest.raises(UserError, match="field 'shop'"):
        sink.execute(tracked(n=2, shop=value))
    sink.execute(TICK)
    assert [file.read_text() for file in visible(tmp_path)] == ['{"n":1}\n']


@pytest.mark.parametrize("settings", [{"roll_rows": 2}, {"roll_size": 16}])
def test_a_file_has_no_more_rows_and_bytes_than_wanted(tmp_path: Path, settings: Any) -> None:
    files = written(tmp_path, *({"n": n} for n in range(5)), **settings)
    assert [[json.loads(line)["n"] for line in file.read_text().splitlines()] for file in files] == [[0, 1], [2, 3], [4]]


def test_without_checkpoints_a_file_shows_when_it_has_its_size_and_its_tuples_are_acked_then(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path, roll_size=16)
    collector = started(sink, delivery="at_least_once")
    for n in range(3):
        sink.execute(tracked(n=n))
    assert [file.read_text() for file in visible(tmp_path)] == ['{"n":0}\n{"n":1}\n'] and len(collector.acked) == 2
    sink.execute(TICK)
    assert len(visible(tmp_path)) == 2 and len(collector.acked) == 3


def test_half_of_the_pending_messages_make_a_file(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path)
    config = replace(TopologyConfig(), delivery="at_least_once", max_spout_pending=4)
    sink.open(TaskContext("test", "sink", 1, config=config))
    assert sink.max_batch == 2


def test_rows_in_memory_make_one_file_for_each_of_any_number_of_partitions(tmp_path: Path) -> None:
    rows = [{"n": n, "shop": n * 7 % 150} for n in range(450)]
    files = written(tmp_path, *rows, partition_by="shop")
    assert [len(file.read_text().splitlines()) for file in files] == [3] * 150


def test_many_partitions_keep_the_few_files_open_that_get_the_most_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.connectors.staged_files._MOST_OPEN", 3)
    monkeypatch.setattr("topo.connectors.staged_files._SPILL_ROWS", 10)
    open_files: list[int] = []
    staged = str(tmp_path / ".staged")
    sink = FilesSink(tmp_path, partition_by="shop")
    started(sink)
    sink.begin()
    for n in range(200):
        sink.write(tracked(n=n, shop=n % 2 if n % 5 else n % 25))
        open_files.append(sum(os.path.realpath(one).startswith(staged) for one in Path("/proc/self/fd").iterdir()))
    sink.commit(sink.pre_commit())
    files = visible(tmp_path)
    assert sorted(json.loads(line)["n"] for file in files for line in file.read_text().splitlines()) == list(range(200))
    assert max(open_files) == 3
    assert [len(list(tmp_path.glob(f"shop={shop}/*"))) for shop in (0, 1)] == [1, 1]


def test_parquet_leaves_memory_and_fills_files_by_the_size_of_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"n": n, "texts": [f"{n}" * 100]} for n in range(1, 9)]
    schema = {"n": "bigint", "texts": "array<string>"}
    files = written(tmp_path / "rolled", *rows, format="parquet", schema=schema, roll_size=200)
    assert [parquet.ParquetFile(file).read().num_rows for file in files] == [2, 2, 2, 2]
    monkeypatch.setattr("topo.connectors.staged_files._SPILL_BYTES", 200)
    (file,) = written(tmp_path / "spilled", *rows, format="parquet", schema=schema)
    assert parquet.ParquetFile(file).num_row_groups == 4


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VALUES = {"text": 'a "b",\r\né', "none": None, "float": 0.1, "truth": True, "list": [1, "a"], "at": NOON}


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_csv_has_a_header_and_values_as_text(tmp_path: Path, compression: Any) -> None:
    (file,) = written(tmp_path, VALUES, VALUES | {"text": "", "float": Decimal("0.10")}, format="csv", compression=compression)
    data = file.read_bytes()
    assert (gzip.decompress(data) if compression else data).decode() == (
        "text,none,float,truth,list,at\r\n"
        '"a ""b"",\r\né",,0.1,true,"[1,""a""]",2026-03-01T12:00:00Z\r\n'
        ',,0.10,true,"[1,""a""]",2026-03-01T12:00:00Z\r\n'
    )
    assert file.name.endswith(".csv.gz" if compression else ".csv")


def test_a_tuple_without_the_fields_of_the_columns_fails(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path, format="csv")
    started(sink, delivery="at_least_once")
    sink.execute(tracked(a=1, b=2))
    with pytest.raises(UserError, match="no field 'b'"):
        sink.execute(tracked(a=1, c=2))
    sink.execute(tracked(b=4, c=5, a=3))
    sink.execute(TICK)
    assert visible(tmp_path)[0].read_text().splitlines() == ["a,b", "1,2", "3,4"]


SCHEMA = {"n": "bigint", "x": "double", "at": "timestamp", "text": "string"}
ROW = {"n": 1, "x": 0.5, "at": NOON, "text": "é"}


def test_parquet_has_the_types_of_the_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.connectors.staged_files._SPILL_ROWS", 2)
    rows = [ROW | {"n": n} for n in range(5)] + [dict.fromkeys(SCHEMA)]
    (file,) = written(tmp_path, *rows, format="parquet", schema=SCHEMA)
    table = parquet.ParquetFile(file).read()
    assert list(map(str, table.schema.types)) == ["int64", "double", "timestamp[us, tz=UTC]", "string"]
    assert table.to_pylist() == rows


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 1.5),
        ("n", True),
        ("n", 1 << 63),
        ("x", "1"),
        ("x", (1 << 53) + 1),
        ("at", datetime(2026, 3, 1)),
        ("at", date(2026, 3, 1)),
        ("text", b"a"),
        ("text", "\ud800"),
        ("small", 1e300),
        ("small", -3.4028235677973366e38),
        ("smalls", [0.5, None, 1e300]),
    ],
)
def test_a_value_that_a_column_would_change_fails_its_tuple(tmp_path: Path, field: str, value: Any) -> None:
    sink = FilesSink(tmp_path, format="parquet", schema={**SCHEMA, "small": "float", "smalls": "array<float>"})
    started(sink)
    sink.begin()
    with pytest.raises(UserError, match=f"field '{field}'"):
        sink.write(tracked(**ROW | {"small": 0.5, "smalls": [], field: value}))
    assert sink.pre_commit() is None


@pytest.mark.parametrize("value", [{"list": [1, None]}, {"struct": {"n": None}}, {"struct": {}}, {"map": {"a": None}}])
def test_none_inside_of_a_value_fails_its_tuple_where_the_column_has_none_there(tmp_path: Path, value: Any) -> None:
    number = pyarrow.field("n", pyarrow.int64(), nullable=False)
    kinds = {"list": pyarrow.list_(number), "struct": pyarrow.struct([number]), "map": pyarrow.map_(pyarrow.string(), number)}
    sink = FilesSink(tmp_path, format="parquet", schema=pyarrow.schema(list(kinds.items())))
    good = {"list": [1], "struct": {"n": 1}, "map": {"a": 1}}
    started(sink)
    sink.begin()
    with pytest.raises(UserError, match=f"field '{next(iter(value))}'"):
        sink.write(tracked(**good | value))
    sink.write(tracked(**good))
    assert sink.pre_commit() is not None


def test_a_column_of_float_rounds_and_keeps_what_is_not_finite(tmp_path: Path) -> None:
    values = [16777217.0, 0.1, 3.4028235677973362e38, float("inf"), float("-inf"), None]
    (file,) = written(tmp_path, *({"x": value} for value in values), format="parquet", schema={"x": "float"})
    found = parquet.ParquetFile(file).read()["x"].to_pylist()
    assert found == [16777216.0, 0.10000000149011612, 3.4028234663852886e38, float("inf"), float("-inf"), None]


def test_rows_wait_while_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.connectors.staged_files._SPILL_ROWS", 2)
    sink = FilesSink(tmp_path)
    collector = started(sink)
    reported: list[BaseException] = []
    monkeypatch.setattr(collector, "report_error", reported.append)
    sink.begin()
    with full_disk():
        for n in range(7):
            sink.write(tracked(n=n))
        with pytest.raises(TopoEnvironmentError, match=f"cannot write to {tmp_path}: .*File too large"):
            sink.pre_commit()
    sink.write(tracked(n=7))
    sink.commit(sink.pre_commit())
    (error,) = reported
    assert "rows wait in memory" in str(error)
    numbers = [json.loads(line)["n"] for file in visible(tmp_path) for line in file.read_text().splitlines()]
    assert sorted(numbers) == list(range(8))


def test_a_folder_that_was_moved_away_is_named_and_rows_wait_until_it_is_back(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    sink = FilesSink(folder)
    started(sink)
    sink.begin()
    sink.write(tracked(n=1))
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(TopoEnvironmentError, match=f"cannot write to {folder}: folder .*was there and is gone; put it back"):
        sink.pre_commit()
    (tmp_path / "elsewhere").rename(folder)
    sink.commit(sink.pre_commit())
    assert [file.read_text() for file in visible(folder)] == ['{"n":1}\n']


def test_a_file_whose_sync_has_failed_is_never_taken_for_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FilesSink(tmp_path)
    started(sink)
    sink.begin()
    sink.write(tracked(n=1))

    def fails(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails)
        with pytest.raises(SinkBlockedError):
            sink.pre_commit()
    with pytest.raises(SinkBlockedError, match="Input/output error"):
        sink.pre_commit()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_staged_rows_that_are_gone_are_an_error(tmp_path: Path, delivery: str) -> None:
    sink = FilesSink(tmp_path)
    collector = started(sink, delivery=delivery)
    sink.begin()
    sink.write(tracked(n=1))
    token = sink.pre_commit()
    (staged,) = (tmp_path / ".staged").iterdir()
    staged.unlink()
    with pytest.raises(StagedRowsLostError, match="neither staged nor published"):
        sink.commit(token)
    assert collector.acked == []


def test_rows_of_a_batch_that_is_gone_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = FilesSink(tmp_path)
    collector = started(sink, delivery="at_least_once")
    sink.execute(tracked(n=1))
    with monkeypatch.context() as broken:
        broken.setattr(sink._files._place, "publish", lambda _name, _folder: False)
        with pytest.raises(StagedRowsLostError):
            sink.execute(TICK)
    assert len(collector.failed) == 1 and collector.acked == []
    sink.execute(tracked(n=1))
    sink.execute(TICK)
    assert len(collector.acked) == 1


def test_a_committed_file_that_its_reader_has_removed_is_not_missed(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path)
    started(sink)
    sink.begin()
    sink.write(tracked(n=1))
    token = sink.pre_commit()
    sink.commit(token)
    (file,) = visible(tmp_path)
    file.unlink()
    other = FilesSink(tmp_path)
    started(other)
    other.recover([token])


def parquet_of(kind: Any) -> dict[str, Any]:
    return {"format": "parquet", "schema": pyarrow.schema({"n": kind})}


def test_a_file_that_its_reader_has_taken_is_not_missed_when_the_process_goes_back(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path / "new")
    started(sink)
    sink.begin()
    sink.write(tracked(n=1))
    token = sink.pre_commit()
    sink.commit(token)
    for file in visible(tmp_path / "new"):
        file.unlink()
    sink.recover([token])
    sink.begin()
    sink.write(tracked(n=2))
    staged = sink.pre_commit()
    for path in (tmp_path / "new" / ".staged").iterdir():
        path.unlink()
    with pytest.raises(StagedRowsLostError):
        sink.recover([staged])


def test_files_that_another_process_has_staged_elsewhere_are_an_error(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path / "one")
    started(sink)
    sink.begin()
    sink.write(tracked(n=1))
    token = sink.pre_commit()
    other = FilesSink(tmp_path / "other")
    started(other)
    with pytest.raises(StagedRowsLostError, match="has written to another folder"):
        other.recover([token])


def test_files_are_published_in_a_store_below_a_folder_with_signs_of_a_pattern() -> None:
    run_bolt(FilesSink("memory://published/[1]"), [{"n": 1}]).assert_all_acked()
    files = fsspec.filesystem("memory")
    assert [files.cat_file(path) for path in files.glob("/published/[[]1]/*.json")] == [b'{"n":1}\n']


def test_rows_without_a_column_are_refused(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path, format="csv", partition_by="shop")
    started(sink)
    sink.begin()
    with pytest.raises(UserError, match="has no field for a column"):
        sink.write(tracked(shop="a"))
    sink.write(tracked(shop="a", n=1))
    sink.commit(sink.pre_commit())
    (file,) = visible(tmp_path)
    assert file.read_text().splitlines() == ["n", "1"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"format": "xml"}, "format='xml' must be 'json', 'csv' or 'parquet'"),
        ({"format": "parquet"}, "needs schema="),
        ({"schema": {"n": "bigint"}}, "has no schema"),
        ({"format": "parquet", "schema": {"n": "number"}}, "'number' is no type"),
        ({"format": "parquet", "schema": pyarrow.schema({"n": pyarrow.time64("us")})}, "which this sink does not write"),
        ({"format": "parquet", "schema": {"n": pyarrow.timestamp("s")}}, "would cut microseconds"),
        ({"format": "parquet", "schema": {"n": "bigint"}, "partition_by": "n"}, "leave it out"),
        (parquet_of(pyarrow.list_(pyarrow.timestamp("ms"))), "would cut microseconds"),
        (parquet_of(pyarrow.map_(pyarrow.string(), pyarrow.struct({"at": pyarrow.timestamp("s")}))), "would cut microseconds"),
        (parquet_of(pyarrow.list_(pyarrow.time64("us"))), "which this sink does not write"),
        (parquet_of(pyarrow.float16()), "which this sink does not write"),
        ({"format": "parquet", "schema": {}}, "schema has no field"),
        ({"format": "parquet", "schema": pyarrow.schema([("n", pyarrow.int64())] * 2)}, "field 'n' more than once"),
        ({"format": "parquet", "schema": {"n": "struct<a:int,a:int>"}}, "field 'a' more than once"),
        (parquet_of(pyarrow.list_(pyarrow.struct([]))), "no struct without fields"),
        ({"compression": "zstd"}, "must be None or 'gzip'"),
        ({"format": "parquet", "schema": {"n": "bigint"}, "compression": "lzo"}, "compression='lzo' must be"),
        ({"fields": "cents"}, r"fields='cents' must be texts, such as \('cents',\)"),
        ({"fields": ("n", "n")}, "more than once"),
        ({"fields": ("shop",), "partition_by": "shop"}, "no field that is left in the files"),
        ({"fields": ()}, "no field that is left in the files"),
        ({"partition_by": ("shop", "shop")}, "more than once"),
        ({"partition_by": ""}, "an empty name"),
        ({"roll_size": 0}, "roll_size=0 must be at least one byte"),
        ({"roll_rows": 0}, "roll_rows=0 must be at least 1"),
        ({"roll_size": "many"}, "roll_size='many' must be a size"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        FilesSink("/data", **settings)


def test_a_wait_that_the_timeout_does_not_allow_is_refused(tmp_path: Path) -> None:
    sink = FilesSink(tmp_path, roll_interval="20s")
    config = replace(TopologyConfig(), delivery="at_least_once", tick_interval_s=20.0)
    with pytest.raises(ConfigError, match="FilesSink holds tuples for 20 s"):
        sink.open(TaskContext("test", "sink", 1, config=config))


def test_a_password_is_in_no_message() -> None:
    for url, shown in (
        ("ftp://me:planted@host/folder", "ftp://me:***@host/folder"),
        ("s3://key:plan/ted@bucket/a", "s3://key:***@bucket/a"),
        ("sftp://me:plan@ted@host", "sftp://me:***@host"),
        ("ftp://me:plan?ted@host/a", "ftp://me:***@host/a"),
        ("https://host/a?sig=planted", "https://host/a?***"),
        ("https://host:80/a?token=planted&x=1", "https://host:80/a?***"),
        ("file:///data/a", "file:///data/a"),
        ("/data/a?:b@c", "/data/a?:b@c"),
    ):
        assert shown_url(url) == shown
    with pytest.raises(ConfigError, match=r"cannot use nothing://me:\*\*\*@host") as raised:
        started(FilesSink("nothing://me:planted@host"))
    assert "planted" not in str(raised.value)
