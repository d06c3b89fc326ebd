"""DeltaSink on tables of a local disk, read back by deltalake."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import SinkKind, SinkTask, started
from tests.unit.connectors.drive import TICK, tracked
from topo import ConfigError, DeltaSink, TaskContext, TopologyConfig
from topo.connectors.delta.target_schema import checked_target
from topo.errors import TopoEnvironmentError, UserError

deltalake = pytest.importorskip("deltalake", reason="`sh scripts/setup.sh delta` installs it")

SCHEMA = {"n": "bigint", "shop": "string"}


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(found, key=repr)


def checkpoint(task: ReportingTask, number: int) -> None:
    task.snapshot(number)
    task.output.complete(number)


def test_partitions_of_each_type_are_read_back(tmp_path: Path) -> None:
    schema = {"n": "bigint", "text": "string", "day": "date", "flag": "boolean", "number": "int"}
    values = [
        {"n": 1, "text": "a=/%é b", "day": date(2026, 3, 1), "flag": True, "number": -1},
        {"n": 2, "text": None, "day": None, "flag": False, "number": None},
        {"n": 3, "text": "x" * 300, "day": date(1970, 1, 1), "flag": None, "number": 7},
    ]
    task = ReportingTask(DeltaSink(tmp_path / "t", schema=schema, partition_by=("text", "day", "flag", "number")))
    for value in values:
        task.sink.execute(tracked(**value))
    checkpoint(task, 1)
    assert rows(tmp_path / "t") == sorted(values, key=repr)
    assert deltalake.DeltaTable(tmp_path / "t").version() == 1
    assert deltalake.DeltaTable(tmp_path / "t").transaction_version("topo.test.sink.0") == 1


def test_the_schema_of_a_table_is_taken_where_none_is_given(tmp_path: Path) -> None:
    ReportingTask(DeltaSink(tmp_path, schema=SCHEMA, partition_by="shop"))
    task = ReportingTask(DeltaSink(tmp_path))
    task.sink.execute(tracked(n=1, shop="north"))
    checkpoint(task, 1)
    assert rows(tmp_path) == [{"n": 1, "shop": "north"}]
    with pytest.raises(UserError, match="field 'n'"):
        task.sink.execute(tracked(n="1", shop="north"))
    with pytest.raises(UserError, match=r"'shop'.* is empty"):
        task.sink.execute(tracked(n=1, shop=""))
    with pytest.raises(UserError, match="no field 'shop'"):
        task.sink.execute(tracked(n=1))
    checkpoint(task, 2)
    assert deltalake.DeltaTable(tmp_path).version() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": {**SCHEMA, "more": "int"}}, "given n int64, shop string, more int32"),
        ({"schema": {**SCHEMA, "n": "int"}}, "given n int32"),
        ({"schema": SCHEMA, "partition_by": "shop"}, "partitioned by nothing, and DeltaSink is given .'shop',."),
    ],
)
def test_a_table_of_another_schema_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    ReportingTask(DeltaSink(tmp_path, schema=SCHEMA))
    with pytest.raises(ConfigError, match=message):
        ReportingTask(DeltaSink(tmp_path, **options))


def test_a_table_whose_rules_nobody_would_apply_is_refused(tmp_path: Path) -> None:
    ReportingTask(DeltaSink(tmp_path, schema=SCHEMA))
    deltalake.DeltaTable(tmp_path).alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(ConfigError, match=r"does not apply delta.constraints.positive of table .*: drop"):
        ReportingTask(DeltaSink(tmp_path))


def test_a_missing_table_without_a_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist; make it, or give schema="):
        ReportingTask(DeltaSink(tmp_path / "none"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schema": SCHEMA, "partition_by": "x"}, "partition_by has 'x'"),
        ({"schema": SCHEMA, "partition_by": ("n", "shop")}, "every field"),
        ({"partition_by": "n"}, "needs schema="),
        ({"schema": {"n": "double", "shop": "string"}, "partition_by": "n"}, "'n' of type double"),
        ({"schema": {"n": "bigint", "N": "bigint"}}, "upper and lower case"),
        ({"schema": SCHEMA, "compression": "lzo"}, "compression='lzo'"),
        ({"schema": SCHEMA, "storage_options": {"AWS_ALLOW_HTTP": True}}, "'true' and not True"),
        ({"schema": SCHEMA, "roll_rows": 0}, "roll_rows=0"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DeltaSink(tmp_path, **arguments)


def test_a_table_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    # No folder can be renamed to it.
    (tmp_path / "_delta_log").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TopoEnvironmentError, match="cannot be opened"):
        ReportingTask(DeltaSink(tmp_path, schema={"n": "bigint"}))
    assert [file.name for file in tmp_path.iterdir()] == ["_delta_log"]


def test_other_writers_are_no_obstacle_but_another_schema_is(tmp_path: Path) -> None:
    import pyarrow as pa

    task = ReportingTask(DeltaSink(tmp_path, schema={"n": "bigint"}))
    task.write(1)
    deltalake.write_deltalake(tmp_path, pa.table({"n": [10]}), mode="append")
    checkpoint(task, 1)
    assert sorted(row["n"] for row in rows(tmp_path)) == [1, 10]
    deltalake.write_deltalake(tmp_path, pa.table({"n": ["text"]}), mode="overwrite", schema_mode="overwrite")
    task.write(2)
    with pytest.raises(ConfigError, match=r"given another schema while the topology ran \('n'\)"):
        checkpoint(task, 2)
    task.write(3)
    with pytest.raises(ConfigError, match=r"given another schema while the topology ran \('n'\)"):
        task.snapshot(3)
    assert len(list((tmp_path / ".staged").iterdir())) == 1, "no file is staged that the table would not take"
    deltalake.write_deltalake(tmp_path, pa.table({"n": [11]}), mode="overwrite", schema_mode="overwrite")
    checkpoint(task, 4)
    assert sorted(row["n"] for row in rows(tmp_path)) == [2, 3, 11]


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_a_column_that_was_added_and_may_be_null_is_no_obstacle_to_a_restart(tmp_path: Path, schema: Any) -> None:
    import pyarrow as pa

    ReportingTask(DeltaSink(tmp_path, schema=SCHEMA))
    more = {"n": [0], "shop": ["south"], "more": [1]}
    deltalake.write_deltalake(tmp_path, pa.table(more), mode="append", schema_mode="merge")
    task = ReportingTask(DeltaSink(tmp_path, schema=schema))
    task.sink.execute(tracked(n=1, shop="north"))
    checkpoint(task, 1)
    assert {"n": 1, "shop": "north", "more": None} in rows(tmp_path)
    if schema is None:
        with pytest.raises(UserError, match="no field 'shop'"):
            task.sink.execute(tracked(n=2, store="north"))


def test_rows_that_were_staged_for_another_schema_make_no_table_unreadable(tmp_path: Path) -> None:
    import pyarrow as pa

    def kind(**schema: str) -> SinkKind:
        return SinkKind("delta", lambda folder: DeltaSink(folder, schema=schema), lambda _: [], lambda _: [])

    task = SinkTask(kind(n="string"), tmp_path)
    task.write("text")
    tokens = task.snapshot(1)
    task.die()

    def retyped(**columns: list[Any]) -> None:
        deltalake.write_deltalake(tmp_path, pa.table(columns), mode="overwrite", schema_mode="overwrite")

    retyped(n=[1])
    for _ in range(2):
        with pytest.raises(ConfigError, match="1 rows had been staged for it, in which 'n' is string: give the table its former"):
            SinkTask(kind(n="bigint"), tmp_path, 0, 1, tokens)
        assert rows(tmp_path) == [{"n": 1}]
    # A column more that may be null is no obstacle.
    retyped(n=["a"], more=[1])
    SinkTask(kind(n="string", more="bigint"), tmp_path, 0, 1, tokens)
    assert rows(tmp_path) == [{"n": "a", "more": 1}, {"n": "text", "more": None}]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_table_that_was_deleted_is_named_and_its_rows_go_to_the_next_one(tmp_path: Path, is_made_again: bool) -> None:
    kind = SinkKind("delta", lambda folder: DeltaSink(folder, schema={"n": "bigint"}), lambda _: [], lambda _: [])
    task = SinkTask(kind, tmp_path)
    for number in range(1, 4):
        task.write(number)
        tokens = task.snapshot(number)
        if number < 3:
            task.output.complete(number)
    shutil.copytree(tmp_path / "_delta_log", tmp_path / "other" / "_delta_log")
    shutil.rmtree(tmp_path / "_delta_log")
    if is_made_again:
        deltalake.DeltaTable.create(tmp_path, deltalake.DeltaTable(tmp_path / "other").schema())
    for _ in range(2):
        with pytest.raises(ConfigError, match="was deleted while the topology ran; make it again"):
            task.output.complete(3)
    task.die()
    SinkTask(kind, tmp_path, 0, 1, tokens)
    assert rows(tmp_path) == [{"n": 3}]


def test_two_topologies_of_one_name_are_reported_and_no_row_is_taken_for_written(tmp_path: Path) -> None:
    one, other = (ReportingTask(DeltaSink(tmp_path, schema={"n": "bigint"})) for _ in range(2))
    one.write(1)
    other.write(2)
    checkpoint(one, 1)
    with pytest.raises(TopoEnvironmentError, match="must not both be called 'test'"):
        checkpoint(other, 1)
    assert rows(tmp_path) == [{"n": 1}]


def test_two_processes_that_repeat_a_commit_at_once_add_it_once(tmp_path: Path) -> None:
    task, late = (ReportingTask(DeltaSink(tmp_path, schema={"n": "bigint"})) for _ in range(2))
    task.write(1)
    ((_, token),) = task.snapshot(1)
    refresh = late.sink._log.refresh

    def refresh_before_the_other_commits() -> None:
        refresh()
        task.sink.commit(token)
        late.sink._log.refresh = refresh

    late.sink._log.refresh = refresh_before_the_other_commits
    late.sink.commit(token)
    assert rows(tmp_path) == [{"n": 1}] and deltalake.DeltaTable(tmp_path).version() == 1


def test_a_savepoint_from_before_adds_nothing_again_and_later_rows_follow_the_marker(tmp_path: Path) -> None:
    kind = SinkKind("delta", lambda folder: DeltaSink(folder, schema={"n": "bigint"}), lambda _: [], lambda _: [])
    task = SinkTask(kind, tmp_path)
    task.write(1)
    savepoint = task.snapshot(1)
    task.output.complete(1)
    task.write(2)
    task.snapshot(2)
    task.output.complete(2)
    task.die()
    for resumed, n in ((SinkTask(kind, tmp_path, index, 2, savepoint if index == 0 else None), 3 + index) for index in (0, 1)):
        resumed.write(n)
        resumed.snapshot(3)
        resumed.output.complete(3)
    assert [row["n"] for row in rows(tmp_path)] == [1, 2, 3, 4]
    log = deltalake.DeltaTable(tmp_path)
    assert [log.transaction_version(f"topo.test.sink.{index}") for index in (0, 1)] == [3, 1]


def test_files_that_are_gone_are_reported_and_never_named_in_the_log(tmp_path: Path) -> None:
    task = ReportingTask(DeltaSink(tmp_path, schema={"n": "bigint"}, roll_rows=1))
    task.write(1, 2)
    task.snapshot(1)
    sorted(tmp_path.glob(".staged/*"))[0].unlink()
    task.output.complete(1)
    (text,) = task.texts()
    assert "with 1 rows is neither staged nor published in table" in text
    assert rows(tmp_path) == [{"n": 2}]


def test_a_batch_is_a_version_and_its_tuples_are_acked_then(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, schema=SCHEMA, partition_by="shop", roll_rows=2)
    collector = started(sink, delivery="at_least_once")
    for n in range(5):
        sink.execute(tracked(n=n, shop="a"))
    assert len(collector.acked) == 4
    sink.execute(TICK)
    assert len(collector.acked) == 5 and len(rows(tmp_path)) == 5
    log = deltalake.DeltaTable(tmp_path)
    assert log.version() == 3 and log.transaction_version("topo.test.sink.0") is None


def test_the_log_has_the_rows_of_each_file(tmp_path: Path) -> None:
    task = ReportingTask(DeltaSink(tmp_path, schema={"n": "bigint"}))
    task.write(1, 2, 3)
    checkpoint(task, 1)
    (entry,) = [
        json.loads(line)["add"]
        for line in (tmp_path / "_delta_log" / f"{1:020}.json").read_text().splitlines()
        if '"add"' in line
    ]
    (file,) = tmp_path.glob("*.parquet")
    assert (entry["path"], entry["size"]) == (file.name, file.stat().st_size)
    assert json.loads(entry["stats"]) == {"numRecords": 3}


def test_a_secret_is_not_shown(tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path, schema=SCHEMA, storage_options={"AWS_SECRET_ACCESS_KEY": "planted"})
    assert "planted" not in repr(sink)


def test_a_batch_waits_at_most_half_of_the_message_timeout(tmp_path: Path) -> None:
    config = replace(TopologyConfig(), delivery="at_least_once", message_timeout_s=6.0, tick_interval_s=5.0)
    with pytest.raises(ConfigError, match="lower roll_interval"):
        DeltaSink(tmp_path, schema=SCHEMA).open(TaskContext("test", "sink", 1, config=config))


def test_all_files_of_a_local_log_are_synced_also_those_of_its_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, synced, sync = tmp_path / "t", list[tuple[str, int]](), os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.append((Path(f"/proc/self/fd/{descriptor}").resolve().name, os.fstat(descriptor).st_ino))

    deltalake.DeltaTable.create(table, checked_target(SCHEMA, ()).columns, configuration={"delta.checkpointInterval": "2"})
    monkeypatch.setattr(os, "fsync", note)
    task = ReportingTask(DeltaSink(table))
    for number in range(1, 6):
        task.sink.execute(tracked(n=number, shop="north"))
        checkpoint(task, number)
    log = {(file.name, file.stat().st_ino) for file in (table / "_delta_log").iterdir()}
    assert "_last_checkpoint" in dict(log) and any(name.endswith(".checkpoint.parquet") for name, _ in log)
    assert log <= set(synced)
    versions = [name for name, _ in synced if name.endswith(".json")]
    assert len(versions) == len(set(versions)) == 6
