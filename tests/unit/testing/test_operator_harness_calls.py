"""The harness runs an operator as a task does: calls that raise are undone and repeated, batches, inputs, the clock, timers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from topo import AsyncBolt, ProcessBolt, UserError, WindowBolt, aggregates, windows
from topo.testing import Fired, OperatorHarness

TEN = windows.TumblingEventTimeWindows.of("10ms")


class Flaky(ProcessBolt):
    """Counts by key; raises in every call but each `works`th, after everything else that the call does."""

    outputs = ("key", "count")

    def __init__(self, works: int = 1_000) -> None:
        super().__init__(key="key")
        self.works, self.calls = works, 0

    def open(self, context: Any) -> None:
        self.count = context.state.value("count", default=0)

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        self.count.set(self.count.get() + 1)
        context.register_event_time_timer(10)
        collector.emit((context.key, self.count.get()))
        self._raise_often()

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        self.count.set(self.count.get() + 100)
        collector.emit((context.key, self.count.get()))
        self._raise_often()

    def _raise_often(self) -> None:
        self.calls += 1
        if self.calls % self.works:
            raise ConnectionError("try again")


def test_what_a_call_that_raises_has_done_is_taken_back() -> None:
    harness = OperatorHarness(Flaky(), ("key",))
    with pytest.raises(ConnectionError):
        harness.process(("a",), 0)
    assert (harness.outputs, harness.timers, harness.state_entries) == ([], 0, 0)


def test_a_call_that_raises_is_made_again_as_often_as_attempts_say() -> None:
    harness = OperatorHarness(Flaky(works=3), ("key",), attempts=3)
    harness.process(("a",), 0)
    assert harness.values == [("a", 1)]
    harness.watermark(10)
    assert harness.values == [("a", 1), ("a", 101)]
    with pytest.raises(ConnectionError):
        OperatorHarness(Flaky(works=3), ("key",), attempts=2).process(("a",), 0)


class Wavering(aggregates.Count):
    """Its result is not there at the first `times` askings."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def get_result(self, accumulator: Any) -> Any:
        self.times -= 1
        if self.times >= 0:
            raise ValueError("not now")
        return super().get_result(accumulator)


def test_a_firing_that_raises_is_repeated_and_puts_out_one_result() -> None:
    harness = OperatorHarness(WindowBolt(key="key", window=TEN, aggregate=Wavering(2)), ("key",), attempts=3)
    harness.process(("a",), 0)
    harness.watermark(9)
    assert harness.values == [("a", 0, 10, 1)]
    assert (harness.open_windows, harness.timers) == (0, 0)


def test_a_firing_that_raises_for_good_clears_its_window_and_leaves_the_others() -> None:
    harness = OperatorHarness(WindowBolt(key="key", window=TEN, aggregate=Wavering(1)), ("key",))
    harness.process_batch([(("a",), 0), (("b",), 1)])
    with pytest.raises(ValueError, match="not now"):
        harness.watermark(9)
    assert harness.open_windows == 1
    harness.watermark(10)
    assert [row[1:] for row in harness.values] == [(0, 10, 1)] and harness.open_windows == 0


def test_elements_come_in_batches_as_one_by_one() -> None:
    rows = [(("a",), 0), (("b",), 3), (("a",), 11)]
    for make in (lambda: WindowBolt(key="key", window=TEN, aggregate=aggregates.Count()), lambda: Flaky(works=1)):
        one_by_one, batched = OperatorHarness(make(), ("key",)), OperatorHarness(make(), ("key",))
        for values, timestamp in rows:
            one_by_one.process(values, timestamp)
        batched.process_batch(rows)
        batched.process_batch([])
        for harness in (one_by_one, batched):
            harness.end_of_input()
        assert sorted(one_by_one.outputs, key=str) == sorted(batched.outputs, key=str)


def test_an_element_of_a_batch_that_raises_is_undone_and_those_before_it_stand() -> None:
    def reduce(first: Any, second: Any) -> Any:
        raise ValueError("no")

    harness = OperatorHarness(WindowBolt(key="key", window=TEN, reduce=reduce, result_fields=("first",)), ("key",))
    with pytest.raises(ValueError, match="no"):
        harness.process_batch([(("a",), 0), (("b",), 0), (("a",), 1), (("c",), 1)])
    assert harness.open_windows == 2


# -- inputs


class Join(ProcessBolt):
    outputs = ("key", "source", "value")

    def __init__(self) -> None:
        super().__init__(key="key")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        collector.emit((context.key, tup.component, tup["price" if tup.component == "orders" else "name"]))


INPUTS = {"orders": ("key", "price"), "users": ("name", "key")}


def test_an_element_says_which_component_it_comes_from() -> None:
    harness = OperatorHarness(Join(), INPUTS)
    harness.process(("k", 5), component="orders")
    harness.process({"name": "ann", "key": "k"}, component="users")
    harness.process_batch([(("k", 6), None)], component="orders")
    assert harness.values == [("k", "orders", 5), ("k", "users", "ann"), ("k", "orders", 6)]
    assert OperatorHarness(Join(), INPUTS).restore(harness.snapshot()).values == []


@pytest.mark.parametrize(("component", "message"), [(None, "say which input"), ("order", "there is no input 'order'")])
def test_an_element_of_no_input_is_refused(component: Any, message: str) -> None:
    with pytest.raises(UserError, match=f"{message}.*component= is one of 'orders', 'users'"):
        OperatorHarness(Join(), INPUTS).process(("k", 5), component=component)


def test_the_key_is_in_every_input() -> None:
    with pytest.raises(UserError, match="the key 'key' is none of the fields of 'users', name"):
        OperatorHarness(Join(), {"orders": ("key",), "users": ("name",)})


def test_calls_of_an_async_bolt_keep_the_component_over_a_snapshot() -> None:
    class Asks(AsyncBolt):
        outputs = ("of",)

        async def call(self, tup: Any) -> Any:
            await asyncio.sleep(1)
            return [(tup.component,)]

    with OperatorHarness(Asks(), {"left": ("a",), "right": ("b",)}) as harness:
        harness.process((1,), component="right")
        with harness.restore(harness.snapshot()) as restored:
            restored.advance_clock("1s")
            assert restored.values == [("right",)]


# -- time


class Watches(ProcessBolt):
    """Emits the clock when its timer is called, and registers the next."""

    outputs = ("due", "now")

    def __init__(self) -> None:
        super().__init__(key="key")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        context.register_processing_time_timer(100)
        context.register_event_time_timer(7)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((timestamp, context.current_processing_time))
        context.register_processing_time_timer(timestamp + 100)


def test_a_timer_sees_the_clock_at_its_own_moment() -> None:
    harness = OperatorHarness(Watches(), ("key",))
    harness.process(("a",), 0)
    harness.advance_clock("250ms")
    assert harness.values == [(100, 101), (200, 201)] and harness.now_ms == 250


def test_a_clock_that_is_set_jumps_and_what_is_due_sees_that() -> None:
    harness = OperatorHarness(Watches(), ("key",))
    harness.process(("a",), 0)
    harness.set_clock(250)
    assert harness.values == [(100, 250), (200, 250)]


def test_timers_are_listed_by_what_they_go_by() -> None:
    harness = OperatorHarness(Watches(), ("key",))
    harness.process(("b",), 0)
    assert harness.event_timers == [Fired("b", None, 7)]
    assert harness.processing_timers == [Fired("b", None, 100)]
    bolt = WindowBolt(key="key", window=TEN, aggregate=aggregates.Count(), allowed_lateness="5ms")
    late = OperatorHarness(bolt, ("key",))
    late.process_batch([(("a",), 12), (("a",), 0)])
    first, second = windows.TimeWindow(0, 10), windows.TimeWindow(10, 20)
    assert late.event_timers == [
        Fired("a", first, 9), Fired("a", first, 14), Fired("a", second, 19), Fired("a", second, 24),
    ]  # fmt: skip
    assert late.processing_timers == []


def test_a_channel_is_idle_by_itself_and_the_operator_with_the_last() -> None:
    harness = OperatorHarness(Watches(), ("key",), channels=2)
    harness.idle(channel=1)
    assert (harness.is_idle(0), harness.is_idle(1), harness.is_idle()) == (False, True, False)
    harness.idle(channel=0)
    assert harness.is_idle()
    harness.active(channel=1)
    assert (harness.is_idle(0), harness.is_idle(1), harness.is_idle()) == (True, False, False)
    harness.end_of_input()
    assert not harness.is_idle(0)
