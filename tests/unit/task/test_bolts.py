"""What both kinds of bolt do with inputs, exceptions, ticks and the end. `Plain` is a BasicBolt, `Manual` a Bolt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Ids, Manual, Plain, Scripted, Sink, Solo, chain, fan
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.ids import Epoch, TaskId
from topo.nesting import MAX_DEPTH
from topo.task.commands import TellMaster
from topo.tracking.failure_causes import MAX_TEXT, FailureCauses
from topo.wire.control import Cause, Close, Closed, ComponentError, Go, TuplesFailed
from topo.wire.frames import Anchoring, FrameKind, SenderStatus

KINDS = pytest.mark.parametrize("kind", [Plain, Manual])


def relay(kind: Any, run: Any = None, outputs: Any = ("value",), **settings: Any) -> tuple[Any, Solo]:
    """A bolt b between spout a and sink c."""
    bolt = kind(run, outputs)
    return bolt, Solo(chain(Scripted(), bolt, Sink(), **settings), "b")


def emit(tup: Any, collector: Any, *values: Any, **more: Any) -> None:
    """Emit, anchored on the input, with either collector."""
    if hasattr(collector, "ack"):
        more["anchors"] = tup
    collector.emit(values, **more)


def done(tup: Any, collector: Any) -> None:
    if hasattr(collector, "ack"):
        collector.ack(tup)


# -- inputs


@KINDS
def test_an_input_is_what_was_sent_and_says_where_it_comes_from(kind: Any) -> None:
    seen: list[Any] = []
    _, task = relay(kind, lambda tup, collector: seen.append(tup))
    task.feed("x", stamps=[5])
    task.run()
    (tup,) = seen
    assert (tup["value"], tup.values, tup.timestamp) == ("x", ("x",), 5)
    assert (tup.component, tup.task, tup.stream, tup.fields, tup.is_tick) == ("a", 1, "default", ("value",), False)


HOLDERS = [lambda tup: tup, lambda tup: iter([tup]), lambda tup: (one for one in (tup,)), lambda tup: tup.as_dict]


@KINDS
@pytest.mark.parametrize("hold", HOLDERS, ids=["itself", "an iterator", "a generator", "a bound method"])
def test_inputs_that_are_kept_stay_what_they_were_whatever_holds_them(kind: Any, hold: Any) -> None:
    held: list[Any] = []
    _, task = relay(kind, lambda tup, collector: tup[0] % 3 and held.append(hold(tup)))
    task.feed(*range(12), stamps=list(range(12)))
    task.run()
    kept = [one if hasattr(one, "values") else one.__self__ if hasattr(one, "__self__") else next(one) for one in held]
    assert [(tup[0], tup.timestamp, tup.component) for tup in kept] == [(at, at, "a") for at in range(12) if at % 3]


@KINDS
def test_an_input_that_an_exception_keeps_stays_what_it_was(kind: Any) -> None:
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
def test_what_is_emitted_is_sent_and_acked_together_with_the_input(kind: Any) -> None:
    _, task = relay(kind)
    ids = task.feed("x", "y")
    task.run()
    assert task.values() == ["x", "y"]
    edges = [edge for frame in task.frames(FrameKind.DATA) for edge in frame.edge_list()]
    assert task.acks() == {root: edge ^ out for root, edge, out in zip(ids.roots, ids.edges, edges, strict=True)}
    counters = task.task.counters
    assert (counters.executed, counters.acked, counters.emitted, counters.transferred) == (2, 2, 2, 2)


@KINDS
def test_acks_of_one_root_are_sent_as_one(kind: Any) -> None:
    _, task = relay(kind, done)
    task.feed("x", "y", "z", ids=Ids([5, 6, 5], [1, 2, 4]))
    task.run()
    (frame,) = task.frames(FrameKind.ACK)
    assert dict(zip(frame.root_list(), frame.edge_list(), strict=True)) == {5: 5, 6: 2}


@KINDS
def test_untracked_inputs_make_untracked_rows_and_no_acks(kind: Any) -> None:
    _, task = relay(kind)
    task.feed("x", tracked=False)
    task.run()
    assert [frame.anchoring for frame in task.frames(FrameKind.DATA)] == [Anchoring.NONE]
    assert task.acks() == {}
    assert task.task.counters.acked == 1


@KINDS
def test_without_ackers_nothing_is_tracked(kind: Any) -> None:
    _, task = relay(kind, ackers=0)
    task.feed("x", tracked=False)
    task.run()
    assert [(frame.kind, frame.target) for frame in task.frames()] == [(FrameKind.DATA, 3)]


@KINDS
def test_timestamps_are_inherited_unless_they_are_given(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        emit(tup, collector, "inherits")
        emit(tup, collector, "own", timestamp=99)
        done(tup, collector)

    _, task = relay(kind, run)
    task.feed("x", "y", stamps=[5, None])
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert frame.timestamp_list() == [5, 99, None, 99]


@KINDS
def test_rows_of_inputs_without_timestamps_have_none(kind: Any) -> None:
    _, task = relay(kind)
    task.feed("x")
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert frame.timestamps == b""


@KINDS
def test_timestamps_are_inherited_by_rows_with_several_roots(kind: Any) -> None:
    _, task = relay(kind)
    task.feed("x", "y", ids=Ids([(1, 2), ()], [(3, 4), ()]), stamps=[7, 8])
    task.run()
    assert [stamp for frame in task.frames(FrameKind.DATA) for stamp in frame.timestamp_list()] == [7, 8]


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
    task.feed("x", "y", ids=Ids([(1, 2), (3,)], [(4, 5), (6,)]))
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
def test_rows_of_a_task_that_is_never_idle_leave_when_they_are_flush_interval_old(kind: Any) -> None:
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


@KINDS
def test_acks_of_a_sink_that_is_never_idle_leave_when_they_are_flush_interval_old(kind: Any) -> None:
    bolt = kind(done, ())
    task = Solo(chain(Scripted(), bolt, flush_interval="5ms"), "b")
    ids = task.feed("x")
    task.turn()
    assert task.acks() == {}
    deadline = task.task.next_deadline(task.clock.now)
    assert deadline is not None and deadline <= task.clock.now + 0.005
    task.clock.now += 0.005
    task.turn()
    assert list(task.acks()) == ids.roots


# -- exceptions


@KINDS
def test_an_exception_discards_what_its_call_emitted_and_fails_only_its_own_root(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        emit(tup, collector, f"{tup.values[0]} 1")
        if tup.values[0] == "bad":
            raise ValueError("this one")
        emit(tup, collector, f"{tup.values[0]} 2")
        done(tup, collector)

    _, task = relay(kind, run)
    ids = task.feed("x", "bad", "y")
    task.run()
    assert task.values() == ["x 1", "x 2", "y 1", "y 2"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    assert sorted(task.acks()) == [ids.roots[0], ids.roots[2]]
    assert (task.task.counters.acked, task.task.counters.failed) == (2, 1)


@KINDS
def test_an_exception_is_reported_with_the_users_file_and_line(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise ValueError("look here")

    _, task = relay(kind, run)
    task.feed("x")
    task.run()
    (error,) = task.messages(ComponentError)
    assert (error.task, error.component, error.kind, error.message, error.count) == (2, "b", "ValueError", "look here", 1)
    assert (error.file, error.line) == (__file__, run.__code__.co_firstlineno + 1)
    assert error.at_ms == 1_700_000_000_000
    assert "look here" in error.traceback


@KINDS
def test_tuples_nested_too_deeply_fail_where_they_are_emitted_and_alone(kind: Any) -> None:
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
    assert "ValueNotCarried" in error and "nested too deeply" in error


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


@KINDS
def test_an_exception_with_several_roots_in_hand_fails_them_all(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        if tup.values[0] == "bad":
            raise ValueError
        done(tup, collector)

    _, task = relay(kind, run)
    task.feed("bad", "good", ids=Ids([(1, 2), (3, 4)], [(5, 6), (7, 8)]))
    task.run()
    assert task.roots(FrameKind.FAIL) == [1, 2]
    assert task.acks() == {3: 7, 4: 8}


@KINDS
def test_a_fail_leaves_with_its_slice(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise ValueError

    _, task = relay(kind, run)
    ids = task.feed("x")
    task.turn()
    assert task.roots(FrameKind.FAIL) == ids.roots


@KINDS
def test_an_emit_error_is_an_exception_like_any_other(kind: Any) -> None:
    _, task = relay(kind, lambda tup, collector: emit(tup, collector, 1, 2))
    ids = task.feed("x")
    task.run()
    assert task.roots(FrameKind.FAIL) == ids.roots
    assert task.errors() == ["EmitError: component 'b' emitted 2 values on stream 'default', which has 1 fields: ('value',)"]


def cause_of(run: Any, text: str) -> Cause:
    """The ValueError of the first line of `run`."""
    return Cause("ValueError", text, "b", __file__, run.__code__.co_firstlineno + 1)


@KINDS
def test_the_master_is_told_why_roots_have_failed(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise ValueError(tup[0])

    _, task = relay(kind, run)
    ids = task.feed("no", "never", "no")
    task.turn()
    (told,) = task.messages(TuplesFailed)
    first, second, third = ids.roots
    assert told.causes == [(cause_of(run, "no"), [first, third]), (cause_of(run, "never"), [second])]
    task.turn()
    assert task.messages(TuplesFailed) == [told], "once"


def test_causes_are_bounded() -> None:
    causes = FailureCauses(TaskId(1), "b", max_roots=10)
    for root in range(1, 30):
        causes.note((root,), ValueError("x" * 10_000))
    told = causes.take()
    assert told is not None
    ((cause, roots),) = told.causes
    assert (len(roots), len(cause.message)) == (10, MAX_TEXT)
    assert causes.take() is None


@KINDS
def test_with_on_error_crash_an_exception_ends_the_task_and_the_note_of_what_was_in_hand_stays(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise ValueError("fatal")

    _, task = relay(kind, run, on_error="crash")
    ids = task.feed("x")
    with pytest.raises(ValueError, match="fatal") as caught:
        task.turn()
    assert task.hand.holds and task.hand.noted == [ids.roots]
    told, why = task.task.crashed(caught.value, task.clock.now)
    assert why == TellMaster(TuplesFailed(task.task.id, [(cause_of(run, "fatal"), ids.roots)]))
    assert (told.message.kind, told.message.message, told.message.file) == ("ValueError", "fatal", __file__)  # type: ignore[union-attr]


@KINDS
def test_a_process_that_user_code_ends_leaves_the_note_of_what_was_in_hand(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        raise SystemExit(9)

    _, task = relay(kind, run)
    ids = task.feed("x")
    with pytest.raises(SystemExit):
        task.turn()
    assert task.hand.holds and task.hand.noted == [ids.roots]


@KINDS
@pytest.mark.parametrize("suspects", [[], [17]])
def test_what_is_in_hand_is_one_tuple_after_a_process_has_died_with_some(kind: Any, suspects: list[int]) -> None:
    _, task = relay(kind, lambda tup, collector: None)
    task.adopt(2, suspects=suspects)
    task.open_inputs()
    ids = task.feed("x", "y", "z")
    task.run()
    assert task.hand.noted == ([[root] for root in ids.roots] if suspects else [ids.roots])


@KINDS
def test_a_call_that_emits_more_than_it_may_fails_and_the_rest_of_the_batch_goes(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        for _ in range(tup.values[0]):
            emit(tup, collector, tup.values[0])
        done(tup, collector)

    _, task = relay(kind, run, max_task_emit=5)
    ids = task.feed(3, 6, 5, 4)
    task.run()
    assert sorted(set(task.values())) == [3, 4, 5]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    assert task.errors() == [
        "EmitError: component 'b' emitted 6 tuples in one call; at most 5 are allowed (setting max_task_emit): "
        "emit them over several calls"
    ]


# -- values


class Odd:
    """A type that no codec knows."""


@KINDS
def test_a_value_that_cannot_be_carried_fails_only_its_own_root_and_the_rest_of_the_batch_goes(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        emit(tup, collector, Odd() if tup.values[0] == "odd" else tup.values[0])
        done(tup, collector)

    _, task = relay(kind, run)
    ids = task.feed("x", "odd", "y")
    task.run()
    assert task.values() == ["x", "y"]
    assert task.roots(FrameKind.FAIL) == [ids.roots[1]]
    (error,) = task.errors()
    assert error.startswith("ValueNotCarried: component 'b', stream 'default': field 'value': a value of type Odd: ")


@KINDS
def test_an_untracked_value_that_cannot_be_carried_is_reported(kind: Any) -> None:
    _, task = relay(kind, lambda tup, collector: collector.emit((Odd(),)))
    task.feed("x", tracked=False)
    task.run()
    assert task.values() == []
    assert len(task.errors()) == 1


@KINDS
def test_values_handed_over_in_memory_are_not_packed(kind: Any) -> None:
    bolt = kind(lambda tup, collector: collector.emit((("x", 1),)))
    task = Solo(chain(Scripted(), bolt, Sink()), "b", local=[3])
    task.feed("x")
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert frame.payload is None and frame.rows == [(("x", 1),)]


@KINDS
def test_values_that_could_change_are_packed_for_a_task_of_the_same_worker_too(kind: Any) -> None:
    task = Solo(chain(Scripted(), kind(lambda tup, collector: collector.emit(([1],))), Sink()), "b", local=[3])
    task.feed("x")
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert frame.payload is not None and frame.rows is None


# -- ticks


@KINDS
def test_ticks_come_at_their_interval_and_belong_to_no_tree(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        assert tup.is_tick and (tup.component, tup.stream, len(tup)) == ("__system", "__tick", 0)
        emit(tup, collector, "ticked")
        done(tup, collector)

    bolt, task = relay(kind, run, tick_interval="1s")
    task.wait(3.5)
    assert bolt.seen == ["tick"] * 3
    assert task.values() == ["ticked"] * 3
    assert {frame.anchoring for frame in task.frames(FrameKind.DATA)} == {Anchoring.NONE}
    assert task.errors() == []


@KINDS
def test_ticks_that_were_missed_are_not_made_up_for(kind: Any) -> None:
    bolt, task = relay(kind, done, tick_interval="1s")
    task.clock.now += 10.5
    task.run()
    assert bolt.seen == ["tick"]
    task.wait(1.0)
    assert bolt.seen == ["tick"] * 2


@KINDS
def test_an_exception_in_a_tick_is_reported_and_what_it_emitted_discarded(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        emit(tup, collector, "gone")
        raise ValueError("tick")

    _, task = relay(kind, run, tick_interval="1s")
    task.wait(1.0)
    assert task.values() == []
    assert task.errors() == ["ValueError: tick"]


def given_up(task: Solo) -> list[Any]:
    """The dead letters that the task holds for the next checkpoint."""
    return [CODEC.unpack_value(letter[1]) for letter in task.task._letters.snapshot(1)["letters"]]  # type: ignore[attr-defined]


@KINDS
@pytest.mark.parametrize("failures", [1, 3])
def test_with_checkpoints_a_tick_that_raises_is_tried_again_and_then_a_letter(kind: Any, failures: int) -> None:
    left = [failures]

    def run(tup: Any, collector: Any) -> None:
        emit(tup, collector, "ticked")
        if left[0]:
            left[0] -= 1
            raise ValueError("tick")

    _, task = relay(kind, run, tick_interval="1s", delivery="exactly_once")
    task.wait(1.0)
    assert task.values() == (["ticked"] if failures == 1 else [])
    assert given_up(task) == ([] if failures == 1 else [("a tick",)])
    assert task.errors() == ([] if failures == 1 else ["ValueError: tick"])


@KINDS
def test_with_checkpoints_what_a_tick_acks_before_it_raises_is_acked_once_it_has_gone_well(kind: Any) -> None:
    held: list[Any] = []
    left = [1]

    def run(tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            held.append(tup)
            return
        for one in held:
            done(one, collector)
        if left[0]:
            left[0] -= 1
            raise ValueError("tick")

    _, task = relay(kind, run, tick_interval="1s", delivery="exactly_once")
    task.feed("x", tracked=False)
    task.run()
    task.wait(1.0)
    assert given_up(task) == [] and task.task.counters.failed == 0


@KINDS
def test_ticks_go_on_in_the_next_epoch(kind: Any) -> None:
    bolt, task = relay(kind, done, tick_interval="1s")
    task.wait(1.5)
    task.adopt(2)
    task.wait(1.0)
    assert bolt.seen == ["tick"] * 2


# -- the end


def _two_spouts(bolt: Any) -> Topology:
    builder = TopologyBuilder("two")
    builder.set_spout("a1", Scripted())
    builder.set_spout("a2", Scripted())
    builder.set_bolt("b", bolt).shuffle_grouping("a1").shuffle_grouping("a2")
    builder.set_bolt("c", Sink()).shuffle_grouping("b")
    return builder.build()


@KINDS
def test_a_bolt_ends_when_all_its_inputs_have(kind: Any) -> None:
    bolt = kind()
    task = Solo(_two_spouts(bolt), "b")
    first, second = task.senders()
    task.signal(FrameKind.END, first)
    task.run()
    assert (bolt.calls, task.frames(FrameKind.END)) == (["prepare"], [])
    task.signal(FrameKind.END, second)
    task.run()
    assert bolt.calls == ["prepare", "end_of_input"]
    assert [frame.target for frame in task.frames(FrameKind.END)] == [3 + 1]


@KINDS
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_at_the_end_a_bolt_may_emit_all_that_it_has(kind: Any, delivery: str) -> None:
    class Last(kind):  # type: ignore[misc]
        def end_of_input(self, collector: Any = None) -> None:
            for number in range(10):
                (collector or self.collector).emit((number,))

    task = Solo(chain(Scripted(), Last(), Sink(), max_task_emit=3, delivery=delivery), "b")
    task.signal(FrameKind.END)
    task.run()
    assert task.values() == list(range(10)) and task.errors() == []


@KINDS
@pytest.mark.parametrize("failures", [1, 3])
def test_with_checkpoints_an_end_that_raises_is_tried_again_and_then_a_letter(kind: Any, failures: int) -> None:
    class Last(kind):  # type: ignore[misc]
        left = failures

        def end_of_input(self, collector: Any = None) -> None:
            (collector or self.collector).emit(("last",))
            if self.left:
                self.left -= 1
                raise ValueError("end")

    task = Solo(chain(Scripted(), Last(), Sink(), delivery="exactly_once"), "b")
    task.signal(FrameKind.END)
    task.run()
    assert task.values() == (["last"] if failures == 1 else [])
    assert given_up(task) == ([] if failures == 1 else [("the end of the input",)])


@KINDS
def test_the_end_goes_on_behind_the_rows_also_those_of_end_of_input(kind: Any) -> None:
    class Last(kind):  # type: ignore[misc]
        def end_of_input(self, collector: Any = None) -> None:
            (collector or self.collector).emit(("last",))

    task = Solo(chain(Scripted(), Last(), Sink()), "b")
    task.feed("x")
    task.signal(FrameKind.END)
    task.run()
    kinds = [(frame.kind, frame.number) for frame in task.frames(to=3)]
    assert kinds[-1] == (FrameKind.END, len(kinds))
    assert task.values() == ["x", "last"]


@KINDS
def test_the_end_is_not_told_to_ackers(kind: Any) -> None:
    _, task = relay(kind)
    task.end_inputs()
    assert [frame.target for frame in task.frames(FrameKind.END)] == [3]


@KINDS
def test_an_exception_at_the_end_of_input_does_not_hold_the_end_up(kind: Any) -> None:
    class Broken(kind):  # type: ignore[misc]
        def end_of_input(self, *_: Any) -> None:
            raise ValueError("at the end")

    task = Solo(chain(Scripted(), Broken(), Sink()), "b")
    task.end_inputs()
    assert task.errors() == ["ValueError: at the end"]
    assert len(task.frames(FrameKind.END)) == 1


@KINDS
def test_replays_after_the_end_are_processed_and_end_of_input_is_not_called_again(kind: Any) -> None:
    bolt, task = relay(kind)
    task.end_inputs()
    ids = task.feed("replay")
    task.signal(FrameKind.END)
    task.run()
    assert task.values() == ["replay"]
    assert list(task.acks()) == ids.roots
    assert bolt.calls == ["prepare", "end_of_input"]


@KINDS
def test_end_of_input_is_called_once_in_each_epoch_also_when_the_opening_says_finished(kind: Any) -> None:
    bolt, task = relay(kind)
    task.end_inputs()
    task.adopt(2)
    task.open_inputs(SenderStatus.FINISHED)
    task.run()
    assert bolt.calls == ["prepare", "end_of_input", "on_reset", "end_of_input"]
    assert [frame.epoch for frame in task.frames(FrameKind.END)] == [1, 2]


@KINDS
def test_a_closed_bolt_is_cleaned_up_once_and_hears_no_more(kind: Any) -> None:
    bolt, task = relay(kind)
    task.handle(Close(Epoch(1)))
    task.handle(Close(Epoch(1)))
    task.feed("x")
    assert not task.task.has_work
    task.wait(5)
    assert bolt.calls == ["prepare", "cleanup"]
    assert len(task.messages(Closed)) == 1
    assert task.values() == []


@KINDS
def test_an_exception_in_cleanup_is_reported(kind: Any) -> None:
    class Broken(kind):  # type: ignore[misc]
        def cleanup(self) -> None:
            raise OSError("disk")

    task = Solo(chain(Scripted(), Broken(), Sink()), "b")
    task.handle(Close(Epoch(1)))
    assert task.errors() == ["OSError: disk"]
    assert len(task.messages(Closed)) == 1


@KINDS
def test_a_bolt_that_was_never_opened_is_not_cleaned_up(kind: Any) -> None:
    bolt = kind()
    task = Solo(chain(Scripted(), bolt, Sink()), "b", is_open=False)
    task.handle(Close(Epoch(1)))
    assert bolt.calls == []
    assert len(task.messages(Closed)) == 1


# -- epochs


@KINDS
def test_a_bolt_that_lives_through_a_recovery_is_told_and_a_new_one_is_not(kind: Any) -> None:
    bolt, task = relay(kind)
    task.adopt(2)
    assert bolt.calls == ["prepare", "on_reset"]
    fresh = kind()
    task = Solo(chain(Scripted(), fresh, Sink()), "b", is_open=False)
    task.adopt(5)
    assert fresh.calls == ["prepare"]


@KINDS
def test_an_exception_in_on_reset_is_reported(kind: Any) -> None:
    class Broken(kind):  # type: ignore[misc]
        def on_reset(self) -> None:
            raise ValueError("reset")

    task = Solo(chain(Scripted(), Broken(), Sink()), "b")
    task.adopt(2)
    assert task.errors() == ["ValueError: reset"]


@KINDS
def test_an_exception_in_prepare_ends_the_task_with_a_report(kind: Any) -> None:
    class Broken(kind):  # type: ignore[misc]
        def prepare(self, *_: Any) -> None:
            raise OSError("no such database")

    task = Solo(chain(Scripted(), Broken(), Sink()), "b", is_open=False)
    with pytest.raises(OSError, match="no such database") as caught:
        task.adopt(1)
    (told,) = task.task.crashed(caught.value, task.clock.now)
    assert told.message.message == "no such database"  # type: ignore[union-attr]


@KINDS
def test_half_a_batch_of_the_old_epoch_is_forgotten(kind: Any) -> None:
    bolt, task = relay(kind)
    task.feed(*range(20))
    task.turn()
    task.out.clear()
    task.adopt(2)
    task.open_inputs()
    task.handle(Go(Epoch(2)))
    task.run()
    assert bolt.seen == list(range(8))
    assert task.values() == []
    assert task.acks() == {}
    task.feed("new")
    task.run()
    assert task.values() == ["new"]


# -- ackers


@KINDS
def test_each_root_is_acked_and_failed_at_its_own_acker(kind: Any) -> None:
    def run(tup: Any, collector: Any) -> None:
        if tup.values[0] == "bad":
            raise ValueError
        done(tup, collector)

    _, task = relay(kind, run, ackers=3)
    task.feed(*["x"] * 9, "bad", "bad", ids=Ids(list(range(100, 111)), list(range(1, 12))))
    task.run()
    for frame in task.frames(FrameKind.ACK, FrameKind.FAIL):
        assert {task.plan.ackers[root % 3] for root in frame.root_list()} == {frame.target}
    assert sorted(task.acks()) == list(range(100, 109))
    assert sorted(task.roots(FrameKind.FAIL)) == [109, 110]


@KINDS
def test_a_bolt_without_readers_acks_as_any_other(kind: Any) -> None:
    bolt = kind()
    task = Solo(chain(Scripted(), bolt), "b")
    ids = task.feed("x")
    task.run()
    assert task.acks() == dict(zip(ids.roots, ids.edges, strict=True))


@KINDS
def test_a_fan_out_to_all_accounts_for_every_copy(kind: Any) -> None:
    task = Solo(fan(Sink, 4, kind(), grouping="all"), "b")
    ids = task.feed("x")
    task.run()
    edges = [edge for frame in task.frames(FrameKind.DATA) for edge in frame.edge_list()]
    assert len(edges) == 4
    assert task.acks() == {ids.roots[0]: ids.edges[0] ^ edges[0] ^ edges[1] ^ edges[2] ^ edges[3]}
    assert task.task.counters.transferred == 4
