"""What fails before, in or behind a tracked window: it is in a result, on the late stream, or a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from topo import BasicBolt, IterableSpout, Topology, TopologyBuilder, WatermarkStrategy, WindowBolt, aggregates, windows
from topo.master.outcome import OutcomeKind
from topo.testing import TopologyTest

ROWS = [("k", 1), ("k", 2), ("k", 20), ("k", 5000)]


class FailsOnce(BasicBolt):
    """Passes its tuples on, and raises the first time that it sees one of some timestamps."""

    outputs = ("key", "at")

    def __init__(self, *culprits: int) -> None:
        self.culprits = set(culprits)

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["at"] in self.culprits:
            self.culprits.remove(tup["at"])
            raise OSError("the look-up service is away")
        collector.emit(tup.values)


class Sink(BasicBolt):
    """Keeps its inputs; raises the first time that it gets a result of a window that begins at 0."""

    outputs = ()

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.results: list[tuple[Any, ...]] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if self.fails and tup.values[1] == 0:
            self.fails = False
            raise OSError("the database is away")
        self.results.append(tup.values)


class Broken(windows.ProcessWindowFunction):
    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        if context.window.start == 0:
            raise ValueError("a bug")
        collector.emit((key, context.window.start, context.window.end, len(elements)))


def topology(*, culprits: Sequence[int] = (), sink_fails: bool = False, **window: Any) -> Callable[[], Topology]:
    what: dict[str, Any] = {"aggregate": aggregates.Count(), **window}

    def build() -> Topology:
        builder = TopologyBuilder("w").config(delivery="at_least_once", message_timeout="2h")
        strategy = WatermarkStrategy.monotonic_timestamps(timestamp="at")
        builder.set_spout("events", IterableSpout(ROWS, ("key", "at")), watermarks=strategy)
        builder.set_bolt("parse", FailsOnce(*culprits)).global_grouping("events")
        bolt = WindowBolt(key="key", window=windows.TumblingEventTimeWindows.of("10ms"), **what)
        builder.set_bolt("window", bolt).fields_grouping("parse", "key")
        builder.set_bolt("sink", Sink(fails=sink_fails)).global_grouping("window")
        if bolt.late_stream is not None:
            builder.set_bolt("late", Sink(fails=False)).global_grouping("window", stream=bolt.late_stream)
        return builder.build()

    return build


def run(build: Callable[[], Topology]) -> tuple[TopologyTest, list[Any], list[tuple[Any, ...]]]:
    """Run to the end; return the test, the results that have arrived and the rows given up."""
    test = TopologyTest(build)
    test.run()
    return test, test.bolt("sink").results, sorted(dead_letter.values for dead_letter in test.dead_letters())


def test_a_topology_without_failures_has_no_dead_letters() -> None:
    test, results, given_up = run(topology())
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DONE
    assert (results, given_up) == ([("k", 0, 10, 2), ("k", 20, 30, 1), ("k", 5000, 5010, 1)], [])


@pytest.mark.parametrize("lateness", ["0s", "1h"])
def test_messages_whose_result_fails_behind_the_window_are_dead_letters(lateness: str) -> None:
    test, results, given_up = run(topology(sink_fails=True, allowed_lateness=lateness))
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DEAD_LETTERS and test.outcome.exit_code == 1
    assert (results, given_up) == ([("k", 20, 30, 1), ("k", 5000, 5010, 1)], ROWS[:2])
    for dead_letter in test.dead_letters():
        assert dead_letter.attempts == 3 and "came too late for its window" in dead_letter.why


def test_messages_whose_window_function_raises_are_dead_letters() -> None:
    test, results, given_up = run(topology(aggregate=None, process=Broken(), outputs=("key", "start", "end", "count")))
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DEAD_LETTERS
    assert (results, given_up) == ([("k", 20, 30, 1), ("k", 5000, 5010, 1)], ROWS[:2])


@pytest.mark.parametrize("lateness", ["0s", "1h"])
def test_a_message_that_is_replayed_behind_its_window_ends_as_a_dead_letter(lateness: str) -> None:
    test, results, given_up = run(topology(culprits=[1], allowed_lateness=lateness))
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DEAD_LETTERS
    assert (results, given_up) == ([("k", 0, 10, 1), ("k", 20, 30, 1), ("k", 5000, 5010, 1)], ROWS[:1])


def test_a_message_replayed_too_late_goes_to_the_late_stream_and_is_done() -> None:
    test, results, given_up = run(topology(culprits=[1], late_stream="late"))
    assert test.outcome is not None and test.outcome.kind is OutcomeKind.DONE
    assert results[0] == ("k", 0, 10, 1) and given_up == []
    assert test.bolt("late").results == ROWS[:1]
    test.assert_all_acked()
