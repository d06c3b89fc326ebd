"""Batches by count and time, what waits behind them, and how a batch that raises is taken apart."""

from __future__ import annotations

from typing import Any

from topo.api.batch_bolt import BatchSettings
from topo.operators.base import OperatorContext
from topo.operators.batching import MOST_HELD, BatchOperator
from topo.operators.mailbox.executor import MailboxExecutor
from topo.operators.mailbox.mailbox import TaskMailbox
from topo.operators.time.clock import ManualProcessingTime
from topo.testing.operator_output import RecordedOutput, Status, Watermark


class Calls:
    """Writes down the calls for batches; raises where a batch holds one of `bad`."""

    def __init__(self, *bad: Any) -> None:
        self.bad = set(bad)
        self.made: list[list[Any]] = []
        self.splits = 0
        self.given_up: list[Any] = []

    def call(self, values: list[Any]) -> None:
        self.made.append(list(values))
        if self.bad.intersection(values):
            raise ValueError(values)

    def split(self, error: Exception) -> None:
        self.splits += 1

    def failed(self, value: Any, error: Exception) -> None:
        self.given_up.append(value)


class Rig:
    def __init__(self, size: int, wait_ms: int = 100, *bad: Any) -> None:
        self.calls = Calls(*bad)
        self.operator = BatchOperator(self.calls, BatchSettings(size, wait_ms))
        self.output = RecordedOutput()
        self.clock = ManualProcessingTime()
        self.operator.setup(OperatorContext(self.output, self.clock, MailboxExecutor(TaskMailbox())))
        self.operator.open()

    def feed(self, *values: Any, key: Any = None) -> None:
        for value in values:
            self.operator.process_element(key, value, None)

    def run(self) -> list[list[Any]]:
        """Run ready calls; return all calls so far."""
        while self.operator.has_ready:
            self.operator.run_one()
        return self.calls.made


def test_a_batch_is_ready_when_it_is_full() -> None:
    rig = Rig(3)
    rig.feed(1, 2)
    assert not rig.operator.has_ready
    rig.feed(3, 4)
    assert rig.run() == [[1, 2, 3]]
    assert rig.operator.held == 1


def test_a_batch_is_ready_when_its_first_element_has_waited_long_enough() -> None:
    rig = Rig(3, 100)
    rig.feed(1)
    rig.clock.advance(61)
    rig.feed(2)
    rig.clock.advance(39)
    assert rig.run() == []
    rig.clock.advance(1)
    assert rig.run() == [[1, 2]]
    rig.clock.advance(1_000)
    assert rig.run() == [[1, 2]]


def test_each_key_has_batches_of_its_own() -> None:
    rig = Rig(2)
    rig.feed("a1", key="a")
    rig.feed("b1", "b2", key="b")
    rig.feed("a2", key="a")
    assert rig.run() == [["b1", "b2"], ["a1", "a2"]]


def test_of_too_many_elements_the_oldest_batch_goes_early() -> None:
    rig = Rig(MOST_HELD)
    for key in range(MOST_HELD + 1):
        rig.feed(key, key=key)
    assert rig.run() == [[0]]
    assert rig.operator.held == MOST_HELD


def test_the_end_of_the_input_calls_for_what_is_open() -> None:
    rig = Rig(5)
    rig.feed(1, key="a")
    rig.feed(2, key="b")
    rig.operator.end_of_input()
    assert rig.calls.made == [[1], [2]]
    assert rig.operator.held == 0 and rig.clock.pending == 0


def test_an_element_that_raises_is_found_and_the_others_are_processed() -> None:
    rig = Rig(8, 100, 5)
    rig.feed(*range(8))
    rig.feed(8, 9)
    rig.operator.end_of_input()
    assert rig.calls.made == [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5], [6, 7], [8, 9]]
    assert rig.calls.given_up == [5] and rig.calls.splits == 3
    assert rig.operator.held == 0


def test_when_every_call_raises_each_element_is_tried_alone() -> None:
    rig = Rig(4, 100, *range(4))
    rig.feed(*range(4))
    rig.run()
    assert rig.calls.given_up == [0, 1, 2, 3]
    assert len(rig.calls.made) == 7


def test_an_element_by_itself_does_not_join_the_open_batch() -> None:
    rig = Rig(3)
    rig.feed(1)
    rig.operator.process_alone(None, "suspect")
    rig.feed(2, 3)
    assert rig.run() == [["suspect"], [1, 2, 3]]


def test_a_watermark_waits_for_what_was_held_when_it_came_and_for_nothing_later() -> None:
    rig = Rig(2)
    rig.feed("a1", key="a")
    rig.operator.process_watermark(10)
    rig.feed("b1", "b2", key="b")
    rig.run()
    assert rig.output.events == []
    rig.feed("c1", key="c")
    rig.operator.process_watermark(20)
    rig.feed("a2", key="a")
    assert rig.output.events == []
    rig.run()
    assert rig.output.events == [Watermark(10)]
    rig.feed("c2", key="c")
    rig.run()
    assert rig.output.events == [Watermark(10), Watermark(20)]


def test_a_watermark_waits_for_both_halves_of_a_batch_that_raised() -> None:
    rig = Rig(2, 100, "bad")
    rig.feed("good", "bad")
    rig.operator.process_watermark(10)
    rig.operator.run_one()
    rig.operator.run_one()
    assert rig.output.events == []
    rig.operator.run_one()
    assert rig.output.events == [Watermark(10)]


def test_with_nothing_held_watermarks_and_idleness_pass_at_once() -> None:
    rig = Rig(2)
    rig.operator.process_watermark(10)
    rig.operator.process_idle(True)
    assert rig.output.events == [Watermark(10), Status(True)]


def test_idleness_is_told_behind_what_is_held() -> None:
    rig = Rig(2)
    rig.feed(1)
    rig.operator.process_idle(True)
    assert rig.output.events == []
    rig.clock.advance(101)
    rig.run()
    assert rig.output.events == [Status(True)]


def test_what_is_dropped_is_never_called_for() -> None:
    rig = Rig(2)
    rig.feed(1)
    rig.operator.close()
    rig.clock.advance(1_000)
    assert rig.run() == [] and rig.operator.held == 0
