"""SparkSpout(batches=True) over files that are read where they lie: values, positions, event time. No Spark and no Java."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from topo import (  # noqa: E402
    BasicBolt,
    ColumnBatch,
    ColumnBolt,
    ConfigError,
    Topology,
    TopologyBuilder,
    TopologyError,
    UnsupportedValueError,
    WatermarkStrategy,
    WindowBolt,
    aggregates,
    windows,
)
from topo.connectors.type_names import type_named  # noqa: E402
from topo.spark import SparkSpout  # noqa: E402
from topo.spark.parquet_rows import ParquetRows, Position  # noqa: E402
from topo.spark.record_batches import pieces_of  # noqa: E402
from topo.spark.snapshot import list_parquet  # noqa: E402
from topo.testing import TopologyTest  # noqa: E402

WHOLE = st.integers(-(2**31), 2**31 - 1)
DATES = st.dates()
CLOCKS = st.datetimes()
MOMENTS = st.datetimes(timezones=st.just(UTC))
DECIMALS = st.decimals(-(10**7), 10**7, places=2)
VALUES: dict[str, Any] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": WHOLE,
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(),
    "binary": st.binary(),
    "date": DATES,
    "timestamp": MOMENTS,
    "timestamp_ntz": CLOCKS,
    "decimal(10,2)": DECIMALS,
    "array<string>": st.lists(st.none() | st.text()),
    "array<array<timestamp>>": st.lists(st.none() | st.lists(MOMENTS)),
    "map<string,bigint>": st.dictionaries(st.text(), st.none() | WHOLE),
    "map<date,array<decimal(10,2)>>": st.dictionaries(DATES, st.lists(DECIMALS)),
    "struct<a:int,b:date>": st.fixed_dictionaries({"a": st.none() | WHOLE, "b": st.none() | DATES}),
    "struct<deep:struct<at:timestamp,of:map<string,timestamp_ntz>>>": st.fixed_dictionaries(
        {"deep": st.none() | st.fixed_dictionaries({"at": MOMENTS, "of": st.dictionaries(st.text(), CLOCKS)})}
    ),
}
"""Values by name of their type, as `SparkSink` is given them."""
OTHERS: list[Any] = [
    pa.array(["a", None, "b", "a"]).dictionary_encode(),
    pa.array(["a", None, "ü"], pa.large_string()),
    pa.array([[1, 2], None, [3, None]], pa.list_(pa.int32(), 2)),
    pa.array([time(1, 2, 3, 4), None]),
    pa.array([timedelta(microseconds=-1), None]),
    pa.array([datetime(2013, 7, 1, 12, tzinfo=UTC), None]).cast(pa.timestamp("us", "America/New_York")),
    pa.array([datetime(1969, 12, 31, 23, 59, 59, 999_999), None]).cast(pa.timestamp("ns")),
    pa.array([date(2024, 2, 29), None], pa.date64()),
    pa.array([None, None], pa.null()),
]
"""Columns that other writers make."""


def arrow_of(values: list[Any], kind: Any) -> Any:
    return pa.array([list(one.items()) if pa.types.is_map(kind) and one is not None else one for one in values], kind)


def reader(folder: Path, fields: tuple[str, ...] = ("n",), timestamp: str | None = None) -> ParquetRows:
    return ParquetRows(Path("/"), list_parquet([str(folder)], "").files, fields, timestamp, (0, 1))


def rows_of(files: ParquetRows) -> list[Any]:
    return [row for batch in files.batches() for row in batch.rows]


def batches_of(files: ParquetRows, most_rows: int = 100, after: Position | None = None) -> list[tuple[Position, ColumnBatch]]:
    return [(position, ColumnBatch.of(piece.columns, piece.stamps)) for position, piece in files.column_batches(after, most_rows)]


def numbers_of(batch: ColumnBatch) -> list[int]:
    return [n for (n,) in batch.rows()]


# -- values ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_the_rows_of_batches_are_the_rows_that_come_singly(name: str, data: Any, tmp_path: Path) -> None:
    column = arrow_of(data.draw(st.lists(st.none() | VALUES[name], min_size=1, max_size=8)), type_named(name))
    pq.write_table(pa.table({"n": column}), tmp_path / "0.parquet", row_group_size=3)
    singly = rows_of(reader(tmp_path))
    together = [row for _, batch in batches_of(reader(tmp_path), 2) for row in batch.rows()]
    assert together == singly
    assert [repr(row) for row in together] == [repr(row) for row in singly], "types and zones as well"


@pytest.mark.parametrize("column", OTHERS, ids=[str(column.type) for column in OTHERS])
def test_so_they_are_in_columns_of_other_writers(column: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": column}), tmp_path / "0.parquet", version="2.6")
    together = [row for _, batch in batches_of(reader(tmp_path)) for row in batch.rows()]
    assert [repr(row) for row in together] == [repr(row) for row in rows_of(reader(tmp_path))]
    assert len(together) == len(column)


def test_a_moment_in_the_old_format_of_spark_is_a_moment(tmp_path: Path) -> None:
    moments = pa.array([datetime(2013, 7, 1, 12), None])
    pq.write_table(pa.table({"n": moments}), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    ((_, batch),) = batches_of(reader(tmp_path))
    assert batch.rows() == [(datetime(2013, 7, 1, 12, tzinfo=UTC),), (None,)]


def test_columns_have_the_types_of_their_file(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int16())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"n": pa.array([3], pa.int64())}), tmp_path / "1.parquet")
    batches = [batch for _, batch in batches_of(reader(tmp_path))]
    assert [batch["n"].type for batch in batches] == [pa.int16(), pa.int64()]
    assert all(batch.is_arrow for batch in batches)


# -- positions ---------------------------------------------------------------------------------------------------------------


def test_behind_any_batch_the_rest_follows_whatever_size_batches_have_now(tmp_path: Path) -> None:
    for number in range(3):
        table = pa.table({"n": range(25 * number, 25 * number + 25)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=10)
    for size in (1, 4, 7, 100):
        batches = batches_of(reader(tmp_path), size)
        assert [n for _, batch in batches for n in numbers_of(batch)] == list(range(75))
        assert max(len(batch) for _, batch in batches) <= size
        for place, (position, _) in enumerate(batches):
            assert batches_of(reader(tmp_path), size, position) == batches[place + 1 :], "the same batches"
            rest = [n for _, batch in batches_of(reader(tmp_path), 3, position) for n in numbers_of(batch)]
            assert rest == [n for _, batch in batches[place + 1 :] for n in numbers_of(batch)]


def test_positions_of_batches_and_of_rows_continue_each_other(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(10)}), tmp_path / "0.parquet", row_group_size=6)
    (first, _), *_ = batches_of(reader(tmp_path), 4)
    assert first == (0, 0, 3)
    assert [row for batch in reader(tmp_path).batches(first) for row in batch.rows] == [(n,) for n in range(4, 10)]
    assert [numbers_of(batch) for _, batch in batches_of(reader(tmp_path), 4, (0, 0, 1))] == [[2, 3], [4, 5], [6, 7, 8, 9]]


def test_long_rows_make_small_batches_that_are_the_same_again(tmp_path: Path) -> None:
    texts = ["x" * (200_000 if n % 2 else 1) for n in range(60)]
    # Repeated values take little room in the file.
    pq.write_table(pa.table({"n": range(60), "text": texts}), tmp_path / "0.parquet")
    batches = batches_of(reader(tmp_path, ("n", "text")), 1000)
    assert [n for _, batch in batches for n, _ in batch.rows()] == list(range(60))
    assert 1 < len(batches) < 10
    assert max(sum(column.nbytes for column in batch.columns) for _, batch in batches) <= 4 << 20
    for place, (position, _) in enumerate(batches):
        assert batches_of(reader(tmp_path, ("n", "text")), 1000, position) == batches[place + 1 :]


# -- event time ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "stamps"),
    [
        (pa.array([1999, -1], pa.int64()).cast(pa.timestamp("us", "UTC")), [1, -1]),
        (pa.array([1, -1], pa.int64()).cast(pa.timestamp("s")), [1000, -1000]),
        (pa.array([date(1970, 1, 2), date(1969, 12, 31)]), [86_400_000, -86_400_000]),
        (pa.array([5, -5], pa.int32()), [5, -5]),
    ],
)
def test_event_time_is_that_of_each_row_as_it_is_singly(column: Any, stamps: list[int], tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2], "at": column}), tmp_path / "0.parquet")
    ((_, batch),) = batches_of(reader(tmp_path, timestamp="at"))
    assert batch.fields == ("n",) and batch.stamp_list() == stamps
    assert [stamp for one in reader(tmp_path, timestamp="at").batches() for stamp in one.stamps or ()] == stamps


def test_rows_without_event_time_are_in_separate_batches(tmp_path: Path) -> None:
    at = pa.array([1, 2, None, None, 5, None], pa.int64())
    pq.write_table(pa.table({"n": range(6), "at": at}), tmp_path / "0.parquet")
    batches = batches_of(reader(tmp_path, timestamp="at"))
    assert [(numbers_of(batch), batch.stamp_list()) for _, batch in batches] == [
        ([0, 1], [1, 2]),
        ([2, 3], None),
        ([4], [5]),
        ([5], None),
    ]
    assert [position for position, _ in batches] == [(0, 0, 1), (0, 0, 3), (0, 0, 4), (0, 0, 5)]


def test_pieces_have_no_more_rows_than_they_may() -> None:
    pieces = list(pieces_of({"n": pa.array(range(10))}, ("n",), None, 4))
    assert [(piece.last, piece.columns["n"].to_pylist()) for piece in pieces] == [
        (3, [0, 1, 2, 3]),
        (7, [4, 5, 6, 7]),
        (9, [8, 9]),
    ]


# -- the spout ---------------------------------------------------------------------------------------------------------------


class FailsOnce(ColumnBolt):
    """Fails each batch with a multiple of seven when it sees it first."""

    outputs = ("n",)
    columns = "arrow"

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    def execute_batch(self, batch: Any, collector: Any) -> None:
        assert batch.is_arrow
        first = batch["n"][0].as_py()
        if first % 7 == 0 and first not in self.seen:
            self.seen.add(first)
            raise ValueError("not the first time")
        collector.emit_batch({"n": batch["n"]})


def write(folder: Path, rows: int, files: int = 3) -> Path:
    folder.mkdir()
    for number in range(files):
        numbers = range(rows * number // files, rows * (number + 1) // files)
        pq.write_table(pa.table({"n": numbers, "at": numbers}), folder / f"{number}.parquet", row_group_size=20)
    return folder


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once", "at_most_once"])
def test_batches_that_fail_are_replayed_as_they_were(tmp_path: Path, delivery: str) -> None:
    folder = write(tmp_path / "rows", 100)

    def flow() -> Topology:
        builder = TopologyBuilder("flow").config(delivery=delivery)
        builder.set_spout("rows", SparkSpout(folder, fields=("n",), batches=True, batch_rows=7), 2, backoff="10ms")
        builder.set_bolt("fails", FailsOnce()).shuffle_grouping("rows")
        return builder.build()

    test = TopologyTest(flow)
    test.run()
    found = [row for (row,) in test.emitted("fails")]
    if delivery != "at_most_once":
        test.assert_all_acked()
        assert sorted(found) == list(range(100))
    else:
        assert 0 < len(found) < 100 and len(set(found)) == len(found)


def test_a_topology_of_rows_reads_the_rows_of_its_batches(tmp_path: Path) -> None:
    class Rows(BasicBolt):
        outputs = ("n",)

        def execute(self, tup: Any, collector: Any) -> None:
            collector.emit((tup["n"],))

    builder = TopologyBuilder("flow")
    builder.set_spout("rows", SparkSpout(write(tmp_path / "rows", 50), fields=("n",), batches=True))
    builder.set_bolt("singly", Rows()).shuffle_grouping("rows")
    test = TopologyTest(builder.build())
    test.run()
    test.assert_all_acked()
    assert sorted(test.emitted("singly")) == [(n,) for n in range(50)]


@pytest.mark.parametrize("batches", [False, True])
def test_its_event_time_makes_windows(tmp_path: Path, batches: bool) -> None:
    table = pa.table({"at": range(2500), "kind": ["a"] * 2500})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    builder = TopologyBuilder("flow")
    spout = SparkSpout(tmp_path / "rows.parquet", fields=("kind",), timestamp="at", batches=batches)
    builder.set_spout("rows", spout, watermarks=WatermarkStrategy.monotonic_timestamps())
    window = WindowBolt(key="kind", window=windows.TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
    builder.set_bolt("windows", window).fields_grouping("rows", "kind")
    test = TopologyTest(builder.build())
    test.run()
    assert [values[-1] for values in test.emitted("windows")] == [1000, 1000, 500]


def test_a_row_that_no_frame_can_hold_is_named_and_not_passed_over(tmp_path: Path) -> None:
    texts = ["a", "x" * (17 << 20), "b"]
    pq.write_table(pa.table({"text": texts}), tmp_path / "rows.parquet")

    class Collector:
        texts: list[str] = []

        def emit_batch(self, columns: Any, position: Any, timestamps: Any = None) -> None:
            batch = ColumnBatch.of(columns)
            if batch.columns[0].nbytes > 16 << 20:
                raise UnsupportedValueError("a batch of 1 rows takes 17825800 bytes; at most 16000000 are carried")
            self.texts += [text for (text,) in batch.rows()]

    from topo.api.context import TaskContext

    spout = SparkSpout(tmp_path / "rows.parquet", batches=True)
    spout.open(TaskContext("t", "c", 1), Collector())
    spout.next_tuple()
    for _ in range(2):
        with pytest.raises(UnsupportedValueError, match=r"rows\.parquet, row group 0, row 1: a batch of 1 rows takes"):
            spout.next_tuple()
    assert Collector.texts == ["a"]


def test_rows_of_a_batch_are_for_batches() -> None:
    with pytest.raises(ConfigError, match="batch_rows=5 is for batches: give batches=True"):
        SparkSpout(sql="SELECT 1 AS one", fields=("one",), batch_rows=5)
    with pytest.raises(ConfigError, match="batch_rows=0 must be a whole number, at least 1"):
        SparkSpout(sql="SELECT 1 AS one", fields=("one",), batches=True, batch_rows=0)


def test_a_function_for_timestamps_of_batches_is_refused(tmp_path: Path) -> None:
    builder = TopologyBuilder("flow")
    strategy = WatermarkStrategy.monotonic_timestamps(lambda values: values[0])
    builder.set_spout("rows", SparkSpout(write(tmp_path / "rows", 10), batches=True), watermarks=strategy)
    builder.set_bolt("fails", FailsOnce()).shuffle_grouping("rows")
    with pytest.raises(TopologyError, match="component 'rows': it emits batches, whose timestamps are a column"):
        builder.build()


def test_few_batches_are_in_flight_as_of_any_spout_of_batches(tmp_path: Path) -> None:
    folder = write(tmp_path / "rows", 10)
    assert SparkSpout(folder, batches=True).component_settings == {"max_spout_pending": 64}
    assert SparkSpout(folder).component_settings == {}


def test_a_decimal_is_one_with_all_its_digits(tmp_path: Path) -> None:
    exact = Decimal("12345678901234567890.123456789012345678")
    pq.write_table(pa.table({"n": [exact]}), tmp_path / "0.parquet")
    ((_, batch),) = batches_of(reader(tmp_path))
    assert batch.rows() == [(exact,)]
