"""Section 13, the process-function operator, and with it the contract of keyed operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.operators.driver import Driver
from topo.errors import UserError
from topo.keys import KeyGroupRange, key_group
from topo.operators.base import OperatorSnapshot
from topo.operators.process import ProcessCollector, ProcessContext, ProcessOperator
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP


class Function:
    """Does what the test says for elements, and notes timers."""

    def __init__(
        self,
        process: Callable[[Any, ProcessContext, ProcessCollector], Any] = lambda value, context, collector: None,
        on_timer: Callable[[int, ProcessContext, ProcessCollector], Any] = lambda timestamp, context, collector: collector.emit(
            (context.key, timestamp, context.domain.value if context.domain else None)
        ),
    ) -> None:
        self.process = process
        self.on_timer = on_timer
        self.calls: list[str] = []

    def open(self, context: ProcessContext) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")


def timers_for(value: Any, context: ProcessContext, collector: ProcessCollector) -> None:
    domain, timestamp = value
    if domain == "event":
        context.register_event_time_timer(timestamp)
    else:
        context.register_processing_time_timer(timestamp)


def test_output_for_an_element_carries_its_timestamp_or_none() -> None:
    driver = Driver(ProcessOperator(Function(lambda value, context, collector: collector.emit((value, context.timestamp)))))
    driver.operator.process_element("k", "x", 17)
    driver.operator.process_element("k", "y", None)
    assert driver.out.take() == [("emit", ("x", 17), 17), ("emit", ("y", None), None)]


def test_output_of_an_event_timer_carries_the_timers_timestamp_and_comes_before_the_watermark() -> None:
    driver = Driver(ProcessOperator(Function(timers_for)))
    driver.operator.process_element("k", ("event", 5), 1)
    driver.operator.process_watermark(9)
    assert driver.out.take() == [("emit", ("k", 5, "event time"), 5), ("watermark", 9)]


def test_output_of_a_processing_timer_carries_no_timestamp() -> None:
    driver = Driver(ProcessOperator(Function(timers_for)))
    driver.operator.process_element("k", ("processing", 5), 1)
    driver.clock.advance_to(5)
    assert driver.out.take() == [("emit", ("k", 5, "processing time"), None)]


def test_timers_see_their_own_key_and_deleting_goes_by_the_current_one() -> None:
    def process(value: Any, context: ProcessContext, collector: ProcessCollector) -> None:
        if value == "set":
            context.register_event_time_timer(5)
            context.register_processing_time_timer(6)
        else:
            context.delete_event_time_timer(5)
            context.delete_processing_time_timer(6)

    driver = Driver(ProcessOperator(Function(process)))
    for key, value in [("a", "set"), ("b", "set"), ("c", "delete"), ("a", "delete")]:
        driver.operator.process_element(key, value, 1)
    driver.operator.process_watermark(5)
    driver.clock.advance_to(6)
    assert driver.out.take() == [
        ("emit", ("b", 5, "event time"), 5),
        ("watermark", 5),
        ("emit", ("b", 6, "processing time"), None),
    ]


def test_side_output_carries_the_timestamps_of_the_main_output() -> None:
    def process(value: Any, context: ProcessContext, collector: ProcessCollector) -> None:
        context.output("side", value)
        collector.emit(value, stream="other side")
        context.register_event_time_timer(20)
        context.register_processing_time_timer(30)

    function = Function(process, lambda timestamp, context, collector: context.output("side", timestamp))
    driver = Driver(ProcessOperator(function))
    driver.operator.process_element("k", "x", 10)
    driver.operator.process_element("k", "y", None)
    driver.operator.process_watermark(20)
    driver.clock.advance_to(30)
    assert driver.out.take() == [
        ("side", "side", "x", 10),
        ("side", "other side", "x", 10),
        ("side", "side", "y", None),
        ("side", "other side", "y", None),
        ("side", "side", 20, 20),
        ("watermark", 20),
        ("side", "side", 30, None),
    ]


def test_a_side_output_without_a_stream_is_an_error() -> None:
    driver = Driver(ProcessOperator(Function(lambda value, context, collector: context.output(None, value))))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="name of its stream"):
        driver.operator.process_element("k", "x", 1)


def test_a_timestamp_that_does_not_fit_64_bits_is_refused() -> None:
    driver = Driver(ProcessOperator(Function(timers_for)))
    for domain in ("event", "processing"):
        for timestamp in (MAX_TIMESTAMP + 1, MIN_TIMESTAMP - 1):
            with pytest.raises(UserError, match="64-bit"):
                driver.operator.process_element("k", (domain, timestamp), 1)


def test_the_context_knows_watermark_clock_and_that_an_element_has_no_domain() -> None:
    seen: list[Any] = []
    function = Function(
        lambda value, context, collector: seen.append(
            (context.key, context.domain, context.current_watermark, context.current_processing_time)
        )
    )
    driver = Driver(ProcessOperator(function), now_ms=7)
    driver.operator.process_element("k", "x", 1)
    driver.operator.process_watermark(3)
    driver.operator.process_element("k", "x", 4)
    assert seen == [("k", None, MIN_TIMESTAMP, 7), ("k", None, 3, 7)]


def test_function_is_opened_first_and_closed_last() -> None:
    function = Function()
    driver = Driver(ProcessOperator(function))
    assert function.calls == ["open"]
    driver.operator.end_of_input()
    driver.operator.close()
    assert function.calls == ["open", "close"]


def test_a_batch_is_the_same_as_its_elements_one_by_one() -> None:
    driver = Driver(ProcessOperator(Function(lambda value, context, collector: collector.emit((context.key, value)))))
    driver.operator.process_batch(["a", "b"], [1, 2], [10, None])
    assert driver.out.take() == [("emit", ("a", 1), 10), ("emit", ("b", 2), None)]


def test_idleness_of_the_input_is_passed_on() -> None:
    driver = Driver(ProcessOperator(Function()))
    driver.operator.process_idle(True)
    driver.operator.process_idle(False)
    assert driver.out.take() == [("idle",), ("active",)]


class CountUntilQuiet:
    """Counts elements of a key and emits the count ten milliseconds of event time after the last one."""

    def open(self, context: ProcessContext) -> None:
        self.count = context.state.value("count", default=0)
        self.due = context.state.value("due")

    def process(self, value: Any, context: ProcessContext, collector: ProcessCollector) -> None:
        assert context.timestamp is not None
        self.count.set(self.count.get() + 1)
        if self.due.get() is not None:
            context.delete_event_time_timer(self.due.get())
        self.due.set(context.timestamp + 10)
        context.register_event_time_timer(context.timestamp + 10)

    def on_timer(self, timestamp: int, context: ProcessContext, collector: ProcessCollector) -> None:
        collector.emit((context.key, self.count.get()))
        self.count.clear()
        self.due.clear()

    def close(self) -> None:
        pass


def test_keyed_state_and_timers_belong_to_the_key() -> None:
    driver = Driver(ProcessOperator(CountUntilQuiet()))
    for key, timestamp in [("a", 1), ("b", 2), ("a", 5), ("a", 12)]:
        driver.operator.process_element(key, None, timestamp)
    driver.operator.process_watermark(12)
    driver.operator.process_watermark(22)
    assert driver.out.take() == [("emit", ("b", 1), 12), ("watermark", 12), ("emit", ("a", 3), 22), ("watermark", 22)]


def test_a_restored_operator_goes_on_with_state_and_timers_of_its_key_groups_and_without_a_watermark() -> None:
    first = Driver(ProcessOperator(CountUntilQuiet()))
    for key in range(20):
        first.operator.process_element(key, None, 1)
    first.operator.process_watermark(10)
    first.out.take()
    snapshot = first.snapshot()
    found = []
    for share in (KeyGroupRange(0, 63), KeyGroupRange(64, 127)):
        restored = Driver(ProcessOperator(CountUntilQuiet()), restored=snapshot, key_groups=share)
        restored.operator.process_watermark(10)
        assert restored.out.take() == [("watermark", 10)], "the watermark starts anew"
        restored.operator.process_watermark(11)
        results = [value for kind, value, _ in restored.out.take()[:-1] if kind == "emit"]
        assert all(key_group(key, 128) in share for key, _ in results)
        found += results
    assert sorted(found) == [(key, 1) for key in range(20)]


def test_snapshots_of_several_tasks_make_one_and_any_range_of_it_can_be_taken() -> None:
    parts = [OperatorSnapshot({1: {"state": "one"}}, ["x"]), OperatorSnapshot({5: {"state": "five"}}, ["y"])]
    whole = OperatorSnapshot.merged(parts)
    assert whole == OperatorSnapshot({1: {"state": "one"}, 5: {"state": "five"}}, ["x", "y"])
    assert whole.within(KeyGroupRange(2, 9)) == OperatorSnapshot({5: {"state": "five"}})
