"""The promises that each kind of component with input keeps, under each guarantee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.contract.runners.kinds import KINDS, Neighbours
from tests.rows import rows_of
from tests.tasks.components import CHECKPOINTED, MODES, TRACKED, UNTRACKED, Plain, Scripted, Sink
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from topo.builder import TopologyBuilder
from topo.hot import Trees, pack_words, unpack_words
from topo.ids import SUSPECT_BIT, TaskId
from topo.wire.control import BeginCheckpoint, ComponentError, DeadLetter, DeadLettersStored, SnapshotTaken, TuplesFailed
from topo.wire.frames import FrameKind

ALL = pytest.mark.parametrize(("kind", "guarantee"), [(kind, mode) for kind in KINDS for mode in MODES])
REPEATED_IN_PLACE = [kind for kind in KINDS if kind != "async"]
"""An asynchronous call is repeated by its own strategy alone."""


ACKS = pytest.mark.parametrize(
    ("kind", "guarantee"), [(kind, mode) for kind in KINDS for mode in MODES if (kind, mode) != ("window", UNTRACKED)]
)
"""Windows do not count inputs without ids as acked."""


def bad(value: Any) -> Iterable[Any]:
    yield f"{value}!"
    if value == "bad":
        raise ValueError("no such value")


@ACKS
def test_rows_of_all_inputs_are_sent_and_the_inputs_are_acked(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, lambda value: [value, value * 10])
    task.feed(1, 2)
    task.feed(3)
    task.finish()
    assert sorted(task.values) == [1, 2, 3, 10, 20, 30]
    assert task.accounted == (3, 0)
    counters = task.task.counters
    assert (counters.executed, counters.emitted, counters.transferred) == (3, 6, 6)
    assert task.undecided() == [] and task.failed() == []
    assert not task.task.is_quiet, "the sink has confirmed nothing"
    task.solo.confirm_all()
    assert task.task.is_quiet


@ACKS
def test_inputs_without_output_are_acked(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, lambda _value: [])
    task.feed(1, 2, 3)
    task.finish()
    assert task.values == [] and task.accounted == (3, 0) and task.undecided() == []


@ACKS
def test_an_input_whose_call_raises_fails_alone_and_none_of_its_rows_is_sent(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, bad, attempts=2)
    task.feed("x", "bad", "y")
    task.finish()
    assert sorted(task.values) == ["x!", "y!"]
    assert task.accounted == (2, 1)
    assert task.solo.messages(DeadLetter) == []
    assert task.undecided() == [] and task.failed() == ([1] if guarantee == TRACKED else [])


@ALL
def test_the_error_of_a_call_names_the_file_and_line_of_the_user(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, bad)
    task.feed("bad")
    task.finish()
    error = task.solo.messages(ComponentError)[0]
    assert (error.component, error.kind, error.message, error.count) == ("b", "ValueError", "no such value", 1)
    assert (error.file, error.line) == (__file__, bad.__code__.co_firstlineno + 3)
    assert error.at_ms == 1_700_000_000_000 and "no such value" in error.traceback


@pytest.mark.parametrize("kind", KINDS)
def test_the_cause_of_a_failed_root_is_reported(kind: str) -> None:
    task = Neighbours(kind, TRACKED, bad)
    ids = task.feed("x", "bad", "y")
    task.finish()
    (failed,) = task.solo.messages(TuplesFailed)
    ((cause, roots),) = failed.causes
    assert roots == [ids.roots[1]] and "no such value" in str(cause)


@pytest.mark.parametrize("kind", KINDS)
def test_with_checkpoints_an_input_that_failed_is_a_dead_letter_of_the_next_one(kind: str) -> None:
    task = Neighbours(kind, CHECKPOINTED, bad, attempts=2)
    task.feed("x", "bad", "y")
    task.finish()
    task.barrier(1)
    assert task.solo.dead_letters() == [], "a recovery may replay its input"
    task.solo.complete(1)
    assert task.solo.dead_letters() == [(("bad",), 2)]


@pytest.mark.parametrize("kind", REPEATED_IN_PLACE)
def test_with_checkpoints_a_call_that_raises_is_repeated_in_place(kind: str) -> None:
    calls = Counter[Any]()

    def once(value: Any) -> Iterable[Any]:
        calls[value] += 1
        yield f"{value}!"
        if value == "bad" and calls[value] == 1:
            raise ValueError("not yet")

    task = Neighbours(kind, CHECKPOINTED, once, attempts=2)
    task.feed("x", "bad", "y")
    task.finish()
    assert sorted(task.values) == ["bad!", "x!", "y!"]
    assert task.accounted == (3, 0)


@pytest.mark.parametrize("guarantee", MODES)
@pytest.mark.parametrize("kind", ["basic_bolt", "bolt", "process", "batch"])
def test_a_call_that_emits_more_than_it_may_fails_alone(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, lambda value: [value] * value, max_task_emit=5)
    task.feed(3, 6, 4)
    task.finish()
    assert sorted(set(task.values)) == [3, 4]
    assert task.accounted == (2, 1)


@ALL
def test_a_row_that_cannot_be_carried_is_lost_alone_and_reported(kind: str, guarantee: str) -> None:
    """It fails its input, is a dead letter of the next checkpoint, or is counted."""
    task = Neighbours(kind, guarantee, lambda value: [object() if value == "odd" else value], attempts=1)
    task.feed("x", "odd", "y")
    task.finish()
    assert sorted(task.values) == ["x", "y"]
    why = "UnsupportedValueError: component 'b', stream 'default': field 'value': a value of type object"
    assert task.solo.errors()[0].startswith(why)
    assert task.solo.messages(DeadLetter) == []
    if guarantee == TRACKED and kind != "window":
        assert task.failed() == [1] and task.undecided() == []
    if guarantee == TRACKED and kind == "window":
        assert [root not in task.ids.roots for root in task.solo.roots(FrameKind.FAIL)] == [True], "that of the firing"
    if guarantee == CHECKPOINTED:
        task.barrier(1)
        assert task.solo.dead_letters() == [], "a recovery may replay its input"
        task.solo.complete(1)
        ((values, attempts),) = task.solo.dead_letters()
        assert values.startswith("(<object object at") and attempts == 1
        assert task.solo.dead_letter_errors()[0].startswith(why)
        task.solo.handle(DeadLettersStored(task.solo.id, [task.solo.messages(DeadLetter)[0].id]))
        assert task.task.counters.dead_lettered == 1
    if guarantee == UNTRACKED:
        assert task.task.counters.unsent == 1


@ALL
def test_with_on_error_crash_an_error_ends_the_process(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, bad, on_error="crash")
    task.feed("bad", "x")
    with pytest.raises(ValueError, match="no such value"):
        task.finish()


@ALL
def test_a_watermark_follows_the_rows_of_the_inputs_before_it(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee)
    task.feed(1, 2, stamps=[5, 6])
    task.watermark(7)
    task.finish()
    kinds = [frame.kind for frame in task.solo.frames(FrameKind.DATA, FrameKind.WATERMARK, to=task.solo.plan.tasks_of("sink")[0])]
    assert kinds[-1] == FrameKind.WATERMARK and FrameKind.DATA in kinds
    assert task.solo.times() == [7]


@ALL
def test_the_end_follows_all_rows(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee)
    task.feed(1, 2, 3)
    task.end()
    kinds = [frame.kind for frame in task.solo.frames(to=task.solo.plan.tasks_of("sink")[0])]
    assert kinds.count(FrameKind.END) == 1 and kinds[-1] == FrameKind.END
    assert sorted(task.values) == [1, 2, 3] and task.undecided() == []


@ALL
def test_nothing_of_an_earlier_epoch_is_sent_or_acked(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, batch_size=1_000)
    task.feed(*range(20))
    task.solo.turn()
    task.begin_epoch(2)
    task.finish()
    assert task.values == [] and task.solo.acks() == {} and task.solo.roots(FrameKind.FAIL) == []
    task.feed("new")
    task.finish()
    assert task.values == ["new"]


@ACKS
def test_a_full_output_takes_no_input_and_none_is_lost(kind: str, guarantee: str) -> None:
    task = Neighbours(kind, guarantee, edge_window=1, outbox_limit=1, batch_size=1)
    for value in range(8):
        task.feed(value)
    task.finish()
    assert len(task.values) < 8 and task.task.inbound.queue and not task.task.has_work
    for _ in range(30):
        task.solo.confirm_all()
        task.finish()
    assert sorted(task.values) == list(range(8))
    assert task.accounted == (8, 0) and task.undecided() == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "async"])
@pytest.mark.parametrize("guarantee", [TRACKED])
def test_the_roots_of_the_inputs_of_a_call_are_noted_while_it_runs(kind: str, guarantee: str) -> None:
    noted: list[bool] = []

    def look(value: Any) -> Iterable[Any]:
        noted.append(task.solo.hand.holds)
        return [value]

    task = Neighbours(kind, guarantee, look)
    for values in [(1,), (2,)] if kind == "batch" else [(1, 2)]:
        task.feed(*values)
    task.finish()
    assert noted and all(noted)
    assert task.ids.roots in task.solo.hand.noted and not task.solo.hand.holds


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "async"])
def test_inputs_that_may_have_ended_a_process_are_run_one_by_one(kind: str) -> None:
    task = Neighbours(kind, TRACKED)
    task.solo.mark = SUSPECT_BIT
    ids = task.feed("x", "y", "z")
    task.finish()
    assert [noted for noted in task.solo.hand.noted if noted] and all(len(noted) <= 1 for noted in task.solo.hand.noted)
    assert {root for noted in task.solo.hand.noted for root in noted} == set(ids.roots)


@pytest.mark.parametrize("kind", KINDS)
def test_a_barrier_follows_the_rows_before_it_and_precedes_those_behind_it(kind: str) -> None:
    task = Neighbours(kind, CHECKPOINTED)
    task.feed(1, 2)
    if kind == "async":
        # Calls under way are in the checkpoint.
        task.finish()
    task.barrier(1)
    task.feed(3, 4)
    task.finish()
    assert task.values == [1, 2, 3, 4]
    frames = task.solo.frames(FrameKind.DATA, FrameKind.BARRIER)
    barrier = next(place for place, frame in enumerate(frames) if frame.kind is FrameKind.BARRIER)
    before = [row[0] for frame in frames[:barrier] for row in rows_of(frame, CODEC)]
    assert before == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_only_inputs_behind_a_restored_checkpoint_are_processed(kind: str) -> None:
    task = Neighbours(kind, CHECKPOINTED)
    task.feed(1, 2)
    task.finish()
    task.barrier(1)
    task.solo.complete(1)
    task.feed(3)
    task.finish()
    task.begin_epoch(2, checkpoint=1)
    task.feed(3)
    task.finish()
    assert task.values == [3]


@ACKS
def test_an_order_to_begin_a_checkpoint_is_for_sources_alone(kind: str, guarantee: str) -> None:
    """It begins where there is no input; a task with input waits for barriers."""
    task = Neighbours(kind, guarantee)
    task.feed(1)
    commands = task.solo.handle(BeginCheckpoint(task.solo.epoch, 1))
    task.finish()
    assert commands == [] and task.values == [1]
    assert task.solo.messages(SnapshotTaken) == []


def test_acks_that_leave_ahead_of_the_rows_of_their_inputs_complete_nothing() -> None:
    builder = TopologyBuilder("contract").config(delivery=TRACKED, batch_size=4)
    builder.set_spout("a", Scripted())
    builder.set_bolt("b", Plain()).shuffle_grouping("a")
    builder.set_bolt("sink", Sink, 2).fields_grouping("b", "value")
    solo, trees = Solo(builder.build(), "b"), Trees()
    ids = solo.feed(1, 2, 3, 4)
    trees.init(TaskId(1), pack_words(ids.roots), pack_words(ids.edges))
    solo.turn()
    (acks,) = solo.frames(FrameKind.ACK)
    assert acks.root_list() == ids.roots and not solo.frames(FrameKind.DATA), "each sink has fewer rows than a batch"
    trees.ack(acks.roots, acks.edges)
    assert not trees.verdicts()
    solo.run()
    found = []
    for frame in solo.frames(FrameKind.DATA):
        trees.ack(frame.roots, frame.edges)
        assert list(unpack_words(trees.verdicts()[TaskId(1)].acked)) == frame.root_list()
        found += frame.root_list()
    assert sorted(found) == ids.roots
