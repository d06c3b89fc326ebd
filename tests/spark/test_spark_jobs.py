"""SparkSpout over what only Spark can read: the one job, its process, its faults, and the types of its rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import psutil
import pytest

pytest.importorskip("pyspark")

from tests.integration.support import PATIENCE_S, Scene, eventually, is_gone, kill, pid_of
from topo import ConfigError, TaskContext
from topo.spark import SparkSpout
from topo.spark.spark_source import SparkSource, source_of
from topo.spark.staging import Order, StagingFailed
from topo.spark.staging_job import write_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(300)]

HEAD = "from topo.spark import SparkSpout\n"
TAIL = """
def topology(tasks=2):
    builder = TopologyBuilder("flow")
    builder.set_spout("rows", spout(), tasks)
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).global_grouping("rows")
    return builder.build()
"""
TYPES = """
    SELECT * FROM VALUES
        (true, 1Y, 2S, 3, 4L, 0.5F, 1e300D, 'Zürich', X'00FF', 12345678901234567890.123456789012345678BD,
         DATE'0001-01-01', TIMESTAMP'2013-07-01 12:30:00.000005+02:00', TIMESTAMP_NTZ'2013-07-01 12:30:00.000005',
         array(1, NULL), array(array('a')), map('a', 1, 'b', NULL), map(DATE'2013-01-01', array(1.50BD)),
         struct(1 AS one, struct(TIMESTAMP'1969-12-31 23:59:59.999999Z' AS at) AS deep),
         INTERVAL '1 02:03:04.000005' DAY TO SECOND, INTERVAL '1-2' YEAR TO MONTH),
        (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
    AS t(bool, tiny, small, int, big, float, double, text, bytes, dec, day, moment, clock, ints, nested, counts, map, deep,
         span, months)
"""
VALUES = (
    True, 1, 2, 3, 4, 0.5, 1e300, "Zürich", b"\x00\xff", Decimal("12345678901234567890.123456789012345678"),
    date(1, 1, 1), datetime(2013, 7, 1, 10, 30, 0, 5, UTC), datetime(2013, 7, 1, 12, 30, 0, 5),
    (1, None), (("a",),), {"a": 1, "b": None}, {date(2013, 1, 1): (Decimal("1.50"),)},
    {"one": 1, "deep": {"at": datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)}}, 93_784_000_005, 14,
)  # fmt: skip


class Emitted:
    """Takes what a spout emits."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.has_ended = False

    def emit(self, values: Any, message_id: Any, timestamp: int | None = None) -> None:
        self.rows.append(values)

    def end_of_input(self) -> None:
        self.has_ended = True


def rows_of(spout: SparkSpout) -> list[Any]:
    """Return all rows of files that are read in place."""
    emitted = Emitted()
    spout.open(TaskContext("test", "rows", 1), emitted)  # type: ignore[arg-type]
    while not emitted.has_ended:
        spout.next_tuple()
    return emitted.rows


def read(spark: SparkSession, source: SparkSource, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in source.read(spark, columns).collect())


def source(**given: Any) -> SparkSource:
    every: dict[str, Any] = {"files": None, "table": None, "sql": None, "query": None, "format": "parquet", "options": {}}
    return source_of(**{**every, **given})


@pytest.mark.parametrize("kind", ["TIMESTAMP_MICROS", "INT96", "TIMESTAMP_MILLIS"])
def test_every_type_that_spark_writes_arrives_as_the_table_says(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    frame = spark.sql(TYPES)
    if kind != "TIMESTAMP_MICROS":
        frame = frame.select("day", "moment")
    folder = str(tmp_path / "rows")
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
    try:
        frame.coalesce(1).write.parquet(folder)
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", before or "INT96")
    found = rows_of(SparkSpout(folder))
    if kind == "TIMESTAMP_MICROS":
        assert found == [VALUES, (None,) * len(VALUES)]
        assert [type(value) for value in found[0]] == [type(value) for value in VALUES]
    else:
        micros = 5 if kind == "INT96" else 0
        assert found == [(date(1, 1, 1), datetime(2013, 7, 1, 10, 30, 0, micros, UTC)), (None, None)]


def test_files_tables_texts_and_functions_are_read_with_the_columns_that_are_wanted(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,dotted.name\n1,x\n2,y\n")
    csv = source(files=tmp_path / "a.csv", format="csv", options={"header": True, "inferSchema": True})
    assert read(spark, csv, ("dotted.name", "id")) == [("x", 1), ("y", 2)]
    spark.range(3).selectExpr("id", "id % 2 AS odd").write.partitionBy("odd").parquet(str(tmp_path / "parts"))
    assert read(spark, source(files=str(tmp_path / "parts")), ("id", "odd")) == [(0, 0), (1, 1), (2, 0)]
    table = f"parquet.`{tmp_path}/parts`"
    assert read(spark, source(table=table), ("id",)) == [(0,), (1,), (2,)]
    assert read(spark, source(sql=f"SELECT id + 1 AS next FROM {table}"), ("next",)) == [(1,), (2,), (3,)]
    assert read(spark, source(query=lambda spark: spark.range(2)), ("id",)) == [(0,), (1,)]
    with pytest.raises(TypeError, match="returned a int, and not a DataFrame"):
        read(spark, source(query=lambda spark: 7), ("id",))


def test_a_query_runs_once_and_a_named_staging_folder_is_used_again(scene: Scene) -> None:
    kept = scene.folder / "kept"
    body = f"""
    SCALE = 3

    def scaled(spark):
        (HERE / f"run-{{os.getpid()}}").touch()
        return spark.range(0, 1000, 1, 5).selectExpr(f"id * {{SCALE}} AS number", "current_timestamp() AS at").repartition(3)

    def spout():
        config = {{"spark.sql.shuffle.partitions": 2}}
        return SparkSpout(query=scaled, fields=("number",), timestamp="at", config=config, staging={str(kept)!r})
    """
    flow = scene.file(HEAD + dedent(body) + TAIL)
    for times in (1, 2):
        run = scene.run(flow)
        assert run.outcome.exit_code == 0, run.errors
        assert sorted(scene.lines()) == sorted(number * 3 for number in range(1000) for _ in range(times))
        assert len(list(scene.folder.glob("run-*"))) == 1
        assert run.totals["emitted"] == 1000
    other = SparkSpout(sql="SELECT 2 AS number", fields=("number",), staging=kept)
    with pytest.raises(ConfigError, match="holds the rows of another source"):
        other.open(TaskContext("test", "rows", 1), Emitted())  # type: ignore[arg-type]


def test_a_kill_while_spark_is_at_work_leaves_nothing_and_the_job_runs_again(scene: Scene) -> None:
    body = """
    def slow(spark):
        (HERE / f"run-{os.getpid()}").touch()
        while not (HERE / "go").exists():
            time.sleep(0.05)
        return spark.range(100).withColumnRenamed("id", "number")

    def spout():
        return SparkSpout(query=slow, fields=("number",))
    """
    running = scene.submit(scene.file(HEAD + dedent(body) + TAIL), progress_timeout="3s")

    def jobs() -> list[int]:
        return [int(path.name.removeprefix("run-")) for path in scene.folder.glob("run-*")]

    eventually(lambda: len(jobs()) == 1, 4 * PATIENCE_S)
    first = jobs()[0]
    family = [first, *(child.pid for child in psutil.Process(first).children(recursive=True))]
    assert len(family) > 1, "Java is among them"
    kill(pid_of(running.status(), "rows", 0))
    eventually(lambda: all(map(is_gone, family)))
    eventually(lambda: len(jobs()) == 2, 4 * PATIENCE_S)
    scene.touch("go")
    outcome = running.wait(120)
    assert outcome.exit_code == 0, outcome.reason
    assert sorted(scene.lines()) == list(range(100))
    assert json.loads(running.folder.summary.read_bytes())["restarts"] == 1, "waiting for Spark is progress"


def boom(spark: SparkSession) -> Any:
    raise ZeroDivisionError("made wrong")


@pytest.mark.parametrize(
    ("given", "message", "is_final"),
    [
        ({"sql": "SELECT number FROM nowhere"}, "(?s)TABLE_OR_VIEW_NOT_FOUND.*no temporary views of another one.*query=", True),
        ({"table": "nowhere"}, "(?s)TABLE_OR_VIEW_NOT_FOUND.*no temporary views of another one.*query=", True),
        ({"query": lambda spark: spark.table("nowhere")}, "(?s)NOT_FOUND.*no temporary views of another one", True),
        ({"sql": "SELECT (1 AS number"}, "PARSE_SYNTAX_ERROR", True),
        ({"query": lambda spark: spark.range(1)}, "UNRESOLVED_COLUMN", True),
        ({"query": boom}, r"ZeroDivisionError: made wrong \(line \d+ of .*test_spark_jobs.py\)", True),
        ({"sql": "SELECT raise_error('torn') AS number"}, "torn", False),
    ],
)
def test_what_spark_says_is_told_without_the_stack_of_its_jvm(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], message: str, is_final: bool
) -> None:
    order = Order("test", tmp_path, source(**given), ("number",), "local[2]", {})
    with pytest.raises(StagingFailed, match=message) as caught:
        write_rows(spark, order, tmp_path / "rows")
    assert caught.value.is_final is is_final
    assert "at org.apache.spark" not in str(caught.value)


def test_the_number_of_rows_is_known_and_all_are_read_be_they_none_or_many(spark: SparkSession, tmp_path: Path) -> None:
    for rows in (0, 1, 1000):
        order = Order("test", tmp_path, source(query=lambda spark, rows=rows: spark.range(rows)), ("id",), "local[2]", {})
        assert write_rows(spark, order, tmp_path / f"rows-{rows}") == rows
        assert spark.read.parquet(str(tmp_path / f"rows-{rows}")).count() == rows
        assert len(rows_of(SparkSpout(str(tmp_path / f"rows-{rows}")))) == rows


def test_the_folder_of_rows_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "my rows, 50% übrig"
    folder.mkdir()
    order = Order("n", folder, source_of(None, None, "SELECT 1 AS n", None, "parquet", {}), ("n",), "local[1]", {})
    assert write_rows(spark, order, folder / "rows") == 1
    assert rows_of(SparkSpout(folder / "rows")) == [(1,)]


def test_a_wrong_query_shows_among_the_errors_and_spark_is_not_asked_again(scene: Scene) -> None:
    body = "def spout():\n    return SparkSpout(sql='SELECT nonsense FROM nowhere', fields=('number',))\n"
    running = scene.submit(scene.file(HEAD + body + TAIL))
    running.wait_until(lambda _: any("TABLE_OR_VIEW_NOT_FOUND" in error["message"] for error in running.errors()), timeout_s=200)
    running.wait_until(lambda _: sum(error["count"] for error in running.errors()) > 2)
    workers = running.status()["workers"]
    assert all(not psutil.Process(worker["pid"]).children() for worker in workers)
    running.kill()
    assert scene.lines() == []
