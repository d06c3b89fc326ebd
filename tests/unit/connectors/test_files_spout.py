from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import os
import re
import socket
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pyarrow
import pytest
from pyarrow import parquet

from tests.unit.connectors.files_harness import harness_of
from topo import FilesSpout
from topo.connectors.file_folders import folder_at
from topo.connectors.file_formats import read_lines
from topo.errors import ConfigError, NotFoundError
from topo.testing.partition_harness import PartitionHarness

ROWS = [{"n": n, "text": f'a "b",\n{n}'} for n in range(2500)]


def write_json(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def write_csv(path: Path) -> None:
    with path.open("w", newline="") as file:
        records = csv.DictWriter(file, ("n", "text"))
        records.writeheader()
        records.writerows(ROWS)


def write_parquet(path: Path) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=300)


KINDS = pytest.mark.parametrize(("format", "write"), [("json", write_json), ("csv", write_csv), ("parquet", write_parquet)])


@KINDS
@pytest.mark.parametrize("stop", [None, 1, 999, 1000, 2499])
def test_the_records_of_a_file_are_read_also_behind_any_of_them(
    tmp_path: Path, format: Any, write: Callable[[Path], None], stop: int | None
) -> None:
    write(tmp_path / "a.data")
    harness = harness_of(tmp_path, format=format, fields=("n", "text", "none?"))
    rows = harness.all_rows()
    if stop is not None:
        task = harness.tasks[0]
        kept = task.stored()["a.data"]._replace(position=rows[stop][1])
        task.rows.clear()
        task.restart({"a.data": kept})
        harness.turns(40)
        rows = [*rows[: stop + 1], *harness.all_rows()]
    assert [(int(values[0]), values[1], values[2]) for _, _, values in rows] == [(row["n"], row["text"], None) for row in ROWS]
    assert harness.errors == []


def test_moments_of_parquet_are_datetimes_also_in_nanoseconds_as_pandas_and_spark_write_them(tmp_path: Path) -> None:
    """Where pandas is installed, Arrow gives such values as pandas' own, which no tuple carries."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901)
    columns = {"at": pyarrow.array([moment, None], "timestamp[ns]"), "took": pyarrow.array([1000, None], "duration[ns]")}
    table = pyarrow.table(columns)
    parquet.write_table(table, tmp_path / "a.parquet")
    parquet.write_table(table, tmp_path / "b.parquet", use_deprecated_int96_timestamps=True)
    harness = harness_of(tmp_path, format="parquet", fields=("at", "took"))
    rows = [values for _, _, values in harness.all_rows()]
    assert rows == [(moment, timedelta(microseconds=1)), (None, None)] * 2 and type(rows[0][0]) is datetime


NEW_ARROW = pytest.mark.skipif(
    int(pyarrow.__version__.partition(".")[0]) < 24, reason="this pyarrow reads no null among lists of a fixed size"
)
NESTED = [
    ("timestamp[ns]", lambda value: value),
    (pyarrow.time64("ns"), lambda value: value),
    (pyarrow.list_(pyarrow.timestamp("ns", "UTC")), lambda value: [value]),
    pytest.param(pyarrow.list_(pyarrow.timestamp("ns"), 1), lambda value: [value], marks=NEW_ARROW),
    (pyarrow.large_list(pyarrow.duration("ns")), lambda value: [value]),
    (pyarrow.struct([("x", pyarrow.timestamp("ns"))]), lambda value: {"x": value}),
    (pyarrow.map_(pyarrow.string(), pyarrow.list_(pyarrow.timestamp("ns"))), lambda value: [("k", [value])]),
]


@pytest.mark.parametrize(("kind", "nested"), NESTED)
def test_nanoseconds_that_a_datetime_would_lose_are_an_error_with_their_column(tmp_path: Path, kind: Any, nested: Any) -> None:
    parquet.write_table(pyarrow.table({"at": pyarrow.array([nested(1)], kind)}), tmp_path / "a.parquet")
    harness = harness_of(tmp_path, format="parquet", fields=("at",))
    assert harness.read == {} and re.search("column 'at': .* would lose data: 1", str(harness.errors[0]))


@pytest.mark.parametrize(("kind", "nested"), NESTED)
def test_whole_microseconds_inside_of_lists_and_structs_are_read(tmp_path: Path, kind: Any, nested: Any) -> None:
    parquet.write_table(pyarrow.table({"at": pyarrow.array([nested(1000), None], kind)}), tmp_path / "a.parquet")
    harness = harness_of(tmp_path, format="parquet", fields=("at",))
    (found, none) = harness.read["a.parquet"]
    assert "1000" not in repr(found) and "Time" not in repr(found) and none is None


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_lines_of_compressed_files_and_of_subfolders_are_read(
    tmp_path: Path, suffix: str, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / f"a.log{suffix}").write_bytes(pack("é\nb\r\n\nlast".encode()))
    assert harness_of(tmp_path).read == {f"day/a.log{suffix}": ["é", "b", "", "last"]}


@pytest.mark.parametrize("line", [b"{", b"[1]", b'{"m": 1}'])
def test_a_line_that_cannot_be_decoded_is_given_up_with_its_bytes(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "a").write_bytes(b'{"n": 1}\n' + line + b'\n{"n": 2}\n')
    harness = harness_of(tmp_path, format="json", fields=("n",))
    assert harness.read == {"a": [1, 2]} and [record for _, _, record in harness.given_up] == [line + b"\n"]


@pytest.mark.parametrize(("format", "data"), [("json", b'{"n": 1}\n\n \r\n{"n": 2}\n\n'), ("csv", b"n\r\n1\r\n\r\n2\r\n\r\n")])
def test_blank_lines_of_json_and_csv_are_passed_over(tmp_path: Path, format: Any, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    harness = harness_of(tmp_path, format=format, fields=("n",))
    assert [int(value) for value in harness.read["a"]] == [1, 2] and harness.given_up == [] and harness.errors == []


@pytest.mark.parametrize(
    ("format", "text", "rows"),
    [
        ("lines", "é\nb\n", ["é", "b"]),
        ("lines", "", []),
        ("json", '{"n": 1}\n{"n": 2}\n', [1, 2]),
        ("csv", "n,m\r\n1,2\r\n", ["1"]),
        ("csv", '"n",m\r\n1,2\r\n', ["1"]),
    ],
)
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, format: Any, text: str, rows: list[Any]) -> None:
    (tmp_path / "a").write_text(text, "utf-8-sig")
    # With "?" the column would be taken for a missing one.
    harness = harness_of(tmp_path, format=format, fields=None if format == "lines" else ("n?",))
    assert harness.read.get("a", []) == rows and harness.given_up == [] and harness.errors == []


def test_places_behind_a_byte_order_mark_are_those_of_the_file() -> None:
    read = read_lines(lambda line: (line,), max_line=100, mark=codecs.BOM_UTF8)
    pieces = read(io.BytesIO(codecs.BOM_UTF8 + b"1\n2\n"), 0)
    assert [(piece.rows, piece.places) for piece in pieces if piece.rows] == [([(b"1",), (b"2",)], [5, 7])]


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("format", ["lines", "json", "csv"])
def test_an_empty_file_has_no_records_and_is_done(tmp_path: Path, format: Any, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / ("a" if pack is bytes else "a.gz")
    path.write_bytes(pack(b""))
    fields = None if format == "lines" else ("n",)
    harness = harness_of(tmp_path, format=format, fields=fields, on_done="delete", discovery_interval=None)
    assert harness.read == {} and harness.errors == [] and harness.has_ended and not path.exists()


def test_hidden_names_other_names_and_files_that_are_being_written_are_left_out(tmp_path: Path) -> None:
    for name in (".a.log", "_b.log", "c.txt", "d.log", ".tmp/e.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, pattern="*.log", settle="1h"))
    harness.turns()
    assert harness.read == {}
    os.utime(tmp_path / "d.log", (1, 1))
    harness.discover()
    assert harness.read == {"d.log": ["d.log"]}


def test_a_file_whose_time_lies_ahead_is_read_when_it_has_not_changed_for_the_time_of_settle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("1\n")
    os.utime(tmp_path / "a", (1000, 1000))
    clocks = SimpleNamespace(time_ns=lambda: 900 * 10**9, time=lambda: 900.0, monotonic=lambda: 70.0)
    monkeypatch.setattr("topo.connectors.file_folders.time", clocks)
    assert harness_of(tmp_path, discovery_interval=None).read == {"a": ["1"]}
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, settle="2s"))
    harness.turns()
    harness.discover()
    assert harness.read == {}
    clocks.monotonic = lambda: 72.0
    harness.discover()
    assert harness.read == {"a": ["1"]}


def test_a_clock_that_is_set_back_repeats_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("1\n")
    os.utime(tmp_path / "a", (1000, 1000))
    ticks = count(10, 10)
    clocks = SimpleNamespace(time_ns=lambda: 1100 * 10**9, time=lambda: 1100.0, monotonic=lambda: float(next(ticks)))
    monkeypatch.setattr("topo.connectors.file_folders.time", clocks)
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, settle="25s"))
    harness.turns()
    for now_s in (500, 500, 500, 500, 999, 1001, 1010, 1100):
        clocks.time_ns = lambda now_s=now_s: now_s * 10**9
        harness.discover()
    assert harness.read == {"a": ["1"]} and harness.errors == []


def test_a_name_that_is_not_utf_8_is_reported_and_does_not_hold_up_the_other_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    (tmp_path / os.fsdecode(b"\xe9")).write_text("2\n")
    harness = harness_of(tmp_path)
    assert harness.read == {"a": ["1"]} and "its name is not UTF-8" in str(harness.errors[0])


@pytest.mark.parametrize("follow", [False, True])
def test_pipes_and_sockets_are_left_out(tmp_path: Path, follow: bool) -> None:
    (tmp_path / "a").write_text("1\n")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        # First, since to read the pipe would wait for a writer.
        assert [file.name for file in folder_at(tmp_path, None, {}).find("*")] == ["a"]
        harness = harness_of(tmp_path, follow=follow)
    assert harness.read == {"a": ["1"]} and harness.errors == []


@pytest.mark.parametrize("follow", [False, True])
def test_links_that_lead_nowhere_are_left_out(tmp_path: Path, follow: bool) -> None:
    (tmp_path / "a").write_text("1\n")
    for name, target in (("loop", "loop"), ("gone", "missing"), ("below", "a/b")):
        (tmp_path / name).symlink_to(target)
    harness = harness_of(tmp_path, follow=follow)
    assert harness.read == {"a": ["1"]} and harness.errors == []


def test_a_file_that_was_written_again_is_reported_and_not_read_on(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    harness = harness_of(tmp_path)
    harness.stop()
    (tmp_path / "a").write_text("other\nlines\nthan before\n")
    harness.start(1)
    harness.turns()
    assert harness.read == {"a": ["1", "2"]} and "'a' was written again" in str(harness.errors[0])


def test_files_of_a_folder_that_goes_away_and_comes_back_are_not_read_again(tmp_path: Path) -> None:
    """As a mount that is lost for a while: the folder is missing, which does not say that its files were removed."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text("1\n2\n")
    harness = harness_of(folder)
    folder.rename(tmp_path / "away")
    for _ in range(4):
        harness.discover()
    assert "was there and is gone" in str(harness.errors[0])
    (tmp_path / "away").rename(folder)
    harness.discover()
    harness.discover()
    assert harness.read == {"a": ["1", "2"]}


def test_the_path_of_a_file_is_an_error_and_shows_how_to_read_it(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a file")
    assert "in' is a file; give its folder as the url, and its name as pattern=" in str(harness_of(tmp_path / "in").errors[0])


def test_a_folder_at_a_url_that_goes_away_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/away/a", b"1\n")
    harness = harness_of("memory://away")

    def is_gone(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("/away")

    monkeypatch.setattr(type(files), "find", is_gone)
    harness.discover()
    assert "was there and is gone" in str(harness.errors[0]) and harness.read == {"a": ["1"]}


def test_a_file_that_is_written_to_after_its_end_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    harness = harness_of(tmp_path)
    with (tmp_path / "a").open("a") as file:
        file.write("3\n")
    harness.discover()
    harness.discover()
    (error,) = harness.errors
    assert "'a' was written again after all of it" in str(error) and harness.read == {"a": ["1", "2"]}


def test_a_file_that_is_written_to_while_it_is_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("".join(f"{n}\n" for n in range(250)))
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, settle="0s"))
    harness.turns(3)
    assert len(harness.all_rows()) < 250
    os.utime(tmp_path / "a", (1, 1))
    harness.turns()
    assert "'a' was written again while it was read" in str(harness.errors[0])


@pytest.mark.parametrize(
    ("line", "record"), [(b"\xff\xfe,x\n", b"\xff\xfe,x"), (b"x" * 140_000 + b",x\n", "x" * 140_000 + ",x\n")]
)
def test_a_record_of_csv_that_cannot_be_read_is_given_up_alone(tmp_path: Path, line: bytes, record: str | bytes) -> None:
    """A byte that is no text, and a field above the limit of the csv module."""
    (tmp_path / "a").write_bytes("n,text\n1,é\n".encode() + line + b"2,b\n")
    harness = harness_of(tmp_path, format="csv", fields=("n",))
    assert harness.read == {"a": ["1", "2"]} and [given for _, _, given in harness.given_up] == [record]
    assert harness.errors == []


def test_a_limited_number_of_files_is_open(tmp_path: Path) -> None:
    """Each file has more lines than a turn takes, so all would be open at once."""
    for n in range(40):
        (tmp_path / f"{n:02}").write_text("".join(f"{line}\n" for line in range(120)))
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, settle="0s"))
    most = 0
    for _ in range(200):
        harness.turns(1)
        open_now = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
        most = max(most, sum(name.startswith(str(tmp_path)) for name in open_now))
    assert 1 < most <= 16
    assert {name: len(rows) for name, rows in harness.read.items()} == {f"{n:02}": 120 for n in range(40)}


def test_files_of_a_folder_are_read_by_its_url(tmp_path: Path) -> None:
    folder = tmp_path / "my files"
    folder.mkdir()
    (folder / "a").write_text("1\n")
    for follow in (False, True):
        assert harness_of(folder.as_uri(), follow=follow).read == {"a": ["1"]}


def test_hidden_folders_are_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("in", "_done", ".staged"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("1\n")
    listed, scandir = set[str](), os.scandir

    def noting(folder: Any) -> Any:
        if isinstance(folder, str):
            listed.add(Path(folder).name)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", noting)
    assert harness_of(tmp_path).read == {"in/a": ["1"]}
    assert listed & {"in", "_done", ".staged"} == {"in"}


def test_files_at_a_url_are_read(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/orders/a.json", b'{"n": 1}\n')
    files.pipe("/orders/sub/b.json", b'{"n": 2}\n')
    harness = harness_of("memory://orders", format="json", fields=("n",), on_done="delete")
    assert harness.read == {"a.json": [1], "sub/b.json": [2]}
    harness.tasks[0].commit()
    assert files.find("/orders") == []


def test_the_url_of_a_file_is_an_error_and_shows_how_to_read_it() -> None:
    fsspec.filesystem("memory").pipe("/alone/a.csv", b"1\n")
    assert "'/alone/a.csv' is a file; give its folder" in str(harness_of("memory://alone/a.csv").errors[0])


def test_the_input_ends_with_the_files_where_nothing_is_discovered_later(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    assert harness_of(tmp_path, discovery_interval=None).has_ended


def test_a_folder_that_does_not_exist_is_an_error_where_it_is_listed_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFoundError, match=r"FilesSpout: there is no folder '.*missing'"):
        harness_of(tmp_path / "missing", discovery_interval=None)
    assert not harness_of(tmp_path / "missing").errors  # it may come later
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFoundError, match=f"FilesSpout: there is no folder '{tmp_path}/data'"):
        harness_of(Path("data"), discovery_interval=None)


def test_a_pattern_in_place_of_a_folder_is_refused_unless_a_folder_has_that_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'.*\*\.csv' is a pattern; give the folder, and pattern='\*\.csv'"):
        FilesSpout(tmp_path / "*.csv")
    (tmp_path / "*.csv").mkdir()
    FilesSpout(tmp_path / "*.csv")


def test_files_that_are_too_new_for_the_only_listing_are_reported(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n")
    os.utime(tmp_path / "a", (1, 1))
    os.mkfifo(tmp_path / "pipe")
    harness = PartitionHarness(lambda: FilesSpout(tmp_path, settle="1h", discovery_interval=None))
    harness.turns()
    assert harness.read == {"a": ["a"]} and harness.has_ended
    assert [str(error).partition(";")[0] for error in harness.errors] == [
        "1 files are not read, since they were written to within the time of settle= and are looked for only once: 'b'"
    ]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"format": "xml"}, "must be 'lines', 'json', 'csv' or 'parquet'"),
        ({"format": "csv"}, "needs fields="),
        ({"fields": ("a",)}, "one field 'line'"),
        ({"pattern": "2026/*.log"}, "names, which have no folder"),
        ({"on_done": "move"}, "must be None, 'delete' or 'move:FOLDER'"),
        ({"max_file_age": "7d", "on_done": "delete"}, "max_file_age= is for files that stay"),
        ({"on_done": "move:"}, "would be read again"),
        ({"on_done": "move:/data"}, "would be read again"),
        ({"on_done": "move:/data/done"}, "whose name begins with '_'"),
        ({"on_done": "move:s3://bucket"}, "must be in the same store"),
        ({"encoding": "utf8-8"}, "encoding='utf8-8' is no text encoding that Python knows"),
        ({"encoding": "hex"}, "encoding='hex' is no text encoding"),
        ({"format": "csv", "fields": "cents"}, r"fields='cents' must be texts, such as \('cents',\)"),
        ({"format": "json", "fields": "cents"}, r"fields='cents' must be texts, such as \('cents',\)"),
        ({"on_bad_record": "dead"}, "on_bad_record='dead' must be 'dead_letter', 'fail' or 'drop'"),
        ({"rotated": "{name}.old"}, "give follow=True"),
        ({"encoding": "utf-16"}, "whose line ends are not one byte"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(settings: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        FilesSpout("/data", **settings)


def test_a_url_that_nothing_reads_is_refused() -> None:
    with pytest.raises(ConfigError, match="FilesSpout cannot use nothing://"):
        harness_of("nothing://bucket/folder")


def test_a_compressed_file_is_passed_over_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"".join(b"%03d\n" % n for n in range(1000))))
    harness = harness_of(tmp_path)
    (task,) = harness.tasks
    kept = task.stored()["a.gz"]._replace(position=harness.all_rows()[989][1])
    monkeypatch.setattr("topo.connectors.file_formats._SKIP", 400)
    task.rows.clear()
    task.restart({"a.gz": kept})
    harness.turns(5)
    assert harness.read == {}, "a turn passes over a part"
    harness.turns(20)
    assert harness.read == {"a.gz": [f"{n}" for n in range(990, 1000)]}
