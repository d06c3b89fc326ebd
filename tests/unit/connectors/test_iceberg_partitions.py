"""Partitions of the tables that IcebergSink writes: each file has one, that of its rows."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from tests.connectors.sink_tasks import ReportingTask
from tests.contract.two_phase_sinks import SinkKind, SinkTask, carried, iceberg_catalog, iceberg_rows
from tests.unit.connectors.drive import tracked
from tests.unit.connectors.test_iceberg_sink import SCHEMA, TABLE, checkpoint, numbers, sink, table
from topo import ConfigError
from topo.errors import UserError

pytest.importorskip("pyiceberg", reason="`sh scripts/setup.sh iceberg` installs it")


def test_each_file_has_one_partition_also_of_none_and_of_long_texts(tmp_path: Path) -> None:
    task = ReportingTask(sink(tmp_path, schema={**SCHEMA, "day": "date"}, partition_by=("shop", "day")))
    shops, days = ("north", "x" * 300, "", None), (dt.date(2026, 3, 1), dt.date(1969, 12, 31), None)
    values = [{"n": n, "shop": shop, "day": day} for n, (shop, day) in enumerate((s, d) for s in shops for d in days)]
    for row in [*values, *values]:
        task.sink.execute(tracked(**row))
    checkpoint(task, 1)
    assert iceberg_rows(tmp_path) == sorted([*values, *values], key=repr)
    partitions = [(one["partition"]["shop"], one["partition"]["day"]) for one in table(tmp_path).inspect.files().to_pylist()]
    assert sorted(partitions, key=repr) == sorted(((row["shop"], row["day"]) for row in values), key=repr)


def test_a_partition_field_that_was_removed_from_a_table_of_format_1_is_void(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField, StringType

    catalog = load_catalog("topo", **iceberg_catalog(tmp_path))
    catalog.create_namespace("shop")
    columns = NestedField(1, "n", LongType(), required=False), NestedField(2, "shop", StringType(), required=False)
    fields = [PartitionField(one.field_id, 1000 + one.field_id, IdentityTransform(), one.name) for one in columns]
    catalog.create_table(TABLE, Schema(*columns), partition_spec=PartitionSpec(*fields), properties={"format-version": "1"})
    with table(tmp_path).update_spec() as spec:
        spec.remove_field("shop")
    assert "void" in str(table(tmp_path).spec())
    for options in ({}, {"schema": SCHEMA, "partition_by": "n"}):
        task = ReportingTask(sink(tmp_path, **options))
        for n, shop in ((1, "a"), (1, "b"), (2, "b")):
            task.sink.execute(tracked(n=n, shop=shop))
        checkpoint(task, 1)
    assert numbers(tmp_path) == [1, 1, 1, 1, 2, 2]
    assert sorted(table(tmp_path).inspect.files()["record_count"].to_pylist()) == [1, 1, 2, 2]


def test_an_existing_table_is_written_by_its_own_partitions(tmp_path: Path) -> None:
    from pyiceberg.transforms import DayTransform, TruncateTransform

    ReportingTask(sink(tmp_path, schema={**SCHEMA, "at": "timestamp"}))
    with table(tmp_path).update_spec() as spec:
        spec.add_field("at", DayTransform(), "day")
        spec.add_field("n", TruncateTransform(10), "tens")
    task = ReportingTask(sink(tmp_path))
    times = [dt.datetime(2026, 3, day, hour, tzinfo=dt.UTC) for day in (1, 2) for hour in (0, 23)]
    for n, at in enumerate(times * 5):
        task.sink.execute(tracked(n=n, shop="a", at=at))
    checkpoint(task, 1)
    assert numbers(tmp_path) == list(range(20))
    assert len(table(tmp_path).inspect.files()) == 4


@pytest.mark.parametrize("properties", [{}, {"write.metadata.metrics.default": "none"}])
def test_a_partition_does_not_depend_on_the_statistics_of_its_files(tmp_path: Path, properties: dict[str, str]) -> None:
    from pyiceberg.expressions import EqualTo

    task = ReportingTask(sink(tmp_path, schema=SCHEMA, partition_by="shop"))
    with table(tmp_path).transaction() as change:
        change.set_properties(properties)
    shops = ("north", "x" * 5000, "x" * 5000 + "y")
    for n, shop in enumerate(shops):
        task.sink.execute(tracked(n=n, shop=shop))
    checkpoint(task, 1)
    for n, shop in enumerate(shops):
        assert table(tmp_path).scan(row_filter=EqualTo("shop", shop)).to_arrow()["n"].to_pylist() == [n]


def test_decimals_make_partitions_whatever_their_digits(tmp_path: Path) -> None:
    from pyiceberg.transforms import TruncateTransform

    ReportingTask(sink(tmp_path, schema={"n": "bigint", "price": "decimal(38,2)"}, partition_by="price"))
    with table(tmp_path).update_spec() as spec:
        spec.add_field("price", TruncateTransform(100), "whole")
    task = ReportingTask(sink(tmp_path))
    prices = [Decimal(text) for text in ("1.5", "1.50", "-0.5", "7", "1E+2", f"{'9' * 36}.5")]
    for n, price in enumerate(prices):
        task.sink.execute(tracked(n=n, price=price))
    ((_, token),) = carried(task.snapshot(1))
    task.sink.commit(token)
    assert [row["price"] for row in iceberg_rows(tmp_path)] == prices
    files = table(tmp_path).inspect.files().to_pylist()
    found = [(one["partition"]["price"], one["partition"]["whole"], one["record_count"]) for one in files]
    wholes = ((1, 2), (-1, 1), (7, 1), (100, 1), (Decimal("9" * 36), 1))
    assert sorted(found) == sorted((price, whole, count) for price, (whole, count) in zip(prices[1:], wholes, strict=True))


def test_a_table_partitioned_by_floats_is_refused(tmp_path: Path) -> None:
    ReportingTask(sink(tmp_path, schema={"n": "bigint", "ratio": "double"}))
    with table(tmp_path).update_spec() as spec:
        spec.add_identity("ratio")
    with pytest.raises(ConfigError, match=r"partitioned by identity of 'ratio' \(double\), which IcebergSink does not write"):
        ReportingTask(sink(tmp_path))


def test_rows_of_a_checkpoint_are_added_after_a_restart_with_other_partitions(tmp_path: Path) -> None:
    made = SinkKind(
        "", lambda folder: sink(folder, schema={"n": "bigint", "m": "bigint"}, partition_by="n"), lambda _: [], lambda _: []
    )
    task = SinkTask(made, tmp_path)
    task.sink.execute(tracked(n=1, m=2))
    state = task.snapshot(1)
    task.die()
    with table(tmp_path).update_spec() as spec:
        spec.remove_field("n")
        spec.add_identity("m")
    SinkTask(replace(made, make=sink), tmp_path, 0, 1, state)
    assert iceberg_rows(tmp_path) == [{"n": 1, "m": 2}]
    assert [one["partition"]["m"] for one in table(tmp_path).inspect.files().to_pylist()] == [2]


@pytest.mark.parametrize(("kind", "least"), [("int", -(2**31)), ("bigint", -(2**63))])
def test_a_number_that_truncate_puts_below_its_type_fails_alone(tmp_path: Path, kind: str, least: int) -> None:
    from pyiceberg.transforms import TruncateTransform

    ReportingTask(sink(tmp_path, schema={"n": kind}))
    with table(tmp_path).update_spec() as spec:
        spec.add_field("n", TruncateTransform(10), "tens")
    task = ReportingTask(sink(tmp_path))
    task.write(1, -(10**9))
    with pytest.raises(UserError, match="is in no partition of this table"):
        task.write(least)
    checkpoint(task, 1)
    assert numbers(tmp_path) == [-(10**9), 1]


def test_a_table_partitioned_in_a_way_that_files_do_not_show_is_refused(tmp_path: Path) -> None:
    from pyiceberg.transforms import BucketTransform

    ReportingTask(sink(tmp_path, schema=SCHEMA))
    with table(tmp_path).update_spec() as spec:
        spec.add_field("n", BucketTransform(4), "bucket")
    with pytest.raises(
        ConfigError, match=r"shop.out is partitioned by bucket\[4\] of 'n' \(long\), which IcebergSink does not write"
    ):
        ReportingTask(sink(tmp_path))
