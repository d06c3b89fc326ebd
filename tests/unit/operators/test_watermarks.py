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


def test_a_single_channel_passes_its_growing_watermarks_on() -> None:
    combiner = WatermarkCombiner([0])
    assert combiner.watermark(0, 5) == [5]
    assert combiner.watermark(0, 5) == []
    assert combiner.watermark(0, 4) == []
    assert combiner.watermark(0, 6) == [6]


def test_the_watermark_is_the_least_over_the_channels_and_every_channel_has_to_speak() -> None:
    combiner = WatermarkCombiner("abc")
    assert combiner.watermark("a", 10) == []
    assert combiner.watermark("b", 7) == []
    assert combiner.watermark("c", 3) == [3]
    assert combiner.held_back_by == "c"
    assert combiner.watermark("c", 12) == [7]
    assert combiner.watermark("b", 20) == [10]


def test_the_watermark_of_an_idle_channel_is_ignored_and_not_even_stored() -> None:
    combiner = WatermarkCombiner("ab")
    combiner.watermark("a", 5)
    assert combiner.idle("b") == [5]
    assert combiner.watermark("b", 100) == []
    assert combiner.active("b") == []
    assert combiner.watermark("a", 8) == [8], "b is behind and does not count; its 100 was not stored"
    combiner.validate()


def test_while_everything_is_idle_no_watermark_is_taken() -> None:
    combiner = WatermarkCombiner("a")
    combiner.watermark("a", 5)
    assert combiner.idle("a") == [IDLE]
    assert combiner.watermark("a", 9) == []
    assert combiner.active("a") == [ACTIVE]
    assert combiner.watermark("a", 7) == [7]


def test_a_channel_that_goes_idle_no_longer_holds_the_others_back() -> None:
    combiner = WatermarkCombiner("abc")
    for channel, timestamp in [("a", 10), ("b", 15), ("c", 12)]:
        combiner.watermark(channel, timestamp)
    assert combiner.last_watermark == 10
    assert combiner.idle("a") == [12]
    assert combiner.idle("b") == [], "the others did not wait for b"


def test_a_channel_that_returns_from_idleness_has_to_catch_up_before_it_counts() -> None:
    combiner = WatermarkCombiner("ab")
    combiner.watermark("a", 5)
    combiner.watermark("b", 5)
    combiner.idle("b")
    assert combiner.watermark("a", 20) == [20]
    assert combiner.active("b") == []
    assert combiner.watermark("b", 10) == []
    assert combiner.watermark("a", 30) == [30], "b is at 10, behind 20, and holds nothing back"
    assert combiner.watermark("b", 30) == []
    assert combiner.watermark("a", 40) == [], "b has caught up and counts again"
    assert combiner.watermark("b", 35) == [35]
    combiner.validate()


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_when_all_become_idle_the_greatest_watermark_leaves_before_the_status(order: str) -> None:
    combiner = WatermarkCombiner("ab")
    combiner.watermark("a", 3)
    combiner.watermark("b", 9)
    assert combiner.idle(order[0]) + combiner.idle(order[1]) == [9, IDLE]


def test_when_all_become_idle_and_nothing_is_new_only_the_status_is_put_out() -> None:
    combiner = WatermarkCombiner("ab")
    assert combiner.idle("a") == []
    assert combiner.idle("b") == [IDLE], "no channel had a watermark, so none leaves, and never the greatest"


def test_the_first_channel_that_returns_makes_the_whole_active_again() -> None:
    combiner = WatermarkCombiner("ab")
    combiner.idle("a")
    combiner.idle("b")
    assert combiner.active("b") == [ACTIVE]
    assert combiner.active("a") == []


def test_a_channel_that_returns_makes_the_combiner_look_for_a_new_minimum() -> None:
    combiner = WatermarkCombiner("abc")
    combiner.watermark("a", 5)
    combiner.watermark("b", 5)
    combiner.watermark("c", 5)
    combiner.idle("b")
    combiner.watermark("a", 10)
    combiner.watermark("c", 7)
    combiner.idle("a")
    assert combiner.idle("c") == [10, IDLE], "c was at 7, the maximum over all is 10"
    assert combiner.active("c") == [ACTIVE], "behind 10: nothing counts"
    assert combiner.active("a") == []
    assert combiner.watermark("a", 11) == [11]


def test_the_same_status_again_produces_nothing() -> None:
    combiner = WatermarkCombiner("ab")
    assert combiner.active("a") == []
    combiner.idle("a")
    assert combiner.idle("a") == []


def test_without_an_aligned_channel_there_is_no_output() -> None:
    combiner = WatermarkCombiner("ab")
    combiner.watermark("a", 5)
    combiner.idle("b")
    combiner.watermark("a", 20)
    assert combiner.active("b") == []
    assert combiner.idle("a") == [], "b is active and behind, a is idle: no channel counts"
    assert combiner.held_back_by is None
    assert combiner.watermark("b", 19) == []
    assert combiner.watermark("b", 21) == [21]


def test_finished_channels_hold_nothing_back_and_the_last_ends_everything() -> None:
    combiner = WatermarkCombiner("ab")
    combiner.watermark("a", 5)
    combiner.watermark("b", 6)
    assert combiner.finish("a") == [6]
    assert combiner.watermark("b", 8) == [8]
    assert combiner.finish("b") == [MAX_TIMESTAMP]
    assert combiner.held_back_by is None
    assert combiner.finish("b") == []


def test_an_idle_channel_that_finishes_is_active_by_it_so_that_its_end_counts() -> None:
    combiner = WatermarkCombiner("a")
    combiner.watermark("a", 5)
    combiner.idle("a")
    assert combiner.finish("a") == [ACTIVE, MAX_TIMESTAMP]


def test_no_channels_put_nothing_out() -> None:
    combiner = WatermarkCombiner([])
    combiner.validate()
    assert combiner.held_back_by is None


# The multiplexer of the splits of a source


def test_immediate_outputs_are_combined_at_every_raise(out: Recorder) -> None:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.register("b")
    a, b = multiplexer.immediate("a"), multiplexer.immediate("b")
    a.watermark(5)
    assert out.taken() == []
    b.watermark(2)
    b.watermark(7)
    b.watermark(6)
    assert out.taken() == [("watermark", 2), ("watermark", 5)]


def test_deferred_outputs_are_combined_at_the_tick_only(out: Recorder) -> None:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.register("b")
    multiplexer.deferred("a").watermark(5)
    multiplexer.deferred("b").watermark(3)
    assert out.taken() == []
    multiplexer.on_periodic_emit()
    multiplexer.on_periodic_emit()
    assert out.taken() == [("watermark", 3)]


def test_an_idle_split_does_not_hold_the_others_back_and_all_idle_is_idle(out: Recorder) -> None:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.register("b")
    multiplexer.immediate("a").watermark(5)
    multiplexer.immediate("b").mark_idle()
    assert out.taken() == [("watermark", 5)]
    multiplexer.immediate("a").mark_idle()
    assert out.taken() == [("idle",)]


def test_emitting_on_an_idle_output_makes_it_active(out: Recorder) -> None:
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.register("b")
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
    multiplexer = WatermarkMultiplexer(out)
    multiplexer.register("a")
    multiplexer.register("b")
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
