from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connectors.drive import Emitted, drain, opened
from topo import ConfigError, NotFoundError, TextFileSpout
from topo.errors import TopoEnvironmentError


def emitted_by_all(path: Path, tasks: int, **options: object) -> Emitted:
    found: Emitted = []
    for index in range(tasks):
        spout = TextFileSpout(path, **options)  # type: ignore[arg-type]
        found += drain(spout, opened(spout, index=index, parallelism=tasks))
    return found


def lines(emitted: Emitted) -> list[str]:
    return [values[0] for values, _ in emitted]


def test_lines_come_without_their_ends_and_with_the_offset_after_them(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("one\n\nthrée\r\nlast".encode())
    spout = TextFileSpout(path)
    assert drain(spout, opened(spout)) == [
        (("one",), (0, 4)),
        (("",), (0, 5)),
        (("thrée",), (0, 13)),
        (("last",), (0, 17)),
    ]


@pytest.mark.parametrize(("text", "offsets"), [("a\nb\n", [5, 7]), ("a", [4]), ("", [])])
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path, text: str, offsets: list[int]) -> None:
    (tmp_path / "text").write_text(text, "utf-8-sig")
    spout = TextFileSpout(tmp_path / "text")
    assert drain(spout, opened(spout)) == [((line,), (0, at)) for line, at in zip(text.split(), offsets, strict=True)]


def test_an_empty_file_has_no_line(tmp_path: Path) -> None:
    (tmp_path / "text").touch()
    assert emitted_by_all(tmp_path / "text", 2) == []


def test_a_folder_is_read_in_the_order_of_names_with_its_subfolders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.txt", "skip.log"):
        (tmp_path / name).write_text(f"{name}\n")
    assert lines(emitted_by_all(tmp_path, 1, pattern="*.txt")) == ["a.txt", "b.txt", "sub/c.txt"]


def test_subfolders_can_be_left_out(tmp_path: Path) -> None:
    for folder in ("kept", "left/deep", "kept/left"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "text").write_text(f"{folder}\n")
    assert lines(emitted_by_all(tmp_path, 1, exclude=("left",))) == ["kept"]


def test_everything_can_be_emitted_several_times_under_positions_that_rise(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\nb\n")
    emitted = emitted_by_all(tmp_path / "text", 1, repeat=3)
    assert lines(emitted) == ["a", "b"] * 3
    positions = [position for _, position in emitted]
    assert positions == sorted(set(positions))


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"caf\xe9\n")
    assert lines(emitted_by_all(tmp_path / "text", 1)) == ["caf�"]
    assert lines(emitted_by_all(tmp_path / "text", 1, encoding="latin-1")) == ["café"]


def test_strict_text_stops_at_the_bad_line_and_does_not_pass_it_over(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"good\nb\xffd\nafter\n")
    spout = TextFileSpout(tmp_path / "text", errors="strict")
    collector = opened(spout)
    spout.next_tuple()
    for _ in range(2):
        with pytest.raises(UnicodeDecodeError):
            spout.next_tuple()
    assert collector.streams[0].rows == [("good",)]
    assert not collector.ended


def test_a_huge_line_comes_in_pieces_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("x" * 25 + "\n" + "short\n" + "y" * 20 + "\n")
    assert lines(emitted_by_all(tmp_path / "text", 1, max_line="10B")) == [
        "x" * 10,
        "x" * 10,
        "x" * 5,
        "short",
        "y" * 10,
        "y" * 10,
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_pieces_of_a_huge_line_do_not_cut_characters(tmp_path: Path, encoding: str) -> None:
    text = "aé漢🎈" * 9
    (tmp_path / "text").write_text(text + "\nshort\n", encoding)
    found = lines(emitted_by_all(tmp_path / "text", 1, max_line=10, encoding=encoding, errors="strict"))
    assert "".join(found[:-1]) == text and found[-1] == "short"
    assert all(len(piece.encode(encoding)) <= 10 for piece in found)


TEXTS = st.lists(st.text("abé", max_size=12), max_size=20).map("\n".join)


@given(text=TEXTS, tasks=st.integers(1, 6), limit=st.integers(2, 20))
def test_tasks_share_a_file_so_that_each_line_comes_once(
    tmp_path_factory: pytest.TempPathFactory, text: str, tasks: int, limit: int
) -> None:
    path = tmp_path_factory.mktemp("share") / "text"
    path.write_text(text)
    alone = emitted_by_all(path, 1, max_line=limit)
    assert "".join(lines(alone)) == text.replace("\n", "")
    assert sorted(emitted_by_all(path, tasks, max_line=limit)) == sorted(alone)


@given(text=TEXTS, tasks=st.integers(1, 3), limit=st.integers(2, 20), repeat=st.integers(1, 2))
def test_it_continues_exactly_after_any_committed_position(
    tmp_path_factory: pytest.TempPathFactory, text: str, tasks: int, limit: int, repeat: int
) -> None:
    folder = tmp_path_factory.mktemp("resume")
    (folder / "1").write_text(text)
    (folder / "2").write_text(text[::-1])
    for index in range(tasks):
        whole = TextFileSpout(folder, max_line=limit, repeat=repeat)
        emitted = drain(whole, opened(whole, index=index, parallelism=tasks))
        for done in range(len(emitted)):
            spout = TextFileSpout(folder, max_line=limit, repeat=repeat)
            rest = drain(spout, opened(spout, index=index, parallelism=tasks, committed=emitted[done][1]))
            assert rest == emitted[done + 1 :]


def test_the_end_of_the_last_file_is_a_position_behind_which_nothing_comes(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a\n")
    spout = TextFileSpout(tmp_path / "text")
    assert drain(spout, opened(spout, committed=(0, 2))) == []


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_position_that_the_files_no_longer_have_is_refused(tmp_path: Path, tasks: int) -> None:
    (tmp_path / "text").write_text("a\n")
    with pytest.raises(TopoEnvironmentError, match=r"no longer has position \(0, 3\): .*text has 2 bytes"):
        opened(TextFileSpout(tmp_path / "text"), parallelism=tasks, committed=(0, 3))
    with pytest.raises(TopoEnvironmentError, match=r"no longer has position \(5, 0\): it is 1 file, read 2 times"):
        opened(TextFileSpout(tmp_path / "text", repeat=2), parallelism=tasks, committed=(5, 0))


def test_what_cannot_be_read_is_said_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match=f"no file or folder '{tmp_path}/data/in.txt'"):
        opened(TextFileSpout("data/in.txt"))
    with pytest.raises(NotFoundError, match=r"no file or folder .*missing"):
        opened(TextFileSpout(tmp_path / "missing"))
    with pytest.raises(
        NotFoundError, match=r"no file or folder .*; for several files give their folder, and pattern='\*\.log'\.$"
    ):
        opened(TextFileSpout(tmp_path / "*.log"))
    with pytest.raises(NotFoundError, match=r"no file that matches '\*.txt'"):
        opened(TextFileSpout(tmp_path, pattern="*.txt"))


def test_a_subfolder_that_cannot_be_listed_is_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("a\n")
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def scan(folder: Any) -> Any:
        if str(folder).endswith("closed"):
            # Root, who runs tests in containers, may list it whatever its permissions.
            raise PermissionError(errno.EACCES, "Permission denied", folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", scan)
    with pytest.raises(TopoEnvironmentError, match=r"closed' cannot be listed: Permission denied; .* exclude="):
        opened(TextFileSpout(tmp_path))
    assert lines(emitted_by_all(tmp_path, 1, exclude=("closed",))) == ["a"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"encoding": "utf-16"}, "have the file written in UTF-8"),
        ({"encoding": "utf8-8"}, "unknown encoding: utf8-8; give encoding="),
        ({"encoding": "hex"}, "not a text encoding"),
        ({"errors": "replce"}, "unknown error handler name 'replce'"),
        ({"exclude": "old"}, r"such as \('old',\)"),
        ({"repeat": 0}, "at least 1"),
        ({"max_line": 0}, "at least one byte"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        TextFileSpout("text", **options)  # type: ignore[arg-type]
