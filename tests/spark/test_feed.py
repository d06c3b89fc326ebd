"""Structured Streaming into a topology and out again: real Spark, real workers, and a worker that is killed on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.support import Scene, eventually, kill, pid_of
from topo.errors import NotFoundError, TopoEnvironmentError, UserError
from topo.spark import feed

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

BODY = """
from topo.spark import FeedSpout, SparkSink

class Slowly(BasicBolt):
    outputs = ("number", "word")

    def execute(self, tup, collector):
        while (HERE / "hold").exists():
            time.sleep(0.01)
        if (HERE / "odd").exists() and tup["number"] == 13:
            raise ValueError("unlucky")
        collector.emit(tup.values)

def topology():
    builder = TopologyBuilder("fed")
    builder.set_spout("rows", FeedSpout(("number", "word")), parallelism=2)
    builder.set_bolt("slowly", Slowly()).shuffle_grouping("rows")
    builder.set_bolt("sink", SparkSink(HERE / "out", max_age="100ms")).shuffle_grouping("slowly")
    return builder.build()
"""
ROW_SPOUT, BATCH_SPOUT = (f'FeedSpout(("number", "word"){more})' for more in ("", ", batches=True, batch_rows=100"))
ROWS = 2000


class Source:
    """A folder of files that Spark reads as a stream, one file in each micro-batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.folder, self.checkpoint = folder / "in", folder / "checkpoint"
        self.folder.mkdir()
        self.stream = (
            spark.readStream.schema("number bigint, word string").option("maxFilesPerTrigger", 1).parquet(str(self.folder))
        )
        self.rows = 0

    def add(self, rows: int = ROWS) -> None:
        """Add a file of the next rows."""
        numbers = range(self.rows, self.rows + rows)
        table = pa.table({"number": pa.array(numbers, pa.int64()), "word": [f"w{number}" for number in numbers]})
        hidden = self.folder / f".{self.rows}"
        pq.write_table(table, hidden)
        hidden.rename(self.folder / f"{self.rows:09d}.parquet")
        self.rows += rows


@pytest.fixture
def source(spark: Any, tmp_path: Path) -> Source:
    return Source(spark, tmp_path)


@contextmanager
def fed(source: Source, scene: Scene, **options: Any) -> Iterator[Any]:
    query = feed(
        source.stream,
        "fed",
        checkpoint=source.checkpoint,
        trigger={"processingTime": "50 milliseconds"},
        home=scene.home,
        **options,
    )
    try:
        yield query
    finally:
        query.stop()


def submit(scene: Scene, body: str = BODY, **settings: Any) -> Any:
    running = scene.submit(scene.file(body), **settings)
    running.wait_until(lambda status: status["status"] == "RUNNING")
    return running


def rows_out(scene: Scene) -> Counter[int]:
    files = (scene.folder / "out").glob("*.parquet")
    return Counter(number for file in files for number in pq.read_table(file)["number"].to_pylist())


def test_every_row_of_a_stream_goes_through_and_spark_reads_the_result_as_a_stream(
    scene: Scene, source: Source, spark: Any
) -> None:
    submit(scene)
    source.add()
    with fed(source, scene) as query:
        query.processAllAvailable()
        assert rows_out(scene) == Counter(range(ROWS)), "a batch is over when all of its rows are acked"
        source.add()
        source.add()
        query.processAllAvailable()
    assert rows_out(scene) == Counter(range(3 * ROWS))
    seen: list[int] = []
    out = (
        spark.readStream.schema("number bigint, word string")
        .parquet(str(scene.folder / "out"))
        .writeStream.foreachBatch(lambda frame, _: seen.extend(row["number"] for row in frame.collect()))
        .option("checkpointLocation", str(scene.folder / "second"))
        .trigger(availableNow=True)
        .start()
    )
    out.awaitTermination(60)
    assert Counter(seen) == Counter(range(3 * ROWS))


def test_a_batch_is_not_over_before_its_rows_are_acked(scene: Scene, source: Source) -> None:
    running = submit(scene)
    scene.touch("hold")
    source.add(100)
    with fed(source, scene) as query:
        running.wait_until(lambda status: status["totals"]["pending"] > 0)
        assert query.lastProgress is None and rows_out(scene) == Counter()
        (scene.folder / "hold").unlink()
        query.processAllAvailable()
    assert rows_out(scene) == Counter(range(100))


@pytest.mark.parametrize(("component", "batches"), [("rows", False), ("sink", False), ("rows", True)])
def test_a_worker_that_is_killed_on_the_way_loses_no_row(scene: Scene, source: Source, component: str, batches: bool) -> None:
    running = submit(scene, BODY.replace(ROW_SPOUT, BATCH_SPOUT) if batches else BODY)
    scene.touch("hold")
    source.add()
    with fed(source, scene) as query:
        status = running.wait_until(lambda status: status["totals"]["pending"] > 0)
        kill(pid_of(status, component))
        (scene.folder / "hold").unlink()
        source.add()
        query.processAllAvailable()
    assert running.status()["restarts"] >= 1
    found = rows_out(scene)
    assert set(found) == set(range(2 * ROWS))


def test_a_topology_that_is_gone_fails_the_query_and_the_batch_comes_again(scene: Scene, source: Source) -> None:
    running = submit(scene)
    source.add(100)
    with fed(source, scene, patience="2s") as query:
        query.processAllAvailable()
        scene.touch("hold")
        source.add(100)
        running.wait_until(lambda status: status["totals"]["pending"] > 0)
        running.kill()
        eventually(lambda: not query.isActive, 60)
        assert query.exception() is not None
    assert set(rows_out(scene)) == set(range(100))
    (scene.folder / "hold").unlink()
    with pytest.raises(TopoEnvironmentError, match="'fed' does not run"):
        feed(source.stream, "fed", checkpoint=source.checkpoint, home=scene.home)
    submit(scene)
    with fed(source, scene) as query:
        query.processAllAvailable()
    assert set(rows_out(scene)) == set(range(200))


def test_a_row_that_is_given_up_does_not_stop_the_stream(scene: Scene, source: Source) -> None:
    running = submit(scene, attempts=2, backoff="20ms")
    scene.touch("odd")
    source.add(50)
    with fed(source, scene) as query:
        query.processAllAvailable()
    assert rows_out(scene) == Counter(set(range(50)) - {13})
    assert len(running.dead_letters()) == 1


def test_columns_that_the_spout_does_not_find_end_the_query_with_their_names(scene: Scene, source: Source) -> None:
    submit(scene)
    source.add(10)
    source.stream = source.stream.withColumnRenamed("word", "text")
    with fed(source, scene) as query:
        eventually(lambda: not query.isActive, 60)
        assert "FeedSpout wants the column word, and the DataFrame has number, text" in str(query.exception())


def test_what_cannot_be_fed_is_said_at_once(scene: Scene, source: Source, spark: Any) -> None:
    with pytest.raises(UserError, match="streaming DataFrame"):
        feed(spark.range(3), "fed", checkpoint=source.checkpoint, home=scene.home)
    with pytest.raises(NotFoundError, match="no topology is called 'fed'"):
        feed(source.stream, "fed", checkpoint=source.checkpoint, home=scene.home)
