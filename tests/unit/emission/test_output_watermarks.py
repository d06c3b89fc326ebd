"""Event time of what a task emits: timestamps, watermarks, idleness, and their reports."""

from __future__ import annotations

from typing import Any

import pytest

from topo.api.watermarks import WatermarkStrategy
from topo.emission.output_watermarks import OutputWatermarks, timestamp_reader
from topo.operators.time.watermarks import InputStatus
from topo.user_errors import place_of
from topo.wire.frames import MIN_WATERMARK


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def __call__(self) -> int:
        return self.ms


def _raise(error: Exception) -> None:
    raise error


def stamps(time: OutputWatermarks, rows: list[Any], given: list[int | None] | None = None) -> list[int | None]:
    """The strategy's timestamps of rows that are all well, after the generator has seen them."""
    read, refused = time.read(rows, given)
    assert not refused
    time.show(rows, read)
    return list(read)


def made(
    strategy: WatermarkStrategy | None, clock: Clock | None = None, errors: list[Exception] | None = None
) -> OutputWatermarks:
    time = OutputWatermarks(
        strategy, ("at", "value"), clock or Clock(), 0.2, "a", errors.append if errors is not None else _raise
    )
    time.reset(0.0, forget=True)
    return time


BOUNDED = WatermarkStrategy.bounded_out_of_orderness("5ms", timestamp="at")


def test_a_timestamp_is_read_from_a_field_a_position_or_a_function() -> None:
    for where in ("value", 1, lambda row: row[1]):
        reader = timestamp_reader(where, ("at", "value"))
        assert reader is not None and reader((1, 7)) == 7
    assert timestamp_reader(None, ("at",)) is None


def test_a_bounded_strategy_tells_one_less_than_the_bound_when_it_is_asked() -> None:
    time = made(BOUNDED)
    assert stamps(time, [(100, "a"), (90, "b")]) == [100, 90]
    assert time.drain_updates() == []
    time.probe(0.2)
    assert time.drain_updates() == [94]
    assert time.drain_updates() == []


def test_a_strategy_is_asked_at_its_interval_and_not_before() -> None:
    time = made(BOUNDED)
    stamps(time, [(100, "a")])
    time.probe(0.1)
    assert not time.has_updates
    time.probe(0.2)
    assert time.has_updates
    assert time.next_probe == 0.4


def test_what_was_given_stands_where_the_strategy_reads_nothing() -> None:
    time = made(WatermarkStrategy.bounded_out_of_orderness("0s"))
    assert stamps(time, [(1, "a"), (2, "b")], [50, None]) == [50, None]
    time.probe(1.0)
    assert time.drain_updates() == [49]


def test_a_punctuated_strategy_speaks_with_the_row_that_carries_a_watermark() -> None:
    time = made(WatermarkStrategy.punctuated(lambda row, stamp: stamp if row[1] == "mark" else None, timestamp="at"))
    stamps(time, [(1, "a"), (5, "mark"), (6, "b")])
    assert time.drain_updates() == [5]


def test_timestamps_only_makes_no_watermark() -> None:
    time = made(WatermarkStrategy.timestamps_only("at"))
    assert stamps(time, [(9, "a")]) == [9]
    time.probe(1.0)
    assert time.drain_updates() == []


def test_watermarks_only_rise() -> None:
    time = made(None)
    time.watermark(10)
    time.watermark(7)
    assert time.drain_updates() == [10]
    time.watermark(9)
    assert time.drain_updates() == []


def test_watermarks_stay_below_what_has_to_be_emitted_again() -> None:
    time = made(None)
    time.watermark(100)
    assert time.drain_updates(floor=50) == [49]
    assert time.drain_updates(floor=50) == []
    assert time.drain_updates() == [100]


def test_a_silent_source_is_idle_and_says_so_once() -> None:
    clock = Clock()
    time = made(BOUNDED.with_idleness("1s"), clock)
    stamps(time, [(100, "a")])
    time.probe(1.0)
    assert time.drain_updates() == [94]
    time.probe(2.0)
    clock.ms = 1001
    time.probe(3.0)
    assert time.drain_updates() == [InputStatus.IDLE]
    time.probe(4.0)
    assert time.drain_updates() == []


def test_activity_is_told_before_the_watermark_that_ends_the_idleness() -> None:
    time = made(None)
    time.mark_idle()
    assert time.drain_updates() == [InputStatus.IDLE]
    time.watermark(5)
    assert time.drain_updates() == [InputStatus.ACTIVE, 5], "an idle input's watermark would not count"


def test_the_last_watermark_is_told_before_the_idleness_that_follows_it() -> None:
    time = made(None)
    time.watermark(5)
    time.mark_idle()
    assert time.drain_updates() == [5, InputStatus.IDLE]


def test_a_watermark_that_was_kept_back_waits_for_the_end_of_the_idleness() -> None:
    time = made(None)
    time.watermark(100)
    time.mark_idle()
    assert time.drain_updates(floor=50) == [49, InputStatus.IDLE]
    assert time.drain_updates() == []
    time.mark_active()
    assert time.drain_updates() == [InputStatus.ACTIVE, 100]


def test_a_source_tells_again_in_a_new_epoch_what_it_had_reached() -> None:
    time = made(None)
    time.watermark(100)
    time.mark_idle()
    time.drain_updates()
    time.reset(5.0, forget=False)
    assert time.drain_updates() == [100, InputStatus.IDLE]


def test_a_bolt_forgets_with_its_epoch_what_its_strategy_has_seen() -> None:
    time = made(BOUNDED)
    stamps(time, [(100, "a")])
    time.probe(1.0)
    assert time.drain_updates() == [94]
    time.reset(2.0, forget=True)
    assert time.latest == MIN_WATERMARK
    stamps(time, [(20, "a replay")])
    time.probe(3.0)
    assert time.drain_updates() == [14], "a replay must not be late by what came before the loss"


@pytest.mark.parametrize("bad", ["2026-11-21", 1.5, b"7", 1 << 63, -(1 << 63), -(1 << 63) - 1])
def test_a_row_whose_field_is_no_timestamp_is_refused_and_the_others_are_read(bad: object) -> None:
    read, refused = made(BOUNDED).read([(1, "a"), (bad, "b"), (3, "c"), (None, "d")], None)
    assert read == [1, None, 3, None]
    assert list(refused) == [1]
    assert str(refused[1]).startswith(f"component 'a': timestamp field 'at' is {bad!r}"), refused[1]


def test_a_row_on_which_the_timestamp_function_raises_is_refused_with_the_place() -> None:
    time = made(WatermarkStrategy.timestamps_only(lambda row: 100 // row[0]))
    read, refused = time.read([(0, "a"), (2, "b")], None)
    assert read == [None, 50]
    assert str(refused[0]) == "component 'a': no timestamp of (0, 'a'): ZeroDivisionError: integer division or modulo by zero"
    assert place_of(refused[0])[0] == __file__


def test_an_integer_of_another_library_is_a_timestamp() -> None:
    class Whole:
        def __index__(self) -> int:
            return 7

    assert stamps(made(BOUNDED), [(Whole(), "a")]) == [7]


class Broken:
    """A generator of a user, without the guards of the engine's own: raises, or emits a value that is no watermark."""

    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        if value[1] == "bad":
            raise ValueError("cannot")
        output.watermark(1.5 if value[1] == "float" else timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        raise KeyError("never")


@pytest.mark.parametrize("idleness", [False, True])
def test_what_a_generator_of_the_user_raises_is_reported_and_the_next_row_is_shown(idleness: bool) -> None:
    errors: list[Exception] = []
    strategy = WatermarkStrategy.from_generator(Broken, timestamp="at")
    time = made(strategy.with_idleness("1s") if idleness else strategy, errors=errors)
    stamps(time, [(1, "a"), (2, "bad"), (3, "float"), (4, "b")])
    assert time.drain_updates() == [4]
    time.probe(1.0)
    assert [type(error).__name__ for error in errors] == ["ValueError", "EmitError", "KeyError"]
    assert "component 'a' emitted watermark 1.5 (float)" in str(errors[1])


def test_event_time_goes_on_with_the_clock_while_the_source_is_silent() -> None:
    clock = Clock()
    time = made(BOUNDED.with_idleness("1s", advance=True), clock)
    stamps(time, [(100, "a")])
    time.probe(1.0)
    assert time.drain_updates() == [94]
    time.probe(2.0)
    clock.ms = 1000
    time.probe(3.0)
    assert time.drain_updates() == []
    clock.ms = 1001
    time.probe(4.0)
    assert time.drain_updates() == [94 + 1001, InputStatus.IDLE], "no watermark waits for it, and open windows close"
    clock.ms = 1500
    time.probe(5.0)
    assert time.drain_updates() == [InputStatus.ACTIVE, 94 + 1500, InputStatus.IDLE]
    stamps(time, [(3000, "b")])
    time.probe(6.0)
    assert time.drain_updates() == [InputStatus.ACTIVE, 2994]
    stamps(time, [(50, "late")])
    time.probe(7.0)
    assert time.drain_updates() == []


def test_event_time_does_not_go_on_before_the_first_tuple() -> None:
    clock = Clock()
    time = made(BOUNDED.with_idleness("1s", advance=True), clock)
    for now in range(1, 6):
        time.probe(float(now))
        clock.ms += 1000
    assert time.drain_updates() == [InputStatus.IDLE]
    assert time.latest == MIN_WATERMARK


def test_a_punctuated_watermark_goes_on_too() -> None:
    clock = Clock()
    punctuated = WatermarkStrategy.punctuated(lambda row, stamp: stamp, timestamp="at")
    time = made(punctuated.with_idleness("1s", advance=True), clock)
    stamps(time, [(100, "a")])
    for now in (1.0, 2.0, 3.0):
        time.probe(now)
        clock.ms += 1500
    assert time.drain_updates() == [100 + 1500, InputStatus.IDLE]
