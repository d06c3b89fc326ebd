"""Positions, shares, bounds and faults of parquet files, without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from topo.api.arrow_values import NotRepresentable  # noqa: E402
from topo.spark.parquet_rows import ParquetRows, Position, SchemaDiffers, TornFile  # noqa: E402
from topo.spark.snapshot import has_partitions, list_parquet  # noqa: E402

Rows = list[tuple[tuple[Any, ...], Position]]


def write(folder: Path, name: str, numbers: Any, rows_a_group: int = 10) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"number": pa.array(numbers, pa.int64()), "text": [f"t{number}" for number in numbers]})
    pq.write_table(table, path, row_group_size=rows_a_group)
    return path


def reader(folder: Path, share: tuple[int, int] = (0, 1), fields: tuple[str, ...] = ("number",), **more: Any) -> ParquetRows:
    return ParquetRows(Path("/"), list_parquet([str(folder)], "").files, fields, more.get("timestamp"), share)


def read(rows: ParquetRows, after: Position | None = None) -> Rows:
    return list(chain.from_iterable(zip(batch.rows, batch.positions, strict=True) for batch in rows.batches(after)))


def test_rows_come_in_the_order_of_the_files_names_with_rising_positions(tmp_path: Path) -> None:
    write(tmp_path, "b.parquet", range(25, 30))
    write(tmp_path, "a.parquet", range(25))
    found = read(reader(tmp_path, fields=("text", "number")))
    assert [values for values, _ in found] == [(f"t{number}", number) for number in range(30)]
    assert [position for _, position in found] == sorted(position for _, position in found)
    assert found[24][1] == (0, 2, 4)
    assert found[25][1] == (1, 0, 0)


def test_reading_behind_any_position_gives_exactly_the_rest(tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 13), ("c", 26)):
        write(tmp_path, f"{name}.parquet", range(first, first + 13), rows_a_group=5)
    for share in ((0, 1), (0, 2), (1, 2)):
        found = read(reader(tmp_path, share))
        for place, (_, position) in enumerate(found):
            assert read(reader(tmp_path, share), position) == found[place + 1 :]


@pytest.mark.parametrize("tasks", [1, 2, 3, 7])
def test_several_tasks_read_every_row_once(tmp_path: Path, tasks: int) -> None:
    write(tmp_path, "large.parquet", range(200))
    for number in range(20):
        write(tmp_path, f"small-{number:02}.parquet", range(200 + number * 2, 202 + number * 2))
    shares = [read(reader(tmp_path, (index, tasks))) for index in range(tasks)]
    assert sorted(values[0] for share in shares for values, _ in share) == list(range(240))
    assert len({position for share in shares for _, position in share}) == 240
    assert all(len(share) >= 240 // tasks // 2 for share in shares), "each has its part"


def test_files_that_spark_passes_over_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "deep/er/a.parquet", range(3))
    for name in ("_SUCCESS", ".a.parquet.crc", "_temporary/0/b.parquet", ".hidden/c.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"no parquet")
    assert [values for values, _ in read(reader(tmp_path))] == [(0,), (1,), (2,)]


def test_a_folder_of_a_partition_is_not_hidden_by_the_name_of_its_column(tmp_path: Path) -> None:
    write(tmp_path, "_day=2024-01-01/a.parquet", range(3))
    assert has_partitions(str(tmp_path))
    assert [values for values, _ in read(reader(tmp_path))] == [(0,), (1,), (2,)]


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [])
    assert read(reader(tmp_path)) == []
    assert read(ParquetRows(tmp_path, (), ("number",), None, (0, 1))) == []


def test_ten_thousand_small_files_are_read_with_few_of_them_open(tmp_path: Path) -> None:
    first = write(tmp_path, "00000.parquet", [7]).read_bytes()
    for number in range(1, 10_000):
        (tmp_path / f"{number:05}.parquet").write_bytes(first)
    # Of all tests in this process.
    before = len(os.listdir("/proc/self/fd"))
    found = read(reader(tmp_path, (1, 2)))
    assert [position for _, position in found] == [(number, 0, 0) for number in range(1, 10_000, 2)]
    assert len(os.listdir("/proc/self/fd")) < before + 100


def test_a_huge_row_group_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    make = (
        "import sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "text = pa.array([f'{number:x}' * 40 for number in range(50_000)])\n"
        "part = pa.table({'number': pa.array(range(50_000)), 'text': text})\n"
        "table = pa.concat_tables([part] * 40)\n"
        "pq.write_table(table, sys.argv[1], row_group_size=10**9, use_dictionary=False, compression='none')\n"
    )
    look = (
        "import sys, psutil; from pathlib import Path; from topo.spark.parquet_rows import ParquetRows\n"
        "path = Path(sys.argv[1]); size = path.stat().st_size; count = most = 0\n"
        "before = psutil.Process().memory_info().rss\n"
        "for batch in ParquetRows(Path('/'), [(str(path), size)], ('number', 'text'), None, (0, 1)).batches():\n"
        "    count += sum(1 for _ in batch.rows)\n"
        "    most = max(most, psutil.Process().memory_info().rss - before)\n"
        "print(count, size >> 20, most >> 20)\n"
    )
    path = str(tmp_path / "huge.parquet")
    subprocess.run([sys.executable, "-c", make, path], check=True)
    done = subprocess.run([sys.executable, "-c", look, path], check=True, capture_output=True, text=True)
    rows, size_mib, grown_mib = map(int, done.stdout.split())
    assert rows == 2_000_000
    assert pq.read_metadata(path).num_row_groups == 1
    assert size_mib > 300
    assert grown_mib < 80


@pytest.mark.parametrize("left", [0.9, 0.5, 0.0])
def test_a_torn_file_is_named_and_nothing_of_it_is_passed_over(tmp_path: Path, left: float) -> None:
    write(tmp_path, "a.parquet", range(3))
    torn = write(tmp_path, "b.parquet", range(1000))
    torn.write_bytes(torn.read_bytes()[: int(torn.stat().st_size * left)])
    batches = reader(tmp_path).batches()
    assert list(next(batches).rows) == [(0,), (1,), (2,)]
    with pytest.raises(TornFile, match=r"b\.parquet cannot be read as parquet"):
        next(batches)


def test_a_page_that_is_damaged_names_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet", range(10_000), rows_a_group=10_000)
    data = bytearray(path.read_bytes())
    data[4:2000] = os.urandom(1996)
    path.write_bytes(data)
    with pytest.raises(TornFile, match=r"a\.parquet cannot be read"):
        read(reader(tmp_path))


def test_a_file_that_changes_after_the_listing_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "a.parquet", range(3))
    rows = reader(tmp_path)
    write(tmp_path, "a.parquet", range(1000))
    with pytest.raises(TornFile, match="has changed"):
        read(rows)
    path.unlink()
    with pytest.raises(TornFile, match="not any more"):
        read(rows)


def test_a_position_in_a_file_that_was_never_listed_is_not_taken_for_the_end(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", range(3))
    with pytest.raises(TornFile, match=r"position \(1, 0, 2\) is in none of the 1 files"):
        read(reader(tmp_path), (1, 0, 2))
    assert read(reader(tmp_path), (0, 0, 2)) == []


def test_columns_are_found_by_name_at_any_width_of_integers(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int64()), "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"new": [0.5], "b": ["y"], "a": pa.array([2], pa.int16())}), tmp_path / "2.parquet")
    assert [values for values, _ in read(reader(tmp_path, fields=("a", "b")))] == [(1, "x"), (2, "y")]


def never_null(kind: Any) -> Any:
    return pa.field("element", kind, nullable=False)


@pytest.mark.parametrize(
    ("first", "second", "value"),
    [
        (pa.list_(never_null(pa.int32())), pa.list_(pa.int64()), (1, 2)),
        (pa.map_(pa.string(), never_null(pa.string())), pa.map_(pa.string(), pa.string()), {"a": "b"}),
        (pa.struct([never_null(pa.list_(pa.date32()))]), pa.struct([("element", pa.large_list(pa.date32()))]), {"element": ()}),
        (pa.dictionary(pa.int32(), pa.string()), pa.string(), "x"),
        (pa.large_string(), pa.dictionary(pa.int8(), pa.string()), "x"),
    ],
)
def test_columns_of_one_type_in_a_tuple_go_together(tmp_path: Path, first: Any, second: Any, value: Any) -> None:
    """As Spark writes them: array(1, 2) is never null inside, and a column that it has read may be."""
    for number, kind in enumerate((first, second)):
        pq.write_table(pa.table({"a": pa.array([value], kind)}), tmp_path / f"{number}.parquet")
    assert [values for values, _ in read(reader(tmp_path, fields=("a",)))] == [(value,), (value,)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.list_(pa.int64()), pa.list_(pa.string())),
        (pa.list_(pa.int64()), pa.int64()),
        (pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.int64(), pa.int64())),
        (pa.dictionary(pa.int32(), pa.string()), pa.binary()),
        (pa.list_(pa.timestamp("us", "UTC")), pa.list_(pa.timestamp("us"))),
    ],
)
def test_columns_of_different_types_inside_are_refused(tmp_path: Path, first: Any, second: Any) -> None:
    for number, kind in enumerate((first, second)):
        pq.write_table(pa.table({"a": pa.array([None], kind)}), tmp_path / f"{number}.parquet")
    with pytest.raises(SchemaDiffers):
        read(reader(tmp_path, fields=("a",)))


@pytest.mark.parametrize("after", [None, (1, 0, 0)])
def test_a_column_of_another_type_is_refused_with_both_files_names(tmp_path: Path, after: Position | None) -> None:
    for number, value in enumerate((1, 2, "three")):
        pq.write_table(pa.table({"a": [value, value]}), tmp_path / f"{number}.parquet")
    with pytest.raises(SchemaDiffers, match=r"2\.parquet: column 'a' is string, and int64 in .*0\.parquet"):
        read(reader(tmp_path, fields=("a",)), after)


def test_a_column_that_a_file_does_not_have_is_refused_with_those_that_it_has(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"a": [1], "c": [1]}), tmp_path / "1.parquet")
    with pytest.raises(SchemaDiffers, match=r"1\.parquet has no column 'b'; it has 'a', 'c'"):
        read(reader(tmp_path, fields=("a", "b")))


def test_a_moment_in_the_old_format_of_spark_is_a_moment(tmp_path: Path) -> None:
    moments = pa.array([datetime(2013, 7, 1, 12), None])
    pq.write_table(pa.table({"at": moments}), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    found = read(reader(tmp_path, fields=("at",)))
    assert [values for values, _ in found] == [(datetime(2013, 7, 1, 12, tzinfo=UTC),), (None,)]


def test_files_in_the_old_and_the_new_format_of_spark_go_together(tmp_path: Path) -> None:
    moments = pa.table({"at": pa.array([datetime(2013, 7, 1, 12)], pa.timestamp("us"))})
    pq.write_table(moments, tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(moments.cast(pa.schema([("at", pa.timestamp("us", "UTC"))])), tmp_path / "1.parquet")
    found = read(reader(tmp_path, fields=("at",)))
    assert [values for values, _ in found] == [(datetime(2013, 7, 1, 12, tzinfo=UTC),)] * 2


def test_a_value_that_cannot_be_had_names_file_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), tmp_path / "0.parquet", version="2.6")
    with pytest.raises(NotRepresentable, match=r"0\.parquet: column 'at': .*would lose data"):
        read(reader(tmp_path, fields=("at",)))


def test_event_time_may_come_from_a_column_that_is_not_emitted(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", range(5))
    batch = next(reader(tmp_path, fields=("text",), timestamp="number").batches())
    assert list(batch.rows) == [("t0",), ("t1",), ("t2",), ("t3",), ("t4",)]
    assert batch.stamps == [0, 1, 2, 3, 4]
