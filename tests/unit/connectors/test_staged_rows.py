"""Rows that are staged until their checkpoint is complete are all there, or reported as lost."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.contract.copying_store import STORE
from tests.contract.killing import Report, run_child
from tests.full_disk import full_disk
from topo import TaskContext, TopologyConfig
from topo.connectors import staged_rows
from topo.connectors.staged_rows import StagedRows, staging_of
from topo.connectors.staging_places import place_at
from topo.errors import ConfigError, SinkBlockedError, StagedRowsLostError


def no_error(error: BaseException) -> None:
    raise error


def staging(
    place: object, index: int = 0, parallelism: int = 1, report: Callable[[BaseException], None] = no_error
) -> StagedRows:
    return StagedRows(TaskContext("shop", "sink", 1 + index, index, parallelism), str(place), "TestSink", report)


def add(rows: StagedRows, *numbers: int) -> None:
    for number in numbers:
        rows.add((number, b"%d" % number, None), 8)


def read(rows: StagedRows, name: str | None, count: int) -> list[int]:
    assert name is not None
    found = list(rows.rows(name, count))
    assert all(tuple(row) == (row[0], b"%d" % row[0], None) for row in found)
    return [row[0] for row in found]


@pytest.fixture(params=["in memory", "spilled"])
def spilling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "spilled":
        monkeypatch.setattr(staged_rows, "_SPILL_ROWS", 2)


@pytest.fixture(params=["{}", f"{STORE}://{{}}"], ids=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param.format(tmp_path / "out"))


@pytest.mark.usefixtures("spilling")
def test_rows_come_back_in_order_to_the_process_that_staged_them_and_to_another(place: str) -> None:
    rows = staging(place)
    add(rows, 1, 2, 3, 4, 5)
    first = rows.seal()
    add(rows, 6)
    second = rows.seal()
    assert rows.seal() is None
    for reader in (rows, staging(place)):
        assert (read(reader, first, 5), read(reader, second, 1)) == ([1, 2, 3, 4, 5], [6])


def test_rows_have_the_plain_values_of_subclasses_of_text_bytes_and_numbers(tmp_path: Path) -> None:
    given = [type("Name", (str,), {})("a"), type("Data", (bytes,), {})(b"b"), type("Number", (int,), {})(3), None]
    rows = staging(tmp_path)
    rows.add(given, 8)
    name = rows.seal()
    assert name is not None
    assert [(row, [type(value) for value in row]) for row in staging(tmp_path).rows(name, 1)] == [
        (("a", b"b", 3, None), [str, bytes, int, type(None)])
    ]


def test_rows_of_several_chunks_come_back_in_order(tmp_path: Path) -> None:
    numbers = [*range(2 * staged_rows._CHUNK_ROWS + 1)]
    rows = staging(tmp_path)
    add(rows, *numbers)
    assert read(staging(tmp_path), rows.seal(), len(numbers)) == numbers


def test_the_process_that_staged_rows_does_not_read_them(tmp_path: Path) -> None:
    rows = staging(tmp_path)
    add(rows, 1, 2)
    name = rows.seal()
    (tmp_path / ".staged" / str(name)).unlink()
    assert read(rows, name, 2) == [1, 2]
    with pytest.raises(StagedRowsLostError, match=r"2 rows were staged in shop\.sink-0-.* which is missing"):
        read(staging(tmp_path), name, 2)


def test_a_file_that_was_changed_is_lost_and_not_taken_for_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_rows, "_SPILL_ROWS", 2)
    rows = staging(tmp_path)
    add(rows, 1, 2, 3)
    name = rows.seal()
    file = tmp_path / ".staged" / str(name)
    whole = file.read_bytes()
    first = 8 + int.from_bytes(whole[:4], "little")
    for damage, fault in (
        (whole[:-1], "damaged behind its row 2"),
        (whole[: first + 3], "damaged behind its row 2"),
        (whole[:first], "has 2 rows"),
        (whole[:9] + b"x" + whole[10:], "damaged behind its row 0"),
    ):
        file.write_bytes(damage)
        with pytest.raises(StagedRowsLostError, match=fault):
            read(staging(tmp_path), name, 3)


def test_only_files_of_this_task_and_of_tasks_that_are_no_more_are_removed(place: str) -> None:
    files = {}
    for index in range(4):
        one = staging(place, index, 4)
        add(one, index)
        files[index] = str(one.seal())
    rows = staging(place, 1, 2)
    rows.clean(kept=[files[3]])
    assert {index for index, name in files.items() if rows.is_staged(name)} == {0, 2, 3}
    rows.remove(files[3])
    rows.remove(files[3])
    assert not rows.is_staged(files[3])


@pytest.mark.usefixtures("spilling")
def test_a_dropped_transaction_leaves_no_file(place: str) -> None:
    rows = staging(place)
    add(rows, 1, 2, 3)
    rows.discard()
    assert (rows.count, rows.seal(), rows._place.staged()) == (0, None, [])


def test_rows_wait_while_the_disk_is_full_and_are_all_staged_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_rows, "_SPILL_ROWS", 2)
    reported: list[BaseException] = []
    rows = staging(tmp_path / "staging", report=reported.append)
    add(rows, 1, 2)
    folder = tmp_path / "staging" / ".staged"
    folder.rename(tmp_path / "aside")
    add(rows, 3, 4, 5, 6, 7)
    with pytest.raises(FileNotFoundError, match="was there and is gone; put it back"):
        rows.seal()
    (tmp_path / "aside").rename(folder)
    add(rows, 8)
    assert read(staging(tmp_path / "staging"), rows.seal(), 8) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(reported) == 1 and "rows wait in memory" in str(reported[0])


def test_content_for_a_store_waits_while_the_local_disk_is_full(tmp_path: Path) -> None:
    """Beyond 8 MiB it waits there until the file is uploaded."""
    place = place_at(f"{STORE}://{tmp_path}/out", {}, "TestSink")
    place.make()
    file, part = place.create("a"), bytes(range(256)) * (5 << 12)
    file.append(part)
    with full_disk():
        for _ in range(2):
            with pytest.raises(OSError, match="File too large"):
                file.append(part)
    file.append(part)
    with full_disk(), pytest.raises(OSError, match="File too large"):
        file.append(part)
    file.seal()
    with place.open("a") as sealed:
        assert sealed.read() == 2 * part


@pytest.mark.parametrize("size", [1, 9 << 20])
def test_content_for_a_store_may_grow_after_an_upload_that_has_failed(tmp_path: Path, size: int) -> None:
    place = place_at(f"{STORE}://{tmp_path}/out", {}, "TestSink")
    file = place.create("a")
    file.append(bytes(size))
    with pytest.raises(FileNotFoundError):
        file.seal()
    place.make()
    file.append(b"last")
    file.seal()
    with place.open("a") as sealed:
        assert sealed.read() == bytes(size) + b"last"


def test_a_failed_sync_gives_the_rows_up_at_each_repetition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = staging(tmp_path)
    add(rows, 1)

    sync = os.fsync

    def fail(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(5, "planted")
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with pytest.raises(SinkBlockedError, match="planted"):
            rows.seal()
    with pytest.raises(SinkBlockedError, match="planted"):
        rows.seal()


def test_killed_before_any_step_a_transaction_is_whole_or_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staged_rows, "_SPILL_ROWS", 2)

    def work(report: Report) -> None:
        rows = staging(folder)
        add(rows, 1, 2, 3, 4, 5)
        report(rows.seal())

    step, is_done, whole = 0, False, 0
    while not is_done:
        folder = tmp_path / str(step)
        is_done, reports = run_child(work, step)
        later = staging(folder)
        for name in reports:
            assert read(later, name, 5) == [1, 2, 3, 4, 5]
            whole += 1
        later.clean(kept=reports)
        assert later._place.staged() == reports
        step += 1
    assert step > 8 and whole == 1


def test_rows_are_staged_beside_the_checkpoints_unless_a_place_is_given(tmp_path: Path) -> None:
    def place(**settings: Any) -> object:
        folder = settings.pop("folder", None)
        config = replace(TopologyConfig(), **settings)
        return staging_of(TaskContext("shop", "sink", 1, config=config, folder=folder), settings.pop("given", None), "TestSink")

    assert place(folder=tmp_path) == tmp_path
    assert place(folder=tmp_path, checkpoint_folder="s3://bucket/checkpoints") == "s3://bucket/checkpoints"
    assert place(folder=tmp_path, checkpoint_folder="~/checkpoints") == str(Path.home() / "checkpoints")
    assert staging_of(TaskContext("shop", "sink", 1, folder=tmp_path), "/mnt/rows", "TestSink") == "/mnt/rows"
    with pytest.raises(ConfigError, match=r"TestSink stages rows .* give a folder or URL .* staging="):
        place()
