"""What becomes of inputs that a `Bolt` holds back when a barrier comes, and after a recovery."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Plain, Sink, Solo, chain, with_store
from topo.api.bolt import Bolt
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot
from topo.connectors.iterable_spout import IterableSpout
from topo.errors import UserError
from topo.wire.control import DeadLetter, PartToRead, SnapshotFailed, SnapshotTaken
from topo.wire.frames import FrameKind, barrier_frame, pack_words


class Scripted(Bolt):
    """Does with each input what the test says."""

    outputs = ("value",)

    def __init__(self, do: Callable[[Any, Any], object]) -> None:
        self.do = do
        self.held: list[Any] = []

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Any) -> None:
        if tup.is_tick:
            for one in self.held:
                self.collector.emit(one.values, one)
                self.collector.ack(one)
            self.held.clear()
        else:
            self.do(self, tup)


def hold(bolt: Scripted, tup: Any) -> None:
    bolt.held.append(tup)


def in_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def solo_of(bolt: Any, *, parallelism: int = 1, key: bool = False, **settings: Any) -> Solo:
    builder = TopologyBuilder("held").config(delivery="exactly_once", **settings)
    builder.set_spout("a", IterableSpout([1], fields=("value",)))
    declarer = builder.set_bolt("b", bolt, parallelism, tick_interval="1s")
    declarer.fields_grouping("a", "value") if key else declarer.shuffle_grouping("a")
    builder.set_bolt("c", Sink()).shuffle_grouping("b")
    return with_store(Solo(builder.build(), "b"))


def barrier(solo: Solo, checkpoint: int) -> None:
    for sender in solo.senders():
        if sender not in solo.plan.ackers:
            root = pack_words([9])
            solo.deliver(barrier_frame(solo.stamp(sender), solo.id, solo.next_number(sender), checkpoint, root, root))
    solo.run()


def restored(store_of: Solo, checkpoint: int, bolt: Any, **more: Any) -> Solo:
    """A new process that goes on from a checkpoint."""
    solo = solo_of(bolt, **more)
    solo.task.ports.snapshots = store_of.task.ports.snapshots
    solo.adopt(2, checkpoint=checkpoint, restore={solo.id: [PartToRead("f", 1, "c", "b", solo.id, 0, (1, 0), True)]})
    solo.open_inputs()
    solo.out.clear()
    return solo


def test_held_inputs_are_executed_again_before_the_next_call() -> None:
    first = solo_of(Scripted(hold))
    first.feed(1, 2, tracked=False)
    first.run()
    barrier(first, 1)
    solo = restored(first, 1, Scripted(hold))
    assert solo.task._user.held == []
    solo.feed(3, tracked=False)
    solo.run()
    assert [tup.values for tup in solo.task._user.held] == [(1,), (2,), (3,)]
    assert solo.task._user.held[0].origin.component == "a"
    barrier(solo, 2)
    another = restored(solo, 2, Scripted(hold))
    barrier(another, 3)
    assert [one["values"] for one in another.task.ports.snapshots.kept[3].values["held"]["inputs"]] == [(1,), (2,), (3,)]


def test_inputs_that_were_acked_or_let_go_are_in_no_checkpoint() -> None:
    solo = solo_of(Scripted(lambda bolt, tup: tup["value"] == 1 and bolt.collector.ack(tup)))
    solo.feed(1, 2, tracked=False)
    solo.run()
    barrier(solo, 1)
    assert "held" not in solo.task.ports.snapshots.kept[1].values
    assert solo.messages(SnapshotTaken)


def emit_and_hold(bolt: Scripted, tup: Any) -> None:
    bolt.collector.emit(tup.values)
    bolt.held.append(tup)


def anchor_later(bolt: Scripted, tup: Any) -> None:
    bolt.held.append(tup)
    bolt.collector.emit(tup.values, bolt.held[0])
    if len(bolt.held) > 1:
        bolt.collector.ack(tup)
        bolt.held.pop()


@pytest.mark.parametrize("do", [emit_and_hold, anchor_later])
def test_an_input_that_is_held_when_something_was_emitted_for_it_fails_the_checkpoint(do: Any) -> None:
    solo = solo_of(Scripted(do))
    solo.feed(1, 2, tracked=False)
    solo.run()
    barrier(solo, 1)
    (failed,) = solo.messages(SnapshotFailed)
    assert "component 'b' has emitted for" in failed.why
    assert "ack an input in the call that emits for it" in failed.why
    assert solo.messages(SnapshotTaken) == []


def test_what_is_never_decided_becomes_dead_letters_after_the_end_of_the_input() -> None:
    solo = solo_of(Scripted(lambda bolt, tup: bolt.__dict__.setdefault("kept", []).append(tup)), message_timeout="30s")
    solo.feed(1, tracked=False)
    solo.feed_time(FrameKind.END)
    solo.confirm_all()
    assert not solo.task.is_quiet
    assert "neither acked nor failed" in solo.task._why_not_quiet()
    barrier(solo, 1)
    assert solo.messages(SnapshotFailed), "it could not be executed again: the end of the input does not come twice"
    solo.clock.now += 31.0
    solo.run()
    solo.confirm_all()
    assert solo.task.is_quiet
    barrier(solo, 2)
    solo.task._publish(2, solo.clock.now)
    solo.run()
    (letter,) = solo.messages(DeadLetter)
    assert CODEC.unpack_value(letter.values) == (1,) and "emit in end_of_input what is still held" in letter.errors[0]


def test_a_bolt_that_keeps_its_inputs_over_a_recovery_ends_its_process() -> None:
    solo = solo_of(Scripted(hold))
    solo.feed(1, tracked=False)
    solo.run()
    with pytest.raises(UserError, match="component 'b' still holds 1 inputs of before the recovery; drop them in on_reset"):
        solo.adopt(2)


ONE = {"values": (1,), "timestamp": None, "origin": ("a", 1, "default", ("value",))}
HELD = Snapshot(values={"held": {"tasks": 1, "inputs": [ONE]}})


@pytest.mark.parametrize(
    ("bolt", "more", "words"),
    [
        (Scripted(hold), {"parallelism": 2, "key": True}, "leave its parallelism at 1"),
        (Plain(lambda tup, collector: None), {}, "was a Bolt that held inputs back, and now is none"),
    ],
)
def test_held_inputs_that_nobody_would_take_are_refused(bolt: Any, more: Any, words: str) -> None:
    first = solo_of(Scripted(hold))
    first.task.ports.snapshots.kept[1] = HELD
    with pytest.raises(UserError, match=words):
        restored(first, 1, bolt, **more)


def test_with_a_shuffle_grouping_held_inputs_go_to_any_task() -> None:
    first = solo_of(Scripted(hold))
    first.task.ports.snapshots.kept[1] = HELD
    solo = restored(first, 1, Scripted(hold), parallelism=2)
    solo.feed(2, tracked=False)
    solo.run()
    assert [tup.values for tup in solo.task._user.held] == [(1,), (2,)]


def untracked(do: Callable[[Any, Any], object]) -> tuple[Scripted, Solo]:
    """A bolt of a topology without tracking, three inputs, and the end of the input."""
    bolt = Scripted(do)
    solo = Solo(chain(IterableSpout([1], fields=("value",)), bolt, Sink(), delivery="at_most_once"), "b")
    solo.feed(1, 2, 3, tracked=False)
    solo.end_inputs()
    solo.run()
    solo.confirm_all()
    return bolt, solo


def test_without_tracking_the_end_waits_for_inputs_that_the_bolt_holds() -> None:
    bolt, solo = untracked(hold)
    assert not solo.task.is_quiet
    for tup in bolt.held:
        bolt.collector.ack(tup)
    assert solo.task.is_quiet


def test_without_tracking_an_input_that_nobody_refers_to_is_done() -> None:
    _, solo = untracked(lambda bolt, tup: None)
    assert solo.task.is_quiet and solo.errors() == []


def test_without_tracking_an_input_that_is_never_decided_is_an_error_after_message_timeout() -> None:
    _, solo = untracked(hold)
    solo.wait(31)
    solo.confirm_all()
    assert solo.task.is_quiet
    assert "neither acked nor failed" in solo.errors()[0] and solo.task.counters.failed == 3


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once", "exactly_once"])
def test_watermarks_and_the_end_of_the_input_wait_for_inputs_that_the_bolt_holds(delivery: str) -> None:
    """Else what a thread emits for them later is late downstream, and dropped there without a word."""
    bolt = Scripted(hold)
    solo = Solo(chain(IterableSpout([1], fields=("value",)), bolt, Sink(), delivery=delivery), "b")
    (sender,) = [one for one in solo.senders() if one not in solo.plan.ackers]
    solo.feed(1, 2, tracked=delivery == "at_least_once", stamps=[1_000, 2_000])
    solo.feed_time(5_000, sender)
    solo.run()
    assert solo.told_time() == [999]
    bolt.collector.ack(bolt.held.pop(0))
    solo.wait(1)
    assert solo.told_time() == [999, 1_999]
    solo.end_inputs()
    solo.run()
    assert solo.frames(FrameKind.END) == []
    in_thread(lambda: (bolt.collector.emit((2,), bolt.held[0]), bolt.collector.ack(bolt.held.pop())))
    solo.wait(1)
    assert [frame.kind for frame in solo.frames(FrameKind.DATA, FrameKind.END)] == [FrameKind.DATA, FrameKind.END]


def test_an_input_that_is_held_for_longer_than_message_timeout_holds_up_no_watermark() -> None:
    bolt = Scripted(hold)
    solo = Solo(chain(IterableSpout([1], fields=("value",)), bolt, Sink(), delivery="at_least_once"), "b")
    (sender,) = [one for one in solo.senders() if one not in solo.plan.ackers]
    solo.feed(1, stamps=[1_000])
    solo.feed_time(5_000, sender)
    solo.run()
    assert solo.told_time() == [999]
    solo.wait(31)
    assert solo.told_time() == [999, 5_000]
