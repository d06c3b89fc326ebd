"""What goes to the hosts: code, modules, logs back."""

from __future__ import annotations

import json
import os
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from topo.errors import UserError
from topo.launch.spark.log_shipping import LogStore, LogTails
from topo.launch.spark.shipping import importable_file, zip_code, zip_topo
from topo.user_code.copy import copy_code, parse_reference


def names_in(path: Path | None) -> set[str]:
    assert path is not None
    with zipfile.ZipFile(path) as archive:
        return set(archive.namelist())


def test_copied_code_is_packed_under_the_names_that_specs_use(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "package").mkdir()
    for name in ("__init__.py", "flow.py", "table.txt"):
        (tmp_path / "package" / name).write_text("1")
    copy = copy_code(parse_reference(str(tmp_path / "package" / "flow.py")), tmp_path / "code")
    folder = Path(copy.reference.rpartition(":")[0]).parents[1].name
    packed = names_in(zip_code(copy.reference, tmp_path / "code", tmp_path))
    assert packed == {f"{folder}/{name}" for name in ("package/__init__.py", "package/flow.py", "package/table.txt", ".origin")}


def test_files_without_a_date_are_packed(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "flow.py").write_text("1")
    os.utime(code / "flow.py", (0, 0))
    assert names_in(zip_code(f"{code}/flow.py", code, tmp_path)) == {"flow.py"}


def test_installed_code_is_not_packed(tmp_path: Path) -> None:
    assert zip_code("package.module:topology", tmp_path, tmp_path) is None


def test_topo_is_packed_as_it_is_imported(tmp_path: Path) -> None:
    packed = names_in(zip_topo(tmp_path))
    assert {"topo/__init__.py", "topo/worker/process.py", "topo/launch/spark/agent.py"} <= packed


def test_a_wheel_is_shipped_as_an_archive_that_python_imports_from(tmp_path: Path) -> None:
    wheel = tmp_path / "made-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("made.py", "")
    assert importable_file(wheel, tmp_path).name == "made-1.0-py3-none-any.zip"


def test_compiled_modules_cannot_be_shipped_in_an_archive(tmp_path: Path) -> None:
    wheel = tmp_path / "made-1.0-cp311-linux.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("made.so", "")
    with pytest.raises(UserError, match=r"holds compiled modules \(made.so\)"):
        importable_file(wheel, tmp_path)


def test_a_file_that_is_not_there_or_is_nothing_to_import_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file"):
        importable_file(tmp_path / "no.py", tmp_path)
    (tmp_path / "data.csv").write_text("")
    with pytest.raises(UserError, match="cannot be imported from; give files that end in"):
        importable_file(tmp_path / "data.csv", tmp_path)


def test_logs_are_read_as_they_grow_by_whole_lines_through_a_rotation(tmp_path: Path) -> None:
    tails, log = LogTails(tmp_path), tmp_path / "worker-1.log"
    (tmp_path / "other.log").write_text("not a worker's\n")
    assert list(tails.read()) == []
    log.write_text("one\ntw")
    assert list(tails.read()) == [("worker-1.log", b"one\n")]
    with log.open("a") as file:
        file.write("o\n")
    assert list(tails.read()) == [("worker-1.log", b"two\n")]
    with log.open("a") as file:
        file.write("three\n")
    log.rename(tmp_path / "worker-1.log.1")
    log.write_text("four\n")
    assert list(tails.read()) == [("worker-1.log", b"three\n")]
    assert list(tails.read()) == [("worker-1.log", b"four\n")]
    assert list(tails.read()) == []


def test_the_last_line_of_a_worker_that_has_ended_is_sent_without_its_end(tmp_path: Path) -> None:
    """Such as the message of a C library that aborts the process."""
    tails, output = LogTails(tmp_path), tmp_path / "worker-1.out"
    output.write_text("one\nterminate called")
    assert list(tails.read({1})) == [("worker-1.out", b"one\n")]
    assert list(tails.read({2})) == [("worker-1.out", b"terminate called\n")]
    with output.open("a") as file:
        file.write("the next life\n")
    assert list(tails.read({1})) == [("worker-1.out", b"the next life\n")]
    assert list(tails.read(())) == []


def test_a_log_that_outruns_the_link_is_cut_and_says_so(tmp_path: Path) -> None:
    tails = LogTails(tmp_path)
    (tmp_path / "worker-1.log").write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 100_000)
    ((_, data),) = tails.read()
    row = json.loads(data.splitlines()[0])
    assert row["level"] == "WARNING" and row["worker"] == 1 and "bytes were left out" in row["message"]
    assert data.splitlines()[1] == b"y" * 99


def test_the_store_of_logs_is_bounded_and_takes_no_other_names(tmp_path: Path) -> None:
    store = LogStore(tmp_path, max_bytes=10, kept=2)
    for number in range(6):
        store.append("worker-1.log", f"{number}23456\n".encode())
    store.append("../outside.log", b"x")
    store.append("worker-1.log.1", b"x")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "worker-1.log": "523456\n",
        "worker-1.log.1": "423456\n",
        "worker-1.log.2": "323456\n",
    }


def test_what_was_rotated_more_than_once_between_two_looks_is_sent(tmp_path: Path) -> None:
    """The driver may be out of reach for a while, and nothing is read meanwhile."""
    names = ["worker-1.log", "worker-1.log.1", "worker-1.log.2", "worker-1.log.3"]
    tails, log = LogTails(tmp_path), tmp_path / names[0]
    sent = b""

    def rotate(text: str) -> None:
        for newer, older in reversed(list(pairwise(names))):
            if (tmp_path / newer).exists():
                (tmp_path / newer).rename(tmp_path / older)
        log.write_text(text)

    def look() -> bytes:
        return b"".join(data for _, data in tails.read())

    log.write_text("a\n")
    sent += look()
    with log.open("a") as file:
        file.write("b\n")
    rotate("c\n")
    rotate("d\n")
    for _ in range(4):
        sent += look()
    assert sent == b"a\nb\nc\nd\n"

    # Too often: the files that are left are sent, behind a line that states so.
    for text in "efghi":
        rotate(f"{text}\n")
    warning, *rest = b"".join(look() for _ in range(5)).splitlines()
    assert "files were left out" in json.loads(warning)["message"]
    assert rest == [b"f", b"g", b"h", b"i"]
