"""However far time goes at once, firings and windows of an element are few."""

from __future__ import annotations

from typing import Any

import pytest

from topo import ProcessBolt, WindowBolt, aggregates, windows
from topo.api.windows import ContinuousEventTimeTrigger, ContinuousProcessingTimeTrigger, GlobalWindows, TimeWindow
from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.time.timers import MOST_AFTER_END
from topo.operators.windows.triggers import MOST_MISSED
from topo.testing import OperatorHarness, TriggerHarness

FAR = -(10**15)


def counting(window: Any, trigger: Any) -> OperatorHarness:
    return OperatorHarness(WindowBolt(key="k", window=window, trigger=trigger, aggregate=aggregates.Count()), ("k",))


@pytest.mark.parametrize("timestamp", [None, MIN_TIMESTAMP + 1, FAR])
def test_a_row_without_timestamp_or_far_in_the_past_fires_a_continuous_trigger_twice(timestamp: int | None) -> None:
    harness = counting(GlobalWindows(), ContinuousEventTimeTrigger.of("1s"))
    harness.process(("a",), timestamp)
    harness.watermark(0)
    assert len(harness.values) == 2
    harness.watermark(999)
    assert len(harness.values) == 2
    harness.watermark(1000)
    assert len(harness.values) == 3, "then every second again"


def test_a_row_far_behind_the_watermark_fires_with_the_next_one() -> None:
    harness = counting(GlobalWindows(), ContinuousEventTimeTrigger.of("1s"))
    harness.watermark(10**15)
    harness.process(("a",), 0)
    harness.watermark(10**15 + 1)
    assert len(harness.values) == 1
    harness.watermark(10**15 + 1000)
    assert len(harness.values) == 2


def test_a_long_window_with_a_short_interval_ends_with_few_firings() -> None:
    harness = counting(windows.TumblingEventTimeWindows.of("365d"), ContinuousEventTimeTrigger.of("1ms"))
    harness.process(("a",), 0)
    harness.end_of_input()
    assert len(harness.values) == 2, "the first interval, and the end of the window"


def test_a_clock_that_goes_far_ahead_fires_twice() -> None:
    harness = counting(GlobalWindows(), ContinuousProcessingTimeTrigger.of("1s"))
    harness.process(("a",))
    harness.set_clock(10**15 + 1)
    assert len(harness.values) == 2
    harness.advance_clock("1s")
    assert len(harness.values) == 3


@pytest.mark.parametrize("missed", [1, 2, MOST_MISSED, MOST_MISSED + 1, 10 * MOST_MISSED])
def test_up_to_a_hundred_intervals_each_fire_and_of_more_the_first_and_the_last(missed: int) -> None:
    harness = TriggerHarness(ContinuousEventTimeTrigger(10))
    window = TimeWindow(0, 10**9)
    harness.process("x", 0, window)
    fired = harness.watermark(10 * missed)
    assert len(fired) == (missed if missed <= MOST_MISSED + 1 else 2)
    assert harness.watermark(10 * missed + 9) == []
    assert len(harness.watermark(10 * missed + 10)) == 1, "the next is one interval after the last that was due"


def test_sliding_windows_that_put_an_element_into_too_many_windows_are_refused() -> None:
    for of in (windows.SlidingEventTimeWindows.of, windows.SlidingProcessingTimeWindows.of):
        with pytest.raises(UserError, match=r"put each element into 31,536,000,000 windows; at most 10,000 .* longer slide"):
            of("365d", "1ms")
        of("10s", "1ms")


class Rearming(ProcessBolt):
    """Registers the next timer in each timer."""

    outputs = ("at",)

    def __init__(self, last: int = MAX_TIMESTAMP) -> None:
        super().__init__(key="k")
        self.last = last

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        context.register_event_time_timer(1000)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((timestamp,))
        if timestamp < self.last:
            context.register_event_time_timer(timestamp + 1000)


def test_a_timer_that_always_registers_the_next_is_an_error_at_the_end() -> None:
    harness = OperatorHarness(Rearming(), ("k",))
    harness.process(("a",), 0)
    harness.watermark(5000)
    assert len(harness.values) == 5
    with pytest.raises(UserError, match=r"key 'a' has registered 10,000 event-time timers since the input ended.*register none"):
        harness.end_of_input()
    assert len(harness.values) < MOST_AFTER_END + 10


def test_timers_that_come_to_an_end_fire_at_the_end_of_the_input() -> None:
    harness = OperatorHarness(Rearming(last=100_000), ("k",))
    for key in ("a", "b"):
        harness.process((key,), 0)
    harness.end_of_input()
    assert len(harness.values) == 200
