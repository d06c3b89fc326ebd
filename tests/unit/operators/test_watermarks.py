"""Watermarks: generators, the combiner of input channels, the multiplexer of splits."""

from __future__ import annotations

import pytest

from tests.unit.operators.rig import Recorder
from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.time.watermarks import (
    BoundedOutOfOrderness,
    InputStatus,
    NoWatermarks,
    PunctuatedWatermarks,
    WatermarkCombiner,
    WatermarkMultiplexer,
    WatermarkSource,
    WatermarksWithIdleness,
)

IDLE, ACTIVE = InputStatus.IDLE, InputStatus.ACTIVE


@pytest.fixture
def out() -> Recorder:
    return Recorder()


# Generators


def test_ascending_timestamps_give_a_watermark_one_millisecond_behind(out: Recorder) -> None:
    generator = BoundedOutOfOrderness(0)
    generator.on_event("x", 1337, out)
    assert out.taken() == []
    generator.on_periodic_emit(out)
    assert out.taken() == [("watermark", 1336)]


def test_bounded_out_of_orderness_subtracts_the_bound_and_one_more_millisecond(out: Recorder) -> None:
    generator = BoundedOutOfOrderness(10)
    for timestamp in (100, 250, 240):
        generator.on_event("x", timestamp, out)
    generator.on_periodic_emit(out)
    assert out.taken() == [("watermark", 239)]


@pytest.mark.parametrize("bound", [0, 10, 10**12])
def test_before_the_first_element_the_watermark_is_the_least(out: Recorder, bound: int) -> None:
    BoundedOutOfOrderness(bound).on_periodic_emit(out)
    assert out.taken() == [("watermark", MIN_TIMESTAMP)]


def test_a_batch_of_elements_is_seen_like_one_after_the_other(out: Recorder) -> None:
    generator = BoundedOutOfOrderness(5)
    generator.on_events("abc", [10, 30, 20], out)
    generator.on_events("", [], out)
    generator.on_events("d", [15], out)
    generator.on_periodic_emit(out)
    assert out.taken() == [("watermark", 24)]


def test_negative_timestamps_are_timestamps(out: Recorder) -> None:
    generator = BoundedOutOfOrderness(0)
    generator.on_events("abc", [MIN_TIMESTAMP + 1, -5, -1], out)
    generator.on_periodic_emit(out)
    assert out.taken() == [("watermark", -2)]


def test_a_negative_bound_is_an_error() -> None:
    with pytest.raises(UserError):
        BoundedOutOfOrderness(-1)


def test_a_punctuated_generator_emits_with_the_element_that_carries_a_watermark(out: Recorder) -> None:
    generator = PunctuatedWatermarks(lambda value, timestamp: timestamp if value == "mark" else None)
    generator.on_events(["x", "mark", "y"], [1, 2, 3], out)
    generator.on_periodic_emit(out)
    assert out.taken() == [("watermark", 2)]


def test_no_watermarks_says_nothing(out: Recorder) -> None:
    generator = NoWatermarks()
    generator.on_event("x", 1, out)
    generator.on_periodic_emit(out)
    assert out.taken() == []


class Idleness:
    """A bounded generator with an idle timeout of 10 ms on a clock that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.out = Recorder()
        self.generator = WatermarksWithIdleness(BoundedOutOfOrderness(0), 10, lambda: self.now_ms)

    def check_at(self, now_ms: int) -> list[tuple[object, ...]]:
        self.now_ms = now_ms
        self.generator.on_periodic_emit(self.out)
        return self.out.taken()


def test_the_idle_countdown_starts_at_the_first_check_without_activity() -> None:
    idleness = Idleness()
    idleness.generator.on_event("x", 6, idleness.out)
    assert idleness.check_at(100) == [("watermark", 5)], "saw activity"
    assert idleness.check_at(200) == [("watermark", 5)], "starts the countdown"
    assert idleness.check_at(210) == [("watermark", 5)], "10 ms are not more than 10 ms"
    assert idleness.check_at(211) == [("idle",)]


def test_idleness_is_signalled_once_and_the_inner_generator_is_not_polled_meanwhile() -> None:
    idleness = Idleness()
    idleness.check_at(0)
    assert idleness.check_at(11) == [("idle",)]
    assert idleness.check_at(500) == []


def test_the_next_event_ends_the_idleness_with_the_next_watermark() -> None:
    idleness = Idleness()
    idleness.check_at(0)
    idleness.check_at(11)
    idleness.generator.on_events(["x"], [8], idleness.out)
    assert idleness.out.taken() == []
    assert idleness.check_at(12) == [("watermark", 7)]
    idleness.check_at(20)
    assert idleness.check_at(31) == [("idle",)]


def test_activity_during_the_countdown_resets_it() -> None:
    idleness = Idleness()
    idleness.check_at(0)
    idleness.generator.on_event("x", 1, idleness.out)
    assert idleness.check_at(11) == [("watermark", 0)]
    assert idleness.check_at(15) == [("watermark", 0)]
    assert idleness.check_at(25) == [("watermark", 0)]
    assert idleness.check_at(26) == [("idle",)]


def test_an_empty_batch_is_no_activity() -> None:
    idleness = Idleness()
    idleness.check_at(0)
    idleness.generator.on_events([], [], idleness.out)
    assert idleness.check_at(11) == [("idle",)]


@pytest.mark.parametrize("timeout", [0, -1])
def test_an_idle_timeout_that_is_not_above_zero_is_an_error(timeout: int) -> None:
    with pytest.raises(UserError):
        WatermarksWithIdleness(WatermarkSource(), timeout, lambda: 0)


# The valve over input channels

VALVE = {
    "a single channel passes its growing watermarks on": "a 5 = 5; a 5; a 4; a 6 = 6",
    "the watermark is the least over the channels, and every channel has to speak": "a 10; b 7; c 3 = 3; c 12 = 7; b 20 = 10",
    "while everything is idle no watermark is taken": "a 5 = 5; a idle = idle; a 9; a active = active; a 7 = 7",
    "a channel that goes idle no longer holds those back that waited for it": "a 10; b 15; c 12 = 10; a idle = 12; b idle",
    "when all become idle and none had a watermark, only the status is put out": "a idle; b idle = idle",
    "the first channel that returns makes the whole active again": "a idle; b idle = idle; b active = active; a active",
    "the greatest watermark leaves when all are idle, and behind it none that returns counts": (
        "a 5; b 5; c 5 = 5; b idle; a 10; c 7 = 7; a idle; c idle = 10 idle; c active = active; a active; a 11 = 11"
    ),
    "the same status again produces nothing": "b 1; a active; a idle = 1; a idle",
    "no channel counts where one is behind and the other idle": "a 5; b idle = 5; a 20 = 20; b active; a idle; b 19; b 21 = 21",
    "finished channels hold nothing back, and the last ends all once": "a 5; b 6 = 5; a end = 6; b 8 = 8; b end = end; b end",
    "an idle channel that finishes is active by it, so that its end counts": "a 5 = 5; a idle = idle; a end = active end",
}
"""Steps of channels (a, b, c), each with its output."""
OUTPUTS: dict[str, object] = {"idle": IDLE, "active": ACTIVE, "end": MAX_TIMESTAMP}


@pytest.mark.parametrize("case", VALVE)
def test_the_combiner_of_channels_puts_out(case: str) -> None:
    steps = [step.partition(" = ") for step in VALVE[case].split("; ")]
    combiner = WatermarkCombiner(sorted({call[0] for call, _, _ in steps}))
    for call, _, out in steps:
        channel, what = call.split()
        changes = {"idle": combiner.idle, "active": combiner.active, "end": combiner.finish}
        found = changes[what](channel) if what in changes else combiner.watermark(channel, int(what))
        assert found == [OUTPUTS.get(one) or int(one) for one in out.split()], call
        combiner.validate()


def test_the_channel_that_holds_the_watermark_back_is_named() -> None:
    combiner = WatermarkCombiner("abc")
    for channel, timestamp in (("a", 10), ("b", 7), ("c", 3)):
        combiner.watermark(channel, timestamp)
    assert combiner.held_back_by == "c" and combiner.counting == {"a": 10, "b": 7, "c": 3}
    combiner.idle("c")
    assert combiner.held_back_by == "b" and combiner.counting == {"a": 10, "b": 7}
    for channel in "abc":
        combiner.finish(channel)
    assert combiner.held_back_by is None and combiner.counting == {}
    WatermarkCombiner([]).validate()
    assert WatermarkCombiner([]).held_back_by is None
    behind = WatermarkCombiner("ab")
    behind.watermark("a", 5)
    behind.idle("b")
    behind.watermark("a", 20)
    behind.active("b")
    behind.idle("a")
    assert behind.held_back_by is None, "no channel counts"


# The multiplexer of the splits of a source


def of_two_splits(out: Recorder) -> WatermarkMultiplexer:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.register("b")
    return multiplexer


def test_immediate_outputs_are_combined_at_every_raise(out: Recorder) -> None:
    multiplexer = of_two_splits(out)
    a, b = multiplexer.immediate("a"), multiplexer.immediate("b")
    a.watermark(5)
    assert out.taken() == []
    b.watermark(2)
    b.watermark(7)
    b.watermark(6)
    assert out.taken() == [("watermark", 2), ("watermark", 5)]


def test_deferred_outputs_are_combined_at_the_tick_only(out: Recorder) -> None:
    multiplexer = of_two_splits(out)
    multiplexer.deferred("a").watermark(5)
    multiplexer.deferred("b").watermark(3)
    assert out.taken() == []
    multiplexer.on_periodic_emit()
    multiplexer.on_periodic_emit()
    assert out.taken() == [("watermark", 3)]


def test_an_idle_split_does_not_hold_the_others_back_and_all_idle_is_idle(out: Recorder) -> None:
    multiplexer = of_two_splits(out)
    multiplexer.immediate("a").watermark(5)
    multiplexer.immediate("b").mark_idle()
    assert out.taken() == [("watermark", 5)]
    multiplexer.immediate("a").mark_idle()
    assert out.taken() == [("idle",)]


def test_emitting_on_an_idle_output_makes_it_active(out: Recorder) -> None:
    multiplexer = of_two_splits(out)
    multiplexer.immediate("b").mark_idle()
    multiplexer.immediate("b").watermark(1)
    out.taken()
    multiplexer.immediate("a").watermark(9)
    assert out.taken() == [("watermark", 1)]
    multiplexer.immediate("b").mark_idle()
    assert out.taken() == [("watermark", 9)]
    multiplexer.immediate("b").mark_active()
    multiplexer.immediate("a").watermark(20)
    assert out.taken() == [], "b counts again, at 1"


def test_a_deferred_change_of_idleness_waits_for_the_tick(out: Recorder) -> None:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.deferred("a").mark_idle()
    assert out.taken() == []
    multiplexer.on_periodic_emit()
    assert out.taken() == [("idle",)]


def test_zero_outputs_put_nothing_out(out: Recorder) -> None:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.on_periodic_emit()
    multiplexer.register("a")
    multiplexer.immediate("a").watermark(3)
    assert multiplexer.unregister("a") and not multiplexer.unregister("a")
    multiplexer.on_periodic_emit()
    assert out.taken() == [("watermark", 3)]


def test_unregistering_does_not_itself_put_anything_out(out: Recorder) -> None:
    multiplexer = of_two_splits(out)
    multiplexer.immediate("a").watermark(5)
    multiplexer.unregister("b")
    assert out.taken() == []
    multiplexer.on_periodic_emit()
    assert out.taken() == [("watermark", 5)]


def test_a_split_that_joins_late_does_not_take_the_watermark_back(out: Recorder) -> None:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.immediate("a").watermark(5)
    multiplexer.register("b")
    multiplexer.immediate("b").watermark(2)
    multiplexer.immediate("a").watermark(9)
    assert out.taken() == [("watermark", 5)]
    multiplexer.immediate("b").watermark(7)
    assert out.taken() == [("watermark", 7)]
    with pytest.raises(UserError):
        multiplexer.register("b")
