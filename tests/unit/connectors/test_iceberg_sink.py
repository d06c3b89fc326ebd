"""IcebergSink on tables of a local disk with a catalog in SQLite, read back by pyiceberg."""

from __future__ import annotations

import datetime as dt
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import SinkKind, SinkTask, iceberg_catalog, iceberg_rows, started
from tests.unit.connectors.drive import TICK, tracked
from topo import ConfigError, IcebergSink, TaskContext, TopologyConfig
from topo.errors import TopoEnvironmentError, UserError

pytest.importorskip("pyiceberg", reason="`sh scripts/setup.sh iceberg` installs it")

SCHEMA = {"n": "bigint", "shop": "string"}
TABLE = "shop.out"


def sink(folder: Path, **options: Any) -> IcebergSink:
    return IcebergSink(iceberg_catalog(folder), TABLE, **options)


def numbers(folder: Path) -> list[int]:
    return sorted(row["n"] for row in iceberg_rows(folder))


def table(folder: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("topo", **iceberg_catalog(folder)).load_table(TABLE)


def checkpoint(task: ReportingTask, number: int) -> None:
    task.snapshot(number)
    task.output.complete(number)


def test_values_of_each_type_are_read_back(tmp_path: Path) -> None:
    schema = {
        "n": "bigint",
        "small": "smallint",
        "text": "string",
        "price": "decimal(10,2)",
        "day": "date",
        "at": "timestamp",
        "raw": "binary",
        "ratio": "double",
        "tags": "array<string>",
        "sizes": "map<string,int>",
    }
    full = {
        "n": 1,
        "small": -5,
        "text": "é" * 300,
        "price": Decimal("12.50"),
        "day": dt.date(2026, 3, 1),
        "at": dt.datetime(2026, 3, 1, 12, 30, 0, 1, tzinfo=dt.UTC),
        "raw": b"\x00\xff",
        "ratio": 0.5,
        "tags": ["a", "b"],
        "sizes": {"x": 1},
    }
    empty = dict.fromkeys(schema)
    task = ReportingTask(sink(tmp_path, schema=schema))
    for row in (full, empty):
        task.sink.execute(tracked(**row))
    checkpoint(task, 1)
    found = {row["n"]: row for row in iceberg_rows(tmp_path)}
    assert found == {1: {**full, "sizes": [("x", 1)]}, None: empty}


def test_tasks_that_make_the_table_at_the_same_moment_all_open_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        for number in range(5):
            folder, at_once = tmp_path / str(number), Barrier(6)

            def opened(folder: Path = folder, at_once: Barrier = at_once) -> None:
                made = sink(folder, schema=SCHEMA)
                at_once.wait()
                ReportingTask(made)

            for done in [pool.submit(opened) for _ in range(6)]:
                done.result()


def test_rows_stay_in_their_columns_when_these_are_renamed_and_their_names_taken_by_others(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyiceberg.types import StringType

    schema = {"n": "bigint", "shop": "string", "by": "map<string,array<string>>", "at": pa.struct([("x", pa.int64())])}
    task = ReportingTask(sink(tmp_path, schema=schema))
    row = {"n": 1, "by": {"a": ["b"]}, "at": {"x": 1}}
    task.sink.execute(tracked(shop="north", **row))
    checkpoint(task, 1)
    for old, new in (("shop", "store"), ("at.x", "y")):
        with table(tmp_path).update_schema() as change:
            change.rename_column(old, new)
    with table(tmp_path).update_schema() as change:
        change.add_column("shop", StringType())
    found = {"n": 1, "store": "north", "by": [("a", ["b"])], "at": {"y": 1}, "shop": None}
    assert iceberg_rows(tmp_path) == [found]


def test_rows_of_a_checkpoint_are_added_after_their_columns_were_renamed_dropped_and_added_again(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyiceberg.types import StringType

    row = {"n": 1, "shop": "north", "old": "x", "at": {"x": 1}}
    schema = {"n": "bigint", "shop": "string", "old": "string", "at": pa.struct([("x", pa.int64())])}
    schemas = iter([schema])
    kind = SinkKind("iceberg", lambda folder: sink(folder, schema=next(schemas, None)), lambda _: [], lambda _: [])
    task = SinkTask(kind, tmp_path)
    task.sink.execute(tracked(**row))
    savepoint = task.snapshot(1)
    task.die()
    for old, new in (("shop", "store"), ("at.x", "y")):
        with table(tmp_path).update_schema() as change:
            change.rename_column(old, new)
    with table(tmp_path).update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("old")
    with table(tmp_path).update_schema() as change:
        change.add_column("old", StringType())
    SinkTask(kind, tmp_path, 0, 1, savepoint)
    assert iceberg_rows(tmp_path) == [{"n": 1, "store": "north", "at": {"y": 1}, "old": None}]
    # By wrong statistics a reader would leave the file out.
    assert table(tmp_path).scan("old IS NULL AND store = 'north'").to_arrow().num_rows == 1


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_table_that_was_dropped_is_no_catalog_that_is_not_reached(tmp_path: Path, is_made_again: bool) -> None:
    task = ReportingTask(sink(tmp_path, schema={"n": "bigint"}))
    task.write(1)
    task.snapshot(1)
    dropped = table(tmp_path)
    dropped.catalog.drop_table(TABLE)
    if is_made_again:
        dropped.catalog.create_table(TABLE, dropped.schema())
    with pytest.raises(ConfigError, match=r"table shop.out was dropped while the topology ran; make it again, or"):
        task.output.complete(1)
    assert not task.errors


def test_the_columns_that_a_table_maps_to_no_names_are_read_back(tmp_path: Path) -> None:
    ReportingTask(sink(tmp_path, schema=SCHEMA))
    with table(tmp_path).transaction() as change:
        change.set_properties({"schema.name-mapping.default": '[{"field-id": 1, "names": ["n"]}]'})
    task = ReportingTask(sink(tmp_path))
    task.sink.execute(tracked(n=1, shop="north"))
    checkpoint(task, 1)
    assert iceberg_rows(tmp_path) == [{"n": 1, "shop": "north"}]


@pytest.mark.parametrize("end", ["", "/"])
def test_the_folder_of_data_files_is_that_of_the_start(tmp_path: Path, end: str) -> None:
    ReportingTask(sink(tmp_path, schema={"n": "bigint"}))
    place = f"file://{tmp_path}/first{end}"
    with table(tmp_path).transaction() as change:
        change.set_properties({"write.data.path": place})
    task = ReportingTask(sink(tmp_path))
    task.write(1)
    with table(tmp_path).transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/second"})
    checkpoint(task, 1)
    assert numbers(tmp_path) == [1]
    (path,) = table(tmp_path).inspect.files()["file_path"].to_pylist()
    assert path.rpartition("/")[0] == f"file://{tmp_path}/first"


@pytest.mark.parametrize("name", ["a b", "50%", "a%20b", "größe"])
def test_the_warehouse_may_have_any_name(tmp_path: Path, name: str) -> None:
    catalog = {**iceberg_catalog(tmp_path), "warehouse": f"file://{tmp_path}/{name}"}
    task = ReportingTask(IcebergSink(catalog, TABLE, schema={"n": "bigint"}))
    task.write(1)
    checkpoint(task, 1)
    assert iceberg_rows(tmp_path, given=catalog) == [{"n": 1}]
    assert len(list((tmp_path / name).glob("shop/out/data/*.parquet"))) == 1


def test_large_texts_and_bytes_are_texts_and_bytes(tmp_path: Path) -> None:
    import pyarrow as pa

    schema = pa.schema([("text", pa.large_string()), ("raws", pa.list_(pa.large_binary()))])
    for number in (1, 2):
        task = ReportingTask(sink(tmp_path, schema=schema))
        task.sink.execute(tracked(text="a", raws=[b"b"]))
        checkpoint(task, 1)
        assert iceberg_rows(tmp_path) == [{"text": "a", "raws": [b"b"]}] * number


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schema": {**SCHEMA, "more": "int"}}, "given n int64, shop string, more int32"),
        ({"schema": {**SCHEMA, "n": "int"}}, "given n int32"),
        ({"schema": SCHEMA, "partition_by": "shop"}, "partitioned by nothing, and IcebergSink is given .'shop',."),
    ],
)
def test_a_table_of_another_schema_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    ReportingTask(sink(tmp_path, schema=SCHEMA))
    with pytest.raises(ConfigError, match=message):
        ReportingTask(sink(tmp_path, **options))


def test_a_missing_table_without_a_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"table shop.out does not exist; make it, or give schema="):
        ReportingTask(sink(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"table": "out"}, "table='out' must have a namespace"),
        ({"table": "shop..out"}, "must have a namespace and a name"),
        ({"catalog": None}, "IcebergSink: catalog= .a NoneType. must be a text or a dict"),
        ({"schema": {"a.b": "bigint"}}, "does not read columns with a dot"),
        ({"schema": SCHEMA, "partition_by": "x"}, "partition_by has 'x'"),
        ({"partition_by": "n"}, "needs schema="),
        ({"schema": SCHEMA, "partition_by": ("n", "n")}, "partition_by has 'n' twice"),
        ({"schema": {"n": "double"}, "partition_by": "n"}, "'n' of type double"),
        ({"schema": {"n": "bigint", "N": "bigint"}}, "upper and lower case"),
        ({"schema": SCHEMA, "compression": "lzo"}, "compression='lzo'"),
        ({"catalog": {"s3.path-style-access": True}}, "'true' and not True"),
        ({"schema": SCHEMA, "roll_rows": 0}, "roll_rows=0"),
        ({"schema": SCHEMA, "roll_size": 0}, "roll_size=0"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        IcebergSink(**{"catalog": {}, "table": TABLE, **arguments})


def test_types_that_iceberg_lacks_are_refused() -> None:
    import pyarrow as pa

    for kind in (pa.uint32(), pa.timestamp("ns"), pa.list_(pa.uint8()), pa.decimal256(50, 2)):
        with pytest.raises(ConfigError, match=r"which Iceberg does not have|which this sink does not write"):
            IcebergSink({}, TABLE, schema=pa.schema([("n", kind)]))


def test_a_tuple_that_does_not_fit_fails_alone(tmp_path: Path) -> None:
    task = ReportingTask(sink(tmp_path, schema=SCHEMA, partition_by="shop"))
    task.sink.execute(tracked(n=1, shop="north"))
    with pytest.raises(UserError, match="field 'n'"):
        task.sink.execute(tracked(n="1", shop="north"))
    with pytest.raises(UserError, match="field 'shop'"):
        task.sink.execute(tracked(n=1, shop=2))
    checkpoint(task, 1)
    assert numbers(tmp_path) == [1]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_column_that_is_renamed_while_the_topology_runs_is_named_with_its_new_name(tmp_path: Path, delivery: str) -> None:
    ReportingTask(sink(tmp_path, schema=SCHEMA))
    running = sink(tmp_path)
    collector, errors = started(running, delivery=delivery), list[BaseException]()
    collector.report_error = errors.append  # type: ignore[method-assign, assignment]
    with table(tmp_path).update_schema() as change:
        change.rename_column("shop", "store")
    running.execute(tracked(n=1, shop="north"))
    why = r"\('shop' is 'store' now\); give it the former one, or restart the topology with fields and schema= of the new one"
    if delivery == "exactly_once":
        with pytest.raises(ConfigError, match=why):
            running.commit(running.pre_commit())
    else:
        running.execute(TICK)
        assert [bool(re.search(why, str(error))) for error in errors] == [True]
    assert iceberg_rows(tmp_path) == []


def test_other_writers_are_no_obstacle_but_another_schema_is(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyiceberg.types import LongType

    task = ReportingTask(sink(tmp_path, schema={"n": "bigint"}))
    task.write(1)
    task.snapshot(1)
    table(tmp_path).append(pa.table({"n": [10]}))
    task.output.complete(1)
    assert numbers(tmp_path) == [1, 10]
    with table(tmp_path).update_schema() as change:
        change.add_column("more", LongType())
    task.write(2)
    checkpoint(task, 2)
    assert numbers(tmp_path) == [1, 2, 10]
    with table(tmp_path).update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("n")
    task.write(3)
    with pytest.raises(ConfigError, match=r"given another schema while the topology ran \('n'\)"):
        checkpoint(task, 3)
    task.write(4)
    with pytest.raises(ConfigError, match=r"given another schema while the topology ran \('n'\)"):
        task.snapshot(4)


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_a_column_that_was_added_and_may_be_null_is_no_obstacle_to_a_restart(tmp_path: Path, schema: Any) -> None:
    from pyiceberg.types import LongType

    ReportingTask(sink(tmp_path, schema=SCHEMA))
    with table(tmp_path).update_schema() as change:
        change.add_column("more", LongType())
    task = ReportingTask(sink(tmp_path, schema=schema))
    task.sink.execute(tracked(n=1, shop="north"))
    checkpoint(task, 1)
    assert iceberg_rows(tmp_path) == [{"n": 1, "shop": "north", "more": None}]
    if schema is None:
        with pytest.raises(UserError, match="no field 'shop'"):
            task.sink.execute(tracked(n=2, store="north"))


def test_a_commit_that_met_another_one_is_tried_again(tmp_path: Path) -> None:
    import pyarrow as pa

    task = ReportingTask(sink(tmp_path, schema={"n": "bigint"}))
    task.write(1)
    refresh, others = task.sink._log.refresh, iter(range(10, 13))

    def refresh_before_another_commits() -> None:
        refresh()
        if (n := next(others, None)) is not None:
            table(tmp_path).append(pa.table({"n": [n]}))

    task.sink._log.refresh = refresh_before_another_commits
    checkpoint(task, 1)
    assert numbers(tmp_path) == [1, 10, 11, 12]


def test_two_processes_that_repeat_a_commit_at_once_add_it_once(tmp_path: Path) -> None:
    task, late = (ReportingTask(sink(tmp_path, schema={"n": "bigint"})) for _ in range(2))
    task.write(1)
    ((_, token),) = task.snapshot(1)
    refresh = late.sink._log.refresh

    def refresh_before_the_other_commits() -> None:
        refresh()
        late.sink._log.refresh = refresh
        task.sink.commit(token)

    late.sink._log.refresh = refresh_before_the_other_commits
    late.sink.commit(token)
    assert numbers(tmp_path) == [1] and len(table(tmp_path).snapshots()) == 1


def test_two_topologies_of_one_name_are_reported_and_no_row_is_taken_for_written(tmp_path: Path) -> None:
    one, other = (ReportingTask(sink(tmp_path, schema={"n": "bigint"})) for _ in range(2))
    one.write(1)
    other.write(2)
    checkpoint(one, 1)
    with pytest.raises(TopoEnvironmentError, match="must not both be called 'test'"):
        checkpoint(other, 1)
    assert numbers(tmp_path) == [1]


def test_a_marker_outlives_the_snapshots_and_later_rows_follow_it(tmp_path: Path) -> None:
    kind = SinkKind("iceberg", lambda folder: sink(folder, schema={"n": "bigint"}), lambda _: [], lambda _: [])
    task = SinkTask(kind, tmp_path)
    task.write(1)
    savepoint = task.snapshot(1)
    task.output.complete(1)
    task.write(2)
    task.snapshot(2)
    task.output.complete(2)
    task.die()
    first, *_ = table(tmp_path).snapshots()
    table(tmp_path).maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    resumed = SinkTask(kind, tmp_path, 0, 1, savepoint)
    resumed.write(3)
    resumed.snapshot(3)
    resumed.output.complete(3)
    assert numbers(tmp_path) == [1, 2, 3]
    assert table(tmp_path).properties["topo.test.sink.0"].startswith("3 test.sink-0-")


def test_files_that_are_gone_are_reported_and_never_added(tmp_path: Path) -> None:
    task = ReportingTask(sink(tmp_path, schema={"n": "bigint"}, roll_rows=1))
    task.write(1, 2)
    task.snapshot(1)
    sorted(tmp_path.glob("warehouse/shop/out/data/.staged/*"))[0].unlink()
    task.output.complete(1)
    (text,) = task.texts()
    assert "with 1 rows is neither staged nor published in table shop.out" in text
    assert numbers(tmp_path) == [2]


def test_a_batch_is_a_snapshot_and_its_tuples_are_acked_then(tmp_path: Path) -> None:
    made = sink(tmp_path, schema=SCHEMA, partition_by="shop", roll_rows=2)
    collector = started(made, delivery="at_least_once")
    for n in range(5):
        made.execute(tracked(n=n, shop="a"))
    assert len(collector.acked) == 4
    made.execute(TICK)
    assert len(collector.acked) == 5 and len(iceberg_rows(tmp_path)) == 5
    assert len(table(tmp_path).snapshots()) == 3 and "topo.test.sink.0" not in table(tmp_path).properties


def test_a_catalog_that_is_not_reached_is_reported_without_its_secrets(tmp_path: Path) -> None:
    catalog = {"type": "rest", "uri": "http://127.0.0.1:9", "token": "planted"}
    made = IcebergSink(catalog, TABLE, schema=SCHEMA)
    assert "planted" not in repr(made)
    with pytest.raises(TopoEnvironmentError, match=r"table shop.out cannot be opened: ") as raised:
        ReportingTask(made)
    assert "planted" not in str(raised.value)


def test_secrets_of_a_catalog_in_the_users_file_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"type": "sql", "uri": "sqlite:////", "s3.secret-access-key": "planted"}
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  prod:\n" + "".join(f"    {n}: '{v}'\n" for n, v in settings.items()))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    made = IcebergSink("prod", TABLE, schema=SCHEMA)
    with pytest.raises(TopoEnvironmentError):
        ReportingTask(made)
    assert "planted" not in made._log._shown(ValueError("Signature of planted is wrong"), "cannot be opened")


def test_a_batch_waits_at_most_half_of_the_message_timeout(tmp_path: Path) -> None:
    config = replace(TopologyConfig(), delivery="at_least_once", message_timeout_s=6.0, tick_interval_s=5.0)
    with pytest.raises(ConfigError, match="lower roll_interval"):
        sink(tmp_path, schema=SCHEMA).open(TaskContext("test", "sink", 1, config=config))
