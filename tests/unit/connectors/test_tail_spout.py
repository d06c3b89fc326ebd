"""A tail source on real files: appends, both kinds of rotation, while it runs and while it is down."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.connectors.drive import context
from topo import ConfigError, PrintBolt, TailSpout, Topology, TopologyBuilder
from topo.api.streams import declared_streams
from topo.emission.message_collectors import MessageCollector
from topo.testing import TopologyTest
from topo.testing.clock import ManualClock

LONG = "x" * 300
"""Longer than the part of a file that identifies it."""


class Tail:
    """A spout on a file, and its tuples; `again` is another life that begins at a position."""

    def __init__(self, path: Path, committed: Any = None, **options: Any) -> None:
        self.path, self.options = path, options
        self.errors: list[BaseException] = []
        self.spout = TailSpout(path, **{"rotate_wait": "0s", **options})
        self.collector = MessageCollector("tail", declared_streams(("line",)), self.errors.append)
        self.clock = ManualClock()
        self.context = replace(context(committed=committed), clock=self.clock)
        self.spout.open(self.context, self.collector)

    def again(self, position: Any = "last") -> Tail:
        self.spout.close()
        return Tail(self.path, self.positions[-1] if position == "last" else position, **self.options)

    def read(self) -> list[str]:
        """Let the spout read all that there is; return the lines that are new."""
        before = len(self.collector.streams[0].rows)
        for _ in range(50):
            self.spout.next_tuple()
        assert self.positions == sorted(set(self.positions)), "positions must rise"
        return [line for (line,) in self.collector.streams[0].rows[before:]]

    def pause(self) -> None:
        self.clock.advance("1m")

    @property
    def positions(self) -> list[Any]:
        return list(self.collector.messages[0])


def write(path: Path, *lines: str, end: str = "\n") -> None:
    with path.open("a") as file:
        file.writelines(line + end for line in lines)


def rename(path: Path, to: str = "log.1") -> None:
    path.rename(path.with_name(to))


def copy_and_truncate(path: Path, to: str = "log.1") -> None:
    path.with_name(to).write_bytes(path.read_bytes())
    os.truncate(path, 0)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


ROTATIONS = pytest.mark.parametrize("rotate", [rename, copy_and_truncate])
HEADS = pytest.mark.parametrize("head", [(), (LONG,)], ids=["short", "long"])


def test_lines_come_from_the_beginning_and_then_as_they_are_appended(log: Path) -> None:
    tail = Tail(log)
    assert tail.read() == []
    write(log, "a", "b")
    assert tail.read() == ["a", "b"]
    write(log, "", "c")
    assert tail.read() == ["", "c"]


def test_a_tail_may_start_behind_what_is_there(log: Path) -> None:
    write(log, "a", LONG)
    log.open("a").write("half")
    tail = Tail(log, start="end")
    assert tail.read() == []
    write(log, " a line", "b")
    assert tail.read() == ["half a line", "b"]
    assert Tail(log, tail.positions[0], start="end").read() == ["b"]


def test_the_start_counts_for_no_file_that_comes_later(log: Path) -> None:
    tail = Tail(log, start="end")
    write(log, "a")
    assert tail.read() == ["a"]
    rename(log)
    write(log, "b")
    assert tail.read() == ["b"]


def test_a_start_within_a_line_longer_than_a_piece_is_where_the_file_ends(log: Path) -> None:
    log.write_text("x" * 50)
    tail = Tail(log, start="end", max_line=10)
    write(log, "y", "b")
    assert tail.read() == ["y", "b"]


def test_each_task_follows_its_own_path(tmp_path: Path) -> None:
    for name in "ab":
        write(tmp_path / name, name, name)

    def topology() -> Topology:
        builder = TopologyBuilder("follow")
        builder.set_spout("lines", TailSpout([tmp_path / "a", tmp_path / "b"]), 2)
        builder.set_bolt("print", PrintBolt()).shuffle_grouping("lines")
        return builder.build()

    test = TopologyTest(topology)
    test.advance("1s")
    write(tmp_path / "b", "c")
    test.crash("lines")
    test.advance("1s")
    assert sorted(set(test.emitted("lines"))) == [("a",), ("b",), ("c",)]
    assert len(test.emitted("lines")) >= 5


def test_a_line_is_emitted_when_its_end_is_there(log: Path) -> None:
    tail = Tail(log)
    write(log, "half", end="")
    assert tail.read() == []
    write(log, " and half", end="")
    assert tail.read() == []
    write(log, "", "next")
    assert tail.read() == ["half and half", "next"]


def test_a_long_line_comes_in_pieces(log: Path) -> None:
    tail = Tail(log, max_line=4)
    write(log, "abcdefghij", "abcd", "k")
    assert tail.read() == ["abcd", "efgh", "ij", "abcd", "k"]
    assert tail.again(tail.positions[0]).read() == ["efgh", "ij", "abcd", "k"]


@HEADS
@pytest.mark.parametrize("read", range(5))
def test_another_life_begins_behind_its_position(log: Path, head: tuple[str, ...], read: int) -> None:
    lines = [*head, "a", "b", "c", "d", "e"]
    write(log, *lines)
    tail = Tail(log)
    assert tail.read() == lines
    assert tail.again(tail.positions[read]).read() == lines[read + 1 :]
    assert tail.again().read() == []


@HEADS
@ROTATIONS
def test_rotation_of_a_running_tail_loses_and_repeats_nothing(log: Path, head: tuple[str, ...], rotate: Any) -> None:
    tail = Tail(log)
    write(log, *head, "a", "b")
    assert tail.read() == [*head, "a", "b"]
    write(log, "c")
    rotate(log)
    write(log, "d", "e")
    assert tail.read() == ["c", "d", "e"]
    assert tail.errors == []
    assert tail.again().read() == []


@HEADS
@ROTATIONS
def test_rotation_between_two_lives_loses_and_repeats_nothing(log: Path, head: tuple[str, ...], rotate: Any) -> None:
    write(log, *head, "a", "b")
    tail = Tail(log)
    tail.read()
    write(log, "c")
    rotate(log)
    write(log, "d")
    tail = tail.again()
    assert tail.read() == ["c", "d"]
    assert tail.again().read() == [] and tail.errors == []


@ROTATIONS
def test_several_rotations_between_two_lives_are_read_in_order(log: Path, rotate: Any) -> None:
    write(log, LONG, "a")
    tail = Tail(log)
    tail.read()
    for round in range(1, 4):
        write(log, f"rest {round}")
        for number in range(round - 1, 0, -1):
            rename(log.with_name(f"log.{number}"), f"log.{number + 1}")
        rotate(log)
    for place, number in enumerate((3, 2, 1)):
        os.utime(log.with_name(f"log.{number}"), ns=(place, 1_700_000_000_000_000_000 + place))
    write(log, "now")
    tail = tail.again()
    assert tail.read() == ["rest 1", "rest 2", "rest 3", "now"] and tail.errors == []


def test_a_file_that_grew_beyond_the_position_after_it_was_truncated_is_another_one(log: Path) -> None:
    tail = Tail(log)
    write(log, "a", "b")
    tail.read()
    copy_and_truncate(log)
    write(log, *"stuvw")
    assert tail.read() == [*"stuvw"] and tail.errors == []


@ROTATIONS
@pytest.mark.parametrize("times", [1, 2])
def test_what_a_file_had_between_two_looks_at_its_beginning_is_read(log: Path, rotate: Any, times: int) -> None:
    write(log.with_name("log.1"), "of before")
    write(log, "a")
    tail = Tail(log)
    assert tail.read() == ["a"]
    rotate(log, "log.2")
    assert tail.read() == []
    for number in range(3, 3 + times):
        write(log, f"{number}")
        rotate(log, f"log.{number}")
    write(log, "now")
    assert tail.read() == [*map(str, range(3, 3 + times)), "now"] and tail.errors == []
    assert tail.again().read() == []


@pytest.mark.parametrize("read", [0, 1])
def test_a_file_that_is_truncated_and_grows_while_the_spout_is_held_up_is_another_one(log: Path, read: int) -> None:
    write(log, "a", "b", "c", "d")
    tail = Tail(log)
    tail.spout.next_tuple()
    tail = tail.again()
    for _ in range(read):
        tail.spout.next_tuple()
    copy_and_truncate(log)
    write(log, *"stuvwxyz")
    tail.pause()
    assert tail.read() == [*"bcd"[read:], *"stuvwxyz"] and tail.errors == []


def test_an_inode_that_is_used_again_is_another_file(log: Path) -> None:
    write(log, "a", "b")
    tail = Tail(log)
    tail.read()
    generation, offset, _, head = tail.positions[-1]
    rename(log)
    write(log, "c", "d", "e")
    tail = tail.again((generation, offset, log.stat().st_ino, head))
    assert tail.read() == ["c", "d", "e"] and tail.errors == []


def test_a_renamed_file_is_read_as_long_as_its_writer_writes_to_it(log: Path) -> None:
    tail = Tail(log, rotate_wait="1h")
    writer = log.open("a")
    writer.write("a\n")
    writer.flush()
    tail.read()
    rename(log)
    write(log, "new")
    assert tail.read() == []
    writer.write("late\n")
    writer.close()
    assert tail.read() == ["late"]
    os.utime(log.with_name("log.1"), (0, 0))
    assert tail.read() == ["new"]


@pytest.mark.parametrize(("rotate_wait", "found"), [("0s", ["new"]), ("1h", [])])
def test_a_renamed_file_whose_time_lies_ahead_is_left_when_it_has_not_changed(
    log: Path, rotate_wait: str, found: list[str]
) -> None:
    tail = Tail(log, rotate_wait=rotate_wait)
    write(log, "a")
    tail.read()
    os.utime(log, (4e9, 4e9))
    rename(log)
    write(log, "new")
    assert tail.read() == found


def test_the_last_line_of_a_rotated_file_needs_no_end(log: Path) -> None:
    tail = Tail(log)
    write(log, "a")
    write(log, "unended", end="")
    assert tail.read() == ["a"]
    rename(log)
    write(log, "b")
    assert tail.read() == ["unended", "b"]
    assert tail.again().read() == []


def test_while_the_new_file_is_not_there_yet_the_old_one_is_followed(log: Path) -> None:
    tail = Tail(log)
    write(log, "a")
    tail.read()
    rename(log)
    write(log.with_name("log.1"), "b")
    assert tail.read() == ["b"]
    write(log, "c")
    assert tail.read() == ["c"]


def test_lines_that_are_gone_are_an_error_and_the_spout_continues(log: Path) -> None:
    write(log, "a", "b")
    tail = Tail(log)
    tail.read()
    position = tail.positions[0]
    os.truncate(log, 0)
    write(log, "c")
    tail = tail.again(position)
    assert tail.read() == ["c"]
    (error,) = tail.errors
    assert "what followed them is lost" in str(error) and str(log) in str(error)


def test_when_the_file_of_the_position_is_gone_all_later_ones_are_read(log: Path) -> None:
    write(log, "a")
    tail = Tail(log)
    tail.read()
    keep = log.with_name("held")
    rename(log, "held")  # its inode must not be used again
    for number, line in ((2, "b"), (1, "c")):
        write(log.with_name(f"log.{number}"), line)
        os.utime(log.with_name(f"log.{number}"), (0, 1_700_000_000 - number))
    write(log, "d")
    tail = tail.again()
    assert tail.read() == ["b", "c", "d"] and len(tail.errors) == 1
    assert keep.exists()


def test_compressed_and_foreign_files_are_left_alone(log: Path) -> None:
    write(log, "a")
    tail = Tail(log)
    tail.read()
    for name in ("log.2.gz", "login", "other.log.1"):
        write(log.with_name(name), "not this")
    rename(log)
    write(log, "b")
    assert tail.read() == ["b"]


def test_a_pattern_names_the_rotated_files(log: Path) -> None:
    write(log, "a")
    tail = Tail(log, rotated="old_*")
    tail.read()
    write(log, "b")
    rename(log, "old_1")
    write(log, "c")
    assert tail.again().read() == ["b", "c"]


def test_signs_of_a_pattern_in_the_name_stand_for_themselves(tmp_path: Path) -> None:
    log = tmp_path / "a[1].log"
    write(log, "1")
    tail = Tail(log)
    assert tail.read() == ["1"]
    write(log, "2")
    rename(log, "a[1].log.1")
    write(log, "3")
    again = tail.again()
    assert again.read() == ["2", "3"] and again.errors == []


def test_bytes_that_are_no_text_stop_a_strict_tail_at_their_line(log: Path) -> None:
    log.write_bytes(b"a\n\xff\nb\n")
    tail = Tail(log, errors="strict")
    tail.spout.next_tuple()
    for _ in range(2):
        with pytest.raises(UnicodeDecodeError):
            tail.spout.next_tuple()
    assert Tail(log).read() == ["a", "�", "b"]


def test_what_cannot_be_is_refused(log: Path) -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        TailSpout(log, encoding="utf-16")
    with pytest.raises(ConfigError, match="max_line"):
        TailSpout(log, max_line=0)
    with pytest.raises(ConfigError, match="is a folder"):
        TailSpout(log.parent).open(context(0, 1), MessageCollector("t", declared_streams(("line",)), lambda error: None))


def test_the_lag_is_all_that_is_unread_also_in_rotated_files(log: Path) -> None:
    write(log, "one", "two", "three")
    tail = Tail(log, rotate_wait="1h")
    gauge = tail.context.metrics.gauge("lag_bytes")
    tail.spout.next_tuple()
    assert gauge.value == len("two\nthree\n")
    rename(log)
    write(log, "four")
    assert tail.read() == ["two", "three"]
    assert gauge.value == len("four\n")
