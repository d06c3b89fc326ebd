"""What only a bolt that anchors and acks by itself can do: hold inputs, ack later, join, ask for time."""

from __future__ import annotations

from typing import Any

from tests.unit.task.harness import Ids, Manual, Scripted, Sink, Solo, chain
from topo.errors import EnvironmentFault, StagedRowsLost
from topo.ids import Epoch
from topo.wire.control import Probe, Quiet, TuplesFailed
from topo.wire.frames import Anchoring, FrameKind


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


def test_an_input_that_is_held_is_acked_by_nobody() -> None:
    _, task = held()
    task.feed("x")
    task.wait(100)
    assert task.frames(FrameKind.ACK, FrameKind.FAIL) == []


def test_an_input_that_user_code_lets_go_undecided_is_reported_once_and_for_what_it_is() -> None:
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


def test_an_input_can_be_acked_in_a_later_call() -> None:
    bolt, task = held()
    ids = task.feed("x")
    task.run()
    then(task, bolt, lambda collector: collector.ack(bolt.tuples[0]))
    assert task.acks() == dict(zip(ids.roots, ids.edges, strict=True))


def test_what_was_anchored_over_many_calls_is_acked_as_one_value() -> None:
    bolt, task = held()
    ids = task.feed("x")
    task.run()
    for value in "abc":
        then(task, bolt, lambda collector, value=value: collector.emit((value,), anchors=bolt.tuples[0]))
    then(task, bolt, lambda collector: collector.ack(bolt.tuples[0]))
    edges = [edge for frame in task.frames(FrameKind.DATA) for edge in frame.edge_list()]
    assert len(edges) == 3
    assert task.acks() == {ids.roots[0]: ids.edges[0] ^ edges[0] ^ edges[1] ^ edges[2]}


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


def test_an_input_that_fails_fails_its_roots_only() -> None:
    bolt, task = held()
    ids = task.feed("x", "y")
    task.run()
    then(task, bolt, lambda collector: collector.fail(bolt.tuples[1]))
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    assert task.acks() == {}
    (told,) = task.messages(TuplesFailed)
    assert [str(cause) for cause, _ in told.causes] == ["the bolt called fail (component 'b')"]
    assert task.task.counters.failed == 1


def test_a_row_without_anchors_is_not_tracked() -> None:
    def run(tup: Any, collector: Any) -> None:
        collector.emit(("free",))
        collector.ack(tup)

    task = Solo(chain(Scripted(), Manual(run), Sink()), "b")
    ids = task.feed("x")
    task.run()
    assert [frame.anchoring for frame in task.frames(FrameKind.DATA)] == [Anchoring.NONE]
    assert task.acks() == dict(zip(ids.roots, ids.edges, strict=True))


def test_more_time_is_asked_of_the_acker_of_each_root() -> None:
    bolt, task = held()
    task.feed("x", ids=Ids([(5, 6)], [(1, 2)]))
    task.run()
    then(task, bolt, lambda collector: collector.reset_timeout(bolt.tuples[0]))
    assert task.roots(FrameKind.RESET) == [5, 6]


def test_acks_in_a_call_that_raises_become_fails() -> None:
    bolt, task = held()
    ids = task.feed("x", "y")
    task.run()

    def call(collector: Any) -> None:
        collector.ack(bolt.tuples[0])
        raise ValueError("after an ack")

    then(task, bolt, call)
    assert task.roots(FrameKind.FAIL) == [ids.roots[0]]
    assert task.acks() == {}


def test_a_double_ack_is_the_callers_error_and_the_tree_is_unharmed() -> None:
    bolt, task = held()
    ids = task.feed("x")
    task.run()
    then(task, bolt, lambda collector: collector.ack(bolt.tuples[0]))
    then(task, bolt, lambda collector: collector.ack(bolt.tuples[0]))
    assert task.acks() == dict(zip(ids.roots, ids.edges, strict=True))
    assert task.errors()[0].startswith("TupleStateError: component 'b' acked Tuple(a#1:default value='x')")


def test_an_input_of_an_older_epoch_acks_fails_and_touches_nothing_and_is_counted() -> None:
    bolt, task = held()
    task.feed("x", "y", "z")
    task.run()
    task.adopt(2)
    task.open_inputs()
    task.out.clear()

    def call(collector: Any) -> None:
        first, second, third = bolt.tuples[:3]
        collector.ack(first)
        collector.fail(second)
        collector.reset_timeout(third)

    then(task, bolt, call)
    assert task.frames(FrameKind.ACK, FrameKind.FAIL, FrameKind.RESET) == []
    assert task.task.counters.stale_tuples == 2
    assert task.errors() == []


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


def test_a_row_of_an_older_epoch_that_cannot_be_routed_fails_nothing_of_this_one() -> None:
    from tests.unit.task.harness import fan

    bolt = Manual(lambda tup, collector: None)
    task = Solo(fan(Sink, 3, bolt, grouping="fields", by=("value",)), "b")
    task.feed("old")
    task.run()
    task.adopt(2)
    task.open_inputs()
    task.out.clear()
    then(task, bolt, lambda collector: collector.emit(({},), anchors=bolt.tuples[0]))
    assert task.roots(FrameKind.FAIL) == []
    assert len(task.errors()) == 1


def test_what_is_emitted_in_on_reset_and_prepare_leaves_behind_the_opening_frame() -> None:
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


def test_a_bolt_that_owes_values_is_not_quiet() -> None:
    def run(tup: Any, collector: Any) -> None:
        collector.ack(tup)

    task = Solo(chain(Scripted(), Manual(run), Sink()), "b")
    task.confirm_all()
    task.feed("x")
    task.turn()
    task.handle(Probe(1, Epoch(1)))
    assert [quiet.quiet for quiet in task.messages(Quiet)] == [False]
    task.run()
    task.confirm_all()
    task.handle(Probe(2, Epoch(1)))
    assert [quiet.quiet for quiet in task.messages(Quiet)] == [False, True]


def test_a_row_that_cannot_be_routed_fails_the_roots_of_all_its_anchors() -> None:
    from tests.unit.task.harness import fan

    bolt = Manual(lambda tup, collector: None)
    task = Solo(fan(Sink, 3, bolt, grouping="fields", by=("value",)), "b")
    ids = task.feed("x", "y", "z")
    task.run()
    then(task, bolt, lambda collector: collector.emit(({},), anchors=bolt.tuples[:2]))
    assert task.roots(FrameKind.FAIL) == ids.roots[:2]


def test_a_sink_that_reports_that_staged_rows_are_gone_fails_the_run() -> None:
    bolt, solo = held()
    bolt.collector.report_error(EnvironmentFault("the disk is slow"))
    assert solo.task.statistics().counters.lost_results == 0
    bolt.collector.report_error(StagedRowsLost("8 rows are gone"))
    assert solo.task.statistics().counters.lost_results == 1
