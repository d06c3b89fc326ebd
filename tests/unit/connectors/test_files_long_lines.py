"""Lines of FilesSpout that are longer than `max_line`, or just as long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.connectors.files_harness import harness_of


@pytest.mark.parametrize("block", [4, 1 << 16])
@pytest.mark.parametrize("stop", [None, 0, 1])
def test_a_line_that_is_too_long_is_given_up_and_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, stop: int | None
) -> None:
    monkeypatch.setattr("topo.connectors.file_formats.BLOCK", block)
    long = bytes(range(97, 122))
    (tmp_path / "a").write_bytes(b"1\n" + long + b"\n2\n\n3" + b"x" * 11)
    harness = harness_of(tmp_path, max_line=10)
    assert harness.read == {"a": ["1", "2", ""]}
    pieces = [record for _, _, record in harness.given_up]
    assert b"".join(pieces) == long + b"\n3" + b"x" * 11
    if stop is not None:
        task = harness.tasks[0]
        kept = task.stored()["a"]._replace(position=harness.given_up[stop][1])
        task.given_up.clear()
        task.rows.clear()
        task.restart({"a": kept})
        harness.turns(40)
        rest = (long + b"\n3" + b"x" * 11)[len(b"".join(pieces[: stop + 1])) :]
        assert b"".join(record for _, _, record in harness.given_up) == rest
        assert harness.read == ({"a": ["2", ""]} if rest else {})


def test_a_line_of_csv_that_is_too_long_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"n,text\n1,a\n2," + b"x" * 50 + b",y\n3,c\n")
    harness = harness_of(tmp_path, format="csv", fields=("n",), max_line=10)
    assert harness.read == {"a": ["1", "3"]} and [record for _, _, record in harness.given_up] == ["2," + "x" * 10]


@pytest.mark.parametrize("block", [4, 1 << 16])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_of_exactly_the_most_bytes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, end: str) -> None:
    monkeypatch.setattr("topo.connectors.file_formats.BLOCK", block)
    lines = ["12345", "123456", "1234567", "1", "1234567890", "12345"]
    (tmp_path / "a.txt").write_bytes(end.join(lines).encode())
    (tmp_path / "b.csv").write_bytes(end.join(["n", *lines]).encode())
    read = ["12345", "1", "12345"]
    assert harness_of(tmp_path, pattern="*.txt", max_line=5).read == {"a.txt": read}
    assert harness_of(tmp_path, pattern="*.csv", format="csv", fields=("n",), max_line=5).read == {"b.csv": read}
