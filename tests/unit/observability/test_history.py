"""The past of a topology: tiers, blocks on disk, and both joined."""

from __future__ import annotations

import json
import math
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from topo.errors import FrameError, UserError
from topo.observability.history import MOST_DROPPED, TIERS, History, PastPoints, block_of, columns_of, joined, reach_back
from topo.operate.past import history, with_stored

START_S = 1_700_000_000 // 300 * 300
KEY = ("component/count", "out")
PEAK = ("component/count", "capacity")


def overview(out: float, capacity: float = 0.5, **changes: Any) -> dict[str, Any]:
    row = {
        "component": "count", "kind": "bolt", "in_per_s": out, "out_per_s": out, "acked_per_s": out, "failed_per_s": 0.0,
        "capacity": capacity, "busy": 0.5, "backpressured": 0.1, "in_front": 3, "levels": {}, "event_time": None,
        "execute_s": None, "histogram": None,
    }  # fmt: skip
    return {
        "status": "RUNNING",
        "epoch": 1,
        "reason": "",
        "totals": {"emitted_per_s": out, "acked_per_s": out, "pending": 0},
        "components": [row],
        "edges": [],
        "workers": [],
        "checkpoints": None,
        **changes,
    }


def recorded(seconds: int, first: int = 0) -> History:
    """Return the history of so and so much time: in second n there are n tuples a second, and a capacity of n % 10."""
    history = History()
    for second in range(first, first + seconds):
        history.record(1000 * (START_S + second), overview(float(second), float(second % 10)))
    return history


def test_points_of_the_last_quarter_of_an_hour_are_a_second_apart() -> None:
    (columns,) = recorded(3000).since(START_S + 2990, 1)
    assert (columns.first_s, columns.step_s, columns.length) == (START_S + 2990, 1, 9)
    assert list(columns.series[KEY]) == [float(second) for second in range(2990, 2999)]


def test_coarser_points_are_means_of_finer_ones_but_for_peaks() -> None:
    columns = recorded(100).since(START_S, 10)[-1]
    assert columns.step_s == 10
    assert list(columns.series[KEY]) == [4.5 + 10 * tens for tens in range(9)]
    assert list(columns.series[PEAK]) == [9.0] * 9


def test_each_tier_keeps_what_it_promises_and_is_bounded() -> None:
    history = recorded(8000)
    for tier, (_, kept) in zip(history._tiers, TIERS, strict=True):
        assert all(len(column) <= kept * 1.25 + 1 for column in tier._series.values())
    assert history.since(START_S + 8000 - 900, 1)[-1].length == 899
    assert history.since(START_S, 10)[-1].length == 799


def test_a_question_that_reaches_back_behind_the_fine_points_gets_coarse_ones_before_them() -> None:
    parts = recorded(8000).since(START_S, 1)
    assert [part.step_s for part in parts] == [10, 1]
    whole = joined(parts, START_S, START_S + 7999, 1)
    values = list(whole.series[KEY])
    assert not any(map(math.isnan, values))
    assert values[:2] == [4.5, 4.5] and values[-2:] == [7997.0, 7998.0]


@pytest.mark.parametrize(("seconds", "step_s"), [(5, 60), (5, 300), (100, 300), (100, 20_160)])
def test_a_young_history_is_shown_at_a_long_distance(seconds: int, step_s: int) -> None:
    since_s = START_S - 60 * step_s
    shown = joined(recorded(seconds).since(since_s, step_s), since_s, START_S + seconds, step_s)
    known = [value for value in shown.series[KEY] if not math.isnan(value)]
    assert known and known[-1] <= seconds


def test_a_pause_of_the_master_shows_as_missing_points() -> None:
    history = recorded(10)
    for second in range(15, 20):
        history.record(1000 * (START_S + second), overview(1.0))
    shown = list(history.since(START_S, 1)[-1].series[KEY])
    assert [math.isnan(value) for value in shown] == [False] * 10 + [True] * 5 + [False] * 4


def test_a_clock_that_is_set_back_spoils_no_point() -> None:
    history = recorded(100)
    history.record(1000 * START_S, overview(1e9))
    history.record(1000 * (START_S + 101), overview(0.0))
    assert max(history.since(START_S, 1)[-1].series[KEY]) == 99.0


def test_a_clock_that_is_set_back_for_long_begins_the_history_anew() -> None:
    history = recorded(100, first=7200)
    history.take_block(START_S + 7300)
    for second in range(200):
        history.record(1000 * (START_S + second), overview(float(second)))
    assert list(history.since(START_S, 1)[-1].series[KEY]) == [float(second) for second in range(MOST_DROPPED, 199)]
    block = history.take_block(START_S + 200)
    assert block is not None and (block["first_s"], block["length"]) == (START_S + MOST_DROPPED, 13)


def test_a_block_is_a_minute_as_json_and_the_last_one_holds_the_rest() -> None:
    history, rows = History(), []
    for second in range(200):
        history.record(1000 * (START_S + second), overview(float(second)))
        if (row := history.take_block(START_S + second)) is not None:
            rows.append(json.loads(json.dumps(row)))
    assert [row["length"] for row in rows] == [6, 6, 6]
    last = history.take_block(START_S + 199, is_last=True)
    assert last is not None
    whole = joined([columns_of(row) for row in [*rows, last]], START_S, START_S + 200, 10)
    assert list(whole.series[KEY]) == [4.5 + 10 * tens for tens in range(20)]
    assert whole.marks == [(1000 * START_S, "RUNNING, epoch 1")]


def test_changes_of_state_are_marked() -> None:
    history = recorded(3)
    history.record(1000 * (START_S + 3), overview(1.0, status="DEGRADED", reason="worker 1 is being replaced"))
    history.record(1000 * (START_S + 4), overview(1.0, epoch=2))
    texts = [text for _, text in history.since(START_S, 1)[-1].marks]
    assert texts == ["RUNNING, epoch 1", "DEGRADED, epoch 1: worker 1 is being replaced", "RUNNING, epoch 2"]


def checkpoints(last: int, duration_s: float, failed: int = 0) -> dict[str, Any]:
    return {"last": {"checkpoint": last, "duration_s": duration_s} if last else None, "failed": failed}


def test_a_point_has_the_time_of_the_slowest_checkpoint_that_is_new_in_it() -> None:
    history = History()
    for second, (last, took) in enumerate([(0, 0.0), (1, 0.5), (1, 0.5), (2, 4.0), (3, 0.25), *[(3, 0.25)] * 10]):
        history.record(1000 * (START_S + second), overview(1.0, checkpoints=checkpoints(last, took)))
    fine, coarse = (history.since(START_S, step)[-1].series["checkpoints", "took"] for step in (1, 10))
    assert [None if math.isnan(value) else value for value in fine[:6]] == [None, 0.5, None, 4.0, 0.25, None]
    assert list(coarse) == [4.0]


def marks_of(*changes: dict[str, Any]) -> list[str]:
    history = History()
    for second, change in enumerate(changes):
        history.record(1000 * (START_S + second), overview(1.0, **change))
    return [text for _, text in history.since(START_S, 1)[-1].marks][1:]


def test_checkpoints_that_fail_in_a_row_are_marked_at_their_beginning_and_end() -> None:
    once = [
        {"checkpoints": checkpoints(1, 0.1)},
        {"checkpoints": checkpoints(1, 0.1, 1), "reason": "checkpoint 2 failed: the disk is full"},
    ]
    again = [{"checkpoints": checkpoints(1, 0.1, failed)} for failed in range(2, 42)]
    assert marks_of(*once, {"checkpoints": checkpoints(3, 0.1, 1)}) == ["checkpoint 2 failed: the disk is full"]
    assert marks_of(*once, *again, *[{"checkpoints": checkpoints(43, 0.1, 41)}] * 2) == [
        "checkpoint 2 failed: the disk is full",
        "checkpoint 43 is complete, after 41 that failed",
    ]
    # A second in which one fails and another is complete ends no row.
    both = [{"checkpoints": checkpoints(at, 0.1, min(at, 2))} for at in (0, 1, 2, 3)]
    assert marks_of(*both) == ["a checkpoint failed", "checkpoint 3 is complete, after 2 that failed"]


def test_a_worker_that_is_lost_is_marked_also_when_it_is_back_within_the_second() -> None:
    def lost(*losses: int) -> dict[str, Any]:
        row = {"lost_why": "killed by SIGKILL", "cpu": 0.1, "rss_bytes": 1}
        return {"workers": [{"worker": worker, "losses": count, **row} for worker, count in enumerate(losses, 1)]}

    degraded = {"status": "DEGRADED", "reason": "worker 1 (count) is being replaced: killed by SIGKILL"}
    one, two = (f"worker {worker} was lost: killed by SIGKILL" for worker in (1, 2))
    assert marks_of(lost(0), lost(1), lost(1)) == [one]
    # The reason names a worker, and no other of those lost in the same second.
    assert marks_of(lost(0, 0), lost(1, 1) | degraded) == [two, f"DEGRADED, epoch 1: {degraded['reason']}"]
    # A replacement that is lost at its start changes neither status nor epoch.
    assert marks_of(lost(1), lost(2) | degraded, lost(3) | degraded)[-1] == one


def measured(*counts: dict[str, int]) -> History:
    """Return the history of a component whose buckets have had these counts from second to second, since its start."""
    history = History()
    for second, buckets in enumerate(counts):
        shown = overview(1.0)
        shown["components"][0]["histogram"] = {"buckets": buckets}
        history.record(1000 * (START_S + second), shown)
    return history


def test_messages_by_latency_are_those_since_the_overview_before_in_doublings() -> None:
    """Buckets 121 to 124 are those up to 2 s, 125 is one of those up to 4 s."""
    seconds = [{"121": 5}, {"121": 6, "124": 3}, *[{"121": 6, "124": 5, "125": 1}] * 9]
    columns = measured(*seconds).since(START_S, 10)[-1]
    assert {name: list(column) for (subject, name), column in columns.series.items() if subject == "latency/count"} == {
        "2^1": [11.0],
        "2^2": [1.0],
    }


def test_a_longer_point_has_the_sum_of_the_messages_also_of_those_on_disk() -> None:
    past, lines = History(), []
    for second in range(602):
        shown = overview(1.0)
        # 5 messages a second, and in a single second another, which takes longer.
        shown["components"][0]["histogram"] = {"buckets": {"121": 5 * second, **({"125": 1} if second > 123 else {})}}
        past.record(1000 * (START_S + second), shown)
        if (row := past.take_block(START_S + second)) is not None:
            lines.append(columns_of(json.loads(json.dumps(row))))
    kept, stored = past.since(START_S, 300)[-1], joined(lines, START_S, START_S + 600, 300)
    for columns in (kept, stored):
        assert list(columns.series["latency/count", "2^1"])[:2] == [1495.0, 1500.0][: columns.length]
        assert columns.series["latency/count", "2^2"][0] == 1.0


@pytest.mark.parametrize("step_s", [10, 30])
def test_messages_that_a_master_has_written_and_still_knows_count_once(tmp_path: Path, step_s: int) -> None:
    past = History()
    with (tmp_path / "history.jsonl").open("w") as file:
        for second in range(280):
            shown = overview(1.0)
            shown["components"][0]["histogram"] = {"buckets": {"121": 5 * second}}
            past.record(1000 * (START_S + second), shown)
            if (row := past.take_block(START_S + second)) is not None:
                file.write(json.dumps(row) + "\n")
    folder: Any = SimpleNamespace(older_history=tmp_path / "none", history=tmp_path / "history.jsonl")
    parts = with_stored(folder, past.since(START_S - 600, step_s), START_S - 600)
    values = joined(parts, START_S - 600, START_S + 270, step_s).series["latency/count", "2^1"]
    known = [value for value in values if not math.isnan(value)]
    assert known == [5.0 * step_s - 5, *[5.0 * step_s] * (270 // step_s - 1)]


def test_messages_of_a_long_point_are_shared_out_to_the_moments_in_it() -> None:
    coarse = PastPoints(START_S, 300, 1, {("latency/count", "2^1"): array("f", [90.0]), KEY: array("f", [90.0])})
    shown = joined([coarse], START_S, START_S + 300, 100).series
    assert (list(shown["latency/count", "2^1"]), list(shown[KEY])) == ([30.0] * 3, [90.0] * 3)


def test_points_before_the_first_of_a_master_come_from_the_disk(tmp_path: Path) -> None:
    before, now = recorded(100), recorded(50, first=200)
    (tmp_path / "history.jsonl").write_text(json.dumps(before.take_block(START_S + 100, is_last=True)) + "\n")
    folder: Any = SimpleNamespace(older_history=tmp_path / "none", history=tmp_path / "history.jsonl")
    shown = joined(with_stored(folder, now.since(START_S, 10), START_S), START_S, START_S + 250, 10)
    assert [math.isnan(value) for value in shown.series[KEY]] == [False] * 10 + [True] * 10 + [False] * 4 + [True]
    assert with_stored(folder, now.since(START_S + 210, 10), START_S + 210)[0].first_s == START_S + 210


def test_the_finest_points_have_no_messages_by_latency() -> None:
    (columns,) = measured(*[{"121": second} for second in range(30)]).since(START_S, 1)
    assert "latency/count" not in {subject for subject, _ in columns.series}


def test_a_component_that_is_counted_anew_has_no_negative_messages() -> None:
    counts = [*[{"121": 10 * second} for second in range(5)], *[{"121": second} for second in range(7)]]
    assert list(measured(*counts).since(START_S, 10)[-1].series["latency/count", "2^1"]) == [44.0]


@settings(max_examples=40, deadline=None)
@given(some.integers(1, 400), some.integers(1, 60), some.integers(0, 300))
def test_joined_points_have_the_mean_of_the_seconds_in_them(seconds: int, step: int, since: int) -> None:
    columns = joined(recorded(seconds + 1).since(START_S, 1)[-1:], START_S + since, START_S + seconds, step)
    for place, value in enumerate(columns.series.get(KEY, ())):
        first = columns.first_s + place * step - START_S
        inside = [float(second) for second in range(first, first + step) if 0 <= second < seconds]
        assert value == pytest.approx(sum(inside) / len(inside)) if inside else math.isnan(value)


def test_points_of_the_master_take_the_place_of_the_same_ones_on_disk() -> None:
    disk, live = recorded(100).since(START_S, 10)[-1], recorded(60, first=50).since(START_S, 1)[-1]
    shown = joined([disk, live], START_S, START_S + 109, 10)
    assert list(shown.series[KEY])[:9] == [4.5 + 10 * tens for tens in range(9)]
    assert len(shown.series[KEY]) == 11


def test_lines_on_disk_together_make_the_points_of_a_longer_distance() -> None:
    past, lines = History(), []
    for second in range(602):
        past.record(1000 * (START_S + second), overview(float(second // 60), 9.0 if second < 10 else 0.0))
        if (row := past.take_block(START_S + second)) is not None:
            lines.append(columns_of(row))
    shown = joined(lines, START_S, START_S + 600, 300)
    assert list(shown.series[KEY]) == [2.0, 7.0] and list(shown.series[PEAK]) == [9.0, 0.0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda row: row.pop("series"),
        lambda row: row.update(series="AAAA"),
        lambda row: row.update(length=row["length"] + 1),
        lambda row: row.update(step_s=0),
        lambda row: row.update(marks=[1]),
    ],
)
def test_a_damaged_block_is_refused_as_such(damage: Any) -> None:
    row = block_of(recorded(30).since(START_S, 1)[-1])
    damage(row)
    with pytest.raises(FrameError, match="a block of history"):
        columns_of(row)


def test_too_many_points_are_refused() -> None:
    with pytest.raises(UserError, match="1,000,000 points of 1 s are too many"):
        joined([PastPoints(0, 1, 0, {})], 0, 1_000_000, 1)


def test_a_row_that_is_none_ends_no_history(tmp_path: Path) -> None:
    good = History()
    for second in range(30):
        good.record(1000 * (START_S + second), overview(2.0))
    block = good.take_block(START_S + 30, is_last=True)
    rows = [{"first_s": "x"}, {"first_s": [], "step_s": {}}, block]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder: Any = SimpleNamespace(older_history=tmp_path / "none", history=tmp_path / "history.jsonl", is_running=lambda: False)
    found = history(folder, START_S, 10, until_s=START_S + 30)
    assert list(found.series[KEY]) == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("since_s", [0, 10, 15, 605, 900, 1200])
def test_points_reach_back_to_a_moment_unless_an_older_one_may_be_on_disk(since_s: int) -> None:
    history = recorded(1200, first=600)
    for step_s in (1, 10, 300):
        assert reach_back(history.since(START_S + since_s, step_s), START_S + since_s) == (since_s > 600)
    assert not reach_back(History().since(START_S + since_s, 1), START_S + since_s)
    assert not reach_back([], START_S + since_s)


@pytest.mark.parametrize("since_s", [300, 610, 690, 750, 899])
def test_a_new_master_does_not_hide_what_the_last_one_stored_shortly_before(since_s: int) -> None:
    history = recorded(1200, first=700)
    for step_s in (1, 10, 300):
        moment = START_S + since_s
        parts = history.since(moment, step_s)
        assert reach_back(parts, moment) == (since_s >= 700 and step_s < 300)
        assert all(part.first_s >= START_S + 700 for part in parts if part.length)


def test_some_subjects_are_returned_alone(tmp_path: Path) -> None:
    past = History()
    for second in range(30):
        past.record(1000 * (START_S + second), overview(2.0))
    (tmp_path / "history.jsonl").write_text(json.dumps(past.take_block(START_S + 30, is_last=True)) + "\n")
    folder: Any = SimpleNamespace(older_history=tmp_path / "none", history=tmp_path / "history.jsonl", is_running=lambda: False)
    found = history(folder, START_S, 10, until_s=START_S + 30, subjects=["total", "none"])
    assert {subject for subject, _ in found.series} == {"total"} and found.length == 3
    found = history(folder, START_S, 10, until_s=START_S + 30, series=["out", "none"])
    assert set(found.series) == {KEY}
