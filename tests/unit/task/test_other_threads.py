"""Collectors in the hands of other threads: calls on that of a `Bolt` are done by its task, and other components are refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.tasks.components import Manual, Plain, Replaying, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.api.operator_bolts import ProcessBolt
from topo.errors import EmitError, UnsupportedValueError
from topo.ids import Epoch
from topo.operators.mailbox.mailbox import RejectedExecution
from topo.wire.control import Close
from topo.wire.frames import FrameKind


def elsewhere(call: Callable[[], object]) -> BaseException | None:
    """Make a call on another thread; return its exception."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def holding(**settings: Any) -> tuple[Manual, Solo]:
    """A bolt that keeps its inputs, and its task."""
    bolt = Manual(lambda tup, collector: None)
    return bolt, Solo(chain(Replaying(), bolt, Sink(), **settings), "b")


def test_a_bolt_emits_and_acks_from_another_thread_in_the_order_of_its_calls() -> None:
    bolt, solo = holding()
    ids = solo.feed(1, 2, 3)
    solo.run()

    def work() -> None:
        for tup in bolt.tuples[:2]:
            bolt.collector.emit((tup[0] * 10,), anchors=tup)
            bolt.collector.ack(tup)
        bolt.collector.fail(bolt.tuples[2])

    assert elsewhere(work) is None
    assert solo.values() == [] and solo.task.has_work
    solo.run()
    assert solo.values() == [10, 20]
    acked, failed = solo.roots(FrameKind.ACK), solo.roots(FrameKind.FAIL)
    assert (sorted(acked), failed) == (ids.roots[:2], ids.roots[2:])
    (frame,) = solo.frames(FrameKind.DATA)
    assert frame.root_list() == ids.roots[:2]


def test_a_list_that_another_thread_emits_is_taken_as_it_is_then() -> None:
    bolt, solo = holding()
    solo.feed(1)
    solo.run()
    found: list[int] = []

    def work() -> None:
        for number in (1, 2):
            found.append(number)
            bolt.collector.emit((found,), anchors=bolt.tuples[0])

    assert elsewhere(work) is None
    solo.run()
    assert solo.values() == [(1,), (1, 2)]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: c.emit((1, 2)), "emitted 2 values"),
        (lambda c: c.emit((1,), stream="nowhere"), "which it does not declare"),
        (lambda c: c.emit("text"), "emit a tuple of values"),
    ],
)
def test_a_wrong_emit_raises_in_the_thread_that_makes_it(call: Any, text: str) -> None:
    bolt, solo = holding()
    error = elsewhere(lambda: call(bolt.collector))
    assert isinstance(error, EmitError) and text in str(error)
    assert solo.errors() == []


def test_the_anchors_that_another_thread_names_are_taken_as_they_are_then() -> None:
    """A thread that collects inputs clears its list behind the emit: the tuple must not lose its anchors by it."""
    bolt, solo = holding()
    ids = solo.feed(1, 2)
    solo.run()

    def work() -> None:
        together = list(bolt.tuples)
        bolt.collector.emit((3,), anchors=together)
        together.clear()

    assert elsewhere(work) is None
    solo.run()
    (frame,) = solo.frames(FrameKind.DATA)
    assert sorted(frame.root_list()) == sorted(ids.roots)


def test_a_second_ack_by_another_thread_is_an_error_of_the_component() -> None:
    bolt, solo = holding()
    solo.feed(1)
    solo.run()
    assert elsewhere(lambda: [bolt.collector.ack(bolt.tuples[0]) for _ in range(2)]) is None
    solo.run()
    (error,) = solo.errors()
    assert "acked already" in error


def test_an_error_that_another_thread_reports_is_shown() -> None:
    for bolt in (Manual(lambda tup, collector: None), Plain()):
        solo = Solo(chain(Replaying(), bolt, Sink()), "b")
        collector = solo.task.runner.kind._collector
        assert elsewhere(lambda c=collector: c.report_error(ValueError("seen elsewhere"))) is None  # type: ignore[misc]
        solo.run()
        assert solo.errors() == ["ValueError: seen elsewhere"]


def test_after_the_end_a_call_of_another_thread_is_refused_there() -> None:
    bolt, solo = holding()
    solo.handle(Close(Epoch(1)))
    assert isinstance(elsewhere(lambda: bolt.collector.emit((1,))), RejectedExecution)


def test_a_basic_bolt_a_spout_and_a_process_bolt_are_refused_at_once() -> None:
    class Function(ProcessBolt):
        outputs = ("value",)

        def __init__(self) -> None:
            super().__init__(key=None)

        def process(self, tup: Any, context: Any, collector: Any) -> None:
            self.collector = collector

    plain, spout, function = Plain(), Scripted(), Function()
    plain.run = lambda tup, collector: setattr(plain, "collector", collector)
    for component, name, way_out in ((plain, "b", "take a Bolt"), (function, "b", "take a Bolt"), (spout, "a", "BlockingSpout")):
        parts = (spout, Sink()) if component is spout else (Scripted(), component, Sink())
        solo = Solo(chain(*parts, delivery="at_least_once"), name)
        if component is not spout:
            solo.feed(1)
            solo.run()
        for row in ((1,), ([1],)):
            error = elsewhere(lambda c=component, r=row: c.collector.emit(r))  # type: ignore[misc]
            assert isinstance(error, EmitError) and "another thread" in str(error) and way_out in str(error)
        solo.run()
        assert solo.values() == []
        # The thread has ended with the exception: the task shows it, and counts the tuples as missing.
        assert way_out in solo.errors()[0]
        assert solo.task.counters.lost_results == 2


def test_a_value_that_cannot_be_carried_is_refused_where_it_is_packed() -> None:
    bolt, solo = holding()
    ids = solo.feed(1)
    solo.run()
    assert elsewhere(lambda: bolt.collector.emit((object(),), anchors=bolt.tuples[0])) is None
    solo.run()
    assert solo.roots(FrameKind.FAIL) == ids.roots
    assert UnsupportedValueError.__name__ in solo.errors()[0]
