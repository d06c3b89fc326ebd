"""SparkSink in running topologies: killed workers, a full disk, and types from Spark through a topology to Spark."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.integration.support import Scene, acked, kill, let_pass, pid_of
from tests.integration.test_full_disk import FullDisk
from topo.master.outcome import OutcomeKind
from topo.spark.parquet_commit import HIDDEN

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

ROWS = 20_000
FLOW = """
from topo.spark import SparkSink

def topology():
    builder = TopologyBuilder("flow")
    rows = [(n, n % 3) for n in range({rows})]
    builder.set_spout("numbers", IterableSpout(rows, fields=("number", "rest")))
    sink = SparkSink(HERE / "out", max_age="20ms", partition_by={partition_by!r})
    builder.set_bolt("sink", sink, parallelism={tasks}).shuffle_grouping("numbers")
    return builder.build()
"""


def flow(scene: Scene, partition_by: tuple[str, ...] = (), tasks: int = 1) -> str:
    return scene.file(FLOW.format(rows=ROWS, partition_by=partition_by, tasks=tasks))


def rows_out(scene: Scene) -> Counter[int]:
    table = ds.dataset(scene.folder / "out", format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()
    return Counter(table["number"].to_pylist())


def test_no_row_is_missing_when_sinks_are_killed_again_and_again(scene: Scene) -> None:
    running = scene.submit(flow(scene, ("rest",), tasks=2), max_spout_pending=300)
    seen = 0
    for index in (0, 1, 0):
        status = running.wait_until(lambda status, seen=seen: status["status"] == "RUNNING" and acked(status) > seen)
        kill(pid_of(status, "sink", index))
        seen = acked(status)
    assert running.wait(timeout_s=120).kind is OutcomeKind.DONE
    assert set(rows_out(scene)) == set(range(ROWS))
    assert os.listdir(scene.folder / "out" / HIDDEN) == ["schema.arrow"]


def test_a_full_disk_holds_the_topology_up_and_loses_and_repeats_nothing(scene: Scene) -> None:
    running = scene.submit(flow(scene), max_spout_pending=300)
    status = running.wait_until(lambda status: acked(status) > 0)
    with FullDisk(pid_of(status, "sink")):
        running.wait_until(lambda _: any("SparkSink cannot write" in error["message"] for error in running.errors()))
        let_pass(running, 0.5)
        held = acked(running.status())
        let_pass(running, 0.5)
        assert acked(running.status()) == held < ROWS
    assert running.wait(timeout_s=120).kind is OutcomeKind.DONE
    assert rows_out(scene) == Counter(range(ROWS))


@pytest.mark.spark
@pytest.mark.parametrize("batches", [False, True])
def test_types_come_back_from_a_topology_as_they_went_in(scene: Scene, spark: Any, tmp_path: Path, batches: bool) -> None:
    frame = spark.sql("""
        SELECT * FROM VALUES
        (1, true, 1Y, 2S, 3L, CAST(1.5 AS FLOAT), 0.1D, 'søk', X'00FF', DATE'1582-10-04',
         TIMESTAMP'2024-03-31 01:30:00.123456 UTC', TIMESTAMP_NTZ'2024-03-31 02:30:00.000001',
         CAST(12345678901234567890.123456789 AS DECIMAL(38,9)),
         array(array(1, NULL), array(), NULL), map('a', array(1.5D), 'b', NULL),
         named_struct('x', 1, 'y', named_struct('z', DATE'2024-02-29', 'w', CAST(NULL AS STRING)))),
        (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
        (3, false, -128Y, -32768S, -9223372036854775808L, CAST('NaN' AS FLOAT), double('-Infinity'), '', X'', DATE'9999-12-31',
         TIMESTAMP'1900-01-01 00:00:00 UTC', TIMESTAMP_NTZ'0001-01-01 00:00:00', CAST(-0.000000001 AS DECIMAL(38,9)),
         array(), map(), named_struct('x', CAST(NULL AS INT), 'y', NULL))
        AS t(id, bool, byte, short, long, float, double, string, bytes, date, moment, local, decimal, lists, map, struct)
    """)
    frame.write.parquet(str(tmp_path / "in"))
    topology = scene.file(f"""
        from topo.spark import SparkSink, SparkSpout

        def topology():
            builder = TopologyBuilder("round")
            builder.set_spout("rows", SparkSpout({str(tmp_path / "in")!r}, batches={batches}))
            sink = SparkSink({str(tmp_path / "out")!r}, schema={dict(frame.dtypes)!r})
            builder.set_bolt("sink", sink).shuffle_grouping("rows")
            return builder.build()
    """)

    assert scene.run(topology).outcome.kind is OutcomeKind.DONE

    before, after = spark.read.parquet(str(tmp_path / "in")), spark.read.parquet(str(tmp_path / "out"))
    assert after.dtypes == before.dtypes
    # As text, since NaN is not equal to itself.
    assert [str(row) for row in after.orderBy("id").collect()] == [str(row) for row in before.orderBy("id").collect()]


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_no_row_of_a_batch_is_missing_when_spouts_and_sinks_are_killed(scene: Scene, delivery: str) -> None:
    (scene.folder / "in").mkdir()
    table = pa.table({"number": range(ROWS), "rest": [number % 3 for number in range(ROWS)]})
    pq.write_table(table, scene.folder / "in" / "0.parquet", row_group_size=1000)
    path = scene.file("""
        from topo.spark import SparkSink, SparkSpout

        def topology():
            builder = TopologyBuilder("flow")
            builder.set_spout("rows", SparkSpout(HERE / "in", batches=True, batch_rows=5), 2, max_spout_pending=8)
            sink = SparkSink(HERE / "out", max_age="20ms", partition_by="rest")
            builder.set_bolt("sink", sink, parallelism=2).shuffle_grouping("rows")
            return builder.build()
    """)
    running = scene.submit(path, delivery=delivery, checkpoint_interval="100ms")
    seen = 0
    for name, index in (("sink", 0), ("rows", 1), ("sink", 1)):
        status = running.wait_until(lambda status, seen=seen: status["status"] == "RUNNING" and acked(status) > seen)
        kill(pid_of(status, name, index))
        seen = acked(status)
    assert running.wait(timeout_s=120).kind is OutcomeKind.DONE
    assert set(rows_out(scene)) == set(range(ROWS))
    assert delivery == "at_least_once" or rows_out(scene) == Counter(range(ROWS))
