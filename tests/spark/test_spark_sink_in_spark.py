"""What SparkSink has written, read by Spark: batch, partitions, a stream over the folder, and what a repeat looks like."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from topo.spark import SparkSink
from topo.testing import run_bolt

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

EVERY_TYPE = {
    "a_bool": ("boolean", True),
    "a_byte": ("tinyint", -128),
    "a_short": ("smallint", 32767),
    "an_int": ("int", -(2**31)),
    "a_long": ("bigint", 2**63 - 1),
    "a_float": ("float", 1.5),
    "a_double": ("double", 0.1),
    "a_string": ("string", "søk \U0001f600"),
    "bytes": ("binary", b"\x00\xff"),
    "a_date": ("date", date(1582, 10, 4)),
    "a_moment": ("timestamp", datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=UTC)),
    "a_local_time": ("timestamp_ntz", datetime(2024, 3, 31, 2, 30, 0, 1)),
    "a_decimal": ("decimal(38,10)", Decimal("1234567890123456789012345678.0123456789")),
    "some": ("array<array<int>>", ((1, None), (), None)),
    "a_map": ("map<string,array<double>>", {"a": (1.5,), "b": None}),
    "a_struct": ("struct<x:int,y:struct<z:date>>", {"x": 1, "y": {"z": date(2024, 2, 29)}}),
}


def plain(value: Any) -> Any:
    """A value of a Spark row as tuples have it: sequences as tuples, structs as dicts."""
    if hasattr(value, "asDict"):
        return {name: plain(item) for name, item in value.asDict().items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(plain, value))
    return bytes(value) if isinstance(value, bytearray) else value


def test_spark_reads_every_type_as_what_it_was(spark: Any, tmp_path: Path) -> None:
    values = {name: value for name, (_, value) in EVERY_TYPE.items()}
    rows = [values, dict.fromkeys(values)]
    run_bolt(SparkSink(tmp_path, schema={name: kind for name, (kind, _) in EVERY_TYPE.items()}), rows).assert_all_acked()

    frame = spark.read.parquet(str(tmp_path))

    assert dict(frame.dtypes) == {name: kind for name, (kind, _) in EVERY_TYPE.items()}
    moment = frame.selectExpr("unix_micros(a_moment)").collect()
    found = sorted((plain(row) for row in frame.drop("a_moment").collect()), key=lambda row: row["a_bool"] is None)
    assert found == [{name: value for name, value in row.items() if name != "a_moment"} for row in rows]
    at = EVERY_TYPE["a_moment"][1]
    assert {row[0] for row in moment} == {None, int(at.timestamp()) * 1_000_000 + at.microsecond}


def test_spark_reads_partitions_and_their_odd_names(spark: Any, tmp_path: Path) -> None:
    names = ["JFK", "a/b", "a=b", "100%", "x y", "ü", "a:b", "#1", "it's", None]
    run_bolt(
        SparkSink(tmp_path, partition_by=("of", "day")),
        [{"n": n, "of": of, "day": date(2024, 1, 1)} for n, of in enumerate(names)],
    )

    frame = spark.read.parquet(str(tmp_path))

    assert sorted((row["n"], row["of"], row["day"]) for row in frame.collect()) == [
        (n, of, date(2024, 1, 1)) for n, of in enumerate(names)
    ]
    assert frame.where("of = 'a/b'").count() == 1


def test_a_stream_over_the_folder_sees_every_row_once_as_batches_come(spark: Any, tmp_path: Path) -> None:
    out, seen = tmp_path / "out", []
    run_bolt(SparkSink(out, max_rows=10), [{"n": n} for n in range(25)])
    stream = (
        spark.readStream.schema("n bigint")
        .parquet(str(out))
        .writeStream.foreachBatch(lambda frame, number: seen.extend(row["n"] for row in frame.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        stream.processAllAvailable()
        assert sorted(seen) == list(range(25))
        run_bolt(SparkSink(out, max_rows=10), [{"n": n} for n in range(25, 60)])
        stream.processAllAvailable()
    finally:
        stream.stop()
    assert sorted(seen) == list(range(60))


def test_rows_that_were_replayed_fall_to_the_key(spark: Any, tmp_path: Path) -> None:
    for _ in range(2):
        run_bolt(SparkSink(tmp_path, key="n"), [{"n": n, "x": n * n} for n in range(50)])

    assert spark.read.parquet(str(tmp_path)).count() == 100
    assert spark.read.parquet(str(tmp_path)).dropDuplicates(["n"]).count() == 50


def test_spark_makes_one_file_of_many_small_ones(spark: Any, tmp_path: Path) -> None:
    out, compact = tmp_path / "out", tmp_path / "compact"
    run_bolt(SparkSink(out, max_rows=1), [{"n": n} for n in range(20)])

    spark.read.parquet(str(out)).coalesce(1).write.parquet(str(compact))

    assert len(list(compact.glob("*.parquet"))) == 1
    assert spark.read.parquet(str(compact)).count() == 20
