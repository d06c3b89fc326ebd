"""Calls that only a `Bolt` can make, which anchors and acks its inputs: hold inputs, ack later, join, ask for time."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.tasks.components import Manual, Scripted, Sink, chain, fan
from tests.tasks.solo import Solo
from topo.errors import StagedRowsLostError, TopoEnvironmentError
from topo.wire.frames import FrameKind


def held(**settings: Any) -> tuple[Manual, Solo]:
    """A bolt that keeps its inputs."""
    bolt = Manual(lambda tup, collector: None)
    return bolt, Solo(chain(Scripted(), bolt, Sink(), **settings), "b")


def then(task: Solo, bolt: Manual, call: Any) -> None:
    """Run `call(collector)` in the `execute` of an untracked input."""
    before, bolt.run = bolt.run, lambda tup, collector: call(collector)
    task.feed("go", tracked=False)
    task.run()
    bolt.tuples.pop()
    bolt.run = before


def test_an_undecided_input_that_user_code_lets_go_is_reported_once() -> None:
    bolt, task = held()
    task.feed("kept")
    task.run()
    assert task.errors() == []

    def forget(tup: Any, collector: Any) -> None:
        collector.emit(tup.values, anchors=tup)
        bolt.tuples.clear()

    bolt.run = forget
    task.feed("forgotten", "forgotten")
    task.run()
    assert [error.split(":")[0] for error in task.errors()] == ["TupleStateError"]
    assert task.frames(FrameKind.ACK, FrameKind.FAIL) == []


def test_an_input_that_is_acked_by_the_next_call_of_its_batch_was_not_forgotten() -> None:
    bolt, task = held()

    def ack_two(tup: Any, collector: Any) -> None:
        if len(bolt.tuples) == 2:
            for held_back in bolt.tuples:
                collector.ack(held_back)
            bolt.tuples.clear()

    bolt.run = ack_two
    task.feed("held back", "the last one")
    task.run()
    assert task.errors() == []


def test_forgotten_input_is_not_held_when_attempts_before_the_last_raised() -> None:
    def run(tup: Any, collector: Any) -> None:
        bolt.tuples.clear()
        if len(bolt.seen) < 3:
            raise ValueError("not yet")

    bolt = Manual(run)
    solo = Solo(chain(Scripted(), bolt, Sink(), delivery="exactly_once", attempts=3), "b")
    gc.disable()
    try:
        solo.feed("x", tracked=False)
        solo.run()
        assert bolt.seen == ["x"] * 3 and solo.errors() == []
        assert solo.task.guarantee.held.snapshot()["inputs"] == []
        solo.end_inputs()
        assert len(solo.frames(FrameKind.END)) == 1
    finally:
        gc.enable()


@pytest.mark.parametrize("by_a_tick", [False, True])
def test_forgotten_input_is_not_held_when_all_attempts_raised(by_a_tick: bool) -> None:
    def run(tup: Any, collector: Any) -> None:
        if bolt.seen[-1] in ("last", "tick"):
            _let_go = list(bolt.tuples)
            bolt.tuples.clear()
            raise ValueError("never")

    bolt = Manual(run)
    topology = chain(Scripted(), bolt, Sink(), delivery="exactly_once", attempts=3, tick_interval="1s")
    solo = Solo(topology, "b")
    gc.disable()
    try:
        solo.feed("forgotten", tracked=False)
        solo.run()
        if by_a_tick:
            solo.clock.now += 1.0
        else:
            solo.feed("last", tracked=False)
        solo.run()
        assert len(bolt.seen) == 4 and solo.errors() != []
        assert solo.task.guarantee.held.snapshot()["inputs"] == []
        solo.end_inputs()
        assert len(solo.frames(FrameKind.END)) == 1
    finally:
        gc.enable()


def test_an_input_can_be_acked_by_a_tick_and_at_the_end_of_input() -> None:
    class Buffer(Manual):
        def execute(self, tup: Any) -> None:
            if tup.is_tick:
                self.flush(1)
            else:
                self.tuples.append(tup)

        def end_of_input(self) -> None:
            self.flush(99)

        def flush(self, count: int) -> None:
            for tup in self.tuples[:count]:
                self.collector.emit(tup.values, anchors=tup)
                self.collector.ack(tup)
            del self.tuples[:count]

    task = Solo(chain(Scripted(), Buffer(), Sink(), tick_interval="1s"), "b")
    ids = task.feed("x", "y", "z")
    task.run()
    assert task.acks() == {}
    task.wait(1.0)
    assert list(task.acks()) == ids.roots[:1]
    task.end_inputs()
    assert sorted(task.acks()) == ids.roots
    assert task.values() == ["x", "y", "z"]


def test_an_input_of_an_older_epoch_anchors_nothing() -> None:
    bolt, task = held()
    task.feed("old")
    task.run()
    task.adopt(2)
    task.open_inputs()
    ids = task.feed("new")
    task.run()
    task.out.clear()

    def call(collector: Any) -> None:
        collector.emit(("only old",), anchors=bolt.tuples[0])
        collector.emit(("both",), anchors=bolt.tuples[:2])
        collector.ack(bolt.tuples[1])

    then(task, bolt, call)
    assert task.values() == ["only old", "both"]
    (frame,) = task.frames(FrameKind.DATA)
    assert (frame.count_list(), frame.root_list()) == ([0, 1], ids.roots)
    assert task.acks() == {ids.roots[0]: ids.edges[0] ^ frame.edge_list()[0]}


def test_rows_of_prepare_and_on_reset_follow_the_opening_frame() -> None:
    class Eager(Manual):
        def prepare(self, context: Any, collector: Any) -> None:
            super().prepare(context, collector)
            collector.emit(("prepared",))

        def on_reset(self) -> None:
            self.collector.emit(("reset",))

    task = Solo(chain(Scripted(), Eager(), Sink(), batch_size=1), "b", is_open=False)
    for epoch, value in ((1, "prepared"), (2, "reset")):
        task.out.clear()
        task.adopt(epoch)
        task.open_inputs()
        task.run()
        assert [(frame.kind, frame.number) for frame in task.frames(to=3)] == [(FrameKind.OPEN, 0), (FrameKind.DATA, 1)]
        assert task.values() == [value]


@pytest.mark.parametrize("is_stale", [False, True])
def test_a_row_without_a_route_fails_the_roots_of_its_anchors_in_this_epoch(is_stale: bool) -> None:
    bolt = Manual(lambda tup, collector: None)
    task = Solo(fan(Sink, 3, bolt, grouping="fields", by=("value",)), "b")
    ids = task.feed("x", "y", "z")
    task.run()
    if is_stale:
        task.begin_epoch(2)
    then(task, bolt, lambda collector: collector.emit(({},), anchors=bolt.tuples[:2]))
    assert task.roots(FrameKind.FAIL) == ([] if is_stale else ids.roots[:2])
    assert len(task.errors()) == 1


def test_a_sink_that_reports_that_staged_rows_are_gone_fails_the_run() -> None:
    bolt, solo = held()
    bolt.collector.report_error(TopoEnvironmentError("the disk is slow"))
    assert solo.task.statistics().counters.lost_results == 0
    bolt.collector.report_error(StagedRowsLostError("8 rows are gone"))
    assert solo.task.statistics().counters.lost_results == 1
