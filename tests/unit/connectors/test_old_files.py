"""Files that are older than a FilesSpout looks back."""

from __future__ import annotations

import os
from datetime import timedelta
from math import inf
from pathlib import Path

import fsspec
import pytest

from tests.unit.connectors.test_files_spout import harness_of
from topo import FilesSpout
from topo.connectors.file_ages import FileAges
from topo.connectors.file_folders import FoundFile
from topo.testing.partition_harness import PartitionHarness


def aged(path: Path, text: str, days: float) -> None:
    """Write a file, and have it look as old as some days."""
    path.write_text(text)
    then = path.stat().st_mtime - days * 86_400
    os.utime(path, (then, then))


def test_old_files_of_a_task_that_had_found_none_are_read_at_another_parallelism(tmp_path: Path) -> None:
    for number in range(8):
        aged(tmp_path / f"{number}", f"{number}\n", number * 30)
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, settle="0s", max_file_age="7d"), 2)
    for _ in range(10):
        harness.tasks[0].turn()
    assert 0 < len(harness.read) < 8
    harness.stop()
    harness.start(1)
    harness.turns()
    assert harness.read == {f"{number}": [f"{number}"] for number in range(8)} and harness.errors == []


def test_old_files_that_are_done_are_forgotten_and_not_read_again(tmp_path: Path) -> None:
    aged(tmp_path / "old", "1\n", 30)
    aged(tmp_path / "new", "2\n", 1)
    harness = harness_of(tmp_path, max_file_age="7d")
    assert harness.read == {"old": ["1"], "new": ["2"]}, "at the first start all count"
    for _ in range(3):
        harness.discover()
    assert sorted(harness.tasks[0].stored()) == ["new", "old"], "nothing of it is committed"
    harness.tasks[0].commit()
    for _ in range(3):
        harness.discover()
    assert sorted(harness.tasks[0].stored()) == ["new"]
    harness.stop()
    harness.start(1)
    for _ in range(3):
        harness.discover()
    assert harness.read == {"old": ["1"], "new": ["2"]} and harness.errors == []


def test_an_old_file_that_comes_late_is_reported_once_and_not_read(tmp_path: Path) -> None:
    aged(tmp_path / "new", "2\n", 1)
    harness = harness_of(tmp_path, max_file_age="7d")
    aged(tmp_path / "late", "1\n", 30)
    aged(tmp_path / "in-time", "3\n", 5)
    for _ in range(3):
        harness.discover()
    assert harness.read == {"new": ["2"], "in-time": ["3"]}
    (error,) = harness.errors
    assert "file 'late' is not read: it has come when it was older than the newest file by more than max_file_age" in str(error)


def test_an_old_file_that_is_not_done_is_read_on(tmp_path: Path) -> None:
    aged(tmp_path / "old", "1\n2\n", 30)
    aged(tmp_path / "new", "3\n", 1)
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, settle="0s", max_file_age="7d"))
    harness.stop()
    harness.start(1)
    harness.discover()
    assert harness.read == {"old": ["1", "2"], "new": ["3"]} and harness.errors == []


def test_a_time_that_is_not_known_makes_no_other_file_old() -> None:
    late, left_out = list[str](), list[int]()
    ages = FileAges(7 * 86_400, [], lambda name: False, lambda name: False, late.append, left_out.append)
    first = [FoundFile("unknown", "1", inf, 1), FoundFile("today", "1", 30 * 86_400, 1), FoundFile("old", "1", 0, 1)]
    assert [file.name for file in ages.kept(first)] == ["unknown", "today"]
    new = FoundFile("new", "1", 29 * 86_400, 1)
    assert [file.name for file in ages.kept([*first, new])] == ["unknown", "today", "new"]
    assert late == [] and left_out == [1]


def test_a_time_that_lies_ahead_makes_no_other_file_old() -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/ahead/a", b"1\n")
    files.store["/ahead/a"].created += timedelta(days=400)
    harness = harness_of("memory://ahead", max_file_age="7d")
    files.pipe("/ahead/b", b"2\n")
    for _ in range(3):
        harness.discover()
    assert harness.read == {"a": ["1"], "b": ["2"]} and harness.errors == []


def test_the_number_of_files_that_a_start_leaves_out_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    aged(tmp_path / "new", "2\n", 1)
    harness = harness_of(tmp_path, max_file_age="7d")
    harness.stop()
    aged(tmp_path / "meanwhile", "1\n", 30)
    caplog.set_level("INFO")
    harness.start(1)
    harness.turns(5)
    assert harness.read == {"new": ["2"]} and "files that are taken for done: 1;" in caplog.text
