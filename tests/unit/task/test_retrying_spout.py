"""What the engine does for a `RetryingSpout`: replays, dead letters, positions, suspects."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import pytest

from tests.unit.task.harness import CODEC, Replaying, Sink, Solo, chain, root_of, several, verdict
from topo.api.streams import direct
from topo.builder import TopologyBuilder
from topo.ids import REPLAYED_BIT, Epoch
from topo.wire.codec import MAX_ELEMENTS
from topo.wire.control import Close, Deactivate, DeadLetter, DeadLettersStored, Go, PositionReport
from topo.wire.frames import FrameKind


def replaying(*steps: Any, ends: bool = False, **settings: Any) -> tuple[Any, Solo]:
    spout = Replaying(steps, ends=ends)
    return spout, Solo(chain(spout, Sink(), **settings), "a")


def recover(task: Solo, epoch: int, **more: Any) -> None:
    """A new epoch, up to Go."""
    task.adopt(epoch, **more)
    task.open_inputs()
    task.out.clear()
    task.handle(Go(Epoch(epoch)))


def positions(task: Solo) -> list[Any]:
    """The positions reported."""
    return [CODEC.unpack_value(report.position) for report in task.messages(PositionReport) if report.position]


def attempts(task: Solo) -> list[Any]:
    """The records of attempts reported."""
    return [dict(CODEC.unpack_value(r.attempts)) if r.attempts else {} for r in task.messages(PositionReport)]


# -- replays


def test_a_failed_message_is_emitted_again_after_each_wait_and_then_given_up() -> None:
    spout, task = replaying("x", attempts=4, back_off=("1s", "4s", "16s"))
    task.run()
    for wait in (1.0, 4.0, 16.0):
        before = len(task.values())
        verdict(task, FrameKind.FAILED, "x")
        task.wait(wait - 0.001)
        assert len(task.values()) == before
        task.wait(0.002)
        assert len(task.values()) == before + 1
    assert task.messages(DeadLetter) == []
    verdict(task, FrameKind.FAILED, "x")
    assert [letter.attempts for letter in task.messages(DeadLetter)] == [4]
    assert (task.task.counters.replayed, task.task.counters.failed) == (3, 4)
    assert spout.told("fail", "ack") == []


def test_each_replay_has_a_root_of_its_own() -> None:
    _, task = replaying("x")
    task.run()
    first = root_of(task, "x")
    verdict(task, FrameKind.FAILED, "x")
    task.wait(1.0)
    assert root_of(task, "x") != first
    task.feed_ids(FrameKind.ACKED, [first])
    task.run()
    assert task.task.statistics().counters.late_acks == 1
    assert task.task.statistics().levels["pending"] == 1


def test_roots_say_which_messages_have_failed_before_and_a_lost_one_has_not() -> None:
    _, task = replaying("x", "y", "z", attempts=9)
    task.run()
    assert not any(root_of(task, message) & REPLAYED_BIT for message in "xyz")
    verdict(task, FrameKind.FAILED, "x")
    task.wait(1.0)
    assert root_of(task, "x") & REPLAYED_BIT
    recover(task, 2)
    task.run()
    assert [bool(root_of(task, message) & REPLAYED_BIT) for message in "xyz"] == [True, False, False]


def test_a_message_whose_verdict_took_too_long_has_failed_before() -> None:
    _, task = replaying("x", message_timeout="10s")
    task.run()
    task.confirm_all()
    task.wait(11.0)
    task.wait(1.0)
    assert root_of(task, "x") & REPLAYED_BIT


def test_a_replay_that_goes_through_is_acked() -> None:
    spout, task = replaying("x")
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    task.wait(1.0)
    verdict(task, FrameKind.ACKED, "x")
    assert (spout.told("ack"), spout.told("fail")) == (["x"], [])
    assert task.task.statistics().levels["pending"] == 0


def test_a_timeout_is_an_attempt() -> None:
    _, task = replaying("x", attempts=1, message_timeout="10s")
    task.run()
    task.confirm_all()
    task.wait(11.0)
    (letter,) = task.messages(DeadLetter)
    assert letter.errors == ["no verdict within 10 s"]
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
        [(f.target, f.stream, f.decode_rows(CODEC), f.timestamp_list()) for f in task.frames(FrameKind.DATA)]
        for _ in ("first", "second")
        if not verdict(task, FrameKind.FAILED, "plain", "direct") and not task.wait(1.0)
    ][-1]
    assert sorted(seen[:2]) == sorted(seen[2:4])


def test_replays_are_not_counted_as_emitted() -> None:
    _, task = replaying("x")
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    task.wait(1.0)
    assert (task.task.counters.emitted, task.task.counters.replayed) == (1, 1)


def test_a_message_that_waits_does_not_hold_back_others() -> None:
    _, task = replaying(*range(5), max_spout_pending=3)
    task.run()
    verdict(task, FrameKind.FAILED, 0)
    verdict(task, FrameKind.ACKED, 1, 2)
    assert task.values() == [0, 1, 2, 3, 4]


def test_messages_that_wait_count_towards_the_pending_limit() -> None:
    _, task = replaying(*range(9), max_spout_pending=2)
    task.run()
    verdict(task, FrameKind.FAILED, 0, 1)
    task.wait(0.5)
    assert task.values() == [0, 1]


def test_replays_go_on_after_the_end_and_while_paused() -> None:
    for pause in (True, False):
        _, task = replaying("x", ends=not pause)
        task.run()
        task.wait(0.1)
        if pause:
            task.handle(Deactivate())
        verdict(task, FrameKind.FAILED, "x")
        task.wait(1.0)
        assert task.values() == ["x", "x"]


def test_a_replay_without_room_waits_for_it() -> None:
    _, task = replaying(*range(40), edge_window=1, batch_size=1, outbox_limit=4)
    task.confirm_all()
    task.run()
    assert task.task.outbox.is_full
    task.feed_ids(FrameKind.FAILED, [root_of(task, 0)])
    task.wait(2.0)
    assert task.task.counters.replayed == 0
    task.confirm_all()
    task.run()
    assert task.task.counters.replayed == 1


def test_an_id_that_is_emitted_again_before_it_is_done_is_refused_and_the_first_stands() -> None:
    spout, task = replaying(several(1, 2), several(3, 2, 4, 4), several(5))
    task.run()
    assert task.values() == [1, 2, 3, 4, 5]
    assert "EmitError: message id 2 was emitted again before it was done; give every message an id of its own" in task.errors()[0]
    assert task.task.counters.errors == 2
    verdict(task, FrameKind.ACKED, 1, 2, 3, 4, 5)
    assert spout.told("ack") == [1, 2, 3, 4, 5]


def test_timestamps_stay_with_their_rows_when_others_are_refused() -> None:
    def emit(collector: Any) -> None:
        collector.emit(("a",), 1, timestamp=10)
        collector.emit(("b",), 1, timestamp=20)
        collector.emit(("c",), 2, timestamp=30)

    _, task = replaying(emit)
    task.run()
    (frame,) = task.frames(FrameKind.DATA)
    assert (frame.decode_rows(CODEC), frame.timestamp_list()) == ([("a",), ("c",)], [10, 30])


@pytest.mark.parametrize(("ids", "refused"), [((5, 5), 5), ((5, 3), 3), ((("b", 1), ("a", 2)), ("a", 2))])
def test_a_position_that_is_not_later_than_the_one_before_is_refused(ids: tuple[Any, Any], refused: Any) -> None:
    first, second = ids
    spout, task = replaying(lambda c: c.emit(("v",), first))
    task.run()
    verdict(task, FrameKind.ACKED, "v")
    spout.steps.append(lambda c: c.emit(("w",), second))
    task.wait(0.1)
    assert task.values() == ["v"] and spout.told("ack") == [first]
    (error,) = task.errors()
    assert f"emitted at position {refused!r} after {first!r}" in error and "each later than the one before" in error
    assert (task.task.counters.refused, task.task.counters.emitted) == (1, 2)


# -- dead letters


def test_a_dead_letter_carries_the_message_and_why() -> None:
    _, task = replaying("x", attempts=1)
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    (letter,) = task.messages(DeadLetter)
    assert (letter.task, letter.id, letter.errors, letter.attempts) == (1, 1, ["a task failed it"], 1)
    assert letter.root, "by which the master finds why"
    assert (CODEC.unpack_value(letter.position), CODEC.unpack_value(letter.values)) == ("x", ("x",))


def test_a_message_is_done_when_its_dead_letter_is_stored() -> None:
    spout, task = replaying("x", attempts=1, ends=True)
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    task.confirm_all()
    task.wait(10.0)
    assert (spout.told("fail"), task.task.is_quiet, positions(task)) == ([], False, [])
    task.handle(DeadLettersStored(task.id, [1]))
    task.wait(1.0)
    assert (spout.told("fail"), task.task.is_quiet, positions(task)) == (["x"], True, ["x"])
    counters = task.task.statistics().counters
    assert (counters.dead_lettered, counters.finally_failed, counters.acked) == (1, 0, 0)


def test_a_letter_that_is_stored_twice_or_unknown_is_heard_once() -> None:
    spout, task = replaying("x", attempts=1)
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    task.handle(DeadLettersStored(task.id, [1, 1, 99]))
    task.handle(DeadLettersStored(task.id, [1]))
    assert spout.told("fail") == ["x"]


def test_letters_that_are_not_stored_are_sent_again_in_every_new_epoch() -> None:
    _, task = replaying("x", "y", attempts=1)
    task.run()
    verdict(task, FrameKind.FAILED, "x", "y")
    task.handle(DeadLettersStored(task.id, [2]))
    first = task.messages(DeadLetter)[0]
    task.out.clear()
    task.adopt(2)
    assert task.messages(DeadLetter) == [first]


def test_a_dead_message_is_not_replayed_at_a_reset() -> None:
    _, task = replaying("x", attempts=1)
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    recover(task, 2)
    task.wait(10.0)
    assert task.values() == []


def test_values_that_cannot_be_carried_reach_the_dead_letters_as_text() -> None:
    _, task = replaying(lambda c: c.emit((object,), "x"), attempts=1)
    task.run()
    task.feed_ids(FrameKind.FAILED, task.roots(FrameKind.FAIL))
    task.run()
    (letter,) = task.messages(DeadLetter)
    assert CODEC.unpack_value(letter.values) == "(<class 'object'>,)"


def test_values_of_more_elements_than_are_read_reach_the_dead_letters_as_text() -> None:
    _, task = replaying(lambda c: c.emit(([1] * (MAX_ELEMENTS + 1),), "x"), attempts=1)
    task.run()
    task.feed_ids(FrameKind.FAILED, task.roots(FrameKind.FAIL))
    task.run()
    (letter,) = task.messages(DeadLetter)
    assert CODEC.unpack_value(letter.values).startswith("([1, 1, ")


def test_an_exception_in_fail_is_reported_and_the_message_is_done() -> None:
    class Broken(Replaying):
        def fail(self, message_id: Any) -> None:
            raise ValueError("in fail")

    task = Solo(chain(Broken(["x"], ends=False), Sink(), attempts=1), "a")
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    task.handle(DeadLettersStored(task.id, [1]))
    assert task.errors() == ["ValueError: in fail"]
    assert task.task.statistics().levels["pending"] == 0


# -- recovery


def test_at_a_reset_everything_pending_is_replayed_first_and_in_order_and_that_is_no_attempt() -> None:
    spout, task = replaying(*range(6), attempts=1, max_spout_pending=4)
    task.run()
    verdict(task, FrameKind.ACKED, 1)
    recover(task, 2)
    task.run()
    assert task.values() == [0, 2, 3, 4]
    assert (task.task.counters.reset, task.task.counters.replayed) == (4, 4)
    assert task.messages(DeadLetter) == []
    verdict(task, FrameKind.ACKED, 0, 2, 3, 4)
    assert task.values() == [0, 2, 3, 4, 5]
    assert spout.told("fail") == []


def test_a_long_replay_leaves_in_batches_and_in_order() -> None:
    _, task = replaying(*range(50), batch_size=8)
    task.run()
    recover(task, 2)
    task.turn()
    assert task.task.counters.replayed == 8
    task.run()
    assert task.values() == list(range(50))


def test_a_message_in_its_back_off_keeps_waiting_over_a_reset() -> None:
    _, task = replaying("x")
    task.run()
    verdict(task, FrameKind.FAILED, "x")
    task.wait(0.5)
    recover(task, 2)
    task.run()
    assert task.values() == []
    task.wait(0.5)
    assert task.values() == ["x"]


def test_two_resets_without_go_replay_once() -> None:
    _, task = replaying("x", "y")
    task.run()
    task.adopt(2)
    recover(task, 3)
    task.run()
    assert task.values() == ["x", "y"]


# -- positions


def test_only_the_contiguous_prefix_is_committed() -> None:
    _, task = replaying(*range(5))
    task.run()
    verdict(task, FrameKind.ACKED, 1, 2)
    task.wait(1.0)
    assert positions(task) == []
    verdict(task, FrameKind.ACKED, 0)
    task.wait(1.0)
    assert positions(task) == [2]
    verdict(task, FrameKind.ACKED, 4, 3)
    task.wait(1.0)
    assert positions(task) == [2, 4]


def test_over_several_streams_the_prefix_in_the_order_of_emission_is_committed() -> None:
    class Forking(Replaying):
        outputs = {"odd": ("value",), "even": ("value",)}

    def emit(collector: Any) -> None:
        for number in range(1, 6):
            collector.emit((number,), message_id=number, stream="odd" if number % 2 else "even")

    builder = TopologyBuilder("forks")
    builder.set_spout("a", Forking([emit], ends=False))
    builder.set_bolt("b", Sink()).shuffle_grouping("a", stream="odd").shuffle_grouping("a", stream="even")
    task = Solo(builder.build(), "a")
    task.run()
    verdict(task, FrameKind.ACKED, 1, 3, 5)
    task.wait(1.0)
    assert positions(task) == [1], "2 is not done: a restart has to read it again"
    verdict(task, FrameKind.ACKED, 2, 4)
    task.wait(1.0)
    assert positions(task) == [1, 5]


def test_a_failed_message_holds_the_commit_until_it_is_through() -> None:
    _, task = replaying(*range(3))
    task.run()
    verdict(task, FrameKind.FAILED, 0)
    verdict(task, FrameKind.ACKED, 1, 2)
    task.wait(1.0)
    assert positions(task) == []
    verdict(task, FrameKind.ACKED, 0)
    task.wait(1.0)
    assert positions(task) == [2]


def test_positions_are_reported_at_most_twice_a_second() -> None:
    _, task = replaying(*range(100))
    task.run()
    for position in range(100):
        verdict(task, FrameKind.ACKED, position)
        task.wait(0.02)
    assert 3 <= len(positions(task)) <= 5
    task.wait(1.0)
    assert positions(task)[-1] == 99


def test_an_unchanged_position_is_not_reported_again() -> None:
    _, task = replaying("x")
    task.run()
    verdict(task, FrameKind.ACKED, "x")
    task.wait(100.0)
    assert positions(task) == ["x"]


def test_the_last_position_is_reported_before_the_spout_is_closed() -> None:
    _, task = replaying("x", "y")
    task.run()
    verdict(task, FrameKind.ACKED, "x")
    verdict(task, FrameKind.ACKED, "y")
    task.handle(Close(Epoch(1)))
    assert positions(task)[-1] == "y"


def test_a_restarted_spout_does_not_report_the_position_that_it_was_given() -> None:
    task = Solo(chain(Replaying(ends=False), Sink()), "a", committed=CODEC.pack_value(7))
    task.wait(10.0)
    assert task.messages(PositionReport) == []


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize("position", [1 + 2j, object, (1, 2j)])
def test_a_position_that_cannot_be_stored_is_refused_and_the_others_go_on(position: Any) -> None:
    spout, task = replaying(lambda c: c.emit(("v",), position), lambda c: c.emit(("w",), Colour.RED), lambda c: c.emit(("x",), 2))
    task.run()
    verdict(task, FrameKind.ACKED, "w", "x")
    task.wait(100.0)
    assert spout.told("ack") == [1, 2] and positions(task)[-1] == 2
    (error,) = task.errors()
    assert f"emitted with message id {position!r}" in error and "cannot be stored as it is" in error
    assert task.task.counters.refused == 1


def test_a_message_without_readers_moves_the_position() -> None:
    builder = TopologyBuilder("nobody")
    builder.set_spout("a", Replaying(["x"], ends=False))
    task = Solo(builder.build(), "a")
    task.wait(1.0)
    assert positions(task) == ["x"]


def test_positions_in_hand_are_found_by_their_roots() -> None:
    _, task = replaying("x", "y")
    task.run()
    packed = root_of(task, "y").to_bytes(8, "little") * 2 + (12345).to_bytes(8, "little")
    spout: Any = task.task
    assert [CODEC.unpack_value(position) for position in spout.positions_of(packed)] == ["y"]


# -- suspects


def suspected(task: Solo, *values: Any, epoch: int = 2, alone: bool = False) -> None:
    """A worker died with these messages in hand."""
    recover(task, epoch, suspects=[root_of(task, value) for value in values], alone=alone)
    task.run()


def test_suspects_are_tried_alone_one_after_the_other_before_anything_else() -> None:
    _, task = replaying(*range(6), max_spout_pending=5)
    task.run()
    suspected(task, 1, 3)
    assert task.values() == [1]
    task.wait(0.1)
    assert task.values() == [1]
    verdict(task, FrameKind.ACKED, 1)
    assert task.values() == [1, 3]
    verdict(task, FrameKind.ACKED, 3)
    assert task.values() == [1, 3, 0, 2, 4, 5]


def test_a_trial_leaves_at_once() -> None:
    _, task = replaying(*range(3))
    task.run()
    recover(task, 2, suspects=[root_of(task, 1)])
    task.turn()
    assert task.values() == [1]


def test_a_suspect_that_fails_is_cleared_and_waits_like_any_other() -> None:
    _, task = replaying(*range(3))
    task.run()
    suspected(task, 1)
    verdict(task, FrameKind.FAILED, 1)
    assert task.values() == [1, 0, 2]
    task.wait(1.0)
    assert task.values() == [1, 0, 2, 1]


def test_a_message_that_kills_alone_as_often_as_it_may_is_given_up_and_nothing_else_is() -> None:
    _, task = replaying("innocent", "the guilty one", attempts=2)
    task.run()
    for epoch in (2, 3):
        suspected(task, "innocent", "the guilty one", epoch=epoch)
        assert task.values() == ["innocent"]
        verdict(task, FrameKind.ACKED, "innocent") if epoch == 2 else None
        if epoch == 2:
            break
    assert task.values() == ["innocent", "the guilty one"]
    suspected(task, "the guilty one", epoch=3, alone=True)
    assert task.messages(DeadLetter) == []
    assert task.values() == ["the guilty one"]
    roots = [root_of(task, "the guilty one")]
    task.adopt(4, suspects=roots, alone=True)
    (letter,) = task.messages(DeadLetter)
    assert letter.errors == ["ended the process that worked on it, alone, 2 times"]
    task.open_inputs()
    task.handle(Go(Epoch(4)))
    task.run()
    assert task.values() == ["the guilty one"]


def test_a_new_letter_is_sent_once_in_the_epoch_that_gives_it_up() -> None:
    _, task = replaying("guilty", attempts=1)
    task.run()
    task.adopt(2, suspects=[root_of(task, "guilty")], alone=True)
    assert len(task.messages(DeadLetter)) == 1


def test_several_in_hand_are_no_kill() -> None:
    _, task = replaying("x", "y", attempts=1)
    task.run()
    suspected(task, "x", "y")
    assert task.messages(DeadLetter) == []


def test_roots_of_other_spouts_make_no_suspects_here() -> None:
    _, task = replaying("x", "y")
    task.run()
    recover(task, 2, suspects=[12345], alone=True)
    task.run()
    assert task.values() == ["x", "y"]


def test_attempts_are_reported_and_forgotten_when_the_message_is_through() -> None:
    _, task = replaying("x", "y")
    task.run()
    task.adopt(2, suspects=[root_of(task, "x")], alone=True)
    task.open_inputs()
    task.handle(Go(Epoch(2)))
    task.wait(1.0)
    assert attempts(task)[-1] == {"x": 1}
    verdict(task, FrameKind.ACKED, "x")
    task.wait(1.0)
    assert attempts(task)[-1] == {}


def test_a_restarted_spout_tries_what_it_was_told_of_alone() -> None:
    spout = Replaying(["x", "y", "z"], ends=False)
    task = Solo(chain(spout, Sink()), "a", attempts=CODEC.pack_value([["y", 1]]))
    task.run()
    assert task.values() == ["x"] or task.values() == ["x", "z"]
    verdict(task, FrameKind.ACKED, *task.values())
    assert task.values()[-1] == "y" or "y" in task.values()
    verdict(task, FrameKind.ACKED, "y")
    task.wait(0.1)
    assert sorted(task.values()) == ["x", "y", "z"]


@pytest.mark.parametrize("count", [3, 5])
def test_a_restarted_spout_gives_up_what_has_killed_often_enough_before(count: int) -> None:
    spout = Replaying(["x", "y"], ends=False)
    task = Solo(chain(spout, Sink(), attempts=3), "a", attempts=CODEC.pack_value([["y", count]]))
    task.run()
    assert task.values() == ["x"]
    assert [CODEC.unpack_value(letter.position) for letter in task.messages(DeadLetter)] == ["y"]


def test_on_error_crash_with_a_poison_message_ends_in_the_dead_letters() -> None:
    """The bolt's process ends each time; its note names the message, and the master counts the kill."""
    _, task = replaying("poison", "sound", attempts=3)
    task.run()
    suspected(task, "poison", "sound", epoch=2)
    assert task.values() == ["poison"]
    for epoch in (3, 4, 5):
        task.adopt(epoch, suspects=[root_of(task, "poison")], alone=True)
        task.open_inputs()
        letters = len(task.messages(DeadLetter))
        task.out.clear()
        task.handle(Go(Epoch(epoch)))
        task.run()
        assert letters == (epoch == 5)
        if epoch == 3:
            verdict(task, FrameKind.ACKED, "sound")
            assert task.values() == ["sound", "poison"]
    assert task.values() == []
