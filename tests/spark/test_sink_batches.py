"""SparkSink and batches of columns: files without a row in between, refusals by column, rows beside batches."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.full_disk import full_disk  # noqa: E402
from tests.spark.test_spark_batches import OTHERS, VALUES, arrow_of  # noqa: E402
from tests.spark.test_spark_sink import Driver, files, numbers, read  # noqa: E402
from topo import ColumnBatch, ColumnSpout, IterableSpout, Topology, TopologyBuilder  # noqa: E402
from topo.api.tuples import Origin  # noqa: E402
from topo.connectors.type_names import type_named  # noqa: E402
from topo.emission.collectors import TrackedTuple  # noqa: E402
from topo.spark import SparkSink, SparkSpout  # noqa: E402
from topo.testing import CRASH, END, TICK, TopologyTest, run_bolt  # noqa: E402


def batch(**columns: Any) -> ColumnBatch:
    return ColumnBatch.of(columns)


def arrow(**columns: Any) -> ColumnBatch:
    return ColumnBatch.of(pa.table(columns))


def far_moments(count: int, kind: Any) -> Any:
    """Moments behind the year 9999, of which Python has no value: where a row is made of them, it fails."""
    return pa.array([10**15 + n for n in range(count)], pa.int64()).cast(kind)


# -- files ---------------------------------------------------------------------------------------------------------------------


def test_a_batch_is_one_input_and_its_arrays_are_written_as_they_are(tmp_path: Path) -> None:
    at = far_moments(3, pa.timestamp("ms", "UTC"))
    given = pa.table({"number": pa.array([1, 2, None], pa.int16()), "word": ["a", None, "c"], "list": [[1], None, []], "at": at})
    run = run_bolt(SparkSink(tmp_path), [ColumnBatch.of(given), ColumnBatch.of(given)])
    assert run.acked == [0, 1] and run.metrics.counters == {"rows_written": 6, "files_written": 1}
    (file,) = tmp_path.glob("*.parquet")
    written = pq.read_table(file)
    assert written.schema.types == [pa.int16(), pa.string(), pa.list_(pa.int64()), pa.timestamp("us", "UTC")]
    assert written.cast(given.schema).equals(pa.concat_tables([given, given]))


def test_a_file_is_full_when_its_batches_have_enough_rows(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path, max_rows=5), [arrow(number=list(range(3 * n, 3 * n + 3))) for n in range(5)])
    run.assert_all_acked()
    assert sorted(pq.read_metadata(file).num_rows for file in tmp_path.glob("*.parquet")) == [3, 6, 6]
    assert numbers(tmp_path) == list(range(15))


def test_a_spout_of_batches_that_waits_for_its_acks_need_not_wait_for_a_tick(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path), [arrow(number=[n]) for n in range(64)], end_of_input=False)
    assert run.acked == list(range(64)) and len(files(tmp_path)) == 2


def test_batches_that_are_not_tracked_are_limited_by_their_rows_alone(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path), [arrow(number=[n]) for n in range(200)], ackers=0)
    assert run.acked == list(range(200)) and len(files(tmp_path)) == 1


def test_batches_and_single_tuples_go_into_one_file(tmp_path: Path) -> None:
    sink = SparkSink(tmp_path, schema={"number": "bigint", "word": "string"})
    run = run_bolt(
        sink,
        [
            {"number": 1, "word": "a"},
            arrow(word=["b", "c"], number=[2, 3]),
            {"word": "d", "number": 4},
            batch(number=[5], word=["e"]),
        ],
    )
    run.assert_all_acked()
    assert len(files(tmp_path)) == 1
    assert sorted((row["number"], row["word"]) for row in read(tmp_path)) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]


def test_partitions_of_batches_become_folders(tmp_path: Path) -> None:
    days = [date(2024, 1, 1 + n % 2) for n in range(6)]
    run = run_bolt(SparkSink(tmp_path, partition_by=("of", "day")), [arrow(number=list(range(6)), of=["x"] * 6, day=days)])
    run.assert_all_acked()
    assert {file.rpartition("/")[0] for file in files(tmp_path)} == {"of=x/day=2024-01-01", "of=x/day=2024-01-02"}
    assert numbers(tmp_path) == list(range(6))


# -- the schema ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["arrow", "lists"])
@pytest.mark.parametrize(
    ("kind", "fits", "unfit", "found"),
    [
        ("int", 2**31 - 1, 2**31, "int 2147483648"),
        ("bigint", 1, 1.5, "float 1.5"),
        ("bigint", 1, True, "bool True"),
        ("double", 1, 2**60 + 1, "int 1152921504606846977"),
        ("float", float("inf"), -1e300, "float -1e+300"),
        ("string", "a", 1, "int 1"),
        ("string", "a", b"a", "bytes b'a'"),
        ("boolean", True, 1, "int 1"),
        ("date", date(2024, 1, 1), datetime(2024, 1, 1, 5), "datetime datetime.datetime(2024, 1, 1, 5, 0)"),
        ("timestamp", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1), "datetime without a zone"),
        ("timestamp_ntz", datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), "datetime with a zone"),
        ("decimal(5,2)", Decimal("1.5"), Decimal("1.555"), "Decimal Decimal('1.555')"),
        ("array<bigint>", (1, 2), (1.0, 2.5), "tuple (1.0, 2.5)"),
        ("struct<a:int,b:string>", {"a": 1, "b": None}, {"a": 1, "c": 2}, "dict {'a': 1, 'c': 2}"),
        ("map<string,date>", {"a": date(2024, 1, 1)}, {"a": 1}, "{'a': 1}"),
    ],
)
def test_a_value_that_a_type_would_take_with_a_loss_fails_its_batch_and_says_so(
    tmp_path: Path, form: str, kind: str, fits: Any, unfit: Any, found: str
) -> None:
    def of(*values: Any) -> ColumnBatch:
        made = batch(number=list(range(len(values))), x=list(values))
        return made.in_form("arrow") if form == "arrow" and kind[:3] != "map" else made

    run = run_bolt(SparkSink(tmp_path, schema={"number": "int", "x": kind}), [of(fits, None), of(unfit), of(None, fits, fits)])
    assert (run.acked, run.failed) == ([0, 2], [1])
    assert len(run.errors) == 1
    assert "a tuple does not fit: field 'x' is " in str(run.errors[0])
    assert found in str(run.errors[0]) and " in a batch of 1 rows" in str(run.errors[0])
    assert numbers(tmp_path) == [0, 0, 1, 1, 2]


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), other=st.sampled_from(sorted(VALUES)))
def test_a_batch_fits_where_its_rows_fit_and_makes_the_same_file(name: str, data: Any, other: str, tmp_path_factory: Any) -> None:
    values = data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=5))
    column = arrow_of(values, type_named(name))
    schema = {"x": data.draw(st.sampled_from([name, other]))}
    rows, columns = tmp_path_factory.mktemp("rows"), tmp_path_factory.mktemp("columns")
    given = ColumnBatch.of(pa.table({"x": column}))
    singly = run_bolt(SparkSink(rows, schema=schema), [{"x": x} for (x,) in given.rows()])
    together = run_bolt(SparkSink(columns, schema=schema), [given])
    assert bool(together.failed) == bool(singly.failed)
    if not singly.failed:
        assert pq.read_table(columns).equals(pq.read_table(rows))


@pytest.mark.parametrize("column", OTHERS, ids=[str(column.type) for column in OTHERS])
def test_columns_of_other_writers_count_by_their_values(column: Any, tmp_path: Path) -> None:
    kinds = {"dictionary": "string", "large_string": "string", "fixed_size_list": "array<int>", "date64": "date", "null": "int"}
    kind = next((kind for start, kind in kinds.items() if str(column.type).startswith(start)), None)
    if kind is None:
        kind = {"timestamp[us, tz=America/New_York]": "timestamp", "timestamp[ns]": "timestamp_ntz"}.get(str(column.type))
    run = run_bolt(SparkSink(tmp_path, schema={"x": kind or "string"}), [arrow(x=column)])
    if kind is None:
        assert run.failed == [0] and "field 'x' is string, but got" in str(run.errors[0])
        return
    run.assert_all_acked()
    written = arrow(x=pq.read_table(tmp_path)["x"])
    assert written.rows() == arrow(x=column).rows()


def test_a_narrower_array_is_widened_and_a_wider_one_has_to_fit(tmp_path: Path) -> None:
    sink = SparkSink(tmp_path, schema={"number": "int", "at": "timestamp"})
    first, second = far_moments(2, pa.timestamp("ms", "Asia/Tokyo")), far_moments(2, pa.timestamp("us", "UTC"))
    run = run_bolt(sink, [arrow(number=pa.array([1, 2], pa.int8()), at=first), arrow(number=pa.array([3, 4]), at=second)])
    run.assert_all_acked()
    written = pq.read_table(tmp_path)
    assert written["number"].to_pylist() == [1, 2, 3, 4]
    assert written["at"].cast(pa.int64()).to_pylist() == [10**18, 10**18 + 1000, 10**15, 10**15 + 1]


def test_moments_finer_than_the_schema_are_refused(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path, schema={"at": "timestamp_ntz"}), [arrow(at=pa.array([1500], pa.timestamp("ns")))])
    assert run.failed == [0] and "field 'at' is timestamp[us], but got" in str(run.errors[0])


def test_a_batch_with_other_columns_fails_and_the_rest_is_written(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path), [arrow(number=[1], x=[1]), arrow(number=[2]), {"number": 3, "x": 3}])
    assert (run.acked, run.failed) == ([0, 2], [1])
    assert "the fields are number, x, but got number" in str(run.errors[0])


def test_many_batches_that_do_not_fit_are_one_error(tmp_path: Path) -> None:
    sink = SparkSink(tmp_path, schema={"number": "bigint"})
    run = run_bolt(sink, [arrow(number=["a", "b"]) for _ in range(4)] + [arrow(number=[1])])
    assert run.failed == [0, 1, 2, 3] and numbers(tmp_path) == [1]
    assert [str(error.exception) for error in run.errors] == [
        "4 tuples do not fit: field 'number' is int64, but got str 'a' in a batch of 2 rows"
    ]


def test_a_key_of_a_batch_is_never_null(tmp_path: Path) -> None:
    run = run_bolt(SparkSink(tmp_path, key="number"), [arrow(number=[1, 2], x=[1, 2]), arrow(number=[3, None], x=[1, 2])])
    assert (run.acked, run.failed) == ([0], [1])
    assert "field 'number' is int64 and never None, but got NoneType None in a batch of 2 rows" in str(run.errors[0])


def test_a_partition_value_too_long_for_a_folder_fails_its_batch_alone(tmp_path: Path) -> None:
    given = [arrow(number=[n], of=["ä" * n]) for n in (1, 300, 2)]
    run = run_bolt(SparkSink(tmp_path, partition_by="of"), [*given, {"number": 4, "of": "ä" * 300}, {"number": 5, "of": "a"}])
    assert (run.acked, run.failed) == ([0, 2, 4], [1, 3])
    assert "more than 255 bytes, in 1 of 1 rows of a batch" in " ".join(str(error) for error in run.errors)
    assert numbers(tmp_path) == [1, 2, 5]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([1], pa.int16()), pa.int16()),
        (pa.array([Decimal("1.50")]), pa.decimal128(3, 2)),
        (pa.array(["a"]).dictionary_encode(), pa.string()),
        (pa.array([1000], pa.timestamp("ns", "Asia/Tokyo")), pa.timestamp("us", "UTC")),
    ],
)
def test_without_a_schema_the_types_of_the_first_batch_hold(tmp_path: Path, column: Any, kind: Any) -> None:
    run_bolt(SparkSink(tmp_path), [arrow(x=column), arrow(x=column)]).assert_all_acked()
    assert pq.read_table(tmp_path).schema.field("x").type == kind
    assert len(read(tmp_path)) == 2


def test_lists_of_a_first_batch_show_types_as_rows_do(tmp_path: Path) -> None:
    run_bolt(SparkSink(tmp_path), [batch(x=[Decimal("1.5"), None])]).assert_all_acked()
    assert pq.read_table(tmp_path).schema.field("x").type == pa.decimal128(38, 18)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([None, None]), "None alone in the first batch"),
        (pa.array([1, 2], pa.uint64()), "a column, which Spark cannot read as uint64"),
        (pa.array([timedelta(1), None]), "a column, which Spark cannot read as duration"),
    ],
)
def test_what_shows_no_type_fails_with_advice_and_later_batches_are_written(tmp_path: Path, column: Any, why: str) -> None:
    run = run_bolt(SparkSink(tmp_path), [arrow(x=column), TICK, arrow(x=[1.5, 2.5])])
    assert (run.acked, run.failed) == ([1], [0])
    assert f"a tuple does not fit: field 'x' is not declared, but got {why}" in str(run.errors[0])
    assert "give SparkSink a schema" in str(run.errors[0])


# -- failures ---------------------------------------------------------------------------------------------------------------


def test_on_a_full_disk_batches_wait_and_a_disk_that_stays_full_bounds_them(tmp_path: Path) -> None:
    driver = Driver(SparkSink(tmp_path, max_rows=10, schema={"number": "bigint"}))
    origin = Origin("batches", 3, "default", ("number",), columnar=True)

    def send(first: int) -> None:
        made = (arrow(number=list(range(first, first + 5))),)
        driver.sink.execute(TrackedTuple.made(made, origin, None, 1, (first + 1,), (first + 1,)))

    with full_disk():
        for first in range(0, 60, 5):
            send(first)
        driver.send(100)
        assert driver.collector.acked == [] and len(driver.collector.failed) == 5, "there is room for a row"
        assert len(driver.errors) == 1 and "2 tuples wait, not acked" in driver.errors[0]
    driver.tick()
    assert len(driver.collector.acked) == 8 and len(numbers(tmp_path)) == 36
    send(101)
    send(106)
    assert len(driver.collector.acked) == 10


class Blocks(ColumnSpout):
    """Its batches come from the test."""

    outputs = ("number",)

    def next_batch(self) -> None:
        raise AssertionError("the test plays the spout")


def mixed(path: Path, delivery: str) -> Topology:
    """Batches and single tuples into one sink."""
    builder = TopologyBuilder("mixed").config(delivery=delivery, attempts=2)
    builder.set_spout("batches", Blocks())
    builder.set_spout("rows", IterableSpout((), fields=("number",)))
    sink = builder.set_bolt("sink", SparkSink(path, schema={"number": "int"}, max_rows=4))
    sink.global_grouping("batches").global_grouping("rows")
    return builder.build()


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_batches_and_rows_appear_in_spite_of_a_crash_and_a_batch_that_does_not_fit_is_a_dead_letter(
    tmp_path: Path, delivery: str
) -> None:
    blocks = [{"number": pa.array([n, n + 1], pa.int64())} for n in range(0, 10, 2)]
    sources = {
        "batches": [*blocks[:3], {"number": pa.array([1 << 40, 7])}, CRASH("sink"), *blocks[3:], END],
        "rows": [*range(10, 15), CRASH("sink"), *range(15, 20), END],
    }
    test = TopologyTest(lambda: mixed(tmp_path, delivery), sources=sources)
    test.run()
    found = numbers(tmp_path)
    assert sorted(set(found)) == list(range(20))
    assert delivery == "at_least_once" or len(found) == 20, "each once"
    (given_up,) = test.dead_letters()
    assert given_up.values[0].rows() == [(1 << 40,), (7,)]
    reported = " ".join(error.message for error in test.errors())
    assert "field 'number' is int32, but got int 1099511627776 in a batch of 2 rows" in reported


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once", "at_most_once"])
def test_from_files_to_files_no_row_is_made(tmp_path: Path, delivery: str) -> None:
    table = pa.table({"number": range(500), "at": far_moments(500, pa.timestamp("ms", "UTC"))})
    (tmp_path / "in").mkdir()
    pq.write_table(table, tmp_path / "in" / "0.parquet", row_group_size=120)

    def flow() -> Topology:
        builder = TopologyBuilder("flow").config(delivery=delivery)
        builder.set_spout("rows", SparkSpout(tmp_path / "in", timestamp="at", batches=True, batch_rows=50), 2)
        builder.set_bolt("sink", SparkSink(tmp_path / "out", max_rows=200), 2).fields_grouping("rows", "number")
        return builder.build()

    test = TopologyTest(flow)
    test.run()
    if delivery != "at_most_once":
        test.assert_all_acked()
    written = pq.read_table(tmp_path / "out").sort_by("number")
    assert written.cast(table.schema).equals(table)
