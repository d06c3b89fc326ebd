"""How far a `FilesSpout` is behind: the bytes of the files that it knows and has not read."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pytest
from pyarrow import parquet

from tests.unit.connectors.test_tail_spout import ROTATIONS, write
from topo import FilesSpout
from topo.connectors.file_formats import BLOCK
from topo.testing.partition_harness import PartitionHarness

LINE = "x" * 999 + "\n"


def harness_of(folder: Path | str, tasks: int = 1, **settings: Any) -> PartitionHarness:
    return PartitionHarness(lambda: FilesSpout(folder, settle="0s", **settings), tasks)


def lags(harness: PartitionHarness) -> list[float | None]:
    """Return the gauge of each task as of now, a turn later."""
    harness.clock.advance("1s")
    harness.turns(1)
    return [task.metrics.snapshot().gauges.get("lag_bytes") for task in harness.tasks]


def test_the_lag_is_not_known_before_the_first_listing_and_0_without_files(tmp_path: Path) -> None:
    harness = harness_of(tmp_path)
    assert "lag_bytes" not in harness.tasks[0].metrics.snapshot().gauges
    harness.turns()
    assert lags(harness) == [0]
    assert "lag" not in harness.tasks[0].metrics.snapshot().gauges, "that would be records"


@pytest.mark.parametrize("where", ["disk", "URL"])
def test_the_lag_falls_while_files_are_read_and_grows_with_those_that_come(tmp_path: Path, where: str) -> None:
    files = fsspec.filesystem("file" if where == "disk" else "memory")
    folder = str(tmp_path) if where == "disk" else f"memory://{tmp_path.name}"
    files.makedirs(folder, exist_ok=True)
    for name in ("a", "b"):
        files.pipe(f"{folder}/{name}", LINE.encode() * 500)
    harness = harness_of(folder)
    seen = [lags(harness)[0] for _ in range(20)]
    numbers = [lag for lag in seen if lag is not None]
    assert 1_000_000 - 2 * BLOCK <= numbers[0] <= 1_000_000 and numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) > 5 and numbers[-1] == 0
    files.pipe(f"{folder}/c", LINE.encode() * 400)
    harness.clock.advance("1m")
    harness.turns(2)
    assert 400_000 - 4 * BLOCK <= (lags(harness)[0] or 0) < 400_000
    harness.turns(20)
    assert lags(harness) == [0] and len(harness.all_rows()) == 1400


def test_each_task_counts_its_own_files(tmp_path: Path) -> None:
    for n in range(8):
        (tmp_path / str(n)).write_text(LINE * 300)
    harness = harness_of(tmp_path, tasks=2)
    harness.turns(2)
    assert 2_400_000 - 16 * BLOCK <= sum(lag or 0 for lag in lags(harness)) < 2_400_000 and 0 not in lags(harness)
    harness.turns(60)
    assert lags(harness) == [0, 0]


def test_files_that_wait_until_others_have_ended_count(tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"{n:02}").write_text(LINE * 150)
    harness = harness_of(tmp_path)
    harness.turns(2)
    assert 6_000_000 - 16 * BLOCK <= (lags(harness)[0] or 0) < 6_000_000


def test_a_file_that_cannot_be_read_on_stays_in_the_lag(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(LINE * 300)
    harness = harness_of(tmp_path)
    harness.turns(2)
    harness.stop()
    (tmp_path / "a").write_text("other\n" * 100_000)
    harness.start(1)
    harness.turns()
    assert "was written again" in str(harness.errors[0])
    assert (lags(harness)[0] or 0) > 300_000


def test_after_a_restart_the_rest_of_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(LINE * 300)
    (tmp_path / "b").write_text(LINE)
    harness = harness_of(tmp_path)
    harness.turns(4)
    read = {name: len(rows) for name, rows in harness.read.items()}
    assert 0 < read["a"] < 300 and read["b"] == 1
    harness.stop()
    harness.start(1)
    harness.turns(1)
    rest = LINE * (300 - read["a"])
    harness.clock.advance("1s")
    assert (lags(harness)[0] or 0) <= len(rest)
    harness.turns(20)
    assert lags(harness) == [0] and len(harness.read["a"]) == 300


def test_going_back_to_a_checkpoint_brings_the_lag_back_also_without_another_listing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(LINE * 1000)
    (tmp_path / "b").write_text(LINE)
    harness = harness_of(tmp_path, discovery_interval=None)
    (task,) = harness.tasks
    harness.turns(3)
    kept = task.stored()
    harness.turns(30)
    assert task.metrics.snapshot().gauges["lag_bytes"] > 0, "as of the last look"
    task.restart(kept)
    assert 500_000 < (lags(harness)[0] or 0) < 1_000_000


def test_bytes_of_compressed_files_count_as_they_are_stored_and_csv_and_parquet_until_they_are_read(tmp_path: Path) -> None:
    noise = "".join(f"{n * 7919 % 1_000_003},{n * n % 999_983}\n" for n in range(60_000))
    (tmp_path / "a.csv").write_text("a,b\n" + noise)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(("a,b\n" + noise).encode()))
    harness = harness_of(tmp_path, format="csv", fields=("a",))
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    seen = [lags(harness)[0] or 0 for _ in range(600)]
    assert seen == sorted(seen, reverse=True) or seen[0] == 0
    assert 0.8 * total < max(seen) <= total and len(set(seen)) > 10

    (tmp_path / "p").mkdir()
    parquet.write_table(pyarrow.table({"a": list(range(5_000))}), tmp_path / "p/a.parquet")
    harness = harness_of(tmp_path / "p", format="parquet", fields=("a",))
    harness.turns(3)
    assert lags(harness) == [(tmp_path / "p/a.parquet").stat().st_size]
    harness.turns(60)
    assert lags(harness) == [0]


def test_of_files_that_are_followed_the_bytes_that_wait_count_also_of_rotated_ones(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(LINE * 2300)
    harness = harness_of(tmp_path, follow=True, rotate_wait="0s")
    harness.turns(2)
    assert lags(harness) == [1_300_000], "1,000 lines are read at once"
    log.rename(tmp_path / "a.log.1")
    log.write_text(LINE * 200)
    assert lags(harness) == [1_500_000]
    harness.turns(60)
    assert lags(harness) == [0] and len(harness.all_rows()) == 2500
    log.open("a").write("half")
    assert lags(harness) == [4]


def test_of_a_followed_file_that_cannot_be_read_on_what_is_behind_the_block_read_last_counts(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text('{"n": 1}\n' + "{bad\n" + '{"n": 2}\n' * 3000)
    harness = harness_of(tmp_path, follow=True, format="json", fields=("n",), on_bad_record="fail")
    assert "lag_bytes" not in harness.tasks[0].metrics.snapshot().gauges
    harness.turns(5)
    for _ in range(3):
        (lag,) = lags(harness)
        assert lag is not None and 18_000 <= lag <= 27_014


@ROTATIONS
def test_files_that_were_rotated_while_the_topology_was_down_count(tmp_path: Path, rotate: Any) -> None:
    log = tmp_path / "a.log"
    write(log, *[f"{n:099}" for n in range(150)])
    harness = harness_of(tmp_path, follow=True, rotate_wait="0s")
    harness.turns(2)
    harness.stop()
    assert len(harness.all_rows()) == 100
    for number in (2, 1):
        rotate(log, f"a.log.{number}")
        write(log, *[f"{number}{n:098}" for n in range(2000)])
    harness.start(1)
    harness.turns(2)
    assert lags(harness) == [405_000 - 100_000]
    harness.turns(100)
    assert lags(harness) == [0] and len(harness.all_rows()) == 4150
