"""Ticks, the end of the input, recoveries and the life cycle of both kinds of bolt."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.bolts import KINDS, done, emit, relay
from tests.tasks.components import CHECKPOINTED, TRACKED, Scripted, Sink, chain
from tests.tasks.solo import Solo
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.ids import Epoch
from topo.wire.control import Close, Closed
from topo.wire.frames import Anchoring, FrameKind, SenderStatus

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
def test_missed_ticks_are_skipped(kind: Any) -> None:
    bolt, task = relay(kind, done, tick_interval="1s")
    task.clock.now += 10.5
    task.run()
    assert bolt.seen == ["tick"]
    task.wait(1.0)
    assert bolt.seen == ["tick"] * 2


TRIED_AGAIN = pytest.mark.parametrize(("delivery", "failures"), [(TRACKED, 1), (CHECKPOINTED, 1), (CHECKPOINTED, 3)])
"""With checkpoints, calls without an input are repeated up to three times."""


@KINDS
@TRIED_AGAIN
def test_a_tick_that_raises_is_repeated_with_checkpoints_or_reported(kind: Any, delivery: str, failures: int) -> None:
    left = [failures]

    def run(tup: Any, collector: Any) -> None:
        emit(tup, collector, "ticked")
        if left[0]:
            left[0] -= 1
            raise ValueError("tick")

    _, task = relay(kind, run, tick_interval="1s", delivery=delivery)
    task.wait(1.0)
    goes_well = delivery == CHECKPOINTED and failures == 1
    assert task.values() == (["ticked"] if goes_well else [])
    assert task.errors() == ([] if goes_well else ["ValueError: tick"])
    if delivery == CHECKPOINTED:
        assert task.given_up() == ([] if goes_well else [("a tick",)])


@KINDS
def test_with_checkpoints_acks_of_a_tick_stand_after_its_repetition(kind: Any) -> None:
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
    assert task.given_up() == [] and task.task.counters.failed == 0


@KINDS
def test_ticks_continue_in_the_next_epoch(kind: Any) -> None:
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
def test_at_the_end_a_bolt_may_emit_any_number_of_rows(kind: Any, delivery: str) -> None:
    class Last(kind):  # type: ignore[misc]
        def end_of_input(self, collector: Any = None) -> None:
            for number in range(10):
                (collector or self.collector).emit((number,))

    task = Solo(chain(Scripted(), Last(), Sink(), max_task_emit=3, delivery=delivery), "b")
    task.signal(FrameKind.END)
    task.run()
    assert task.values() == list(range(10)) and task.errors() == []


@KINDS
@TRIED_AGAIN
def test_an_end_that_raises_is_repeated_with_checkpoints_or_reported(kind: Any, delivery: str, failures: int) -> None:
    class Last(kind):  # type: ignore[misc]
        left = failures

        def end_of_input(self, collector: Any = None) -> None:
            (collector or self.collector).emit(("last",))
            if self.left:
                self.left -= 1
                raise ValueError("end")

    task = Solo(chain(Scripted(), Last(), Sink(), delivery=delivery), "b")
    task.end_inputs()
    goes_well = delivery == CHECKPOINTED and failures == 1
    assert task.values() == (["last"] if goes_well else [])
    assert task.errors() == ([] if goes_well else ["ValueError: end"])
    assert [frame.target for frame in task.frames(FrameKind.END)] == [3], "the sink alone, not the acker"
    if delivery == CHECKPOINTED:
        assert task.given_up() == ([] if goes_well else [("the end of the input",)])


@KINDS
def test_replays_after_the_end_are_processed_without_a_second_end_of_input(kind: Any) -> None:
    bolt, task = relay(kind)
    task.end_inputs()
    ids = task.feed("replay")
    task.signal(FrameKind.END)
    task.run()
    assert task.values() == ["replay"]
    assert list(task.acks()) == ids.roots
    assert bolt.calls == ["prepare", "end_of_input"]


@KINDS
def test_end_of_input_is_called_once_in_each_epoch_also_of_a_finished_sender(kind: Any) -> None:
    bolt, task = relay(kind)
    task.end_inputs()
    task.adopt(2)
    task.open_inputs(SenderStatus.FINISHED)
    task.run()
    assert bolt.calls == ["prepare", "end_of_input", "on_reset", "end_of_input"]
    assert [frame.epoch for frame in task.frames(FrameKind.END)] == [1, 2]


@KINDS
def test_a_closed_bolt_is_cleaned_up_once_and_gets_no_input(kind: Any) -> None:
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
@pytest.mark.parametrize("verb", ["cleanup", "on_reset"])
def test_an_exception_of_cleanup_or_on_reset_is_reported(kind: Any, verb: str) -> None:
    def broken(_bolt: Any) -> None:
        raise OSError("disk")

    task = Solo(chain(Scripted(), type("Broken", (kind,), {verb: broken})(), Sink()), "b")
    task.adopt(2)
    task.handle(Close(Epoch(2)))
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
def test_on_reset_is_called_after_a_recovery_and_not_on_a_new_bolt(kind: Any) -> None:
    bolt, task = relay(kind)
    task.adopt(2)
    assert bolt.calls == ["prepare", "on_reset"]
    fresh = kind()
    task = Solo(chain(Scripted(), fresh, Sink()), "b", is_open=False)
    task.adopt(5)
    assert fresh.calls == ["prepare"]


@KINDS
def test_an_exception_in_prepare_ends_the_task_with_a_report(kind: Any) -> None:
    class Broken(kind):  # type: ignore[misc]
        def prepare(self, *_: Any) -> None:
            raise OSError("no such database")

    task = Solo(chain(Scripted(), Broken(), Sink()), "b", is_open=False)
    with pytest.raises(OSError, match="no such database") as caught:
        task.adopt(1)
    (report,) = task.task.crashed(caught.value, task.clock.now)
    assert report.message.message == "no such database"  # type: ignore[union-attr]
