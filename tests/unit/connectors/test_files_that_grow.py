"""A `FilesSpout` that follows files: appends, rotation, new files. The cases of the reader are in test_tail_spout."""

from __future__ import annotations

import os
from pathlib import Path, PurePath
from typing import Any

import pytest

from tests.unit.connectors.test_tail_spout import ROTATIONS, copy_and_truncate, write
from topo import FilesSpout
from topo.connectors.followed_folder import RotatedNames
from topo.errors import ConfigError
from topo.testing.partition_harness import PartitionHarness


def following(folder: Path, tasks: int = 1, **settings: Any) -> PartitionHarness:
    harness = PartitionHarness(lambda: FilesSpout(folder, follow=True, rotate_wait="0s", **settings), tasks)
    harness.turns(20)
    return harness


def test_appended_lines_and_new_files_are_read_as_they_come(tmp_path: Path) -> None:
    write(tmp_path / "a.log", "1", "2")
    harness = following(tmp_path)
    (tmp_path / "a.log").open("a").write("3\nhalf")
    write(tmp_path / "b.log", "4")
    harness.discover()
    assert harness.read == {"a.log": ["1", "2", "3"], "b.log": ["4"]}
    write(tmp_path / "a.log", "", "5")
    harness.turns(20)
    assert harness.read == {"a.log": ["1", "2", "3", "half", "5"], "b.log": ["4"]} and harness.errors == []


@pytest.mark.parametrize(("format", "line", "row"), [("lines", "1", "1"), ("json", "[1]", (1,))])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, format: Any, line: str, row: Any) -> None:
    (tmp_path / "a.log").write_text(f"{line}\n{line}\n", "utf-8-sig")
    harness = following(tmp_path, format=format)
    assert [list(rows) for rows in harness.read.values()] == [[row, row]] and harness.given_up == []


def test_a_file_is_followed_while_it_is_written_to_without_a_pause(tmp_path: Path) -> None:
    write(tmp_path / "a.log", "1")
    os.utime(tmp_path / "a.log", (4e9, 4e9))
    assert following(tmp_path).read == {"a.log": ["1"]}


@ROTATIONS
@pytest.mark.parametrize("is_down", [False, True], ids=["running", "down"])
def test_a_rotated_file_is_read_to_its_end_and_is_no_file_of_the_folder(tmp_path: Path, rotate: Any, is_down: bool) -> None:
    log = tmp_path / "a.log"
    write(log, "1", "2")
    harness = following(tmp_path)
    if is_down:
        harness.stop()
    write(log, "3")
    rotate(log, "a.log.1")
    write(log, "4")
    if is_down:
        harness.start(1)
    harness.discover()
    harness.discover()
    assert harness.read == {"a.log": ["1", "2", "3", "4"]} and harness.errors == []


def test_a_file_that_is_truncated_and_grows_between_two_polls_of_a_backlog_is_another_one(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    old, new = [f"old {number}" for number in range(1200)], [f"new {number}" for number in range(2000)]
    write(log, *old)
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, follow=True, rotate_wait="0s"))
    while not harness.read:
        harness.turns(1)
    assert harness.read == {"a.log": old[:100]}
    copy_and_truncate(log, "a.log.1")
    write(log, *new)
    harness.turns(40)
    assert harness.read == {"a.log": old + new} and harness.errors == []


def test_the_rotated_file_is_not_read_while_the_new_one_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "1")
    harness = following(tmp_path)
    write(log, "2")
    log.rename(tmp_path / "a.log.1")
    harness.discover()
    harness.discover()
    assert harness.read == {"a.log": ["1", "2"]}, "the open file is read until it is released"
    harness.stop()
    harness.start(1)
    harness.discover()
    write(log, "3")
    harness.discover()
    assert harness.read == {"a.log": ["1", "2", "3"]}


def test_a_rotated_file_whose_name_is_unknown_to_another_task_is_not_read_again(tmp_path: Path) -> None:
    names = [f"{name}.log" for name in "abcdefgh"]
    for name in names:
        write(tmp_path / name, name)
    harness = following(tmp_path, tasks=3)
    harness.stop()
    for name in names:
        (tmp_path / name).rename(tmp_path / f"{name}.1")
    harness.start(3)
    harness.discover()
    assert harness.read == {name: [name] for name in names}
    harness.stop()
    harness.start(2)
    harness.discover()
    assert harness.read == {name: [name] for name in names}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (None, ["a.log", "a.log.1", "a.log-20260101", "a.log-20260101.1"]),
        (None, ["sub/syslog", "sub/syslog.1", "sub/syslog-2026-01-01"]),
        (None, ["node.10.0.0.1", "node.10.0.0.1.1"]),
        (None, ["log-2026", "log-2026.1"]),
        (None, ["log-202612", "log-202612.12"]),
        ("{name}.old*", ["a.log", "a.log.old", "a.log.old2"]),
        ("old-{name}", ["sub/[a]", "sub/old-[a]"]),
        ("{name}.{name}", ["a", "a.a"]),
        ("{name}-*.old", ["app-1", "app-1-2.old", "app-1-2.old-3.old"]),
        ("{name}--*", ["a-", "a---1"]),
        ("*-{name}*", ["b-a", "1-b-a.2"]),
        ("{name}", ["a"]),
    ],
)
def test_all_names_of_a_file_have_one_task(pattern: str | None, names: list[str]) -> None:
    rotated = RotatedNames(pattern)
    assert all(rotated.of(PurePath(names[0]).name).fullmatch(PurePath(name).name) for name in names[1:])
    partitions = list(map(rotated.partition, names))
    assert [one.name for one in partitions] == names and len({one.owner(1 << 40) for one in partitions}) == 1


def test_files_of_other_names_are_spread_over_the_tasks() -> None:
    for pattern, name in ((None, "{}.log"), (None, "worker-{}"), ("{name}.old", "shard.{}"), ("old-{name}", "{}.log")):
        rotated = RotatedNames(pattern)
        assert {rotated.partition(name.format(n)).owner(4) for n in range(100)} == {0, 1, 2, 3}, name


@pytest.mark.parametrize("tasks", [1, 3])
def test_with_start_end_only_later_lines_and_later_files_are_read(tmp_path: Path, tasks: int) -> None:
    write(tmp_path / "a.log", "1", "2")
    harness = following(tmp_path, tasks, start="end")
    write(tmp_path / "a.log", "3")
    write(tmp_path / "b.log", "4")
    harness.discover()
    assert harness.read == {"a.log": ["3"], "b.log": ["4"]}


def test_more_files_than_are_read_at_once_otherwise_are_followed(tmp_path: Path) -> None:
    for n in range(40):
        write(tmp_path / f"{n}.log", str(n))
    assert following(tmp_path).read == {f"{n}.log": [str(n)] for n in range(40)}


def test_json_that_cannot_be_decoded_and_lines_that_are_too_long_are_given_up(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b'{"n": 1}\n\n{\n' + b"x" * 25 + b'\n{"n": 2}\n')
    harness = following(tmp_path, format="json", fields=("n",), max_line=10)
    assert harness.read == {"a.log": [1, 2]}
    assert [record for _, _, record in harness.given_up] == [b"{", b"x" * 12, b"x" * 12, b"x"]


@ROTATIONS
@pytest.mark.parametrize(
    ("before", "read", "given_up"),
    [
        (b"1\n2", ["1", "2"], 0),
        (b"1\n1234567890", ["1", "1234567890"], 0),
        (b"x" * 12, [], 1),
        (b"x" * 24, [], 2),
        (b"x" * 30, [], 3),
    ],
)
def test_the_first_line_of_the_next_file_is_whole(
    tmp_path: Path, rotate: Any, before: bytes, read: list[str], given_up: int
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(before)
    harness = following(tmp_path, max_line=10)
    rotate(log, "a.log.1")
    write(log, "3", "4")
    harness.discover()
    assert harness.read == {"a.log": [*read, "3", "4"]} and len(harness.given_up) == given_up


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_of_exactly_the_most_bytes_is_read_and_so_is_the_next_one(tmp_path: Path, end: str) -> None:
    lines = ["1234567890", "ab", "x" * 11, "c", "x" * 12, "d", "x" * 24, "e", "", "f"]
    (tmp_path / "a.log").write_bytes("".join(line + end for line in lines).encode())
    harness = following(tmp_path, max_line=10)
    assert harness.read == {"a.log": ["1234567890", "ab", "c", "d", "e", "", "f"]}


def test_lines_that_were_removed_before_they_were_read_are_an_error(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    write(log, "1", "2")
    harness = following(tmp_path)
    write(log, "3")
    harness.stop()
    os.truncate(log, 0)
    write(log, "4")
    harness.start(1)
    harness.turns(20)
    assert harness.read["a.log"][-1] == "4" and "what followed them is lost" in str(harness.errors[0])


@pytest.mark.parametrize(
    ("pattern", "names", "live"),
    [
        (
            None,
            ["a.log", "a.log.1", "a.log-20260101", "a.log.2.gz", "sub/a.log.1", "a-1.log"],
            ["a.log", "sub/a.log.1", "a-1.log"],
        ),
        (None, ["log-2026", "log-2026.1", "log.1"], ["log-2026", "log.1"]),
        (
            None,
            ["worker", "worker-1", "worker-2", "node", "node.10.0.0.1", "worker.1", "worker-20260101"],
            ["worker", "worker-1", "worker-2", "node", "node.10.0.0.1"],
        ),
        ("{name}.old*", ["a.log", "a.log.old", "a.log.old2", "b.log.old", "a.log.1"], ["a.log", "b.log.old", "a.log.1"]),
        ("old-{name}", ["sub/[a]", "sub/old-[a]", "old-[a]"], ["sub/[a]", "old-[a]"]),
    ],
)
def test_rotated_files_are_known_by_the_name_of_the_live_one(pattern: str | None, names: list[str], live: list[str]) -> None:
    rotated = RotatedNames(pattern)
    assert rotated.live(names) == live
    assert rotated.live(names[1:]) == live[1:], "also while the live one is missing"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"format": "csv", "fields": ("a",)}, "reads lines or json"),
        ({"on_done": "delete"}, "no on_done"),
        ({"rotated": "*.1"}, "must contain {name}"),
        ({"start": "middle"}, "must be 'beginning'"),
        ({"follow": False, "start": "end"}, "with follow=True 'end'"),
        ({"max_line": 0}, "at least one byte"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        FilesSpout("/data", **{"follow": True, **settings})
