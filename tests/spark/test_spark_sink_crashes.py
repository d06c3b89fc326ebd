"""A sink that is killed between any two steps of its commits: nothing acked is lost, nothing torn shows, and leftovers go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.children import pipe, start_child
from tests.spark.crashing_sink import CRASHED, crash, write
from topo.spark.parquet_commit import HIDDEN

pytestmark = pytest.mark.integration

ROWS = list(range(10))
MOST_STEPS = 200


def rows_in(path: Path) -> list[int]:
    """The rows that a reader sees; raises for a torn file."""
    found = ds.dataset(path, format="parquet", partitioning="hive", exclude_invalid_files=False).to_table()
    return sorted(found["number"].to_pylist()) if found.num_rows else []


def crash_at(step: int, path: Path, partitioned: bool) -> tuple[int, list[int]]:
    """Let a process write up to a step, and return its exit code and its acks."""
    reading, writing = pipe()
    process = start_child(partial(crash, path, ROWS, partitioned, step), writing)
    writing.close()
    with open(reading.fileno(), "rb", closefd=False) as stream:
        reported = stream.read()
    process.join()
    assert process.exitcode is not None
    return process.exitcode, [int.from_bytes(reported[at : at + 4], "little") for at in range(0, len(reported), 4)]


def crashes(folder: Path, partitioned: bool) -> Iterator[tuple[int, Path, list[int]]]:
    """Every step once, each with a separate folder and the rows that were acked before it."""
    for step in range(1, MOST_STEPS):
        path = folder / str(step)
        code, acked = crash_at(step, path, partitioned)
        if code == 0:
            assert step > 20 and acked == ROWS
            return
        assert code == CRASHED
        yield step, path, acked
    raise AssertionError("it never came to its end")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("partitioned", [False, True], ids=["one file a batch", "a file for each partition"])
def test_a_sink_killed_at_any_step_loses_nothing_and_shows_nothing_torn(tmp_path: Path, partitioned: bool) -> None:
    for step, path, acked in crashes(tmp_path, partitioned):
        path.mkdir(exist_ok=True)
        seen = rows_in(path)
        assert set(acked) <= set(seen), f"step {step}: acked rows do not show"
        assert len(seen) == len(set(seen)), f"step {step}: rows show twice"

        write(path, [number for number in ROWS if number not in acked], partitioned, lambda number: None)

        assert set(rows_in(path)) == set(ROWS), f"step {step}: rows are missing after the next life"
        assert [entry for entry in os.listdir(path / HIDDEN) if entry != "schema.arrow"] == [], f"step {step}: leftovers"


def test_a_commit_that_had_begun_is_finished_and_one_that_had_not_is_undone(tmp_path: Path) -> None:
    begun = undone = 0
    for step, path, acked in crashes(tmp_path, partitioned=True):
        path.mkdir(exist_ok=True)
        before = rows_in(path)

        write(path, [], True, lambda number: None)

        after = rows_in(path)
        assert set(before) <= set(after)
        assert len(after) % 4 == 0 or after == ROWS, f"step {step}: part of a batch shows: {after}"
        begun += after != before
        undone += after == acked and len(acked) < len(ROWS)
    assert begun >= 2, "in no case was a batch finished"
    assert undone >= 10


def test_what_others_have_in_the_folder_is_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / HIDDEN / name for name in ("crash.other.0000.ab", "crash.sink.0001.cd", "else.sink.0000.ef")]
    for other in others:
        other.mkdir(parents=True)
        (other / "batch.0.tmp").write_bytes(b"PAR1")

    write(tmp_path, ROWS, True, lambda number: None)

    # Of one task: the share of task 1, which is no more, falls to it.
    assert [(other / "batch.0.tmp").exists() for other in others] == [True, False, True]
    assert rows_in(tmp_path) == ROWS


def test_a_torn_leftover_never_shows(tmp_path: Path) -> None:
    own = tmp_path / HIDDEN / "crash.sink.0000.ab"
    own.mkdir(parents=True)
    (own / "ab-000000001.0.tmp").write_bytes(b"PAR1 half a file")
    (own / "commit.tmp").write_bytes(b'{"name": "ab')
    assert rows_in(tmp_path) == []

    write(tmp_path, ROWS, False, lambda number: None)

    assert rows_in(tmp_path) == ROWS
    assert not own.exists()
    assert sum(pq.read_metadata(file).num_rows for file in tmp_path.glob("*.parquet")) == len(ROWS)
