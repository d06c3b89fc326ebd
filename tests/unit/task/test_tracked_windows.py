"""Window bolts with ackers: firings and their verdicts, lateness, replays, epochs, event time."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.solo import RowIds, Solo
from tests.unit.task.operators import SESSION, TEN, between, decide, put, sums, time
from topo.api.watermarks import WatermarkStrategy
from topo.api.windows import CountWindows, SlidingEventTimeWindows, TumblingProcessingTimeWindows
from topo.ids import REPLAYED_BIT
from topo.wire.frames import MIN_WATERMARK, FrameKind

SLIDING = SlidingEventTimeWindows.of("20ms", "10ms")
WITH_GAPS = SlidingEventTimeWindows.of("5ms", "10ms")


def edges(ids: RowIds) -> dict[int, int]:
    return dict(ids.pairs)


# -- firings


@pytest.mark.parametrize("window", [TEN, SESSION])
def test_inputs_are_acked_when_the_result_of_their_window_is_acked(window: Any) -> None:
    solo = between(sums(window=window))
    ids = put(solo, [("k", 1), ("k", 2)], [0, 1])
    time(solo, 8)
    assert solo.rows() == [] and solo.times() == [8] and solo.owed(ids.pairs) == edges(ids)
    time(solo, 100)
    ((key, start, end, total),) = solo.rows()
    assert (key, start, total) == ("k", 0, 3)
    (frame,), (init,) = solo.frames(FrameKind.DATA), solo.frames(FrameKind.INIT)
    assert frame.timestamp_list() == [end - 1]
    assert frame.root_list() == init.root_list() and frame.edge_list() == init.edge_list()
    assert solo.kinds(FrameKind.DATA, FrameKind.WATERMARK, to=solo.task.outbound.consumers[0]) == [
        "WATERMARK",
        "DATA",
        "WATERMARK",
    ]
    assert solo.owed(ids.pairs) == edges(ids), "its result is on its way"
    decide(solo, FrameKind.ACKED)
    assert solo.owed(ids.pairs) == {}


@pytest.mark.parametrize(("verdict", "sent"), [(FrameKind.FAILED, FrameKind.FAIL), (FrameKind.TOUCHED, FrameKind.RESET)])
def test_other_verdicts_on_a_result_reach_all_inputs_of_its_window(verdict: FrameKind, sent: FrameKind) -> None:
    solo = between(sums())
    ids = put(solo, [("k", 1), ("k", 2), ("other", 5)], [1, 2, 30])
    time(solo, 10)
    decide(solo, verdict)
    assert solo.roots(sent) == ids.roots[:2]


def test_a_result_without_a_verdict_for_message_timeout_has_failed() -> None:
    solo = between(sums())
    ids = put(solo, [("k", 1)], [1])
    time(solo, 10)
    assert solo.task.runner.pending == 1
    solo.confirm_all()
    solo.wait(29.0)
    assert solo.roots(FrameKind.FAIL) == []
    solo.wait(2.0)
    assert solo.roots(FrameKind.FAIL) == ids.roots and solo.task.runner.pending == 0


def test_after_an_hour_of_standstill_verdicts_count_before_timeouts() -> None:
    solo = between(sums())
    ids = put(solo, [("k", 1)], [1])
    time(solo, 10)
    solo.clock.now += 3600.0
    decide(solo, FrameKind.ACKED)
    assert solo.owed(ids.pairs) == {} and solo.roots(FrameKind.FAIL) == []


def test_an_input_of_several_windows_is_acked_with_the_last_one() -> None:
    solo = between(sums(window=SLIDING))
    ids = put(solo, [("k", 1)], [15])
    time(solo, 19)
    decide(solo, FrameKind.ACKED)
    assert solo.rows() == [("k", 0, 20, 1)] and solo.owed(ids.pairs)
    time(solo, 29)
    decide(solo, FrameKind.ACKED, solo.roots(FrameKind.INIT)[1:])
    assert solo.rows()[1:] == [("k", 10, 30, 1)] and solo.owed(ids.pairs) == {}


def test_within_the_lateness_a_window_holds_its_inputs_until_its_clean_up() -> None:
    solo = between(sums(allowed_lateness="20ms"))
    first = put(solo, [("k", 1)], [5])
    time(solo, 10)
    second = put(solo, [("k", 2)], [6])
    assert [row[3] for row in solo.rows()] == [1, 3]
    decide(solo, FrameKind.ACKED)
    assert solo.owed(first.pairs) and solo.owed(second.pairs)
    time(solo, 29)
    assert solo.owed(first.pairs) == {} == solo.owed(second.pairs)


def test_inputs_that_a_global_window_holds_at_the_end_are_acked_without_a_result() -> None:
    solo = between(sums(window=CountWindows.of(2)))
    ids = put(solo, [("k", 1)], [None])
    time(solo, FrameKind.END)
    assert solo.owed(ids.pairs) == {} and solo.rows() == []
    replay = put(solo, [("j", 1)], [None])
    assert solo.owed(replay.pairs) == {}, "a replay after the end is not held for ever"


def test_the_end_follows_the_firings_and_the_bolt_is_quiet_when_these_are_done() -> None:
    solo = between(sums())
    put(solo, [("k", 1)], [5])
    time(solo, FrameKind.END)
    assert solo.kinds(FrameKind.DATA, FrameKind.END, to=solo.task.outbound.consumers[0]) == ["DATA", "END"]
    solo.confirm_all()
    assert not solo.task.is_quiet
    decide(solo, FrameKind.ACKED)
    solo.confirm_all()
    assert solo.task.is_quiet


# -- lateness


@pytest.mark.parametrize("late_stream", ["late", None])
def test_a_late_tuple_is_counted_and_goes_to_the_late_stream_or_is_dropped(late_stream: str | None) -> None:
    solo = between(sums(late_stream=late_stream))
    time(solo, 50)
    ids = put(solo, [("k", 1)], [5])
    assert (solo.task.counters.late, solo.task.counters.late_dropped) == (1, 0 if late_stream else 1)
    assert solo.rows() == ([("k", 1)] if late_stream else []) and solo.undecided(ids.pairs) == []
    assert solo.roots(FrameKind.DATA) == (ids.roots if late_stream else [])
    assert [time for frame in solo.frames(FrameKind.DATA) for time in frame.timestamp_list()] == ([5] if late_stream else [])


@pytest.mark.parametrize("is_replay", [False, True])
def test_a_tuple_in_a_gap_between_windows_is_acked(is_replay: bool) -> None:
    solo = between(sums(window=WITH_GAPS))
    ids = (replay if is_replay else put)(solo, [("k", 1)], [7])
    assert solo.owed(ids.pairs) == {} and solo.task.counters.late == 0 and solo.roots(FrameKind.FAIL) == []


def replay(solo: Solo, rows: list[tuple[Any, ...]], stamps: list[int]) -> RowIds:
    """Deliver rows of messages that have failed before."""
    ids = solo.fresh(len(rows))
    ids.roots = [root | REPLAYED_BIT for root in ids.roots]
    return put(solo, rows, stamps, ids=ids)


@pytest.mark.parametrize("window", [TEN, SESSION])
def test_a_replay_that_is_too_late_for_its_window_fails(window: Any) -> None:
    solo = between(sums(window=window))
    time(solo, 50)
    ids = replay(solo, [("k", 1), ("k", 2), ("k", 3)], [5, 60, 6])
    assert solo.roots(FrameKind.FAIL) == [ids.roots[0], ids.roots[2]]
    assert (solo.task.counters.late, solo.task.counters.late_dropped, solo.task.counters.failed) == (2, 2, 2)
    assert solo.errors() == ["LateReplayError: component 'b': the replay of a failed message came too late for its window"]
    time(solo, 70)
    assert [row[3] for row in solo.rows()] == [2]


def test_all_messages_of_a_tuple_fail_when_its_replay_is_too_late() -> None:
    solo = between(sums())
    time(solo, 50)
    put(solo, [("k", 1)], [5], ids=RowIds([(7, 8 | REPLAYED_BIT)], [(70, 80)]))
    assert solo.roots(FrameKind.FAIL) == [7, 8 | REPLAYED_BIT]


def test_a_replay_that_is_too_late_for_one_of_two_windows_fails() -> None:
    solo = between(sums(window=SLIDING))
    time(solo, 19)
    ids = replay(solo, [("k", 1)], [15])
    assert solo.roots(FrameKind.FAIL) == ids.roots
    time(solo, 29)
    assert solo.rows() == [("k", 10, 30, 1)]


def test_a_replay_that_is_too_late_goes_to_the_late_stream_as_any_other_tuple() -> None:
    solo = between(sums(late_stream="late"))
    time(solo, 50)
    ids = replay(solo, [("k", 1)], [5])
    assert solo.rows() == [("k", 1)] and solo.roots(FrameKind.FAIL) == [] and list(solo.owed(ids.pairs)) == ids.roots


@pytest.mark.parametrize("window", [TEN, SESSION])
def test_the_result_of_a_window_is_a_replay_when_one_of_its_inputs_is(window: Any) -> None:
    solo = between(sums(window=window))
    put(solo, [("k", 1), ("other", 1)], [1, 1])
    replay(solo, [("k", 2)], [4])
    time(solo, 100)
    assert {row[0]: row[3] for row in solo.rows()} == {"k": 3, "other": 1}
    assert sum(bool(root & REPLAYED_BIT) for root in solo.roots(FrameKind.INIT)) == 1


# -- epochs


def test_a_new_epoch_drops_the_windows_since_all_their_inputs_are_replayed() -> None:
    solo = between(sums(late_stream="late"))
    put(solo, [("k", 1)], [5])
    time(solo, 50)
    solo.begin_epoch(2)
    ids = put(solo, [("k", 1)], [5])
    time(solo, 9)
    assert solo.rows() == [("k", 0, 10, 1)], "neither late nor counted twice"
    decide(solo, FrameKind.ACKED)
    assert solo.owed(ids.pairs) == {}


def test_timers_of_an_earlier_epoch_do_nothing() -> None:
    solo = between(sums(window=TumblingProcessingTimeWindows.of("1s")))
    put(solo, [("k", 1)], [None])
    solo.clock.now += 1.5
    solo.begin_epoch(2)
    solo.wait(3.0)
    assert solo.rows() == []


# -- event time


def test_levels_show_the_watermark_its_lag_and_the_input_that_holds_it_back() -> None:
    solo = between(sums(), sources=2)
    assert "watermark_ms" not in solo.task.statistics().levels
    first, second = solo.sources()
    time(solo, 1_699_999_990_000)
    levels = solo.task.statistics().levels
    assert levels["held_back_by"] == second and "watermark_lag_s" not in levels
    time(solo, 1_699_999_980_000, source=1)
    put(solo, [("k", 1), ("j", 2)], [1_699_999_995_000] * 2)
    levels = solo.task.statistics().levels
    assert (levels["watermark_ms"], levels["watermark_lag_s"], levels["held_back_by"]) == (1_699_999_980_000, 20.0, second)
    assert (levels["open_windows"], levels["timers"], levels["state_entries"]) == (2.0, 1.0, 2.0)
    time(solo, FrameKind.END, source=1)
    assert solo.task.statistics().levels["held_back_by"] == first


def test_statistics_have_the_least_watermark_of_the_tasks_that_a_component_sends_with() -> None:
    solo = between(sums(), sources=2)
    statistics = solo.task.statistics()
    assert statistics.watermarks == {} and "watermarks" not in statistics.as_dict(), "nothing is sent without event time"
    time(solo, 20)
    assert solo.task.statistics().watermarks == {"a": MIN_WATERMARK}
    time(solo, 10, source=1)
    assert solo.task.statistics().as_dict()["watermarks"] == {"a": 10}
    time(solo, FrameKind.IDLE, source=1)
    assert solo.task.statistics().watermarks == {"a": 20}
    time(solo, FrameKind.END)
    assert solo.task.statistics().watermarks == {}


def test_an_idle_input_holds_no_watermark_back_and_returns_without_a_regress() -> None:
    solo = between(sums(), sources=2)
    put(solo, [("k", 1)], [5])
    time(solo, 20)
    assert solo.rows() == []
    time(solo, FrameKind.IDLE, source=1)
    assert solo.rows() == [("k", 0, 10, 1)]
    time(solo, FrameKind.ACTIVE, source=1)
    time(solo, 15, source=1)
    time(solo, 30)
    time(solo, 40, source=1)
    assert solo.times() == [20, 30]


BY_START = WatermarkStrategy.bounded_out_of_orderness("0s", timestamp="window_start")


def test_a_window_bolt_with_a_strategy_does_not_forward_watermarks() -> None:
    solo = between(sums(), watermarks=BY_START)
    put(solo, [("k", 1)], [25])
    time(solo, 40)
    solo.wait(0.3)
    assert solo.times() == [19]


def test_no_event_time_follows_the_end() -> None:
    solo = between(sums(), watermarks=BY_START.with_idleness("200ms"))
    put(solo, [("k", 1)], [25])
    time(solo, FrameKind.END)
    solo.wait(2.0)
    assert solo.times() == ["END"]
