"""Bolts of the operator core through the harness: time, windows, triggers, evictors, lateness, process functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from tests.unit.testing.window_harness import END, FIELDS, Contents, contents, sessions, tumbling, windows
from topo import UserError, WatermarkStrategy, WindowBolt, aggregates
from topo.api.windows import (
    ContinuousEventTimeTrigger,
    ProcessWindowFunction,
    TumblingEventTimeWindows,
)
from topo.errors import EmitError, UnsupportedValueError
from topo.operators.base import OperatorSnapshot
from topo.testing import Emitted, OnStream, OperatorHarness, Status, TimerHarness, Watermark

# -- the harness itself --------------------------------------------------------------------------------------------------


def test_an_input_is_a_row_or_a_mapping_of_the_fields() -> None:
    harness = tumbling()
    harness.process(("a", 1), 0)
    harness.process({"value": 2, "key": "a"}, 1)
    harness.watermark(2999)
    assert harness.outputs == [(("a", 0, 3000, 3), 2999)]


@pytest.mark.parametrize("wrong", [("a",), {"key": "a"}, {"key": "a", "value": 1, "x": 2}, "ab", 5])
def test_an_input_without_the_right_fields_is_refused(wrong: Any) -> None:
    with pytest.raises(UserError, match="fields"):
        tumbling().process(wrong, 0)


def test_a_bolt_needs_the_fields_of_its_input_and_its_key_among_them() -> None:
    bolt = WindowBolt(key="user", window=TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count())
    with pytest.raises(UserError, match="fields=") as no_fields:
        OperatorHarness(bolt)
    assert "names" in str(no_fields.value)
    with pytest.raises(UserError, match="'user' is none of the input's fields key, value"):
        OperatorHarness(bolt, FIELDS)


def test_an_aggregate_of_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="'amount'"):
        tumbling(aggregate=aggregates.Sum("amount"))


def test_outputs_go_through_the_codec_and_are_held_against_the_declared_fields() -> None:
    class Wrong(ProcessWindowFunction):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            collector.emit({"list": [key]}[key])

    harness = windows(TumblingEventTimeWindows.of("1s"), process=Contents(), outputs=("only",))
    harness.process(("a", 1), 0)
    with pytest.raises(EmitError, match="1 fields"):
        harness.watermark(999)
    listed = contents(TumblingEventTimeWindows.of("1s"))
    listed.process(("a", [1, [2]]), 0)
    listed.watermark(999)
    assert listed.values == [("a", 0, 1000, ((1, (2,)),))]
    with pytest.raises(UnsupportedValueError):
        listed.process(("a", object()), 1)


def test_events_are_all_that_was_put_out_in_order() -> None:
    harness = tumbling(late_stream="late")
    harness.process(("a", 1), 0)
    harness.watermark(2999)
    harness.process(("a", 2), 1)
    harness.idle()
    harness.active()
    assert harness.events == [
        Emitted(("a", 0, 3000, 1), 2999),
        Watermark(2999),
        OnStream("late", ("a", 2), 1),
        Status(True),
        Status(False),
    ]
    assert harness.late == harness.side("late") == [(("a", 2), 1)]
    assert harness.watermarks == [2999]
    harness.clear()
    assert harness.events == []


def test_the_harness_of_a_range_of_key_groups_refuses_the_keys_of_others() -> None:
    parts = tumbling().split(2)
    home = parts[0].owner(parts, "A")
    home.process(("A", 1), 0)
    (other,) = [part for part in parts if part is not home]
    with pytest.raises(UserError, match="key group 104"):
        other.process(("A", 1), 0)


# -- watermarks -------------------------------------------------------------------------------------------------------


def test_the_watermark_is_the_least_of_the_channels_and_only_grows() -> None:
    harness = tumbling(channels=2)
    harness.watermark(2000, channel=0)
    assert harness.watermarks == []
    harness.watermark(1000, channel=1)
    harness.watermark(500, channel=1)
    harness.watermark(3000, channel=1)
    assert harness.watermarks == [1000, 2000]


@pytest.mark.parametrize("channels", [1, 2])
def test_the_end_of_the_input_gives_the_last_watermark_once(channels: int) -> None:
    harness = tumbling(channels=channels)
    for channel in range(channels):
        harness.watermark(END, channel)
    assert harness.watermarks == [END]
    harness.end_of_input()
    harness.end_of_input()
    assert harness.watermarks == [END]


@pytest.mark.parametrize("channels", [1, 2])
def test_a_status_that_says_nothing_new_is_not_passed_on(channels: int) -> None:
    harness = tumbling(channels=channels)
    harness.active()
    assert harness.events == []
    for _ in range(2):
        for channel in range(channels):
            harness.idle(channel)
    assert harness.events == [Status(True)]
    for _ in range(2):
        harness.active()
    assert harness.events == [Status(True), Status(False)]


@pytest.mark.parametrize("channels", [1, 2])
def test_idle_channels_that_end_are_active_before_the_last_watermark(channels: int) -> None:
    harness = tumbling(channels=channels)
    harness.process(("a", 1), 0)
    for channel in range(channels):
        harness.idle(channel)
    harness.end_of_input()
    assert harness.events == [Status(True), Status(False), Emitted(("a", 0, 3000, 1), 2999), Watermark(END)]


def test_a_channel_that_has_ended_already_is_left_alone_by_the_end_of_the_input() -> None:
    harness = tumbling(channels=2)
    harness.watermark(END, channel=0)
    harness.watermark(5, channel=1)
    harness.idle(channel=1)
    assert harness.events == [Watermark(5), Watermark(END)]
    harness.end_of_input()
    assert harness.events == [Watermark(5), Watermark(END)]


def strategy(made: WatermarkStrategy) -> OperatorHarness:
    return OperatorHarness(made, ("at", "mark"))


def test_bounded_out_of_orderness_is_one_millisecond_behind_its_bound() -> None:
    harness = strategy(WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at"))
    harness.process((10_000, None))
    harness.process((8_000, None))
    harness.advance_clock(200)
    assert harness.events == [Emitted((10_000, None), 10_000), Emitted((8_000, None), 8_000), Watermark(4_999)]
    monotonic = strategy(WatermarkStrategy.monotonic_timestamps(timestamp="at"))
    monotonic.process((1337, None))
    monotonic.advance_clock(200)
    assert monotonic.watermarks == [1336]


def test_a_punctuated_watermark_follows_its_element_and_never_falls() -> None:
    harness = strategy(WatermarkStrategy.punctuated(lambda row, _timestamp: row[1], timestamp="at"))
    harness.process((5, 3))
    harness.process((6, None))
    harness.process((7, 2))
    harness.process((8, 4))
    assert [type(event) for event in harness.events] == [Emitted, Watermark, Emitted, Emitted, Emitted, Watermark]
    assert harness.watermarks == [3, 4]


def test_idleness_is_signalled_once_and_ends_with_the_next_watermark() -> None:
    harness = strategy(WatermarkStrategy.monotonic_timestamps(timestamp="at").with_idleness("400ms"))
    harness.process((10, None))
    for _ in range(3):
        harness.advance_clock(200)
    # The first check sees activity, the second begins the countdown, the third is 200 ms into it.
    assert Status(True) not in harness.events
    harness.advance_clock(200)
    assert Status(True) not in harness.events, "400 ms are not more than 400 ms"
    harness.advance_clock(200)
    harness.advance_clock(200)
    assert harness.events.count(Status(True)) == 1
    harness.process((20, None))
    harness.advance_clock(200)
    assert harness.events[-2:] == [Status(False), Watermark(19)]


def test_a_strategy_swallows_the_watermarks_of_its_input_except_the_last() -> None:
    harness = strategy(WatermarkStrategy.monotonic_timestamps(timestamp="at"))
    harness.watermark(5)
    assert harness.watermarks == []
    harness.watermark(END)
    assert harness.watermarks == [END]


# -- the timer service ----------------------------------------------------------------------------------------------


def test_the_armed_clock_timer_is_that_of_the_earliest_moment() -> None:
    timers = TimerHarness()
    assert timers.clock.next_due_ms is None
    timers.register_processing("a", 30)
    assert timers.clock.next_due_ms == 31
    timers.register_processing("b", 10)
    assert timers.clock.next_due_ms == 11
    timers.register_event("a", 5)
    timers.delete_processing("b", 10)
    assert timers.clock.next_due_ms == 11, "the armed timer stays; it will find nothing due"
    timers.set_clock(11)
    assert (timers.clock.next_due_ms, timers.processing_fired) == (31, [])


def test_timers_of_one_key_differ_by_namespace_and_domain() -> None:
    timers = TimerHarness(on_event=lambda fired: timers.delete_event("b", 20))
    timers.register_event("a", 10, "x")
    timers.register_event("a", 10, "x")
    timers.register_event("a", 10, "y")
    timers.register_event("b", 20)
    timers.register_processing("a", 10, "x")
    timers.watermark(30)
    assert sorted(timers.event_fired) == [("a", "x", 10), ("a", "y", 10)], "the first that fired has deleted the third"
    assert timers.processing_fired == []


# -- snapshots ----------------------------------------------------------------------------------------------------------------


def test_split_instances_together_give_what_one_would_have_given() -> None:
    harness = sessions()
    keys = [f"k{number}" for number in range(50)]
    for number, key in enumerate(keys):
        harness.process((key, number), number)
    parts = harness.split(3)
    for number, key in enumerate(keys):
        harness.owner(parts, key).process((key, 1000), number + 1500)
    for part in parts:
        part.watermark(END - 1)
    whole = sorted(values for part in parts for values in part.values)
    assert whole == sorted((f"k{n}", n, n + 4500, n + 1000) for n in range(50))
    assert all(part.values for part in parts)


def test_merged_snapshots_are_the_snapshot_of_one() -> None:
    harness = tumbling()
    for number in range(20):
        harness.process((f"k{number}", number), 0)
    parts = harness.split(2)
    again = harness.restore(OperatorSnapshot.merged(part.snapshot() for part in parts))
    again.watermark(2999)
    harness.watermark(2999)
    assert sorted(again.values) == sorted(harness.values)
    assert len(again.values) == 20


def test_keys_of_all_kinds_survive_a_snapshot() -> None:
    keys: list[Any] = ["a", 7, 2**62, b"b", (1, "x"), date(2013, 1, 1), None, 1.5]
    harness = tumbling()
    for key in keys:
        harness.process((key, 1), 0)
    restored = harness.restore(harness.snapshot())
    for key in keys:
        restored.process((key, 1), 0)
    restored.watermark(2999)
    assert {values[0]: values[3] for values in restored.values} == dict.fromkeys(keys, 2)


def test_triggers_of_merged_windows_survive_a_snapshot() -> None:
    harness = sessions("3s", trigger=ContinuousEventTimeTrigger.of("2s"))
    harness.process(("a", 1), 0)
    harness.process(("a", 2), 2500)
    restored = harness.restore(harness.snapshot())
    for one in (harness, restored):
        one.process(("a", 4), 4000)
        one.watermark(END - 1)
    assert restored.values == harness.values
    assert restored.values[-1] == ("a", 0, 7000, 7)
