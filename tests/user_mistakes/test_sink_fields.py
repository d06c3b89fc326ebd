"""What users expect of the fields that a sink writes, and the answer that they get."""

from __future__ import annotations

from typing import Any

import pytest

from topo import FilesSink, IterableSpout, SqliteSink, TopologyBuilder, TopologyError


def problems(sink: Any, *, columns: tuple[str, ...] = ("user", "window_start", "clicks")) -> list[str]:
    builder = TopologyBuilder("visits")
    builder.set_spout("visits", IterableSpout([("ann", 0, 3)], fields=columns))
    builder.set_bolt("store", sink).global_grouping("visits")
    try:
        builder.build()
    except TopologyError as error:
        return list(error.problems)
    return []


def test_a_column_that_no_tuple_has_is_refused_before_anything_runs() -> None:
    """The user gives a column another name than the field of the bolt before has."""
    (problem,) = problems(SqliteSink("shop.db", "visits", ("user", "start", "clicks")))
    assert problem.startswith("bolt 'store': it writes the field 'start', which stream 'default' of 'visits' does not have; ")


def test_each_field_that_is_missing_is_named() -> None:
    """The user writes the rows of another bolt than he thinks."""
    found = problems(SqliteSink("shop.db", "visits", ("shop", "user", "cents"), key="shop"))
    assert [problem.split(", which")[0] for problem in found] == [
        "bolt 'store': it writes the field 'shop'",
        "bolt 'store': it writes the field 'cents'",
    ]


def test_fields_and_partitions_of_files_are_checked() -> None:
    """The user partitions by a field that an earlier bolt has left out."""
    found = problems(FilesSink("out", format="csv", fields=("user", "clicks"), partition_by="day"))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it writes the field 'day'"]


def test_columns_of_a_schema_are_checked() -> None:
    """The user's schema has a column that no tuple has."""
    pytest.importorskip("pyarrow")
    found = problems(FilesSink("out", format="parquet", schema={"user": "string", "hits": "bigint"}))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it writes the field 'hits'"]


def test_columns_of_postgres_are_checked() -> None:
    """The user names a column of the table that no tuple has."""
    pytest.importorskip("psycopg")
    from topo.connectors.postgres import PostgresSink

    found = problems(PostgresSink("dbname=shop", "visits", ("user", "hits")))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it writes the field 'hits'"]


def test_a_schema_for_spark_is_checked() -> None:
    """The user's schema has a column that no tuple has."""
    pytest.importorskip("pyarrow")
    from topo.spark import SparkSink

    found = problems(SparkSink("out", schema={"user": "string", "hits": "bigint"}))
    assert [problem.split(", which")[0] for problem in found] == ["bolt 'store': it writes the field 'hits'"]


@pytest.mark.parametrize("sink", [SqliteSink("shop.db", "visits", ("user", "clicks")), FilesSink("out", partition_by="user")])
def test_fields_that_are_left_out_are_no_mistake(sink: Any) -> None:
    """The user writes some of the fields."""
    assert problems(sink) == []
