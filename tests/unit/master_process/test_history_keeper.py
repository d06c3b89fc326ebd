"""History on disk: a line a minute, bounded, and never a reason to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.observability.test_history import KEY, START_S, overview
from topo.master_process.history_keeper import HistoryKeeper
from topo.observability.history import columns_of
from topo.storage.state_folder import read_json_lines


def kept(path: Path, seconds: int, max_bytes: int = 1 << 20) -> HistoryKeeper:
    moment = [float(START_S)]
    keeper = HistoryKeeper(path, lambda: overview(7.0), lambda: moment[0], max_bytes)
    for second in range(seconds):
        moment[0] = START_S + second
        keeper.tick(second)
        keeper.tick(second + 0.5)
    return keeper


def test_a_line_is_written_each_minute_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    keeper = kept(path, 130)
    assert [row["length"] for row in read_json_lines(path)] == [6, 6]
    keeper.close()
    rows = read_json_lines(path)
    assert sum(row["length"] for row in rows) == 13
    assert set(columns_of(rows[0]).series[KEY]) == {7.0}


def test_the_file_is_rotated_at_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    kept(path, 3600, max_bytes=4000)
    older = path.with_name("history.jsonl.1")
    assert 0 < path.stat().st_size < 5000 and 4000 <= older.stat().st_size < 5000
    assert sorted(tmp_path.iterdir()) == [path, older]


def test_a_line_that_cannot_be_written_is_dropped_with_a_warning_and_the_points_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = kept(tmp_path / "gone" / "history.jsonl", 300)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["a minute of history is not kept"]
    assert columns_of(keeper.answer()[-1]).length == 299


def test_an_answer_has_the_components_and_series_that_were_asked_for(tmp_path: Path) -> None:
    keeper = kept(tmp_path / "history.jsonl", 50)
    assert set(columns_of(keeper.answer(components=["count"], series=["out", "busy"])[0]).series) == {
        ("component/count", "out"),
        ("component/count", "busy"),
    }
    assert {subject for subject, _ in columns_of(keeper.answer(subjects=["total", "latency/count"])[0]).series} == {"total"}
    (late,) = [columns_of(block) for block in keeper.answer(since_ms=1000 * (START_S + 40), step_s=1)]
    assert (late.first_s, late.length) == (START_S + 40, 9)
