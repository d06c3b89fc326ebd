"""Sinks that cannot write for a while: no tuple is given up for it."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.full_disk import full_disk
from topo import IterableSpout, JsonLinesSink, SqliteSink, Topology, TopologyBuilder, TwoPhaseSink
from topo.master.outcome import OutcomeKind
from topo.testing import ADVANCE, END, TopologyTest


@contextmanager
def locked_database(folder: Path) -> Iterator[None]:
    """For as long as the block lasts, somebody else writes to the database."""
    with closing(sqlite3.connect(folder / "out", isolation_level=None)) as other:
        other.execute("begin immediate")
        yield


def lines(folder: Path) -> list[int]:
    return [json.loads(line)["n"] for line in (folder / "out").read_text().splitlines()]


def rows(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / "out")) as connection:
        return [n for (n,) in connection.execute("select n from numbers order by rowid")]


@dataclass(frozen=True)
class Case:
    sink: Callable[[Path], TwoPhaseSink]
    refusal: Callable[[Path], AbstractContextManager[None]]
    found: Callable[[Path], list[int]]


CASES = {
    "a full disk": Case(lambda folder: JsonLinesSink(folder / "out"), lambda _folder: full_disk(), lines),
    "a locked database": Case(lambda folder: SqliteSink(folder / "out", "numbers", ["n"]), locked_database, rows),
}


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr("topo.connectors.json_lines_sink._SPILL_LINES", 5)
    monkeypatch.setattr("topo.connectors.staged_table.SPILL_ROWS", 5)
    monkeypatch.setattr("topo.connectors.sqlite_table._LOCK_TIMEOUT_S", 0.0)
    found: Case = request.param
    return found


def written(case: Case, folder: Path) -> TopologyTest:
    """A topology that writes a hundred numbers, ten in each second."""

    def build() -> Topology:
        builder = TopologyBuilder("numbers").config(delivery="exactly_once")
        builder.set_spout("source", IterableSpout((), fields=("n",)))
        builder.set_bolt("sink", case.sink(folder)).global_grouping("source")
        return builder.build()

    script: list[Any] = []
    for n in range(100):
        script += [n, ADVANCE("1s")] if n % 10 == 9 else [n]
    return TopologyTest(build, sources={"source": [*script, END]}, checkpoint_interval="3s")


def check_all_is_there(test: TopologyTest, case: Case, folder: Path) -> None:
    test.run()
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DONE
    assert test.dead_letters() == []
    assert case.found(folder) == list(range(100))


@pytest.mark.parametrize("seconds", [1, 6], ids=["between checkpoints", "over checkpoints"])
def test_rows_that_cannot_be_written_wait_and_it_is_reported_once(case: Case, tmp_path: Path, seconds: int) -> None:
    test = written(case, tmp_path)
    test.advance("500ms")
    with case.refusal(tmp_path):
        test.advance(f"{seconds}s")
    check_all_is_there(test, case, tmp_path)
    reported = [error for error in test.errors() if error.kind == "TopoEnvironmentError"]
    assert [error.count for error in reported] == [1]
    assert "rows wait in memory, and it is tried again" in reported[0].message


def test_with_too_many_rows_in_memory_all_goes_back_to_the_last_checkpoint(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.connectors.spilling._MOST_ROWS", 20)
    test = written(case, tmp_path)
    test.advance("500ms")
    with case.refusal(tmp_path):
        test.advance("5s")
    check_all_is_there(test, case, tmp_path)
    assert "SinkBlockedError" in [error.kind for error in test.errors()]


def test_after_a_failed_sync_all_goes_back_to_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second sync would not report the loss of the first one."""
    left, sync = [OSError(errno.EIO, "Input/output error")], os.fsync

    def fail_once(file: int) -> None:
        if left and "staged" in os.readlink(f"/proc/self/fd/{file}"):
            raise left.pop()
        sync(file)

    monkeypatch.setattr("topo.connectors.json_lines_sink.os.fsync", fail_once)
    case = CASES["a full disk"]
    test = written(case, tmp_path)
    check_all_is_there(test, case, tmp_path)
    assert "SinkBlockedError" in [error.kind for error in test.errors()] and left == []
