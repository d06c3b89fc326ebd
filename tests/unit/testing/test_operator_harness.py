"""Bolts of the operator core through the harness: time, windows, triggers, evictors, lateness, process functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from topo import ProcessBolt, UserError, WatermarkStrategy, WindowBolt, aggregates
from topo.api.windows import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    CountWindows,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from topo.errors import EmitError, ValueNotCarried
from topo.keys import KeyGroupRange
from topo.operators.base import OperatorSnapshot
from topo.testing import Emitted, OnStream, OperatorHarness, Status, TimerHarness, Watermark

FIELDS = ("key", "value")
END = 2**63 - 1


def windows(window: Any, **options: Any) -> OperatorHarness:
    """A harness of a window bolt keyed by `key`; it sums `value` unless told otherwise."""
    key = options.pop("key", "key")
    harness = {name: options.pop(name) for name in ("now_ms", "channels", "key_groups") if name in options}
    if not {"reduce", "aggregate", "process"} & set(options):
        options["aggregate"] = aggregates.Sum("value")
    return OperatorHarness(WindowBolt(key=key, window=window, **options), FIELDS, **harness)


def tumbling(size: str = "3s", **options: Any) -> OperatorHarness:
    return windows(TumblingEventTimeWindows.of(size), **options)


def sessions(gap: str = "3s", **options: Any) -> OperatorHarness:
    return windows(EventTimeSessionWindows.with_gap(gap), **options)


class Contents(ProcessWindowFunction):
    """Emits the values that the window holds."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        collector.emit((key, *context.window, tuple(row[1] for row in elements)))


def contents(window: Any, **options: Any) -> OperatorHarness:
    """A harness whose windows emit the key, their bounds (none of a global one) and the values that they hold."""
    is_global = isinstance(window, GlobalWindows | CountWindows)
    outputs = ("key", "values") if is_global else ("key", "start", "end", "values")
    return windows(window, process=Contents(), outputs=outputs, **options)


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
    with pytest.raises(ValueNotCarried):
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


# -- 7. watermarks -------------------------------------------------------------------------------------------------------


def test_the_watermark_is_the_least_of_the_channels_and_only_grows() -> None:
    harness = tumbling(channels=2)
    harness.watermark(2000, channel=0)
    assert harness.watermarks == []
    harness.watermark(1000, channel=1)
    harness.watermark(500, channel=1)
    harness.watermark(3000, channel=1)
    assert harness.watermarks == [1000, 2000]


def test_watermarks_of_an_idle_channel_are_ignored_and_it_has_to_catch_up_afterwards() -> None:
    harness = tumbling(channels=2)
    harness.idle(channel=1)
    harness.watermark(100, channel=1)
    harness.watermark(50, channel=0)
    harness.active(channel=1)
    harness.watermark(20, channel=1)
    harness.watermark(60, channel=0)
    harness.watermark(55, channel=1)
    harness.watermark(70, channel=0)
    # 20 and 55 lie behind what was put out meanwhile.
    assert harness.watermarks == [50, 60, 70]
    harness.watermark(72, channel=1)
    harness.watermark(80, channel=0)
    assert harness.watermarks == [50, 60, 70, 72]


def test_when_the_last_channel_becomes_idle_the_greatest_watermark_is_put_out_before_the_status() -> None:
    harness = tumbling(channels=2)
    harness.watermark(100, channel=0)
    harness.watermark(200, channel=1)
    harness.idle(channel=1)
    harness.idle(channel=0)
    assert harness.events == [Watermark(100), Watermark(200), Status(True)]


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


def test_an_idle_channel_holds_nobody_back_and_windows_close() -> None:
    harness = tumbling(channels=2)
    harness.process(("a", 1), 0)
    harness.idle(channel=1)
    harness.watermark(2999, channel=0)
    assert harness.values == [("a", 0, 3000, 1)]


def strategy(made: WatermarkStrategy) -> OperatorHarness:
    return OperatorHarness(made, ("at", "mark"))


def test_bounded_out_of_orderness_lies_one_millisecond_further_back_than_its_bound() -> None:
    harness = strategy(WatermarkStrategy.bounded_out_of_orderness("5s", timestamp="at"))
    harness.process((10_000, None))
    harness.process((8_000, None))
    harness.advance_clock(200)
    assert harness.events == [Emitted((10_000, None), 10_000), Emitted((8_000, None), 8_000), Watermark(4_999)]
    monotonous = strategy(WatermarkStrategy.monotonous_timestamps(timestamp="at"))
    monotonous.process((1337, None))
    monotonous.advance_clock(200)
    assert monotonous.watermarks == [1336]


def test_a_punctuated_watermark_follows_its_element_and_never_falls() -> None:
    harness = strategy(WatermarkStrategy.punctuated(lambda row, _timestamp: row[1], timestamp="at"))
    harness.process((5, 3))
    harness.process((6, None))
    harness.process((7, 2))
    harness.process((8, 4))
    assert [type(event) for event in harness.events] == [Emitted, Watermark, Emitted, Emitted, Emitted, Watermark]
    assert harness.watermarks == [3, 4]


def test_idleness_is_said_once_when_the_timeout_is_exceeded_and_ends_with_the_next_watermark() -> None:
    harness = strategy(WatermarkStrategy.monotonous_timestamps(timestamp="at").with_idleness("400ms"))
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
    harness = strategy(WatermarkStrategy.monotonous_timestamps(timestamp="at"))
    harness.watermark(5)
    assert harness.watermarks == []
    harness.watermark(END)
    assert harness.watermarks == [END]


# -- 8. windows and assigners ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timestamp", "offset", "start"),
    [(0, "0s", 0), (2999, "0s", 0), (3000, "0s", 3000), (-1, "0s", -3000), (-3000, "0s", -3000), (500, "1s", -2000)],
)
def test_a_tumbling_window_starts_at_a_multiple_of_its_size_after_the_offset(timestamp: int, offset: str, start: int) -> None:
    harness = windows(TumblingEventTimeWindows.of("3s", offset=offset))
    harness.process(("a", 1), timestamp)
    harness.end_of_input()
    assert harness.outputs == [(("a", start, start + 3000, 1), start + 2999)]


def test_an_element_is_in_every_sliding_window_that_covers_it() -> None:
    harness = windows(SlidingEventTimeWindows.of("3s", "1s"))
    harness.process(("a", 1), 1500)
    harness.end_of_input()
    assert [values[1:3] for values in harness.values] == [(-1000, 2000), (0, 3000), (1000, 4000)]


def test_a_slide_above_the_size_leaves_gaps_and_what_falls_into_them_is_late_by_its_own_timestamp_only() -> None:
    harness = windows(SlidingEventTimeWindows.of("1s", "3s"), late_stream="late")
    harness.process(("a", 1), 1500)
    harness.watermark(1499)
    harness.process(("a", 2), 1500)
    harness.watermark(1500)
    harness.process(("a", 3), 1500)
    assert harness.values == []
    assert harness.late == [(("a", 3), 1500)]


def test_a_natural_stagger_is_taken_once_from_the_clock_at_the_first_element() -> None:
    harness = windows(TumblingProcessingTimeWindows.of("10s", stagger="natural"), now_ms=13_000)
    harness.process(("a", 1))
    harness.set_clock(17_000)
    harness.process(("a", 2))
    harness.set_clock(30_000)
    assert harness.values == [("a", 13_000, 23_000, 3)]


def test_processing_time_windows_go_by_the_clock_and_not_by_timestamps_or_lateness() -> None:
    harness = windows(TumblingProcessingTimeWindows.of("3s"), allowed_lateness="1m", now_ms=3000)
    harness.process(("a", 1), END)
    harness.process(("a", 2))
    harness.watermark(END - 1)
    assert harness.values == []
    harness.set_clock(5999)
    assert harness.outputs == [(("a", 3000, 6000, 3), 5999)]
    assert (harness.open_windows, harness.timers) == (0, 0)


def test_an_event_time_window_refuses_an_element_without_a_timestamp() -> None:
    with pytest.raises(UserError, match="timestamp"):
        tumbling().process(("a", 1))


def test_sessions_that_only_touch_are_one() -> None:
    harness = sessions("3s")
    harness.process(("a", 1), 2500)
    harness.process(("a", 2), 5500)
    harness.process(("a", 4), 8501)
    harness.end_of_input()
    assert harness.values == [("a", 2500, 8500, 3), ("a", 8501, 11501, 4)]


def test_a_dynamic_gap_is_that_of_each_element_and_a_gap_of_zero_fails_it() -> None:
    harness = windows(EventTimeSessionWindows.with_dynamic_gap(lambda row: f"{row[1]}s"))
    harness.process(("a", 5), 0)
    harness.process(("a", 1), 1000)
    harness.process(("a", 2), 5000)
    with pytest.raises(UserError, match="gap"):
        harness.process(("a", 0), 0)
    harness.end_of_input()
    assert harness.values == [("a", 0, 7000, 8)]


def test_a_number_is_no_duration_for_nobody_could_tell_its_unit() -> None:
    with pytest.raises(UserError, match="10 is not a duration here"):
        EventTimeSessionWindows.with_gap(10)  # type: ignore[arg-type]
    harness = windows(EventTimeSessionWindows.with_dynamic_gap(lambda row: row[1]))
    with pytest.raises(UserError, match="2 is not a duration here"):
        harness.process(("a", 2), 0)


@pytest.mark.parametrize(
    "declare",
    [
        lambda: TumblingEventTimeWindows.of("3s", offset="3s"),
        lambda: SlidingEventTimeWindows.of("3s", "1s", offset="1s"),
        lambda: SlidingEventTimeWindows.of("0s", "1s"),
        lambda: EventTimeSessionWindows.with_gap("0s"),
        lambda: CountWindows.of(0),
    ],
)
def test_windows_that_make_no_sense_are_refused_when_declared(declare: Any) -> None:
    with pytest.raises(UserError):
        declare()


# -- 9. triggers -----------------------------------------------------------------------------------------------------------


def test_a_late_element_within_the_lateness_fires_at_once_and_each_time() -> None:
    harness = tumbling(allowed_lateness="1s")
    harness.process(("a", 1), 0)
    harness.watermark(2999)
    harness.process(("a", 2), 1)
    harness.process(("a", 4), 2)
    assert harness.values == [("a", 0, 3000, 1), ("a", 0, 3000, 3), ("a", 0, 3000, 7)]


def test_count_windows_fire_and_start_anew() -> None:
    harness = contents(CountWindows.of(2))
    for value in range(5):
        harness.process(("a", value))
    assert harness.outputs == [(("a", (0, 1)), END), (("a", (2, 3)), END)]
    assert harness.timers == 0


def test_sliding_count_windows_look_at_the_last_elements() -> None:
    harness = contents(CountWindows.of(3, 2))
    for value in range(6):
        harness.process(("a", value))
    assert harness.values == [("a", (0, 1)), ("a", (1, 2, 3)), ("a", (3, 4, 5))]


def test_a_merge_adds_up_counts_and_does_not_fire_before_the_next_element() -> None:
    harness = sessions("3s", trigger=PurgingTrigger.of(CountTrigger(4)))
    harness.process(("a", 1), 0)
    harness.process(("a", 1), 1)
    harness.process(("a", 1), 5000)
    assert harness.values == []
    harness.process(("a", 1), 2500)
    # The element that joins the two sessions is the fourth.
    assert harness.values == [("a", 0, 8000, 4)]


def test_a_count_that_a_merge_lifts_above_the_limit_fires_with_the_next_element_only() -> None:
    class Wide(WindowAssigner):
        """Windows as the element says."""

        is_merging = True

        def assign(self, value: Any, timestamp: int, clock: Any) -> list[TimeWindow]:
            return [TimeWindow(*value[1])]

        def default_trigger(self) -> Any:
            return CountTrigger(3)

    harness = windows(Wide(), aggregate=aggregates.Count())
    harness.process(("a", (0, 10)), 0)
    harness.process(("a", (0, 10)), 0)
    harness.process(("a", (20, 30)), 0)
    assert harness.values == []
    harness.process(("a", (5, 25)), 0)
    assert harness.values == [("a", 0, 30, 4)]


def test_the_continuous_event_time_trigger_fires_by_the_first_element_and_last_at_the_end_of_the_window() -> None:
    harness = windows(TumblingEventTimeWindows.of("10s"), trigger=ContinuousEventTimeTrigger.of("3s"))
    harness.process(("a", 1), 4000)
    harness.process(("a", 2), 1000)
    harness.watermark(5999)
    assert harness.values == []
    harness.watermark(6000)
    assert [values[3] for values in harness.values] == [3]
    harness.watermark(9000)
    harness.watermark(9998)
    assert [values[3] for values in harness.values] == [3, 3]
    harness.watermark(9999)
    # 12,000 is capped to the end of the window, where the two timers are one.
    assert [values[3] for values in harness.values] == [3, 3, 3]


def test_the_continuous_trigger_rounds_negative_timestamps_towards_zero() -> None:
    harness = windows(TumblingEventTimeWindows.of("1m"), trigger=ContinuousEventTimeTrigger.of("10ms"))
    harness.process(("a", 1), -25)
    harness.watermark(-11)
    assert harness.values == []
    harness.watermark(-10)
    assert len(harness.values) == 1


def test_merged_sessions_keep_the_least_of_their_continuous_fire_times() -> None:
    harness = sessions("10s", trigger=ContinuousEventTimeTrigger.of("10s"))
    harness.process(("a", 1), 21_000)
    harness.process(("a", 2), 3_000)
    harness.process(("a", 4), 12_000)
    harness.watermark(9_999)
    assert harness.values == []
    harness.watermark(10_000)
    assert harness.values == [("a", 3000, 31_000, 7)]


def test_the_continuous_processing_time_trigger_goes_by_the_clock() -> None:
    harness = windows(TumblingProcessingTimeWindows.of("10s"), trigger=ContinuousProcessingTimeTrigger.of("3s"), now_ms=1000)
    harness.process(("a", 1))
    harness.set_clock(3000)
    harness.set_clock(6000)
    harness.process(("a", 2))
    harness.set_clock(9000)
    harness.set_clock(9999)
    assert [values[3] for values in harness.values] == [1, 1, 3, 3]
    assert (harness.open_windows, harness.timers) == (0, 0)


def test_a_delta_trigger_fires_strictly_above_its_threshold() -> None:
    trigger = DeltaTrigger(10, lambda old, new: new[1] - old[1])
    harness = contents(GlobalWindows(), trigger=trigger)
    for value in (0, 10, 11, 21, 22):
        harness.process(("a", value))
    assert harness.values == [("a", (0, 10, 11)), ("a", (0, 10, 11, 21, 22))]


def test_the_never_trigger_never_fires_and_the_end_of_stream_fires_once() -> None:
    never = contents(GlobalWindows())
    never.process(("a", 1), 0)
    never.end_of_input()
    assert never.values == []
    explicit = tumbling(trigger=NeverTrigger())
    explicit.process(("a", 1), 0)
    explicit.end_of_input()
    assert explicit.values == []
    at_end = contents(GlobalWindows.at_end_of_stream())
    at_end.process(("a", 1), 0)
    at_end.watermark(END - 1)
    assert at_end.values == []
    at_end.end_of_input()
    assert at_end.outputs == [(("a", (1,)), END)]


def test_a_processing_timeout_fires_what_its_inner_trigger_did_not() -> None:
    trigger = ProcessingTimeoutTrigger.of(CountTrigger(3), "50ms", resets_on_element=False, clears_on_timeout=True)
    harness = contents(GlobalWindows(), trigger=trigger)
    harness.process(("a", 1))
    harness.set_clock(40)
    harness.process(("a", 2))
    harness.set_clock(49)
    assert harness.values == []
    harness.set_clock(50)
    assert harness.values == [("a", (1, 2))]
    assert harness.timers == 0


def test_a_trigger_that_cannot_merge_is_refused_with_sessions() -> None:
    with pytest.raises(UserError, match="merge"):
        sessions(trigger=DeltaTrigger(1, lambda old, new: 0))


def test_an_event_time_trigger_merged_into_the_past_is_not_registered_again() -> None:
    harness = sessions("3s", allowed_lateness="10s")
    harness.process(("a", 1), 0)
    harness.watermark(6000)
    harness.clear()
    harness.process(("a", 2), 2000)
    # The merged session [0, 5000) is over but for the lateness: it fires by the element, and only the clean-up timer stays.
    assert harness.values == [("a", 0, 5000, 3)]
    assert harness.timers == 1
    harness.watermark(14_999)
    assert harness.values == [("a", 0, 5000, 3)]
    assert (harness.timers, harness.open_windows) == (0, 0)


def test_a_users_own_trigger_has_state_and_timers_of_the_window() -> None:
    class EverySecond(Trigger):
        def on_element(self, value: Any, timestamp: int, window: Any, context: Any) -> TriggerResult:
            seen = context.get("seen", 0) + 1
            context.put("seen", seen)
            return TriggerResult.FIRE if seen % 2 == 0 else TriggerResult.CONTINUE

        def on_event_time(self, timestamp: int, window: Any, context: Any) -> TriggerResult:
            return TriggerResult.CONTINUE

        def on_processing_time(self, timestamp: int, window: Any, context: Any) -> TriggerResult:
            return TriggerResult.CONTINUE

        def clear(self, window: Any, context: Any) -> None:
            context.forget("seen")

    harness = tumbling(trigger=EverySecond())
    for value in (1, 2, 4, 8):
        harness.process(("a", value), 0)
    assert [values[3] for values in harness.values] == [3, 15]
    harness.watermark(2999)
    assert (harness.state_entries, harness.timers) == (0, 0)


# -- 10. evictors ------------------------------------------------------------------------------------------------------------


def test_a_count_evictor_drops_from_the_front_and_the_buffer_stays_as_it_left_it() -> None:
    harness = contents(GlobalWindows(), trigger=CountTrigger(2), evictor=CountEvictor(3))
    for value in range(6):
        harness.process(("a", value))
    assert harness.values == [("a", (0, 1)), ("a", (1, 2, 3)), ("a", (3, 4, 5))]


def test_a_time_evictor_drops_wherever_the_old_ones_are() -> None:
    harness = contents(TumblingEventTimeWindows.of("10s"), evictor=TimeEvictor.of("2s"))
    for timestamp in (5000, 1000, 4000, 3000, 2999):
        harness.process(("a", timestamp), timestamp)
    harness.watermark(9999)
    assert harness.values == [("a", 0, 10_000, (5000, 4000))]


def test_a_delta_evictor_drops_at_its_threshold_and_above() -> None:
    evictor = DeltaEvictor(5, lambda element, last: abs(element[1] - last[1]))
    harness = contents(TumblingEventTimeWindows.of("10s"), evictor=evictor)
    for value in (0, 5, 6, 10):
        harness.process(("a", value), value)
    harness.watermark(9999)
    assert harness.values == [("a", 0, 10_000, (6, 10))]


def test_the_function_is_called_when_everything_was_evicted_but_not_for_an_empty_buffer_later() -> None:
    calls: list[int] = []

    class Sizes(ProcessWindowFunction):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            calls.append(len(elements))

    harness = windows(
        TumblingEventTimeWindows.of("3s"), process=Sizes(), outputs=("x",), evictor=CountEvictor(0), allowed_lateness="1s",
        trigger=ContinuousEventTimeTrigger.of("1s"),
    )  # fmt: skip
    harness.process(("a", 1), 0)
    harness.watermark(1000)
    harness.watermark(2999)
    assert calls == [0]


def test_with_an_evictor_an_aggregate_runs_over_what_is_left_when_the_window_fires() -> None:
    harness = tumbling(evictor=CountEvictor(2))
    for value in (1, 2, 4):
        harness.process(("a", value), value)
    harness.watermark(2999)
    assert harness.values == [("a", 0, 3000, 6)]


# -- 11. the window operator ---------------------------------------------------------------------------------------------------


def test_an_element_behind_the_watermark_is_taken_while_its_window_is_alive() -> None:
    harness = tumbling(late_stream="late")
    harness.watermark(2000)
    harness.process(("a", 1), 500)
    harness.watermark(2999)
    assert harness.values == [("a", 0, 3000, 1)]
    assert harness.late == []


def test_the_boundary_of_lateness_is_the_last_millisecond_plus_the_lateness() -> None:
    harness = windows(TumblingEventTimeWindows.of("2ms"), allowed_lateness="20ms", late_stream="late")
    harness.watermark(20)
    harness.process(("a", 1), 1)
    assert harness.late == []
    harness.watermark(21)
    harness.process(("a", 2), 1)
    assert harness.late == [(("a", 2), 1)]
    assert (harness.late_elements, harness.late_dropped) == (1, 0)


def test_an_element_of_which_some_windows_live_never_goes_to_the_late_stream() -> None:
    harness = windows(SlidingEventTimeWindows.of("3s", "1s"), late_stream="late")
    harness.watermark(2999)
    harness.process(("a", 1), 2500)
    assert harness.late == []
    harness.end_of_input()
    assert [values[1:3] for values in harness.values] == [(1000, 4000), (2000, 5000)]


def test_without_a_late_stream_late_elements_are_counted_as_dropped() -> None:
    harness = tumbling()
    harness.watermark(2999)
    harness.process(("a", 1), 0)
    assert (harness.late_elements, harness.late_dropped) == (1, 1)
    assert harness.events == [Watermark(2999)]


def test_firing_keeps_contents_purging_drops_them_and_nothing_else() -> None:
    kept = tumbling(trigger=CountTrigger(2))
    purged = tumbling(trigger=PurgingTrigger.of(CountTrigger(2)))
    for harness in (kept, purged):
        for value in (1, 2, 4, 8):
            harness.process(("a", value), value)
    assert [values[3] for values in kept.values] == [3, 15]
    assert [values[3] for values in purged.values] == [3, 12]
    assert (purged.open_windows, purged.timers) == (0, 1), "the clean-up timer outlives a purge"


def test_what_a_purged_session_covered_still_merges() -> None:
    harness = sessions("3s", trigger=PurgingTrigger.of(CountTrigger(2)))
    harness.process(("a", 1), 0)
    harness.process(("a", 2), 1000)
    assert harness.values == [("a", 0, 4000, 3)]
    harness.process(("a", 4), 2000)
    harness.process(("a", 8), 3000)
    assert harness.values[1:] == [("a", 0, 6000, 12)]


def test_results_carry_the_last_timestamp_of_their_window_whatever_made_it_fire() -> None:
    harness = tumbling(trigger=CountTrigger(1), allowed_lateness="1s")
    harness.process(("a", 1), 5)
    harness.watermark(3500)
    harness.process(("a", 1), 5)
    assert [emitted.timestamp for emitted in harness.outputs] == [2999, 2999]


def test_timers_fire_before_the_watermark_is_passed_on() -> None:
    harness = tumbling()
    harness.process(("a", 1), 0)
    harness.process(("a", 2), 3000)
    harness.watermark(6000)
    assert [type(event) for event in harness.events] == [Emitted, Emitted, Watermark]


def test_a_clean_up_time_beyond_the_last_timestamp_is_no_clean_up() -> None:
    harness = windows(TumblingEventTimeWindows.of("2ms"), allowed_lateness="20ms")
    harness.process(("a", 1), END - 5)
    assert harness.timers == 1, "the trigger's timer alone"
    harness.watermark(END - 1)
    harness.process(("a", 2), END - 5)
    assert [values[3] for values in harness.values] == [1, 3]
    assert harness.open_windows == 1


def test_reduce_gets_rows_in_the_order_of_arrival() -> None:
    harness = tumbling(reduce=lambda first, second: (first[0], first[1] + second[1]), result_fields=("first_key", "text"))
    for text in "abc":
        harness.process(("k", text), 0)
    harness.watermark(2999)
    assert harness.values == [("k", 0, 3000, "k", "abc")]


def test_with_an_aggregate_the_process_function_sees_one_value() -> None:
    class Named(ProcessWindowFunction):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            collector.emit((key, len(elements), elements[0], context.current_watermark))

    harness = tumbling(aggregate=aggregates.Sum("value"), process=Named(), outputs=("key", "seen", "sum", "watermark"))
    harness.process(("a", 1), 0)
    harness.process(("a", 2), 0)
    harness.watermark(2999)
    assert harness.values == [("a", 1, 3, 2999)]


def test_a_window_function_has_state_of_the_window_and_of_the_key() -> None:
    class Firings(ProcessWindowFunction):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            of_window, of_key = context.window_state.value("firings"), context.global_state.value("firings")
            of_window.set((of_window.get() or 0) + 1)
            of_key.set((of_key.get() or 0) + 1)
            collector.emit((context.window.start, of_window.get(), of_key.get()))
            collector.emit((key,), stream="keys")

        def clear(self, context: Any) -> None:
            context.window_state.value("firings").clear()

    outputs = {"default": ("start", "of_window", "of_key"), "keys": ("key",)}
    harness = windows(TumblingEventTimeWindows.of("3s"), process=Firings(), outputs=outputs, allowed_lateness="1s")
    harness.process(("a", 1), 0)
    harness.watermark(2999)
    harness.process(("a", 1), 0)
    harness.process(("a", 1), 3000)
    harness.watermark(5999)
    assert harness.values == [(0, 1, 1), (0, 2, 2), (3000, 1, 3)]
    assert harness.side("keys")[0] == (("a",), 2999)
    harness.end_of_input()
    assert harness.state_entries == 1, "what the key has"


def test_window_state_is_refused_where_windows_merge() -> None:
    class Asks(ProcessWindowFunction):
        def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
            context.window_state.value("x")

    harness = sessions(process=Asks(), outputs=("x",))
    harness.process(("a", 1), 0)
    with pytest.raises(UserError, match="merge"):
        harness.end_of_input()


def test_windows_over_everything_have_no_key() -> None:
    harness = tumbling(key=None)
    harness.process(("a", 1), 0)
    harness.process(("b", 2), 0)
    harness.watermark(2999)
    assert harness.values == [(0, 3000, 3)]


def test_several_key_fields_come_out_as_several_fields() -> None:
    harness = tumbling(key=("key", "value"), aggregate=aggregates.Count())
    harness.process(("a", 7), 0)
    harness.watermark(2999)
    assert harness.values == [("a", 7, 0, 3000, 1)]


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(UserError, match="not both"):
        tumbling(aggregate=aggregates.Count(), reduce=max)
    with pytest.raises(UserError, match="one of reduce="):
        OperatorHarness(WindowBolt(key="key", window=TumblingEventTimeWindows.of("1s")), FIELDS)
    with pytest.raises(UserError, match="late_stream"):
        WindowBolt(
            key="key", window=TumblingEventTimeWindows.of("1s"), aggregate=aggregates.Count(), late_stream="l", outputs={"l": ()}
        )


# -- 12. merging ---------------------------------------------------------------------------------------------------------------


def test_sessions_are_the_same_whatever_the_order_of_the_elements() -> None:
    timestamps = [0, 1500, 2500, 5500, 9000, 11_900]
    for order in (timestamps, timestamps[::-1], [9000, 0, 5500, 1500, 11_900, 2500]):
        harness = contents(EventTimeSessionWindows.with_gap("3s"))
        for timestamp in order:
            harness.process(("a", timestamp), timestamp)
        harness.watermark(END - 1)
        found = [(start, end, sorted(values)) for _, start, end, values in harness.values]
        assert found == [(0, 8500, [0, 1500, 2500, 5500]), (9000, 14_900, [9000, 11_900])]
        assert (harness.timers, harness.state_entries) == (0, 0), "nothing dangles"


class AsSaid(WindowAssigner):
    """Windows as the element says; merged into what the test says."""

    is_merging = True

    def __init__(self, is_event_time: bool = True) -> None:
        self.is_event_time = is_event_time
        self.into: TimeWindow | None = None
        self.asked: list[list[TimeWindow]] = []

    def assign(self, value: Any, timestamp: int, clock: Any) -> list[TimeWindow]:
        return [TimeWindow(*value[1])]

    def merge(self, windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
        self.asked.append(list(windows))
        return [] if self.into is None else [(self.into, list(windows))]

    def default_trigger(self) -> Any:
        return EventTimeTrigger() if self.is_event_time else ProcessingTimeTrigger()


def as_said(is_event_time: bool = True) -> tuple[OperatorHarness, AsSaid]:
    harness = windows(AsSaid(is_event_time), aggregate=aggregates.Count())
    return harness, harness.operator.assigner  # type: ignore[attr-defined]


def test_an_assigners_own_merge_is_asked_about_the_windows_of_the_key() -> None:
    harness, assigner = as_said()
    harness.process(("a", (0, 10)), 0)
    harness.process(("b", (1, 10)), 0)
    harness.process(("a", (2, 10)), 0)
    assert assigner.asked == [[(0, 10)], [(1, 10)], [(0, 10), (2, 10)]]
    assigner.into = TimeWindow(0, 20)
    harness.process(("a", (5, 6)), 0)
    assert harness.open_windows == 2
    harness.watermark(19)
    assert harness.outputs == [(("b", 1, 10, 1), 9), (("a", 0, 20, 3), 19)]
    assert (harness.timers, harness.state_entries) == (0, 0)


@pytest.mark.parametrize("is_event_time", [True, False])
def test_windows_that_merging_makes_end_in_the_past_are_refused(is_event_time: bool) -> None:
    harness, assigner = as_said(is_event_time)
    harness.process(("a", (0, 22)), 0)
    if is_event_time:
        harness.watermark(20)
    else:
        harness.set_clock(20)
    assigner.into = TimeWindow(0, 21)
    with pytest.raises(UserError, match="must not end earlier"):
        harness.process(("a", (0, 25)), 0)
    assigner.into = TimeWindow(0, 22)
    harness.process(("a", (0, 22)), 0)
    harness.set_clock(21)
    harness.watermark(21)
    assert harness.values == [("a", 0, 22, 2)]


def test_two_late_elements_do_not_merge_with_each_other() -> None:
    harness = sessions("3s", late_stream="late")
    harness.watermark(20_000)
    harness.process(("a", 1), 0)
    harness.process(("a", 2), 1000)
    assert [one.values[1] for one in harness.late] == [1, 2]
    assert harness.state_entries == 0


def test_a_late_element_that_reaches_a_living_session_is_taken() -> None:
    harness = sessions("3s", late_stream="late")
    harness.process(("a", 1), 4000)
    harness.watermark(5000)
    harness.process(("a", 2), 1500)
    harness.watermark(6999)
    assert harness.values == [("a", 1500, 7000, 3)]
    assert harness.late == []


def test_processing_time_sessions_end_a_gap_after_the_last_element() -> None:
    harness = windows(ProcessingTimeSessionWindows.with_gap("3s"))
    harness.process(("a", 1))
    harness.set_clock(2000)
    harness.process(("a", 2))
    harness.set_clock(4998)
    assert harness.values == []
    harness.set_clock(4999)
    assert harness.values == [("a", 0, 5000, 3)]


# -- 13. process functions -------------------------------------------------------------------------------------------------------


class Probe(ProcessBolt):
    """Registers what a tuple asks for: ("event" | "clock" | "delete" | "echo" | "side", moment)."""

    outputs = {"default": ("key", "what", "moment"), "side": ("key",)}

    def __init__(self) -> None:
        super().__init__(key="key")

    def open(self, context: Any) -> None:
        self.count = context.state.value("count")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        what, moment = tup["value"]
        if what == "event":
            context.register_event_time_timer(moment)
        elif what == "clock":
            context.register_processing_time_timer(moment)
        elif what == "delete":
            context.delete_event_time_timer(moment)
            context.delete_processing_time_timer(moment)
        elif what == "side":
            collector.emit((context.key,), "side")
        else:
            self.count.set((self.count.get() or 0) + 1)
            collector.emit((tup["key"], what, self.count.get()))

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((context.key, context.domain.value, timestamp))


def probe(*inputs: tuple[str, str, int]) -> OperatorHarness:
    harness = OperatorHarness(Probe(), FIELDS)
    for key, what, moment in inputs:
        harness.process((key, (what, moment)))
    return harness


def test_output_carries_the_timestamp_of_the_element_or_none() -> None:
    harness = probe(("a", "echo", 0))
    harness.process(("a", ("echo", 0)), 7)
    harness.process(("a", ("side", 0)), 8)
    assert harness.outputs == [(("a", "echo", 1), None), (("a", "echo", 2), 7)]
    assert harness.side("side") == [(("a",), 8)]


def test_an_event_timers_output_carries_its_moment_and_a_clock_timers_output_none() -> None:
    harness = probe(("a", "event", 5), ("b", "clock", 6))
    harness.watermark(9)
    harness.set_clock(9)
    assert harness.events == [
        Emitted(("a", "event time", 5), 5),
        Watermark(9),
        Emitted(("b", "processing time", 6), None),
    ]


def test_timers_are_of_their_key_and_nobody_elses_can_be_deleted() -> None:
    harness = probe(("a", "event", 5), ("b", "event", 5), ("a", "event", 5), ("b", "delete", 5), ("c", "delete", 5))
    assert harness.timers == 1
    harness.watermark(5)
    assert harness.values == [("a", "event time", 5)]


def test_a_timer_at_or_behind_the_watermark_fires_at_the_next_one() -> None:
    harness = probe()
    harness.watermark(10)
    harness.process(("a", ("event", 10)))
    harness.process(("a", ("event", 3)))
    assert harness.values == []
    harness.watermark(11)
    assert [values[2] for values in harness.values] == [3, 10]


def test_timers_that_a_timer_registers_fire_in_the_same_advance() -> None:
    class Chain(Probe):
        def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
            super().on_timer(timestamp, context, collector)
            if timestamp < 8:
                context.register_event_time_timer(timestamp + 2)

    harness = OperatorHarness(Chain(), FIELDS)
    harness.process(("a", ("event", 4)))
    harness.watermark(7)
    assert [values[2] for values in harness.values] == [4, 6]
    harness.watermark(100)
    assert [values[2] for values in harness.values] == [4, 6, 8]


def test_a_side_output_needs_a_stream_that_is_declared() -> None:
    class Wrong(Probe):
        def process(self, tup: Any, context: Any, collector: Any) -> None:
            collector.emit((1,), "sides")

    with pytest.raises(EmitError, match="did you mean 'side'"):
        OperatorHarness(Wrong(), FIELDS).process(("a", ("echo", 0)))


def test_the_default_stream_is_the_main_one_also_where_it_is_named() -> None:
    class Named(Probe):
        def process(self, tup: Any, context: Any, collector: Any) -> None:
            collector.emit(("a", "b", 1), "default")

    harness = OperatorHarness(Named(), FIELDS)
    harness.process(("a", None), 5)
    assert harness.outputs == [(("a", "b", 1), 5)]


def test_a_timer_between_two_milliseconds_is_refused() -> None:
    for domain in ("event", "clock"):
        with pytest.raises(UserError, match="64-bit number of milliseconds"):
            probe(("a", domain, 1.5))  # type: ignore[arg-type]


def test_a_timer_beyond_64_bits_is_refused_and_the_last_one_is_not() -> None:
    harness = probe(("a", "event", END))
    with pytest.raises(UserError, match="64-bit"):
        harness.process(("a", ("event", END + 1)))
    assert harness.restore(harness.snapshot()).timers == 1
    harness.end_of_input()
    assert harness.outputs == [(("a", "event time", END), END)]


# -- 5. the timer service by itself ----------------------------------------------------------------------------------------------


def test_one_clock_timer_is_armed_for_all_and_again_after_it_fired() -> None:
    timers = TimerHarness()
    for moment in (30, 10, 20):
        timers.register_processing("a", moment)
    assert timers.clock.pending == 1
    timers.set_clock(10)
    assert [fired.timestamp for fired in timers.processing_fired] == [10]
    assert timers.clock.pending == 1
    timers.delete_processing("a", 20)
    timers.set_clock(25)
    assert timers.clock.pending == 1
    timers.set_clock(30)
    assert [fired.timestamp for fired in timers.processing_fired] == [10, 30]
    assert timers.clock.pending == 0


def test_the_armed_clock_timer_is_that_of_the_earliest_moment() -> None:
    timers = TimerHarness()
    assert timers.clock.next_due_ms is None
    timers.register_processing("a", 30)
    assert timers.clock.next_due_ms == 30
    timers.register_processing("b", 10)
    assert timers.clock.next_due_ms == 10
    timers.register_event("a", 5)
    timers.delete_processing("b", 10)
    assert timers.clock.next_due_ms == 10, "the armed timer stays; it will find nothing due"
    timers.set_clock(10)
    assert (timers.clock.next_due_ms, timers.processing_fired) == (30, [])


def test_restored_clock_timers_are_armed() -> None:
    timers = TimerHarness()
    timers.register_processing("a", 10)
    restored = TimerHarness()
    restored.restore(timers.snapshot(), KeyGroupRange(0, 127))
    assert restored.clock.pending == 1
    restored.set_clock(10)
    assert restored.processing_fired == [("a", None, 10)]


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


def test_a_restored_window_goes_on_and_its_watermark_begins_anew() -> None:
    harness = tumbling(allowed_lateness="10s")
    harness.process(("a", 1), 0)
    harness.watermark(2000)
    restored = harness.restore(harness.snapshot())
    restored.process(("a", 2), 1)
    assert restored.values == []
    restored.watermark(2999)
    assert restored.values == [("a", 0, 3000, 3)]
    assert harness.values == []


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


def test_a_process_bolt_is_restored_with_state_and_timers_of_a_new_instance() -> None:
    harness = probe(("a", "echo", 0), ("a", "event", 10), ("a", "clock", 10))
    restored = harness.restore(harness.snapshot())
    assert restored.bolt is not harness.bolt
    restored.process(("a", ("echo", 0)))
    restored.watermark(10)
    restored.set_clock(10)
    assert restored.values == [("a", "echo", 2), ("a", "event time", 10), ("a", "processing time", 10)]


def test_state_that_could_not_be_stored_is_found_when_the_snapshot_is_taken() -> None:
    class Keeps(Probe):
        def process(self, tup: Any, context: Any, collector: Any) -> None:
            self.count.set(object())

    harness = OperatorHarness(Keeps(), FIELDS)
    harness.process(("a", ("echo", 0)))
    with pytest.raises(ValueNotCarried):
        harness.snapshot()


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
