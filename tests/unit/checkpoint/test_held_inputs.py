"""What becomes of inputs that a `Bolt` holds back when a barrier comes, and after a recovery."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.tasks.components import Plain, Sink, chain
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from topo.api.bolt import Bolt
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot
from topo.connectors.iterable_spout import IterableSpout
from topo.errors import UserError
from topo.wire.control import DeadLetter, SnapshotFailed, SnapshotTaken
from topo.wire.frames import FrameKind


class Scripted(Bolt):
    """Calls a function of the test with each input."""

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


def solo_of(bolt: Any, *, parallelism: int = 1, key: bool = False, ticks: bool = True, **settings: Any) -> Solo:
    builder = TopologyBuilder("held").config(delivery="exactly_once", **settings)
    builder.set_spout("a", IterableSpout([1], fields=("value",)))
    declarer = builder.set_bolt("b", bolt, parallelism, tick_interval="1s" if ticks else None)
    declarer.fields_grouping("a", "value") if key else declarer.shuffle_grouping("a")
    builder.set_bolt("c", Sink()).shuffle_grouping("b")
    return Solo(builder.build(), "b")


def restored(store_of: Solo, checkpoint: int, bolt: Any, **more: Any) -> Solo:
    """A new process that continues from a checkpoint."""
    solo = solo_of(bolt, **more)
    solo.env.snapshots = store_of.env.snapshots
    go_on(solo, checkpoint)
    return solo


def go_on(solo: Solo, checkpoint: int) -> None:
    """Begin the next epoch from a checkpoint."""
    solo.adopt(2, checkpoint=checkpoint)
    solo.open_inputs()
    solo.out.clear()


def test_held_inputs_are_executed_again_before_the_next_call() -> None:
    first = solo_of(Scripted(hold))
    first.feed(1, 2, tracked=False)
    first.run()
    first.barrier(1)
    solo = restored(first, 1, Scripted(hold))
    assert solo.task.runner.kind.bolt.held == []
    solo.feed(3, tracked=False)
    solo.run()
    assert [tup.values for tup in solo.task.runner.kind.bolt.held] == [(1,), (2,), (3,)]
    assert solo.task.runner.kind.bolt.held[0].origin.component == "a"
    solo.barrier(2)
    another = restored(solo, 2, Scripted(hold))
    another.barrier(3)
    assert [one["values"] for one in another.env.snapshots.kept[3].values["held"]["inputs"]] == [(1,), (2,), (3,)]


def test_inputs_that_were_acked_or_let_go_are_in_no_checkpoint() -> None:
    solo = solo_of(Scripted(lambda bolt, tup: tup["value"] == 1 and bolt.collector.ack(tup)))
    solo.feed(1, 2, tracked=False)
    solo.run()
    solo.barrier(1)
    assert "held" not in solo.env.snapshots.kept[1].values
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
def test_a_held_input_with_emitted_rows_fails_the_checkpoint(do: Any) -> None:
    solo = solo_of(Scripted(do))
    solo.feed(1, 2, tracked=False)
    solo.run()
    solo.barrier(1)
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
    assert "neither acked nor failed" in solo.task.runner.unfinished()
    solo.barrier(1)
    assert solo.messages(SnapshotFailed), "it could not be executed again: the end of the input does not come twice"
    solo.clock.now += 31.0
    solo.run()
    solo.confirm_all()
    assert solo.task.is_quiet
    solo.barrier(2)
    solo.complete(2)
    (dead_letter,) = solo.messages(DeadLetter)
    assert CODEC.unpack_value(dead_letter.values) == (1,) and "emit the results of all held inputs" in dead_letter.errors[0]


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
    first.env.snapshots.kept[1] = HELD
    with pytest.raises(UserError, match=words):
        restored(first, 1, bolt, **more)


def test_with_a_shuffle_grouping_held_inputs_go_to_any_task() -> None:
    first = solo_of(Scripted(hold))
    first.env.snapshots.kept[1] = HELD
    solo = restored(first, 1, Scripted(hold), parallelism=2)
    solo.feed(2, tracked=False)
    solo.run()
    assert [tup.values for tup in solo.task.runner.kind.bolt.held] == [(1,), (2,)]


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


def test_without_tracking_an_undecided_input_is_an_error_after_message_timeout() -> None:
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
    (sender,) = solo.sources()
    solo.feed(1, 2, tracked=delivery == "at_least_once", stamps=[1_000, 2_000])
    solo.feed_time(5_000, sender)
    solo.run()
    assert solo.times() == [999]
    bolt.collector.ack(bolt.held.pop(0))
    solo.wait(1)
    assert solo.times() == [999, 1_999]
    solo.end_inputs()
    solo.run()
    assert solo.frames(FrameKind.END) == []
    in_thread(lambda: (bolt.collector.emit((2,), bolt.held[0]), bolt.collector.ack(bolt.held.pop())))
    solo.wait(1)
    assert [frame.kind for frame in solo.frames(FrameKind.DATA, FrameKind.END)] == [FrameKind.DATA, FrameKind.END]


def test_an_input_that_is_held_for_longer_than_message_timeout_holds_up_no_watermark() -> None:
    bolt = Scripted(hold)
    solo = Solo(chain(IterableSpout([1], fields=("value",)), bolt, Sink(), delivery="at_least_once"), "b")
    (sender,) = solo.sources()
    solo.feed(1, stamps=[1_000])
    solo.feed_time(5_000, sender)
    solo.run()
    assert solo.times() == [999]
    solo.wait(31)
    assert solo.times() == [999, 5_000]


@pytest.fixture(params=["the same process", "another process"])
def recovered(request: pytest.FixtureRequest) -> Solo:
    """A task behind a recovery: the checkpoint has two inputs, and nothing has been executed since."""
    bolt = Scripted(hold)
    solo = solo_of(bolt, ticks=False)
    solo.feed(1, 2, tracked=False, stamps=[1_000, 2_000])
    solo.run()
    solo.barrier(1)
    solo.feed_time(5_000, solo.sources()[0])
    assert solo.times() == [999]
    if request.param == "another process":
        return restored(solo, 1, Scripted(hold), ticks=False)
    bolt.held.clear()
    go_on(solo, 1)
    return solo


def test_watermarks_wait_for_inputs_of_a_checkpoint_before_they_are_executed_again(recovered: Solo) -> None:
    """Senders have been further on: their first frame or the next watermark would make these inputs late."""
    recovered.feed_time(5_000, recovered.sources()[0])
    assert recovered.times() == [999]
    recovered.barrier(2)
    assert recovered.env.snapshots.kept[2].values["watermark"] == 999
    recovered.feed(3, tracked=False, stamps=[6_000])
    recovered.run()
    bolt = recovered.task.runner.kind.bolt
    bolt.collector.ack(bolt.held.pop(0))
    recovered.wait(1)
    assert recovered.times() == [999, 1_999]
    for tup in bolt.held:
        bolt.collector.ack(tup)
    bolt.held.clear()
    del tup
    recovered.wait(1)
    assert recovered.times() == [999, 1_999, 5_000]


def test_inputs_of_a_checkpoint_hold_up_watermarks_for_message_timeout(recovered: Solo) -> None:
    recovered.feed_time(5_000, recovered.sources()[0])
    recovered.wait(29)
    assert recovered.times() == [999]
    recovered.wait(2)
    assert recovered.times() == [999, 5_000]
