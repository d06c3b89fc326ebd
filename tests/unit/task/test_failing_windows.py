"""Windows whose elements, functions, triggers or aggregates raise: who fails with them, and who does not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import CHECKPOINTED, TRACKED
from tests.unit.task.operators import SESSION, TEN, Raises, between, counts, decide, put, sums, time
from topo import aggregates
from topo.api.triggers import (
    ContinuousEventTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    PurgingTrigger,
    Trigger,
    TriggerContext,
    TriggerResult,
)
from topo.api.windows import (
    GlobalWindows,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from topo.wire.frames import MAX_WATERMARK, FrameKind

BOTH = pytest.mark.parametrize("delivery", [TRACKED, CHECKPOINTED])
EACH_WAY = pytest.mark.parametrize("window", [TEN, SESSION])
ROWS = [("a", 1), ("b", 7), ("a", None), ("a", 2), ("b", None), ("c", 5), (None, None)]


@BOTH
@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_an_element_that_raises_fails_alone(batch: int, delivery: str) -> None:
    solo = between(sums(), delivery=delivery)
    roots: list[int] = []
    for first in range(0, len(ROWS), batch):
        rows = ROWS[first : first + batch]
        roots += put(solo, rows, [1] * len(rows)).roots
    time(solo, 20)
    assert sorted(solo.rows()) == [("a", 0, 10, 3), ("b", 0, 10, 7), ("c", 0, 10, 5)]
    assert solo.task.counters.failed == 3
    assert solo.roots(FrameKind.FAIL) == [roots[place] for place in (2, 4, 6) if delivery == TRACKED]
    assert solo.errors()[0].startswith("TypeError")


def test_an_element_without_a_timestamp_fails_in_event_time() -> None:
    solo = between(sums())
    ids = put(solo, [("k", 1), ("k", 2)], [None, 2])
    assert solo.roots(FrameKind.FAIL) == ids.roots[:1]
    time(solo, 10)
    assert solo.rows() == [("k", 0, 10, 2)]


@BOTH
@pytest.mark.parametrize("window", [TEN, SESSION, SlidingEventTimeWindows.of("10ms", "5ms")])
@pytest.mark.parametrize("more", [{}, {"trigger": EventTimeTrigger()}, {"allowed_lateness": "1s"}])
def test_an_element_at_the_end_of_all_time_is_in_the_results_of_its_windows(
    window: Any, delivery: str, more: dict[str, Any]
) -> None:
    """Such as a source gives those that are valid for ever. The windows end behind the last watermark."""
    solo = between(sums(window=window, **more), delivery=delivery)
    put(solo, [("k", 7)], [MAX_WATERMARK])
    time(solo, FrameKind.END)
    assert {(key, value) for key, _, _, value in solo.rows()} == {("k", 7)}
    assert {stamp for frame in solo.frames(FrameKind.DATA) for stamp in frame.timestamp_list()} == {MAX_WATERMARK}
    assert solo.errors() == []


class InPlace(aggregates.AggregateFunction):
    """Counts before it adds up, in place, so that a value which cannot be added leaves a trace."""

    fields = ("count", "sum")

    def create_accumulator(self) -> Any:
        return {"count": 0, "sum": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator["count"] += 1
        accumulator["sum"] += value[1]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        if accumulator["sum"] == 13:
            raise ValueError("unlucky")
        return accumulator["count"], accumulator["sum"]


@pytest.mark.parametrize("window", [TEN, SlidingEventTimeWindows.of("10ms", "10ms")])
def test_an_accumulator_keeps_no_trace_of_a_call_that_raised(window: Any) -> None:
    solo = between(sums(window=window, aggregate=InPlace()), delivery=CHECKPOINTED)
    for rows in ([("a", 1)], [("a", 2), ("a", None), ("a", 3)]):
        put(solo, rows, [1] * len(rows))
    time(solo, 20)
    assert solo.rows() == [("a", 0, 10, 3, 6)]


@pytest.mark.parametrize("trigger", [None, EventTimeTrigger()])
def test_inputs_of_a_window_whose_aggregate_has_no_result_fail(trigger: Any) -> None:
    solo = between(sums(aggregate=InPlace(), trigger=trigger))
    ids = put(solo, [("a", 13), ("b", 2)], [1, 2])
    time(solo, 10)
    assert solo.rows() == [("b", 0, 10, 1, 2)] and solo.roots(FrameKind.FAIL) == ids.roots[:1]


# -- firings


@BOTH
@EACH_WAY
def test_a_firing_that_raises_is_repeated_at_once_and_gives_one_result(window: Any, delivery: str) -> None:
    solo = between(counts(Raises("a", 2), window=window), delivery=delivery)
    ids = put(solo, [("a", 1), ("b", 1), ("a", 2)], [1, 1, 1])
    time(solo, 20)
    assert sorted(solo.rows()) == [("a", 2), ("b", 1)]
    assert solo.task.counters.failed == 0 and solo.errors() == []
    if delivery == TRACKED:
        decide(solo, FrameKind.ACKED)
        assert solo.owed(ids.pairs) == {} and solo.roots(FrameKind.FAIL) == []


def test_a_tracked_firing_is_repeated_as_often_as_attempts_allow() -> None:
    function = Raises("a", 99)
    solo = between(counts(function), attempts=5)
    ids = put(solo, [("a", 1)], [1])
    time(solo, 20)
    assert function.left == 99 - 5 and solo.roots(FrameKind.FAIL) == ids.roots


@pytest.mark.parametrize(("window", "end"), [(TEN, 10), (SESSION, 9)])
def test_a_firing_that_always_raises_is_a_dead_letter_with_the_elements(window: Any, end: int) -> None:
    solo = between(counts(Raises("a"), window=window), delivery=CHECKPOINTED)
    put(solo, [("a", 1), ("b", 1), ("a", 2)], [0, 1, 0])
    time(solo, 20)
    assert solo.rows() == [("b", 1)]
    assert solo.task.counters.failed == 1 and solo.errors() == ["ValueError: no"]
    assert solo.given_up() == [("a", 0, end, (("a", 1), ("a", 2)))]
    assert solo.task.runner.kind._operator.state.entries == 0


AT_TWO = {"window": GlobalWindows(), "trigger": PurgingTrigger.of(CountTrigger(2))}


@pytest.mark.parametrize("where", [{}, {"window": TumblingProcessingTimeWindows.of("1s")}, AT_TWO])
def test_a_window_function_that_raises_fails_the_inputs_of_its_window_alone(where: dict[str, Any]) -> None:
    """By the watermark, by the clock, and at an element."""
    solo = between(counts(Raises(), **where))
    ids = put(solo, [("bad", 1), ("good", 2), ("bad", 3), ("good", 4)], [1, 2, 3, 4])
    time(solo, 10)
    solo.wait(1.1)
    assert solo.rows() == [("good", 2)]
    assert sorted(set(solo.roots(FrameKind.FAIL))) == [ids.roots[0], ids.roots[2]]
    if where is not AT_TWO:
        assert solo.task.statistics().levels["open_windows"] == 0.0, "its clean-up is not repeated"


def test_results_of_untracked_inputs_are_untracked_and_discarded_when_it_raises() -> None:
    solo = between(counts(Raises()))
    put(solo, [("bad", 1), ("good", 2)], [1, 2], tracked=False)
    time(solo, 10)
    assert solo.rows() == [("good", 1)]
    assert solo.frames(FrameKind.INIT) == [] and solo.roots(FrameKind.DATA) == []


def test_an_element_that_raises_behind_a_firing_leaves_its_result_and_the_late_rows() -> None:
    solo = between(sums(allowed_lateness="100ms", late_stream="late"))
    time(solo, 200)
    ids = put(solo, [("k", 1), ("late", 9), ("k", None)], [150, 5, 150])
    assert solo.rows() == [("k", 150, 160, 1), ("late", 9)]
    assert solo.roots(FrameKind.FAIL) == ids.roots[2:]


class RaisesAtTheSecond(Trigger):
    """Fires at the end of windows, and raises instead for the second one."""

    def __init__(self) -> None:
        self.times = 0

    def on_element(self, value: Any, timestamp: int, window: Any, context: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        self.times += 1
        if self.times == 2:
            raise ValueError("not twice")
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Any, context: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def clear(self, window: Any, context: TriggerContext) -> None:
        """Nothing is kept."""


def test_a_trigger_that_raises_by_the_watermark_fails_its_window_and_no_other() -> None:
    solo = between(sums(trigger=RaisesAtTheSecond()))
    ids = put(solo, [("a", 1), ("b", 2), ("c", 3)], [1, 2, 3])
    time(solo, 10)
    assert solo.rows() == [("a", 0, 10, 1), ("c", 0, 10, 3)]
    assert solo.roots(FrameKind.FAIL) == ids.roots[1:2]
    assert solo.errors() == ["ValueError: not twice"]


class Always(ProcessWindowFunction):
    """Raises for all keys but one."""

    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        if key != "good":
            raise ValueError("no")
        collector.emit((key, len(elements)))


@BOTH
def test_thousands_of_windows_that_raise_at_one_moment_hold_nothing_up(delivery: str) -> None:
    """One window has a timer for all its keys, so timers do not become fewer while they fail."""
    solo = between(sums(aggregate=None, process=Always(), outputs=("key", "n")), delivery=delivery, attempts=1)
    rows: list[tuple[Any, int]] = [*((str(number), 1) for number in range(1_500)), ("good", 1)]
    put(solo, rows, [1] * len(rows))
    put(solo, [("good", 1)], [11])
    time(solo, 30)
    assert solo.rows() == [("good", 1), ("good", 1)]
    assert solo.errors()


@BOTH
def test_a_trigger_that_fires_again_and_again_within_one_watermark_may_raise_each_time(delivery: str) -> None:
    trigger = ContinuousEventTimeTrigger.of("1ms")
    bolt = sums(
        window=TumblingEventTimeWindows.of("60ms"), aggregate=None, process=Always(), outputs=("key", "n"), trigger=trigger
    )
    solo = between(bolt, delivery=delivery, attempts=1)
    rows = [*((str(number), 1) for number in range(30)), ("good", 1)]
    put(solo, rows, [1] * len(rows))
    time(solo, 100)
    assert set(solo.rows()) == {("good", 1)} and solo.errors()
