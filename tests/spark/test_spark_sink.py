"""SparkSink as a bolt on given tuples: acks, failures, and the files in its folder."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.full_disk import full_disk
from topo import IterableSpout, Topology, TopologyBuilder
from topo.api.context import TaskContext
from topo.api.streams import SYSTEM_COMPONENT, TICK_STREAM
from topo.api.tuples import Origin, Tuple
from topo.config import TopologyConfig
from topo.emission.collectors import BoltCollector, TrackedTuple
from topo.errors import ConfigError, StagedRowsLostError
from topo.spark.parquet_commit import HIDDEN, ParquetCommits, Staged
from topo.spark.spark_sink import SparkSink
from topo.testing import END, TICK, TopologyTest, run_bolt

TICK_TUPLE = Tuple((), Origin(SYSTEM_COMPONENT, 0, TICK_STREAM))


def read(path: Path) -> list[dict[str, Any]]:
    table = ds.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def files(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*.parquet"))


def numbers(path: Path) -> list[int]:
    return sorted(row["number"] for row in read(path))


class Driver:
    """A sink in the hands of a test, which sees every ack, failure and error as it comes."""

    def __init__(self, sink: SparkSink, **context: Any) -> None:
        self.errors: list[str] = []
        self.collector = BoltCollector("sink", (), lambda error: self.errors.append(str(error)))
        self.sink = sink
        sink.prepare(TaskContext("test", "sink", 1, **context), self.collector)
        self.origin = Origin("source", 2, "default", ("number",))

    def send(self, *values: int) -> None:
        for value in values:
            self.sink.execute(TrackedTuple.made((value,), self.origin, None, 1, (value + 1,), (value + 1,)))

    def tick(self) -> None:
        self.sink.execute(TICK_TUPLE)

    def acked(self) -> list[int]:
        return [tup[0] for tup in self.collector.acked]

    def failed(self) -> list[int]:
        return [tup[0] for tup in self.collector.failed]


def test_a_full_batch_is_one_file_and_acked_and_the_rest_follows_at_the_end(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path, max_rows=3), [{"number": n} for n in range(7)])
    run.assert_all_acked()
    assert len(files(tmp_path)) == 3
    assert numbers(tmp_path) == list(range(7))
    assert run.metrics.counters == {"rows_written": 7, "files_written": 3}


def test_nothing_is_acked_before_its_commit_and_a_tick_commits_what_is_held(tmp_path: Path) -> None:
    driver = Driver(SparkSink(tmp_path))
    driver.send(1, 2)
    assert driver.acked() == [] and files(tmp_path) == []
    driver.tick()
    assert driver.acked() == [1, 2] and numbers(tmp_path) == [1, 2]
    driver.tick()
    assert len(files(tmp_path)) == 1


def test_without_input_nothing_is_written(tmp_path: Path) -> None:
    run_bolt(SparkSink(tmp_path / "out"), [TICK, TICK])
    assert not (tmp_path / "out").exists()


def test_partitions_become_folders_that_spark_would_name_so(tmp_path: Path) -> None:
    rows = [
        {"number": n, "of": of, "day": date(2024, 1, 1 + n % 2)} for n, of in enumerate(["a/b", "a=b", "", "ü", "100%", "a/b"])
    ]
    run = run_bolt(SparkSink(tmp_path, partition_by=("of", "day")), rows)
    run.assert_all_acked()
    assert {file.rpartition("/")[0] for file in files(tmp_path)} == {
        "of=a%2Fb/day=2024-01-01",
        "of=a%3Db/day=2024-01-02",
        "of=__HIVE_DEFAULT_PARTITION__/day=2024-01-01",
        "of=ü/day=2024-01-02",
        "of=100%25/day=2024-01-01",
        "of=a%2Fb/day=2024-01-02",
    }
    assert sorted((row["number"], row["of"]) for row in read(tmp_path)) == [
        (0, "a/b"),
        (1, "a=b"),
        (2, None),
        (3, "ü"),
        (4, "100%"),
        (5, "a/b"),
    ]


def test_none_and_the_empty_string_share_a_partition_and_no_row_is_lost(tmp_path: Path) -> None:
    run_bolt(SparkSink(tmp_path, partition_by="of"), [{"number": n, "of": of} for n, of in enumerate(["", None, "", "x"])])
    assert numbers(tmp_path) == [0, 1, 2, 3]
    assert len(files(tmp_path)) == 2


def test_a_partition_value_too_long_for_a_folder_fails_its_tuple_alone(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path, partition_by="of"), [{"number": n, "of": "ä" * n} for n in (1, 300, 2)])
    assert (run.acked, run.failed) == ([0, 2], [1])
    assert "field 'of' is the name of a folder, but got a value of more than 255 bytes" in str(run.errors[0])


@pytest.mark.parametrize(
    ("kind", "fits", "unfit", "found"),
    [
        ("int", 2**31 - 1, 2**31, "int 2147483648"),
        ("bigint", 1, 1.5, "float 1.5"),
        ("bigint", 1, True, "bool True"),
        ("double", 1, 2**60 + 1, "int 1152921504606846977"),
        ("string", "a", 1, "int 1"),
        ("string", "a", b"a", "bytes b'a'"),
        ("boolean", True, 1, "int 1"),
        ("date", date(2024, 1, 1), datetime(2024, 1, 1, 5), "datetime datetime.datetime(2024, 1, 1, 5, 0)"),
        ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1), "datetime without a zone"),
        ("timestamp_ntz", datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), "datetime with a zone"),
        ("timestamp", datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5))), 5, "int 5"),
        ("decimal(5,2)", Decimal("1.5"), Decimal("1.555"), "Decimal Decimal('1.555')"),
        ("array<bigint>", (1, 2), (1, 2.5), "tuple (1, 2.5)"),
        ("struct<a:int,b:string>", {"a": 1, "b": None}, {"a": 1, "c": 2}, "dict {'a': 1, 'c': 2}"),
        ("map<string,date>", {"a": date(2024, 1, 1)}, {"a": 1}, "dict {'a': 1}"),
    ],
)
def test_a_value_that_a_type_would_take_with_a_loss_fails_its_tuple_and_says_so(
    tmp_path: Path, kind: str, fits: Any, unfit: Any, found: str
) -> None:
    run = run_bolt(
        SparkSink(tmp_path, schema={"number": "int", "x": kind}), [(0, fits), (1, unfit), (2, None)], fields=("number", "x")
    )
    assert (run.acked, run.failed) == ([0, 2], [1])
    assert len(run.errors) == 1
    assert "field 'x' is " in str(run.errors[0]) and found in str(run.errors[0])
    assert numbers(tmp_path) == [0, 2]


def test_many_that_do_not_fit_are_one_error(tmp_path: Path) -> None:
    rows = [{"number": n if n % 3 else str(n)} for n in range(1, 1000)]
    run = run_bolt(SparkSink(tmp_path, schema={"number": "bigint"}), rows)
    assert len(run.failed) == 333 and numbers(tmp_path) == [n for n in range(1, 1000) if n % 3]
    assert "333 tuples do not fit: field 'number' is int64, but got str '3'" in str(run.errors[0])


def test_tuples_with_other_fields_fail_and_the_order_of_fields_does_not_matter(tmp_path: Path) -> None:
    rows = [{"number": 0, "x": 1}, {"x": 2, "number": 1}, {"number": 2}, {"number": 3, "x": 4, "y": 5}]
    run = run_bolt(SparkSink(tmp_path), rows)
    assert (run.acked, run.failed) == ([0, 1], [2, 3])
    assert "the fields are number, x, but got number" in str(run.errors[0])
    assert sorted((row["number"], row["x"]) for row in read(tmp_path)) == [(0, 1), (1, 2)]


def test_a_schema_that_was_inferred_holds_for_later_runs(tmp_path: Path) -> None:
    run_bolt(SparkSink(tmp_path), [{"number": 1, "x": Decimal("1.5")}])
    run = run_bolt(SparkSink(tmp_path), [{"number": 2, "x": "1.5"}, {"number": 3, "x": Decimal("123456789.123456789")}])
    assert (run.acked, run.failed) == ([1], [0])
    assert "field 'x' is decimal128(38, 18), but got str '1.5'" in str(run.errors[0])


def test_a_declared_schema_that_differs_from_the_folders_is_refused_with_both(tmp_path: Path) -> None:
    run_bolt(SparkSink(tmp_path, schema={"number": "bigint"}), [{"number": 1}])
    with pytest.raises(ConfigError, match=r"with the schema \(number int64\), and SparkSink is given \(number int64, x string\)"):
        run_bolt(SparkSink(tmp_path, schema={"number": "bigint", "x": "string"}), [])
    run_bolt(SparkSink(tmp_path, schema={"number": "bigint"}), [{"number": 2}]).assert_all_acked()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([None, None], "None alone in the first batch"),
        ([1, "a"], "values of int, str, which have no common type"),
        ([timedelta(1)], "timedelta, which Spark cannot read as duration"),
        ([2**63], "values of int, which have no common type"),
        ([()], "tuple, which Spark cannot read as list"),
    ],
)
def test_what_shows_no_type_fails_with_advice_and_later_tuples_go_on(tmp_path: Path, values: list[Any], why: str) -> None:
    rows = [{"number": 1, "x": value} for value in values]
    run = run_bolt(SparkSink(tmp_path), [*rows, TICK, {"number": 5, "x": 1.5}])
    assert run.failed == list(range(len(values))) and run.acked == [len(values)]
    assert why in str(run.errors[0]) and "give SparkSink a schema" in str(run.errors[0])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"schema": {"a": "integr"}}, "'integr' is no type"),
        ({"schema": {"a": "decimal(50,2)"}}, "no type"),
        ({"schema": {"a": "array<int"}}, "no type"),
        ({"schema": {"a": "int) "}}, "no type"),
        ({"schema": {"a": "int", "A": "int"}}, "upper and lower case"),
        ({"schema": {"a": pa.time64("us")}}, "which Spark does not read"),
        ({"schema": {"a": pa.timestamp("ns")}}, "which Spark does not read"),
        ({"schema": {"a": "int"}, "partition_by": "b"}, "no field 'b'"),
        ({"schema": {"a": "int"}, "partition_by": "a"}, "no field that is not in partition_by"),
        ({"schema": {"a": "int", "b": "double"}, "partition_by": "b"}, "double for 'b' in partition_by"),
        ({"schema": {"a": "int"}, "key": ("a", "id")}, "no field 'id'"),
        ({"max_rows": 0}, "max_rows"),
        ({"compression": "zip"}, "compression='zip' is none of snappy, zstd"),
        ({"partition_by": ("a", "b", "a")}, "names a field twice"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(tmp_path: Path, arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        SparkSink(tmp_path, **arguments)


def test_a_path_may_be_an_address_of_this_machine_and_of_nothing_else(tmp_path: Path) -> None:
    run_bolt(SparkSink(f"file://{tmp_path}"), [{"number": 1}]).assert_all_acked()
    assert numbers(tmp_path) == [1]
    with pytest.raises(ConfigError, match="'s3a://bucket/rows' is no folder: SparkSink writes to a file system of this machine"):
        SparkSink("s3a://bucket/rows")


def test_tuples_are_not_held_until_they_time_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lower max_age"):
        run_bolt(SparkSink(tmp_path, max_age="20s"), [], message_timeout="30s")


def test_a_spout_that_waits_for_its_acks_need_not_wait_for_a_tick(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path), [{"number": n} for n in range(20)], max_spout_pending=8, end_of_input=False)
    assert run.acked == list(range(20)) and len(files(tmp_path)) == 5


def test_what_is_not_tracked_is_not_limited_by_what_spouts_may_send(tmp_path: Path) -> None:
    run_bolt(SparkSink(tmp_path), [{"number": n} for n in range(20)], max_spout_pending=8, ackers=0)
    assert len(files(tmp_path)) == 1


def test_a_key_is_never_none(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path, key="number"), [{"number": 1, "x": 1}, {"number": None, "x": 2}])
    assert (run.acked, run.failed) == ([0], [1])
    assert "field 'number' is int64 and never None, but got NoneType None" in str(run.errors[0])


def test_on_a_full_disk_nothing_is_acked_and_nothing_lost_and_it_says_so_once(tmp_path: Path) -> None:
    driver = Driver(SparkSink(tmp_path, max_rows=2, schema={"number": "bigint"}))
    with full_disk():
        driver.send(1, 2, 3)
        driver.tick()
        assert driver.acked() == driver.failed() == []
        assert len(driver.errors) == 1
        assert "cannot write to" in driver.errors[0] and "2 tuples wait, not acked" in driver.errors[0]
        assert {tup[0] for tup in driver.collector.touched} == {1, 2, 3}, "their timeout starts again"
    assert files(tmp_path) == [] and list(tmp_path.rglob("*.tmp")) == []
    driver.tick()
    assert driver.acked() == [1, 2, 3] and numbers(tmp_path) == [1, 2, 3]
    driver.send(4, 5)
    assert driver.acked() == [1, 2, 3, 4, 5]


def test_a_disk_that_stays_full_bounds_the_memory(tmp_path: Path) -> None:
    driver = Driver(SparkSink(tmp_path, max_rows=2, schema={"number": "bigint"}))
    with full_disk():
        driver.send(*range(20))
    assert len(driver.failed()) == 13
    driver.tick()
    assert sorted(driver.acked() + driver.failed()) == list(range(20))
    assert numbers(tmp_path) == sorted(driver.acked())


def refusing(monkeypatch: pytest.MonkeyPatch, times: int, error: Exception) -> None:
    """Have pyarrow refuse the first files."""
    left, write = [error] * times, pq.write_table

    def refuse(*arguments: Any, **options: Any) -> None:
        if left:
            raise left.pop()
        write(*arguments, **options)

    monkeypatch.setattr("topo.spark.parquet_commit.pq.write_table", refuse)


def passed_on(path: Path, **settings: Any) -> TopologyTest:
    """Numbers, one of them too large, into a sink that writes three together."""

    def build() -> Topology:
        builder = TopologyBuilder("numbers").config(**settings)
        builder.set_spout("source", IterableSpout((), fields=("number",)))
        builder.set_bolt("sink", SparkSink(path, schema={"number": "int"}, max_rows=3)).global_grouping("source")
        return builder.build()

    numbers = [1, 1 << 40, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    return TopologyTest(build, sources={"source": [*numbers, END]})


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("error", [pa.ArrowInvalid("no"), OverflowError("no"), OSError("no")], ids=["arrow", "python", "disk"])
def test_rows_of_a_hindered_batch_wait_and_rows_that_do_not_fit_are_given_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, delivery: str
) -> None:
    refusing(monkeypatch, 1, error)
    test = passed_on(tmp_path, delivery=delivery)
    test.run()
    assert numbers(tmp_path) == [1, *range(3, 21)]
    assert [dead_letter.values for dead_letter in test.dead_letters()] == [(1 << 40,)]


def test_with_exactly_once_a_sink_that_cannot_write_returns_to_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, 6, OSError("no"))
    test = passed_on(tmp_path, delivery="exactly_once")
    test.run()
    assert numbers(tmp_path) == [1, *range(3, 21)]
    assert [dead_letter.values for dead_letter in test.dead_letters()] == [(1 << 40,)]
    assert "SinkBlockedError" in [error.kind for error in test.errors()]


def test_a_commit_that_the_disk_interrupts_is_finished_at_the_next_tick(tmp_path: Path) -> None:
    driver = Driver(SparkSink(tmp_path, max_rows=2))
    tmp_path.chmod(0o700)
    blocker = tmp_path / "blocked"
    driver.send(1, 2)
    staged_before = numbers(tmp_path)
    # A folder in the place of the file that is to come: the rename is refused after everything was staged.
    life = files(tmp_path)[0].removesuffix("000000001.parquet")
    blocker = tmp_path / f"{life}000000002.parquet"
    (blocker / "full").mkdir(parents=True)
    driver.send(3, 4)
    assert driver.acked() == [1, 2] and len(driver.errors) == 1
    driver.send(5)
    os.rmdir(blocker / "full")
    os.rmdir(blocker)
    driver.tick()
    assert staged_before == [1, 2] and driver.acked() == [1, 2, 3, 4, 5]
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]


def test_staged_files_that_somebody_removes_are_written_again(tmp_path: Path) -> None:
    driver = Driver(SparkSink(tmp_path, max_rows=2))
    driver.send(1, 2)
    life = files(tmp_path)[0].removesuffix("000000001.parquet")
    blocker = tmp_path / f"{life}000000002.parquet"
    (blocker / "full").mkdir(parents=True)
    driver.send(3, 4)
    for staged in (tmp_path / HIDDEN).glob("*/*.tmp"):
        staged.unlink()
    os.rmdir(blocker / "full")
    os.rmdir(blocker)
    driver.tick()
    driver.tick()
    assert driver.acked() == [1, 2, 3, 4] and numbers(tmp_path) == [1, 2, 3, 4]


def test_with_exactly_once_a_restore_without_its_staged_files_reports_lost_rows(tmp_path: Path) -> None:
    config = TopologyConfig(delivery="exactly_once")
    driver = Driver(SparkSink(tmp_path, max_rows=2), config=config)
    driver.sink.recover(())
    driver.sink.begin()
    driver.sink.write(TrackedTuple.made((1,), driver.origin, None, 1, (1,), (1,)))
    token = driver.sink.pre_commit()
    for staged in (tmp_path / HIDDEN).glob("*/*.tmp"):
        staged.unlink()
    reported: list[Exception] = []
    successor = SparkSink(tmp_path, max_rows=2)
    successor.prepare(TaskContext("test", "sink", 1, config=config), BoltCollector("sink", (), reported.append))
    successor.recover((token,))
    (error,) = reported
    assert isinstance(error, StagedRowsLostError), "it fails the run"
    assert "1 rows are lost" in str(error) and "was removed before its commit" in str(error)


def test_a_reset_forgets_what_is_held(tmp_path: Path) -> None:
    driver = Driver(SparkSink(tmp_path))
    driver.send(1, 2)
    driver.sink.on_reset()
    driver.send(3)
    driver.tick()
    assert driver.acked() == [3] and numbers(tmp_path) == [3]


def test_tasks_of_a_sink_write_beside_each_other(tmp_path: Path) -> None:
    drivers = [Driver(SparkSink(tmp_path), task_index=index, parallelism=3) for index in range(3)]
    for index, driver in enumerate(drivers):
        driver.send(index)
    for driver in drivers:
        driver.tick()
    assert numbers(tmp_path) == [0, 1, 2]
    assert [file.split(".")[2][:4] for file in files(tmp_path)] == ["0000", "0001", "0002"]


def test_every_step_of_a_commit_may_be_repeated(tmp_path: Path) -> None:
    commits = ParquetCommits(tmp_path, "flow.sink", 0, "ab")
    tables = {f"of={of}": pa.table({"number": [of]}) for of in range(3)}
    commits.prepare("7", tables)
    staged = commits.prepare("7", tables)
    assert files(tmp_path) == [] and staged.rows == 3
    commits.commit(staged)
    ParquetCommits(tmp_path, "flow.sink", 0, "cd").commit(staged)
    commits.abort(staged)
    commits.abort(staged)
    assert numbers(tmp_path) == [0, 1, 2]


def test_a_batch_is_committed_by_a_process_that_has_only_been_told_of_it(tmp_path: Path) -> None:
    tables = {f"of={of}": pa.table({"number": [of]}) for of in range(3)}
    staged = ParquetCommits(tmp_path, "flow.sink", 0, "ab").prepare("7", tables)
    reported = Staged(staged.name, staged.files, staged.rows)
    successor = ParquetCommits(tmp_path, "flow.sink", 0, "cd")
    successor.commit(reported)
    assert successor.recover(1) == 0
    assert numbers(tmp_path) == [0, 1, 2] and list((tmp_path / HIDDEN).iterdir()) == []


def test_a_batch_that_was_aborted_never_shows(tmp_path: Path) -> None:
    commits = ParquetCommits(tmp_path, "flow.sink", 0, "ab")
    commits.abort(commits.prepare("7", {"": pa.table({"number": [1]})}))
    assert ParquetCommits(tmp_path, "flow.sink", 0, "cd").recover(1) == 0
    assert list(tmp_path.rglob("*.tmp")) == files(tmp_path) == []
