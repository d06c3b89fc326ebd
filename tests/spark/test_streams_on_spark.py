"""Programs of streams whose workers run on a Spark cluster, against what Spark computes of the same input in batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests import streams_programs as plain
from tests.integration.support import FAST, Scene, kill
from tests.spark.standalone import LIGHT, StandaloneCluster
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.launch.running import RunningTopology
from topo.master.outcome import OutcomeKind
from topo.storage.submitted import SparkCluster
from topologies.streams import delays, paid_orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(240)]

DELAYS = """
    SELECT carrier, at - at % 3600000 AS start, count(*) AS flights, avg(delay) AS delay
    FROM flights GROUP BY carrier, at - at % 3600000
"""
PAID = """
    SELECT orders.id, coalesce(payments.cents, 0) AS cents FROM orders LEFT JOIN payments
    ON payments.order = orders.id AND payments.at BETWEEN orders.at AND orders.at + 3600000
"""


def submit(scene: Scene, standalone: StandaloneCluster, program: Any, **parameters: str) -> RunningTopology:
    """Start a program on the cluster, with two workers."""
    request = RunRequest(
        program.__file__,
        parameters=parameters,
        settings={**FAST, "workers": 2, "delivery": "exactly_once", "checkpoint_interval": "200ms"},
        home=scene.home,
        foreground=True,
        cluster=SparkCluster(master=standalone.url, conf=LIGHT),
    )
    return submit_background(request)


def answers(frame: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.collect())


def test_a_window_program_with_spark_at_both_ends_gives_what_spark_gives_in_batch(
    spark: SparkSession, standalone: StandaloneCluster, scene: Scene, tmp_path: Path
) -> None:
    chance = Random(1)
    flights = [(chance.choice("ABC"), float(chance.randrange(-10, 90)), 60_000 * minute) for minute in range(2_000)]
    frame = spark.createDataFrame(flights, "carrier string, delay double, at long").coalesce(1)
    frame.write.parquet(str(tmp_path / "flights"))
    frame.createOrReplaceTempView("flights")

    running = submit(scene, standalone, delays, table=str(tmp_path / "flights"), out=str(tmp_path / "delays"))
    assert running.wait(120).kind is OutcomeKind.DONE, running.errors()

    found = spark.read.parquet(str(tmp_path / "delays")).select("carrier", "start", "flights", "delay")
    assert answers(found) == answers(spark.sql(DELAYS))


def test_a_join_gives_what_spark_gives_in_batch_although_a_worker_is_killed(
    spark: SparkSession, standalone: StandaloneCluster, scene: Scene, tmp_path: Path
) -> None:
    orders, payments = plain.orders_and_payments(3, 40_000)
    files = {"orders": plain.text(orders), "payments": plain.text(payments)}
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        spark.read.json(str(tmp_path / name)).createOrReplaceTempView(name)

    paths = {name: str(tmp_path / name) for name in files}
    running = submit(scene, standalone, paid_orders, **paths, out=str(tmp_path / "paid"))
    running.wait_until(lambda status: status["totals"]["executed"] > 0, timeout_s=120)
    kill(next(worker["pid"] for worker in running.status()["workers"] if worker["pid"]))
    assert running.wait(120).kind is OutcomeKind.DONE, running.errors()

    found = Counter((row["id"], row["cents"]) for row in plain.rows(tmp_path / "paid"))
    assert found == answers(spark.sql(PAID))
