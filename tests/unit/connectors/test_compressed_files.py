"""Compressed files: of several streams, cut off, damaged, and such as nothing unpacks."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.connectors.files_harness import harness_of
from topo import FilesSpout, TailSpout, TextFileSpout
from topo.connectors.compressed_files import unpacked_file
from topo.errors import ConfigError

Pack = Callable[[bytes], bytes]
EACH = pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
TEXT = b"".join(b"%d\n" % number for number in range(200))


@EACH
@pytest.mark.parametrize("between", [b"", bytes(4), bytes(200_000)])
def test_all_streams_of_a_file_are_read(tmp_path: Path, suffix: str, pack: Pack, between: bytes) -> None:
    (tmp_path / f"a{suffix}").write_bytes(pack(b"1\n2") + between + pack(b"3\n") + between)
    assert harness_of(tmp_path).read == {f"a{suffix}": ["1", "23"]}


@EACH
def test_a_file_in_upper_case_is_unpacked(tmp_path: Path, suffix: str, pack: Pack) -> None:
    (tmp_path / f"A{suffix.upper()}").write_bytes(pack(b"1\n"))
    assert harness_of(tmp_path).read == {f"A{suffix.upper()}": ["1"]}


@EACH
@pytest.mark.parametrize(
    "harm",
    [
        lambda packed, further: packed + further[:3],
        lambda packed, further: packed + further[:-1],
        lambda packed, further: packed + b"??" + further[2:],
        lambda packed, further: packed + b"garbage",
    ],
)
def test_a_damaged_stream_behind_a_whole_one_is_reported(tmp_path: Path, suffix: str, pack: Pack, harm: Any) -> None:
    (tmp_path / f"a{suffix}").write_bytes(harm(pack(b"1\n"), pack(TEXT)))
    harness = harness_of(tmp_path)
    assert [str(error).startswith(f"file 'a{suffix}' of {tmp_path} cannot be read: ") for error in harness.errors] == [True]
    assert not harness.tasks[0].has_ended


@EACH
def test_no_more_than_is_asked_for_is_unpacked(suffix: str, pack: Pack) -> None:
    bomb = pack(bytes(50 << 20))
    tracemalloc.start()
    try:
        file = unpacked_file(io.BytesIO(bomb), f"a{suffix}")
        assert len(file.read(1 << 16)) == 1 << 16 and tracemalloc.get_traced_memory()[1] < 16 << 20
        assert sum(map(len, iter(lambda: file.read(1 << 20), b""))) == (50 << 20) - (1 << 16)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.zst", "a.json.ZST", "a.lz4", "a.zip", "a.tgz"])
@pytest.mark.parametrize("format", ["lines", "json"])
def test_a_file_that_nothing_unpacks_is_reported_and_the_others_are_read(tmp_path: Path, name: str, format: Any) -> None:
    (tmp_path / name).write_bytes(b"(\xb5/\xfd\n1\n")
    (tmp_path / "b").write_bytes(b"1\n")
    harness = harness_of(tmp_path, format=format)
    assert [str(error) for error in harness.errors] == [
        f"file {name!r} is compressed, and is not unpacked: of compressed files those that end with .gz, .bz2 and .xz are read"
    ]
    assert [row for _, _, (row,) in harness.all_rows()] == [1 if format == "json" else "1"] and harness.given_up == []


@pytest.mark.parametrize("name", ["a.gz", "a.XZ", "a.zst", "a.zip"])
@pytest.mark.parametrize(
    "make",
    [
        TextFileSpout,
        TailSpout,
        lambda name: TextFileSpout("folder", pattern=f"*{name}"),
        lambda name: FilesSpout("folder", pattern=f"*{name}", follow=True),
    ],
)
def test_a_spout_of_plain_text_refuses_names_of_compressed_files(make: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=r"reads text as it is, and .* is compressed: FilesSpout\(folder, pattern=...\)"):
        make(name)


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "a.zip").mkdir()
    TextFileSpout(tmp_path / "a.zip")
