"""Replays, dead letters and recoveries of a `RetryingSpout`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rows import rows_of
from tests.tasks.components import Replaying, Sink, chain, several
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from tests.unit.task.spouts import positions, replaying
from topo.api.streams import direct
from topo.builder import TopologyBuilder
from topo.dead_letters.payload import MAX_WORDS
from topo.ids import REPLAYED_BIT
from topo.wire.codec import MAX_ELEMENTS
from topo.wire.control import Deactivate, DeadLetter, DeadLettersStored, LetterToReplay, ReplayLetters
from topo.wire.frames import FrameKind

# -- replays


def test_a_failed_message_is_emitted_again_after_each_wait_and_then_given_up() -> None:
    spout, task = replaying("x", attempts=4, backoff=("1s", "4s", "16s"))
    task.run()
    for wait in (1.0, 4.0, 16.0):
        before = len(task.values())
        task.verdict(FrameKind.FAILED, "x")
        task.wait(wait - 0.001)
        assert len(task.values()) == before
        task.wait(0.002)
        assert len(task.values()) == before + 1
    assert task.messages(DeadLetter) == []
    task.verdict(FrameKind.FAILED, "x")
    assert [dead.attempts for dead in task.messages(DeadLetter)] == [4]
    counters = task.task.counters
    assert (counters.emitted, counters.replayed, counters.failed) == (1, 3, 4)
    assert spout.called("fail", "ack") == []


def test_each_replay_has_a_new_root() -> None:
    _, task = replaying("x")
    task.run()
    first = task.root_of("x")
    task.verdict(FrameKind.FAILED, "x")
    task.wait(1.0)
    assert task.root_of("x") != first
    task.feed_ids(FrameKind.ACKED, [first])
    task.run()
    assert task.task.statistics().counters.late_acks == 1
    assert task.task.statistics().levels["pending"] == 1


def test_roots_mark_messages_that_have_failed_before_and_not_lost_ones() -> None:
    _, task = replaying("x", "y", "z", attempts=9)
    task.run()
    assert not any(task.root_of(message) & REPLAYED_BIT for message in "xyz")
    task.verdict(FrameKind.FAILED, "x")
    task.wait(1.0)
    assert task.root_of("x") & REPLAYED_BIT
    task.begin_epoch(2)
    task.run()
    assert [bool(task.root_of(message) & REPLAYED_BIT) for message in "xyz"] == [True, False, False]


def test_a_message_that_timed_out_has_failed_before() -> None:
    _, task = replaying("x", message_timeout="10s")
    task.run()
    task.confirm_all()
    task.wait(11.0)
    task.wait(1.0)
    assert task.root_of("x") & REPLAYED_BIT


def test_a_dead_letter_that_is_emitted_again_has_failed_before() -> None:
    """A window for which it was too late dropped it, and it was reported as done."""
    _, task = replaying("x")
    task.run()
    stream = task.task.state.streams[0]
    values = CODEC.pack_value(("old", *[None] * (len(stream.fields) - 1)))
    task.handle(ReplayLetters(task.id, [LetterToReplay(8, stream.name, None, values, 1)]))
    task.run()
    assert task.root_of("old") & REPLAYED_BIT
    assert not task.root_of("x") & REPLAYED_BIT


def test_a_timeout_is_an_attempt() -> None:
    _, task = replaying("x", attempts=1, message_timeout="10s")
    task.run()
    task.confirm_all()
    task.wait(11.0)
    (dead,) = task.messages(DeadLetter)
    assert dead.errors == ["no verdict within 10 s"]
    assert task.task.counters.timed_out == 1


def test_a_replay_is_the_same_tuple_on_the_same_stream_to_the_same_task() -> None:
    class Streams(Replaying):
        outputs = {"default": ("value",), "to": direct("value")}

    def emit(collector: Any) -> None:
        collector.emit(("plain",), 1, timestamp=77)
        collector.emit_direct(spout.context.tasks_of("b")[1], ("direct",), 2, stream="to", timestamp=88)

    spout = Streams([emit], ends=False)
    builder = TopologyBuilder("streams")
    builder.set_spout("a", spout)
    builder.set_bolt("b", Sink, parallelism=2).direct_grouping("a", "to")
    builder.set_bolt("c", Sink).shuffle_grouping("a")
    task = Solo(builder.build(), "a")
    task.run()
    seen = [
        [(f.target, f.stream, rows_of(f, CODEC), f.timestamp_list()) for f in task.frames(FrameKind.DATA)]
        for _ in ("first", "second")
        if not task.verdict(FrameKind.FAILED, "plain", "direct") and not task.wait(1.0)
    ][-1]
    assert sorted(seen[:2]) == sorted(seen[2:4])


def test_messages_that_wait_count_towards_the_pending_limit() -> None:
    _, task = replaying(*range(9), max_spout_pending=2)
    task.run()
    task.verdict(FrameKind.FAILED, 0, 1)
    task.wait(0.5)
    assert task.values() == [0, 1]


@pytest.mark.parametrize("is_paused", [True, False])
def test_messages_are_replayed_after_the_end_and_while_paused(is_paused: bool) -> None:
    _, task = replaying("x", ends=not is_paused)
    task.run()
    task.wait(0.1)
    if is_paused:
        task.handle(Deactivate())
    task.verdict(FrameKind.FAILED, "x")
    task.wait(1.0)
    assert task.values() == ["x", "x"]


def test_a_replay_without_room_waits_for_it() -> None:
    _, task = replaying(*range(40), edge_window=1, batch_size=1, outbox_limit=4)
    task.confirm_all()
    task.run()
    assert task.task.outbound.outbox.is_full
    task.feed_ids(FrameKind.FAILED, [task.root_of(0)])
    task.wait(2.0)
    assert task.task.counters.replayed == 0
    task.confirm_all()
    task.run()
    assert task.task.counters.replayed == 1


def test_an_id_that_is_emitted_again_before_it_is_done_is_refused() -> None:
    spout, task = replaying(several(1, 2), several(3, 2, 4, 4), several(5))
    task.run()
    assert task.values() == [1, 2, 3, 4, 5]
    assert "EmitError: message id 2 was emitted again before it was done; give every message its own id" in task.errors()[0]
    assert task.task.counters.errors == 2
    task.verdict(FrameKind.ACKED, 1, 2, 3, 4, 5)
    assert spout.acked == [1, 2, 3, 4, 5]


def test_timestamps_stay_with_their_rows_when_others_are_refused() -> None:
    def emit(collector: Any) -> None:
        collector.emit(("a",), 1, timestamp=10)
        collector.emit(("b",), 1, timestamp=20)
        collector.emit(("c",), 2, timestamp=30)

    _, task = replaying(emit)
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert (rows_of(frame, CODEC), frame.timestamp_list()) == ([("a",), ("c",)], [10, 30])


# -- dead letters


def test_a_dead_letter_carries_the_message_and_why() -> None:
    _, task = replaying("x", attempts=1)
    task.run()
    task.verdict(FrameKind.FAILED, "x")
    (dead,) = task.messages(DeadLetter)
    assert (dead.task, dead.id, dead.errors, dead.attempts) == (1, 1, ["a task failed it"], 1)
    assert dead.root, "by which the master finds why"
    assert (CODEC.unpack_value(dead.position), CODEC.unpack_value(dead.values)) == ("x", ("x",))


def test_a_message_is_done_when_its_dead_letter_is_stored() -> None:
    spout, task = replaying("x", attempts=1, ends=True)
    task.run()
    task.verdict(FrameKind.FAILED, "x")
    task.confirm_all()
    task.wait(10.0)
    assert (spout.failed, task.task.is_quiet, positions(task)) == ([], False, [])
    task.handle(DeadLettersStored(task.id, [1]))
    task.wait(1.0)
    assert (spout.failed, task.task.is_quiet, positions(task)) == (["x"], True, ["x"])
    counters = task.task.statistics().counters
    assert (counters.dead_lettered, counters.finally_failed, counters.acked) == (1, 0, 0)


def test_dead_letters_that_are_not_stored_are_sent_again_in_every_epoch() -> None:
    spout, task = replaying("x", "y", attempts=1)
    task.run()
    task.verdict(FrameKind.FAILED, "x", "y")
    task.handle(DeadLettersStored(task.id, [2, 2, 99]))
    task.handle(DeadLettersStored(task.id, [2]))
    assert spout.failed == ["y"], "once, and no other"
    first = task.messages(DeadLetter)[0]
    task.out.clear()
    task.adopt(2)
    assert task.messages(DeadLetter) == [first]


@pytest.mark.parametrize(
    ("value", "text"),
    [(object, "(<class 'object'>,)"), ([1] * (MAX_ELEMENTS + 1), f"([{'1, ' * MAX_WORDS}"[:MAX_WORDS])],
    ids=["unknown type", "too many elements"],
)
def test_values_that_cannot_be_carried_reach_the_dead_letters_as_text(value: Any, text: str) -> None:
    _, task = replaying(lambda c: c.emit((value,), "x"), attempts=1)
    task.run()
    task.feed_ids(FrameKind.FAILED, task.roots(FrameKind.FAIL))
    task.run()
    ((values, _),) = task.dead_letters()
    assert values == text


def test_an_exception_in_fail_is_reported_and_the_message_is_done() -> None:
    class Broken(Replaying):
        def fail(self, message_id: Any) -> None:
            raise ValueError("in fail")

    task = Solo(chain(Broken(["x"], ends=False), Sink(), attempts=1), "a")
    task.run()
    task.verdict(FrameKind.FAILED, "x")
    task.handle(DeadLettersStored(task.id, [1]))
    assert task.errors() == ["ValueError: in fail"]
    assert task.task.statistics().levels["pending"] == 0


# -- recovery


def test_a_recovery_replays_all_pending_messages_first_in_order_as_no_attempt() -> None:
    spout, task = replaying(*range(6), attempts=1, max_spout_pending=4)
    task.run()
    task.verdict(FrameKind.ACKED, 1)
    task.begin_epoch(2)
    task.run()
    assert task.values() == [0, 2, 3, 4]
    assert (task.task.counters.reset, task.task.counters.replayed) == (4, 4)
    assert task.messages(DeadLetter) == []
    task.verdict(FrameKind.ACKED, 0, 2, 3, 4)
    assert task.values() == [0, 2, 3, 4, 5]
    assert spout.failed == []


def test_a_long_replay_leaves_in_batches_and_in_order() -> None:
    _, task = replaying(*range(50), batch_size=8)
    task.run()
    task.begin_epoch(2)
    task.turn()
    assert task.task.counters.replayed == 8
    task.run()
    assert task.values() == list(range(50))


def test_a_message_in_its_back_off_keeps_waiting_over_a_reset() -> None:
    _, task = replaying("x")
    task.run()
    task.verdict(FrameKind.FAILED, "x")
    task.wait(0.5)
    task.begin_epoch(2)
    task.run()
    assert task.values() == []
    task.wait(0.5)
    assert task.values() == ["x"]


def test_two_resets_without_go_replay_once() -> None:
    _, task = replaying("x", "y")
    task.run()
    task.adopt(2)
    task.begin_epoch(3)
    task.run()
    assert task.values() == ["x", "y"]
