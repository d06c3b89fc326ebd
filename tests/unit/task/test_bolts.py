"""Inputs, slices, exceptions and values of both kinds of bolt. `Plain` is a BasicBolt, `Manual` a Bolt."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from tests.tasks.bolts import KINDS, done, emit, relay
from tests.tasks.components import Plain, Scripted, Sink, chain
from tests.tasks.solo import RowIds, Solo
from topo.ids import SUSPECT_BIT, TaskId
from topo.nesting import MAX_DEPTH
from topo.task.commands import TellMaster
from topo.tracking.failure_causes import MAX_TEXT, FailureCauses
from topo.wire.control import Cause, ComponentError, TuplesFailed
from topo.wire.frames import FrameKind

# -- inputs


@KINDS
def test_an_input_has_the_values_that_were_sent_and_names_its_origin(kind: Any) -> None:
    seen: list[Any] = []
    _, task = relay(kind, lambda tup, collector: seen.append(tup))
    task.feed("x", stamps=[5])
    task.run()
    (tup,) = seen
    assert (tup["value"], tup.values, tup.timestamp) == ("x", ("x",), 5)
    assert (tup.component, tup.task, tup.stream, tup.fields, tup.is_tick) == ("a", 1, "default", ("value",), False)


@KINDS
def test_a_method_of_the_user_is_not_taken_for_one_of_the_engine(kind: Any) -> None:
    seen: list[Any] = []
    bolt, task = relay(kind, lambda tup, collector: seen.append(tup[0]))
    bolt.run_rows = lambda *given: seen.append("called by the engine")
    task.feed("x", "y")
    task.run()
    assert seen == ["x", "y"]


HOLDERS = [lambda tup: tup, lambda tup: iter([tup]), lambda tup: (one for one in (tup,)), lambda tup: tup.as_dict]


@KINDS
@pytest.mark.parametrize("hold", HOLDERS, ids=["itself", "an iterator", "a generator", "a bound method"])
def test_kept_inputs_stay_unchanged_whatever_holds_them(kind: Any, hold: Any) -> None:
    held: list[Any] = []
    _, task = relay(kind, lambda tup, collector: tup[0] % 3 and held.append(hold(tup)))
    task.feed(*range(12), stamps=list(range(12)))
    task.run()
    kept = [one if hasattr(one, "values") else one.__self__ if hasattr(one, "__self__") else next(one) for one in held]
    assert [(tup[0], tup.timestamp, tup.component) for tup in kept] == [(at, at, "a") for at in range(12) if at % 3]


@KINDS
def test_an_input_that_an_exception_keeps_stays_unchanged(kind: Any) -> None:
    caught: list[Any] = []

    def run(tup: Any, collector: Any) -> None:
        try:
            raise ValueError(tup)
        except ValueError as error:
            caught.append(error)
        done(tup, collector)

    _, task = relay(kind, run)
    task.feed("x", "y", "z")
    task.run()
    assert [error.args[0]["value"] for error in caught] == ["x", "y", "z"]
    del caught[:]


@KINDS
def test_timestamps_are_inherited_unless_they_are_given(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        emit(tup, collector, "inherits")
        emit(tup, collector, "given", timestamp=99)
        done(tup, collector)

    _, task = relay(kind, run)
    task.feed("x", "y", stamps=[5, None])
    task.feed("several roots", "none", ids=RowIds([(1, 2), ()], [(3, 4), ()]), stamps=[7, 8])
    task.run()
    assert [stamp for frame in task.frames(FrameKind.DATA) for stamp in frame.timestamp_list()] == [5, 99, None, 99, 7, 99, 8, 99]


@KINDS
def test_rows_of_inputs_without_timestamps_have_none(kind: Any) -> None:
    _, task = relay(kind)
    task.feed("x")
    task.run()
    assert [frame.timestamps for frame in task.frames(FrameKind.DATA)] == [b""]


# -- slices


@KINDS
def test_a_batch_is_run_in_slices_and_each_slice_is_noted_while_it_runs(kind: Any) -> None:
    _, task = relay(kind, lambda tup, collector: noted.append((task.hand.holds, len(task.hand.noted))))
    noted: list[Any] = []
    ids = task.feed(*range(20))
    task.turn()
    assert task.hand.noted == [ids.roots[:8]]
    assert not task.hand.holds
    task.turn()
    assert task.hand.noted[1:] == [ids.roots[8:]]
    assert all(holds for holds, _ in noted)


@KINDS
def test_the_note_names_every_root_of_rows_with_several(kind: Any) -> None:
    _, task = relay(kind, done)
    task.feed("x", "y", ids=RowIds([(1, 2), (3,)], [(4, 5), (6,)]))
    task.run()
    assert task.hand.noted == [[1, 2, 3]]


@KINDS
def test_a_frame_counts_as_processed_with_its_last_slice(kind: Any) -> None:
    _, task = relay(kind, done, edge_window=1)
    task.feed(*range(20))
    task.turn()
    assert task.frames(FrameKind.CONFIRM) == []
    task.turn()
    assert [frame.number for frame in task.frames(FrameKind.CONFIRM)] == [1]


@KINDS
def test_a_slow_bolt_runs_few_inputs_at_a_time(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        task.clock.now += 0.1

    bolt, task = relay(kind, run)
    task.feed(*range(40))
    sizes = []
    while len(bolt.seen) < 40:
        before = len(bolt.seen)
        task.turn()
        sizes.append(len(bolt.seen) - before)
    assert sizes[:4] == [8, 4, 2, 1]
    assert set(sizes[4:]) == {1}


@KINDS
def test_rows_of_a_task_that_is_never_idle_leave_after_flush_interval(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        task.clock.now += 0.002
        emit(tup, collector, *tup.values)
        done(tup, collector)

    _, task = relay(kind, run, flush_interval="5ms")
    task.feed(*range(8))
    for _ in range(3):
        task.turn()
    assert task.values()
    assert task.acks()


# -- exceptions


@KINDS
def test_many_exceptions_make_one_report_a_second(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise ValueError(tup.values[0])

    _, task = relay(kind, run)
    task.feed(*range(100))
    task.run()
    assert len(task.messages(ComponentError)) == 1
    task.wait(1.0)
    assert [error.count for error in task.messages(ComponentError)] == [1, 99]


def cause_of(run: Any, text: str) -> Cause:
    """The ValueError of the first line of `run`."""
    return Cause("ValueError", text, "b", __file__, run.__code__.co_firstlineno + 1)


@KINDS
def test_causes_of_failed_roots_are_reported_once_by_cause(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise ValueError(tup[0])

    _, task = relay(kind, run)
    ids = task.feed("no", "never", "no")
    task.turn()
    task.turn()
    (report,) = task.messages(TuplesFailed)
    first, second, third = ids.roots
    assert report.causes == [(cause_of(run, "no"), [first, third]), (cause_of(run, "never"), [second])]


def test_causes_are_bounded() -> None:
    causes = FailureCauses(TaskId(1), "b", max_roots=10)
    for root in range(1, 30):
        causes.note((root,), ValueError("x" * 10_000))
    report = causes.take()
    assert report is not None
    ((cause, roots),) = report.causes
    assert (len(roots), len(cause.message)) == (10, MAX_TEXT)
    assert causes.take() is None


@KINDS
def test_with_on_error_crash_an_exception_ends_the_task_and_keeps_its_note(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise ValueError("fatal")

    _, task = relay(kind, run, on_error="crash")
    ids = task.feed("x")
    with pytest.raises(ValueError, match="fatal") as caught:
        task.turn()
    assert task.hand.holds and task.hand.noted == [ids.roots]
    report, why = task.task.crashed(caught.value, task.clock.now)
    assert why == TellMaster(TuplesFailed(task.task.id, [(cause_of(run, "fatal"), ids.roots)]))
    assert (report.message.kind, report.message.message, report.message.file) == ("ValueError", "fatal", __file__)  # type: ignore[union-attr]


@KINDS
def test_a_process_that_user_code_ends_keeps_the_note_of_its_roots(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise SystemExit(9)

    _, task = relay(kind, run)
    ids = task.feed("x")
    with pytest.raises(SystemExit):
        task.turn()
    assert task.hand.holds and task.hand.noted == [ids.roots]


# -- values


@KINDS
def test_a_tuple_that_is_nested_too_deeply_fails_alone_where_it_is_emitted(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        value = tup[0]
        for _ in range(MAX_DEPTH if value == "deep" else 0):
            value = (value,)
        emit(tup, collector, value)
        done(tup, collector)

    _, task = relay(kind, run)
    ids = task.feed("x", "deep", "y")
    task.run()
    assert task.values() == ["x", "y"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    (error,) = task.errors()
    assert "UnsupportedValueError" in error and "nested too deeply" in error


@KINDS
@pytest.mark.parametrize(("value", "is_packed"), [(("x", 1), False), ([1], True)])
def test_only_values_that_could_change_are_packed_within_a_worker(kind: Any, value: Any, is_packed: bool) -> None:
    task = Solo(chain(Scripted(), kind(lambda tup, collector: collector.emit((value,))), Sink()), "b", local=[3])
    task.feed("x")
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert (frame.payload is not None, frame.rows) == ((True, None) if is_packed else (False, [(value,)]))


@KINDS
def test_a_bolt_without_readers_acks_as_any_other(kind: Any) -> None:
    bolt = kind()
    task = Solo(chain(Scripted(), bolt), "b")
    ids = task.feed("x")
    task.run()
    assert task.acks() == dict(zip(ids.roots, ids.edges, strict=True))


def test_a_turn_takes_small_frames_up_to_a_slice_together() -> None:
    task = Solo(chain(Scripted(), Plain(), Sink(), ackers=0), "b")
    for value in range(9):
        task.feed(value, value)
    task.turn()
    # A slice has eight tuples at first, and twice as many when one was full and short.
    assert task.task.counters.executed == 8
    task.signal(FrameKind.IDLE)
    task.feed("behind")
    task.turn()
    assert task.task.counters.executed == 18  # the frames in front of the signal
    task.turn()
    task.turn()
    assert task.task.counters.executed == 19


def test_a_turn_looks_at_few_of_the_frames_that_wait() -> None:
    looked_at: list[Any] = []

    class Queue(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            for one in super().__iter__():
                looked_at.append(one)
                yield one

    task = Solo(chain(Scripted(), Plain(), Sink(), ackers=0), "b")
    for value in range(1000):
        task.feed(value)
    task.task.inbound.queue = Queue(task.task.inbound.queue)
    task.turn()
    assert task.task.counters.executed == 8
    # The invariants are checked behind the turn, and all that is left with them.
    assert 0 < len(looked_at) - len(task.task.inbound.queue) < 100


def test_frames_with_a_suspect_run_one_by_one_and_others_as_ever() -> None:
    task = Solo(chain(Scripted(), Plain(), Sink()), "b")
    task.begin_epoch(2, suspects=[1])
    task.feed("a", "b")
    task.mark = SUSPECT_BIT
    task.feed("c", "d")
    task.mark = 0
    task.feed("e", "f")
    task.run()
    assert [len(roots) for roots in task.hand.noted if roots] == [2, 1, 1, 2]
