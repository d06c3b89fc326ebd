"""Windows and assigners: which windows an element belongs to, and which windows merge."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from topo.api.triggers import EndOfStreamTrigger, EventTimeTrigger, NeverTrigger, ProcessingTimeTrigger
from topo.api.windows import (
    AssignerLike,
    EventTimeSessionWindows,
    GlobalWindow,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
    WindowStagger,
)
from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.windows.assigners import build_assigner, merge_time_windows, window_start


def at(now_ms: int) -> Callable[[], int]:
    return lambda: now_ms


def assign(declared: AssignerLike, timestamp: int, now_ms: int = 0, value: Any = "x") -> list[tuple[int, int]]:
    return [tuple(window) for window in build_assigner(declared).assign(value, timestamp, at(now_ms))]


def test_the_last_millisecond_of_a_window_is_the_one_before_its_end() -> None:
    assert TimeWindow(0, 10).max_timestamp == 9
    assert GlobalWindow().max_timestamp == MAX_TIMESTAMP


def test_there_is_one_global_window() -> None:
    assert GlobalWindow() == GlobalWindow()
    assert len({GlobalWindow(), GlobalWindow()}) == 1


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [((0, 5), (4, 9), True), ((0, 5), (5, 9), True), ((5, 9), (0, 5), True), ((0, 5), (6, 9), False), ((0, 9), (3, 4), True)],
)
def test_windows_that_overlap_or_only_touch_intersect(first: tuple[int, int], second: tuple[int, int], expected: bool) -> None:
    assert TimeWindow(*first).intersects(TimeWindow(*second)) is expected


@pytest.mark.parametrize(
    ("timestamp", "offset", "size", "start"),
    [
        (1, 0, 7, 0),
        (6, 0, 7, 0),
        (7, 0, 7, 7),
        (-1, 0, 7, -7),
        (-7, 0, 7, -7),
        (-8, 0, 7, -14),
        (2, 3, 7, -4),
        (3, 3, 7, 3),
        (4, -2, 7, -2),
        (5, -2, 7, 5),
        (-3, -2, 7, -9),
    ],
)
def test_a_window_starts_at_the_offset_modulo_its_size_on_both_sides_of_the_epoch(
    timestamp: int, offset: int, size: int, start: int
) -> None:
    assert window_start(timestamp, offset, size) == start


def test_window_starts_equal_those_of_a_truncating_remainder_that_is_corrected() -> None:
    for timestamp in range(-50, 50):
        for offset in range(-6, 7):
            remainder = abs(timestamp - offset) % 7 * (1 if timestamp >= offset else -1)
            expected = timestamp - remainder if remainder >= 0 else timestamp - (remainder + 7)
            assert window_start(timestamp, offset, 7) == expected


def test_tumbling_gives_each_element_one_window() -> None:
    windows = TumblingEventTimeWindows.of("5s")
    assert assign(windows, 0) == [(0, 5000)]
    assert assign(windows, 4999) == [(0, 5000)]
    assert assign(windows, 5000) == [(5000, 10000)]


def test_an_offset_shifts_windows_both_ways() -> None:
    assert assign(TumblingEventTimeWindows.of("5s", offset="100ms"), 0) == [(-4900, 100)]
    assert assign(TumblingEventTimeWindows.of("5s", offset="-100ms"), 4900) == [(4900, 9900)]
    assert assign(TumblingEventTimeWindows.of("5s", offset=timedelta(milliseconds=-100)), 4899) == [(-100, 4900)]


@pytest.mark.parametrize("offset", ["5s", "-5s", "6s"])
def test_tumbling_needs_an_offset_below_its_size(offset: str) -> None:
    with pytest.raises(UserError, match=r"\|offset\| < size"):
        TumblingEventTimeWindows.of("5s", offset=offset)


def test_a_natural_stagger_is_taken_once_from_the_clock_of_the_first_element() -> None:
    assigner = build_assigner(TumblingEventTimeWindows.of("5s", stagger=WindowStagger.NATURAL))
    assert assigner.assign("x", 5150, at(5150)) == (TimeWindow(5150, 10150),)
    assert assigner.assign("x", 5149, at(7777)) == (TimeWindow(150, 5150),)


def test_a_random_stagger_is_drawn_once_from_zero_to_the_size() -> None:
    asked: list[int] = []

    def draw(n: int) -> int:
        asked.append(n)
        return 42

    assigner = build_assigner(TumblingProcessingTimeWindows.of("5s", stagger="random"), draw)
    assert assigner.assign("x", MIN_TIMESTAMP, at(100)) == (TimeWindow(42, 5042),)
    assert assigner.assign("x", MIN_TIMESTAMP, at(41)) == (TimeWindow(-4958, 42),)
    assert asked == [5000]


def test_a_random_stagger_without_a_source_of_chance_is_refused() -> None:
    with pytest.raises(UserError, match="draw"):
        build_assigner(TumblingEventTimeWindows.of("5s", stagger="random"))


def test_offset_and_stagger_add_up_modulo_the_size() -> None:
    assigner = build_assigner(TumblingEventTimeWindows.of("5s", offset="4s", stagger="random"), lambda n: 2000)
    assert assigner.assign("x", 0, at(0)) == (TimeWindow(-4000, 1000),)


def test_sliding_gives_all_windows_that_hold_the_element_the_latest_first() -> None:
    windows = SlidingEventTimeWindows.of("5s", "1s")
    assert assign(windows, 4999) == [(4000, 9000), (3000, 8000), (2000, 7000), (1000, 6000), (0, 5000)]
    assert assign(windows, 5000) == [(5000, 10000), (4000, 9000), (3000, 8000), (2000, 7000), (1000, 6000)]


def test_sliding_takes_an_offset() -> None:
    assert assign(SlidingEventTimeWindows.of("2s", "1s", offset="100ms"), 0) == [(-900, 1100), (-1900, 100)]


def test_a_slide_above_the_size_leaves_gaps_where_an_element_has_no_window() -> None:
    #  0         1000      2000      3000
    #  |--w--|             |--w--|
    windows = SlidingEventTimeWindows.of("500ms", "2s")
    assert assign(windows, 499) == [(0, 500)]
    assert assign(windows, 500) == []
    assert assign(windows, 1999) == []
    assert assign(windows, 2000) == [(2000, 2500)]


@pytest.mark.parametrize(
    ("size", "slide", "offset"), [("5s", "1s", "1s"), ("5s", "1s", "-1s"), ("0s", "1s", "0s"), ("5s", "0s", "0s")]
)
def test_sliding_needs_an_offset_below_its_slide_and_a_size(size: str, slide: str, offset: str) -> None:
    with pytest.raises(UserError, match="size > 0"):
        SlidingEventTimeWindows.of(size, slide, offset=offset)


def test_a_session_begins_at_the_element_and_lasts_for_the_gap() -> None:
    assert assign(EventTimeSessionWindows.with_gap("5s"), 4999) == [(4999, 9999)]


@pytest.mark.parametrize("gap", ["0s", timedelta(seconds=-1)])
def test_a_session_gap_is_above_zero(gap: Any) -> None:
    with pytest.raises(UserError, match="gap above zero"):
        EventTimeSessionWindows.with_gap(gap)


def test_a_dynamic_gap_comes_from_each_element_and_is_checked_for_each() -> None:
    windows = EventTimeSessionWindows.with_dynamic_gap(lambda value: timedelta(seconds=value))
    assert assign(windows, 10, value=1) == [(10, 1010)]
    assert assign(windows, 10, value=3) == [(10, 3010)]
    with pytest.raises(UserError, match="above zero"):
        assign(windows, 10, value=0)


@pytest.mark.parametrize(
    "declared",
    [TumblingEventTimeWindows.of("5s"), SlidingEventTimeWindows.of("5s", "1s"), EventTimeSessionWindows.with_gap("5s")],
)
def test_event_time_assigners_reject_an_element_without_timestamp(declared: AssignerLike) -> None:
    with pytest.raises(UserError, match="without timestamp"):
        assign(declared, MIN_TIMESTAMP)


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (TumblingProcessingTimeWindows.of("5s"), [(5000, 10000)]),
        (SlidingProcessingTimeWindows.of("2s", "1s"), [(7000, 9000), (6000, 8000)]),
        (ProcessingTimeSessionWindows.with_gap("5s"), [(7500, 12500)]),
        (ProcessingTimeSessionWindows.with_dynamic_gap(lambda value: "1s"), [(7500, 8500)]),
    ],
)
def test_processing_time_assigners_use_the_clock_and_ignore_the_timestamp(
    declared: AssignerLike, expected: list[tuple[int, int]]
) -> None:
    assert assign(declared, 1, now_ms=7500) == expected
    assert assign(declared, MIN_TIMESTAMP, now_ms=7500) == expected


def test_the_global_assigner_is_not_of_event_time() -> None:
    assigner = build_assigner(GlobalWindows())
    assert list(assigner.assign("x", MIN_TIMESTAMP, at(0))) == [GlobalWindow()]
    assert not assigner.is_event_time


def test_default_triggers_follow_the_assigner() -> None:
    assert build_assigner(TumblingEventTimeWindows.of("1s")).default_trigger() == EventTimeTrigger()
    assert build_assigner(SlidingEventTimeWindows.of("1s", "1s")).default_trigger() == EventTimeTrigger()
    assert build_assigner(EventTimeSessionWindows.with_gap("1s")).default_trigger() == EventTimeTrigger()
    assert build_assigner(TumblingProcessingTimeWindows.of("1s")).default_trigger() == ProcessingTimeTrigger()
    assert build_assigner(ProcessingTimeSessionWindows.with_gap("1s")).default_trigger() == ProcessingTimeTrigger()
    assert build_assigner(GlobalWindows()).default_trigger() == NeverTrigger()
    assert build_assigner(GlobalWindows.at_end_of_stream()).default_trigger() == EndOfStreamTrigger()


def test_only_session_assigners_merge() -> None:
    merging = [EventTimeSessionWindows.with_gap("1s"), ProcessingTimeSessionWindows.with_gap("1s")]
    others: list[AssignerLike] = [TumblingEventTimeWindows.of("1s"), SlidingEventTimeWindows.of("1s", "1s"), GlobalWindows()]
    assert all(build_assigner(declared).is_merging for declared in merging)
    assert not any(build_assigner(declared).is_merging for declared in others)


def test_a_users_own_assigner_is_used_as_it_is_and_anything_else_is_refused() -> None:
    class Own(WindowAssigner):
        def assign(self, value: Any, timestamp: int, clock: Callable[[], int]) -> list[TimeWindow]:
            return [TimeWindow(0, 1)]

        def default_trigger(self) -> EventTimeTrigger:
            return EventTimeTrigger()

    own = Own()
    assert build_assigner(own) is own
    with pytest.raises(UserError, match="no window assigner"):
        build_assigner("10s")  # type: ignore[arg-type]


def test_merging_reports_only_groups_of_two_or_more_distinct_windows() -> None:
    assert merge_time_windows([]) == []
    assert merge_time_windows([TimeWindow(0, 1), TimeWindow(2, 3)]) == []
    assert merge_time_windows([TimeWindow(0, 1), TimeWindow(0, 1)]) == []


def test_merging_sweeps_by_start_and_joins_what_overlaps_or_touches() -> None:
    #  0  1  2  3  4  5  6  7  8
    #  |--|  .  |-----|  .  |--|
    #     |--|     .     .
    windows = [TimeWindow(7, 8), TimeWindow(1, 2), TimeWindow(3, 5), TimeWindow(0, 1), TimeWindow(4, 5)]
    assert merge_time_windows(windows) == [
        (TimeWindow(0, 2), [TimeWindow(0, 1), TimeWindow(1, 2)]),
        (TimeWindow(3, 5), [TimeWindow(3, 5), TimeWindow(4, 5)]),
    ]
