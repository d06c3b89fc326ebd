"""Section 7, operators that give timestamps and make watermarks: assigned, by ingestion, and at a source."""

from __future__ import annotations

import pytest

from tests.unit.operators.driver import Driver, RecordingOutput
from topo.errors import UserError
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP
from topo.operators.time.watermark_operators import IngestionTime, SourceOutput, TimestampsAndWatermarks
from topo.operators.time.watermarks import (
    BoundedOutOfOrderness,
    MonotonousTimestamps,
    PunctuatedWatermarks,
    WatermarksWithIdleness,
)


def periodic(interval_ms: int = 50, progressive: bool = True) -> Driver:
    return Driver(TimestampsAndWatermarks(MonotonousTimestamps(), lambda value, _: value, interval_ms, progressive))


def test_elements_leave_with_their_timestamp_and_watermarks_only_periodically() -> None:
    driver = periodic()
    driver.operator.process_element(None, 3, None)
    driver.operator.process_element(None, 5, None)
    assert driver.out.take() == [("emit", 3, 3), ("emit", 5, 5)]
    driver.clock.advance_to(49)
    assert driver.out.take() == []
    driver.clock.advance_to(50)
    assert driver.out.take() == [("watermark", 4)]
    driver.clock.advance_to(100)
    assert driver.out.take() == [], "nothing new"
    driver.operator.process_element(None, 6, None)
    driver.clock.advance_to(150)
    assert driver.out.take() == [("emit", 6, 6), ("watermark", 5)]


def test_the_next_periodic_watermark_is_an_interval_after_the_last_one_was_made() -> None:
    driver = periodic()
    driver.clock.advance_to(70)
    assert driver.clock.pending == 1
    driver.operator.process_element(None, 3, None)
    driver.out.take()
    driver.clock.advance_to(119)
    assert driver.out.take() == []
    driver.clock.advance_to(120)
    assert driver.out.take() == [("watermark", 2)]


def test_the_record_is_forwarded_before_the_generator_sees_it() -> None:
    driver = Driver(TimestampsAndWatermarks(PunctuatedWatermarks(lambda value, timestamp: timestamp), interval_ms=0))
    driver.operator.process_element(None, "x", 7)
    assert driver.out.take() == [("emit", "x", 7), ("watermark", 7)]


def test_punctuated_watermarks_pass_the_monotone_filter() -> None:
    driver = Driver(TimestampsAndWatermarks(PunctuatedWatermarks(lambda value, timestamp: timestamp), interval_ms=0))
    for timestamp in (5, 5, 3, 6):
        driver.operator.process_element(None, "x", timestamp)
    assert [each for each in driver.out.take() if each[0] == "watermark"] == [("watermark", 5), ("watermark", 6)]


def test_negative_timestamps_are_timestamps() -> None:
    driver = periodic()
    for value in (MIN_TIMESTAMP + 1, -5, -1):
        driver.operator.process_element(None, value, None)
    driver.clock.advance_to(50)
    assert driver.out.take()[-1] == ("watermark", -2)


def test_the_assigner_sees_the_timestamp_that_the_record_has_and_the_least_one_when_it_has_none() -> None:
    seen: list[int] = []
    operator = TimestampsAndWatermarks(MonotonousTimestamps(), lambda value, known: seen.append(known) or 1)  # type: ignore[func-returns-value]
    driver = Driver(operator)
    operator.process_element(None, "x", 42)
    operator.process_element(None, "x", None)
    assert seen == [42, MIN_TIMESTAMP]
    assert driver.out.take() == [("emit", "x", 1), ("emit", "x", 1)]


def test_watermarks_and_statuses_of_the_input_are_swallowed_except_the_last_watermark() -> None:
    driver = periodic()
    driver.operator.process_watermark(10)
    driver.operator.process_idle(True)
    driver.operator.process_idle(False)
    assert driver.out.take() == []
    driver.operator.process_watermark(MAX_TIMESTAMP)
    assert driver.out.take() == [("watermark", MAX_TIMESTAMP)]
    driver.operator.process_element(None, 5, None)
    driver.clock.advance_to(50)
    assert driver.out.take() == [("emit", 5, 5)], "nothing is greater"


def test_at_the_end_the_generator_is_asked_a_last_time() -> None:
    driver = periodic()
    driver.operator.process_element(None, 5, None)
    driver.operator.end_of_input()
    assert driver.out.take() == [("emit", 5, 5), ("watermark", 4)]


def test_batch_mode_makes_no_watermarks_but_the_last() -> None:
    driver = periodic(progressive=False)
    driver.operator.process_element(None, 5, None)
    driver.clock.advance_to(1_000)
    driver.operator.process_watermark(MAX_TIMESTAMP)
    driver.operator.end_of_input()
    assert driver.out.take() == [("emit", 5, 5), ("watermark", MAX_TIMESTAMP)]


def test_an_operator_that_goes_idle_says_so_once_and_is_active_again_by_the_next_watermark() -> None:
    operator = TimestampsAndWatermarks(
        WatermarksWithIdleness(BoundedOutOfOrderness(0), 100, lambda: driver.clock.now_ms()), lambda value, _: value, 50
    )
    driver = Driver(operator)
    operator.process_element(None, 5, None)
    driver.clock.advance_to(50)
    driver.out.take()
    for now_ms in range(100, 400, 50):
        driver.clock.advance_to(now_ms)
    assert driver.out.take() == [("idle",)]
    operator.process_element(None, 9, None)
    assert driver.out.take() == [("emit", 9, 9)]
    driver.clock.advance_to(400)
    assert driver.out.take() == [("active",), ("watermark", 8)]


def test_ingestion_watermarks_are_the_clock_rounded_down_to_the_interval() -> None:
    driver = Driver(IngestionTime(10))
    for now_ms in range(1, 100, 10):
        driver.clock.advance_to(now_ms)
    assert driver.out.take() == [("watermark", watermark) for watermark in range(10, 100, 10)]


def test_ingestion_time_stamps_records_with_the_clock_and_emits_an_overdue_watermark_right_after() -> None:
    driver = Driver(IngestionTime(10), now_ms=1)
    driver.operator.process_element(None, "first", 12345)
    assert driver.out.take() == [("emit", "first", 1), ("watermark", 0)]
    driver.clock._now_ms = 25  # the record comes before the timer has had its turn
    driver.operator.process_element(None, "late timer", None)
    assert driver.out.take() == [("emit", "late timer", 25), ("watermark", 20)]
    driver.operator.process_element(None, "again", None)
    driver.clock.advance_to(30)
    assert driver.out.take() == [("emit", "again", 25)], "the next one is due after 30"


def test_ingestion_time_swallows_watermarks_and_says_nothing_after_the_last_one() -> None:
    driver = Driver(IngestionTime(10))
    driver.operator.process_watermark(5)
    driver.operator.process_watermark(MAX_TIMESTAMP)
    driver.operator.process_watermark(MAX_TIMESTAMP)
    driver.clock.advance_to(100)
    driver.operator.process_element(None, "replayed", None)
    assert driver.out.take() == [("watermark", MAX_TIMESTAMP), ("emit", "replayed", 100)]
    assert driver.clock.pending == 0


def test_ingestion_time_needs_an_interval() -> None:
    with pytest.raises(UserError):
        IngestionTime(0)


def test_a_finished_source_emits_the_last_watermark_after_everything_and_once() -> None:
    out = RecordingOutput()
    source = SourceOutput(out)
    source.emit("x", 1)
    source.emit_watermark(1)
    source.emit_watermark(0)
    source.emit("y")
    source.end_of_input()
    source.end_of_input()
    assert out.take() == [("emit", "x", 1), ("watermark", 1), ("emit", "y", None), ("watermark", MAX_TIMESTAMP)]


def test_an_idle_source_is_active_again_by_an_element_a_watermark_or_its_end() -> None:
    out = RecordingOutput()
    source = SourceOutput(out)
    source.mark_idle()
    source.mark_idle()
    source.emit("x", 1)
    source.mark_idle()
    source.emit_watermark(5)
    source.mark_idle()
    source.end_of_input()
    assert out.take() == [
        ("idle",),
        ("active",),
        ("emit", "x", 1),
        ("idle",),
        ("active",),
        ("watermark", 5),
        ("idle",),
        ("active",),
        ("watermark", MAX_TIMESTAMP),
    ]
