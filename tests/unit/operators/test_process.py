"""Section 13, the process-function operator, and with it the contract of keyed operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.operators.rig import Rig
from topo.errors import UserError
from topo.keys import KeyGroupRange, key_group
from topo.operators.base import OperatorSnapshot
from topo.operators.process import OperatorCollector, OperatorProcessContext, ProcessOperator
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP


class Function:
    """Runs a test's code for elements, and notes timers."""

    def __init__(
        self,
        process: Callable[[Any, OperatorProcessContext, OperatorCollector], Any] = lambda value, context, collector: None,
        on_timer: Callable[[int, OperatorProcessContext, OperatorCollector], Any] = lambda timestamp, context, collector: (
            collector.emit((context.key, timestamp, context.domain.value if context.domain else None))
        ),
    ) -> None:
        self.process = process
        self.on_timer = on_timer
        self.calls: list[str] = []

    def open(self, context: OperatorProcessContext) -> None:
        self.calls.append("open")

    def close(self) -> None:
        self.calls.append("close")


def timers_for(value: Any, context: OperatorProcessContext, collector: OperatorCollector) -> None:
    domain, timestamp = value
    if domain == "event":
        context.register_event_time_timer(timestamp)
    else:
        context.register_processing_time_timer(timestamp)


def test_timers_see_their_own_key_and_deleting_goes_by_the_current_one() -> None:
    def process(value: Any, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        if value == "set":
            context.register_event_time_timer(5)
            context.register_processing_time_timer(6)
        else:
            context.delete_event_time_timer(5)
            context.delete_processing_time_timer(6)

    rig = Rig(ProcessOperator(Function(process)))
    for key, value in [("a", "set"), ("b", "set"), ("c", "delete"), ("a", "delete")]:
        rig.operator.process_element(key, value, 1)
    rig.operator.process_watermark(5)
    rig.clock.advance_to(7)
    assert rig.taken() == [
        (("b", 5, "event time"), 5),
        ("watermark", 5),
        (("b", 6, "processing time"), None),
    ]


def test_side_output_carries_the_timestamps_of_the_main_output() -> None:
    def process(value: Any, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        context.output("side", value)
        collector.emit(value, stream="other side")
        context.register_event_time_timer(20)
        context.register_processing_time_timer(30)

    function = Function(process, lambda timestamp, context, collector: context.output("side", timestamp))
    rig = Rig(ProcessOperator(function))
    rig.operator.process_element("k", "x", 10)
    rig.operator.process_element("k", "y", None)
    rig.operator.process_watermark(20)
    rig.clock.advance_to(31)
    assert rig.taken() == [
        ("side", "x", 10),
        ("other side", "x", 10),
        ("side", "y", None),
        ("other side", "y", None),
        ("side", 20, 20),
        ("watermark", 20),
        ("side", 30, None),
    ]


def test_a_side_output_without_a_stream_is_an_error() -> None:
    rig = Rig(ProcessOperator(Function(lambda value, context, collector: context.output(None, value))))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="name of its stream"):
        rig.operator.process_element("k", "x", 1)


def test_a_timestamp_that_does_not_fit_64_bits_is_refused() -> None:
    rig = Rig(ProcessOperator(Function(timers_for)))
    for domain in ("event", "processing"):
        for timestamp in (MAX_TIMESTAMP + 1, MIN_TIMESTAMP - 1):
            with pytest.raises(UserError, match="64-bit"):
                rig.operator.process_element("k", (domain, timestamp), 1)


def test_the_context_knows_watermark_clock_and_that_an_element_has_no_domain() -> None:
    seen: list[Any] = []
    function = Function(
        lambda value, context, collector: seen.append(
            (context.key, context.domain, context.current_watermark, context.current_processing_time)
        )
    )
    rig = Rig(ProcessOperator(function), now_ms=7)
    rig.operator.process_element("k", "x", 1)
    rig.operator.process_watermark(3)
    rig.operator.process_element("k", "x", 4)
    assert seen == [("k", None, MIN_TIMESTAMP, 7), ("k", None, 3, 7)]


def test_function_is_opened_first_and_closed_last() -> None:
    function = Function()
    rig = Rig(ProcessOperator(function))
    assert function.calls == ["open"]
    rig.operator.end_of_input()
    rig.operator.close()
    assert function.calls == ["open", "close"]


def test_a_batch_is_the_same_as_its_elements_one_by_one() -> None:
    rig = Rig(ProcessOperator(Function(lambda value, context, collector: collector.emit((context.key, value)))))
    rig.operator.process_batch(["a", "b"], [1, 2], [10, None])
    assert rig.taken() == [(("a", 1), 10), (("b", 2), None)]


def test_idleness_of_the_input_is_passed_on() -> None:
    rig = Rig(ProcessOperator(Function()))
    rig.operator.process_idle(True)
    rig.operator.process_idle(False)
    assert rig.taken() == [("idle",), ("active",)]


class CountUntilQuiet:
    """Counts elements of a key and emits the count ten milliseconds of event time after the last one."""

    def open(self, context: OperatorProcessContext) -> None:
        self.count = context.state.value("count", default=0)
        self.due = context.state.value("due")

    def process(self, value: Any, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        assert context.timestamp is not None
        self.count.set(self.count.get() + 1)
        if self.due.get() is not None:
            context.delete_event_time_timer(self.due.get())
        self.due.set(context.timestamp + 10)
        context.register_event_time_timer(context.timestamp + 10)

    def on_timer(self, timestamp: int, context: OperatorProcessContext, collector: OperatorCollector) -> None:
        collector.emit((context.key, self.count.get()))
        self.count.clear()
        self.due.clear()

    def close(self) -> None:
        pass


def test_keyed_state_and_timers_belong_to_the_key() -> None:
    rig = Rig(ProcessOperator(CountUntilQuiet()))
    for key, timestamp in [("a", 1), ("b", 2), ("a", 5), ("a", 12)]:
        rig.operator.process_element(key, None, timestamp)
    rig.operator.process_watermark(12)
    rig.operator.process_watermark(22)
    assert rig.taken() == [(("b", 1), 12), ("watermark", 12), (("a", 3), 22), ("watermark", 22)]


def test_a_restored_operator_has_state_and_timers_of_its_groups_but_no_watermark() -> None:
    first = Rig(ProcessOperator(CountUntilQuiet()))
    for key in range(20):
        first.operator.process_element(key, None, 1)
    first.operator.process_watermark(10)
    first.taken()
    snapshot = first.snapshot()
    found = []
    for share in (KeyGroupRange(0, 63), KeyGroupRange(64, 127)):
        restored = Rig(ProcessOperator(CountUntilQuiet()), restore=snapshot, groups=share)
        restored.operator.process_watermark(10)
        assert restored.taken() == [("watermark", 10)], "a restored operator has no watermark"
        results = [value for value, _ in restored.watermark(11)]
        assert all(key_group(key, 128) in share for key, _ in results)
        found += results
    assert sorted(found) == [(key, 1) for key in range(20)]


def test_snapshots_of_several_tasks_make_one_and_any_range_of_it_can_be_taken() -> None:
    parts = [OperatorSnapshot({1: {"state": "one"}}, ["x"]), OperatorSnapshot({5: {"state": "five"}}, ["y"])]
    whole = OperatorSnapshot.merged(parts)
    assert whole == OperatorSnapshot({1: {"state": "one"}, 5: {"state": "five"}}, ["x", "y"])
    assert whole.within(KeyGroupRange(2, 9)) == OperatorSnapshot({5: {"state": "five"}})


def test_key_groups_are_remembered_of_all_keys_that_there_are_and_not_of_all_that_were() -> None:
    rig = Rig(ProcessOperator(Function(lambda value, context, collector: context.state.value("last").set(value))))
    groups = rig.operator.keys.group_of
    for gone in range(100_000):
        assert groups[gone] == key_group(gone, 128)
    assert len(groups) <= 65_536
    for key in range(70_000):
        rig.operator.process_element(key, 1, None)
    rig.operator.snapshot()
    assert len(groups) >= 70_000
