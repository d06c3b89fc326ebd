"""The promises of the guarantees of messages, without a runner: each holds in each delivery mode unless its name names some."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from tests.contract.guarantees.source_stand import SourceStand
from tests.tasks.components import CHECKPOINTED, MODES, TRACKED, UNTRACKED, Replaying, Scripted, Sink
from tests.tasks.environment import CODEC
from tests.tasks.solo import Solo
from topo import MemoryPartitions, MemorySpout
from topo.api.partition_values import Partition, begins_first
from topo.builder import TopologyBuilder
from topo.checkpoint.alignment import Snapshot
from topo.errors import EmitError
from topo.wire.control import CheckpointPublished, DeadLetter, DeadLettersStored, PositionReport
from topo.wire.frames import FrameKind

KINDS = pytest.mark.parametrize("kind", [Scripted, Replaying])
ALL = pytest.mark.parametrize("mode", MODES)


@KINDS
@ALL
def test_messages_are_sent_and_each_is_done_once_in_order(kind: Any, mode: str) -> None:
    stand = SourceStand(mode, kind)
    stand.admit(1, 2, 3)
    stand.admit(4)
    stand.finish()
    stand.finish()
    assert stand.solo.values() == [1, 2, 3, 4]
    assert (stand.spout.acked, stand.spout.failed) == ([1, 2, 3, 4], [])
    assert stand.guarantee.pending == 0 and stand.counters.acked == 4
    assert stand.are_trees_whole() or mode == CHECKPOINTED


@KINDS
@ALL
def test_rows_without_an_id_are_sent_and_are_none_of_the_messages(kind: Any, mode: str) -> None:
    stand = SourceStand(mode, kind, max_spout_pending=2)
    stand.admit_untracked(1, 2, 3)
    stand.flush()
    assert stand.solo.values() == [1, 2, 3]
    assert (stand.guarantee.pending, stand.guarantee.room) == (0, 2)
    assert stand.solo.frames(FrameKind.INIT) == []


@KINDS
@ALL
def test_room_is_the_rest_of_the_pending_limit(kind: Any, mode: str) -> None:
    stand = SourceStand(mode, kind, max_spout_pending=5)
    stand.admit(1, 2, 3)
    counts = mode != CHECKPOINTED or kind is Scripted
    assert stand.guarantee.room == (2 if counts else 5), "messages of a source with positions are not kept with checkpoints"
    stand.finish()
    assert stand.guarantee.room == 5


@KINDS
@ALL
def test_a_row_that_no_route_takes_is_lost_alone_and_reported(kind: Any, mode: str) -> None:
    stand = SourceStand(mode, kind, sinks=2)
    stand.admit_as({1: "x", 2: {}, 3: "y"})
    stand.flush()
    assert sorted(stand.solo.values()) == ["x", "y"] and len(stand.solo.errors()) == 1
    lost(stand)


@KINDS
@ALL
def test_a_row_that_cannot_be_carried_is_lost_and_reported(kind: Any, mode: str) -> None:
    stand = SourceStand(mode, kind)
    roots = [77] if mode == TRACKED else []
    stand.guarantee.reject_row(("x",), roots, EmitError("too long"))
    stand.flush()
    assert stand.solo.errors() == ["EmitError: too long"]
    lost(stand)


def lost(stand: SourceStand) -> None:
    """One row is accounted for: its message fails, it is a dead letter of the next checkpoint, or it is counted."""
    assert len(stand.solo.roots(FrameKind.FAIL)) == (stand.mode == TRACKED)
    assert stand.counters.unsent == (stand.mode == UNTRACKED)
    if stand.mode == CHECKPOINTED:
        stand.begin_checkpoint()
        assert stand.solo.messages(DeadLetter) == [], "a recovery may replay its message"
        stand.complete()
        (report,) = stand.solo.messages(DeadLetter)
        stand.solo.handle(DeadLettersStored(stand.solo.id, [report.id]))
        assert stand.counters.dead_lettered == 1


class Broken(Scripted):
    """Its callbacks raise."""

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        raise ValueError("no")

    def fail(self, message_id: Any) -> None:
        super().fail(message_id)
        raise ValueError("no")


class BrokenReplaying(Broken, Replaying):
    """The same, of a source with positions."""


@pytest.mark.parametrize("kind", [Broken, BrokenReplaying])
@ALL
def test_an_error_of_ack_is_reported_and_the_other_messages_get_their_calls(kind: Any, mode: str) -> None:
    stand = SourceStand(mode, kind)
    stand.admit(1, 2)
    stand.finish()
    assert stand.spout.acked == [1, 2]
    assert set(stand.solo.errors()) == {"ValueError: no"} and stand.counters.errors == 2


def test_tracked_an_error_of_fail_is_reported_and_the_other_messages_get_their_calls() -> None:
    stand = SourceStand(TRACKED, Broken)
    stand.admit(1, 2)
    stand.flush()
    stand.solo.verdict(FrameKind.FAILED, 1, 2)
    assert stand.spout.failed == [1, 2]
    assert set(stand.solo.errors()) == {"ValueError: no"} and stand.counters.errors == 2


@KINDS
@ALL
def test_closing_leaves_no_message_unaccounted_that_is_done(kind: Any, mode: str) -> None:
    stand = SourceStand(mode, kind)
    stand.admit(1, 2)
    stand.finish()
    stand.guarantee.close(stand.now)
    assert stand.guarantee._unaccounted == 0 and stand.spout.acked == [1, 2]


# -- tracked -----------------------------------------------------------------------------------------------------------------


@KINDS
def test_tracked_ids_leave_behind_the_rows_and_a_fail_leaves_ahead_of_the_init(kind: Any) -> None:
    stand = SourceStand(TRACKED, kind, sinks=2)
    stand.admit_as({1: {}, 2: "y"})
    stand.flush()
    names = [frame.kind.name for frame in stand.solo.frames(FrameKind.FAIL, FrameKind.INIT)]
    assert names == ["FAIL", "INIT"] and stand.are_trees_whole()


@KINDS
def test_tracked_a_message_times_out_unless_a_bolt_keeps_it(kind: Any) -> None:
    stand = SourceStand(TRACKED, kind, message_timeout="10s")
    stand.admit(1, 2)
    stand.flush()
    stand.solo.wait(8)
    stand.solo.verdict(FrameKind.TOUCHED, 2)
    stand.solo.wait(1.9)
    assert stand.counters.timed_out == 0
    stand.solo.wait(1.2)
    assert stand.counters.timed_out == 1 and stand.guarantee.pending == (1 if kind is Scripted else 2)
    stand.solo.verdict(FrameKind.ACKED, 2)
    assert stand.spout.acked == [2]


@KINDS
def test_tracked_a_verdict_that_waits_counts_before_a_timeout_of_the_same_moment(kind: Any) -> None:
    stand = SourceStand(TRACKED, kind, message_timeout="10s")
    stand.admit(1)
    stand.flush()
    stand.solo.clock.now += 100
    stand.solo.feed_ids(FrameKind.ACKED, [stand.solo.root_of(1)])
    stand.task.runner.on_time(stand.now)
    assert (stand.counters.acked, stand.counters.timed_out) == (1, 0)


@KINDS
def test_tracked_messages_whose_rows_wait_on_an_edge_do_not_time_out(kind: Any) -> None:
    stand = SourceStand(TRACKED, kind, message_timeout="10s")
    stand.admit(1)
    stand.solo.run()
    stand.solo.wait(60)
    assert stand.counters.timed_out == 0 and stand.solo.roots(FrameKind.RESET)


def test_tracked_an_epoch_fails_the_pending_messages_of_a_plain_spout() -> None:
    stand = SourceStand(TRACKED)
    stand.admit(1, 2)
    stand.flush()
    stand.new_epoch()
    assert stand.spout.failed == [1, 2] and stand.guarantee.pending == 0
    counters = stand.task.statistics().counters
    assert (counters.reset, counters.failed, counters.finally_failed) == (2, 0, 2)
    stand.flush()
    assert stand.solo.frames(FrameKind.INIT) == [], "ids of the epoch before are forgotten"
    stand.admit(1)
    assert stand.guarantee.levels()["finally_failed"] == 1.0, "the other one was emitted again"


def test_tracked_an_epoch_has_the_pending_messages_of_a_retrying_spout_replayed() -> None:
    stand = SourceStand(TRACKED, Replaying)
    stand.admit(1, 2)
    stand.flush()
    stand.new_epoch()
    replays = stand.guarantee.replays
    assert replays is not None and stand.guarantee.pending == 2
    assert [message for message, _ in replays.due(stand.now, 10)] == [1, 2]
    assert stand.spout.failed == []


def test_tracked_a_retrying_spout_begins_at_its_stored_position_and_stores_the_next() -> None:
    stand = SourceStand(TRACKED, Replaying, committed=CODEC.pack_value(7))
    assert stand.spout.calls[0] == ("open", 7)
    stand.admit(8, 9)
    stand.flush()
    stand.solo.verdict(FrameKind.ACKED, 9)
    stand.solo.wait(1)
    assert stand.solo.messages(PositionReport) == []
    stand.solo.verdict(FrameKind.ACKED, 8)
    stand.solo.wait(1)
    assert [CODEC.unpack_value(report.position) for report in stand.solo.messages(PositionReport)] == [9]


# -- with checkpoints --------------------------------------------------------------------------------------------------------


@KINDS
def test_a_message_is_done_with_the_first_complete_checkpoint_behind_it(kind: Any) -> None:
    stand = SourceStand(CHECKPOINTED, kind)
    stand.admit(1)
    stand.begin_checkpoint()
    stand.admit(2)
    stand.begin_checkpoint()
    assert stand.spout.acked == []
    stand.complete(1)
    assert stand.spout.acked == [1] and stand.counters.acked == 1
    stand.complete(2)
    assert stand.spout.acked == [1, 2] and stand.guarantee._unaccounted == 0


@KINDS
def test_a_barrier_follows_the_rows_and_its_ack_is_reported(kind: Any) -> None:
    stand = SourceStand(CHECKPOINTED, kind)
    stand.admit(1)
    stand.begin_checkpoint()
    kinds = [frame.kind for frame in stand.solo.frames(FrameKind.DATA, FrameKind.BARRIER, FrameKind.INIT)]
    assert kinds == [FrameKind.DATA, FrameKind.BARRIER, FrameKind.INIT] and stand.barriers_acked == []
    stand.solo.feed_ids(FrameKind.ACKED, stand.solo.roots(FrameKind.INIT))
    stand.solo.run()
    assert stand.barriers_acked == [1]


@KINDS
def test_a_row_that_cannot_be_carried_belongs_to_the_barrier_behind_it(kind: Any) -> None:
    stand = SourceStand(CHECKPOINTED, kind)
    stand.admit_as({1: "x", 2: "\ud800"})
    stand.begin_checkpoint()
    assert stand.solo.dead_letters() == [], "a recovery may replay its message"
    stand.complete()
    assert stand.solo.values() == ["x"] and len(stand.solo.dead_letters()) == 1


def test_an_order_to_begin_a_checkpoint_that_arrives_twice_is_followed_once() -> None:
    stand = SourceStand(CHECKPOINTED)
    stand.admit(1)
    stand.begin_checkpoint()
    stand.checkpoints.begin_checkpoint(1, has_ended=False)
    stand.flush()
    assert len(stand.solo.frames(FrameKind.BARRIER)) == len(stand.solo.frames(FrameKind.INIT)) == 1


@KINDS
def test_a_checkpoint_counts_as_published_when_ack_was_called_for_all_that_it_covers(kind: Any) -> None:
    """Else the topology may end, and a process that dies before it closes takes the calls with it."""
    stand = SourceStand(CHECKPOINTED, kind)
    messages = list(range(600))
    stand.admit(*messages)
    stand.begin_checkpoint()
    stand.solo.complete(1)
    called: list[int] = []
    while not stand.solo.messages(CheckpointPublished):
        assert len(stand.spout.acked) < len(messages) and stand.task.has_work
        called.append(len(stand.spout.acked))
        stand.solo.turn()
    assert stand.spout.acked == messages and len(called) > 2
    stand.solo.run()
    assert [message.checkpoint for message in stand.solo.messages(CheckpointPublished)] == [1]


def test_a_checkpoint_that_covers_no_message_is_published_at_once_each_time() -> None:
    stand = SourceStand(CHECKPOINTED)
    stand.begin_checkpoint()
    stand.solo.complete(1)
    stand.solo.complete(1)
    assert [message.checkpoint for message in stand.solo.messages(CheckpointPublished)] == [1, 1]


def test_an_epoch_reports_no_checkpoint_as_published_that_the_one_before_owed() -> None:
    stand = SourceStand(CHECKPOINTED)
    stand.admit(1)
    stand.begin_checkpoint()
    first = stand.kept()
    stand.admit(2)
    stand.begin_checkpoint()
    stand.solo.complete(2)
    stand.checkpoint = 1
    stand.new_epoch(values=first)
    stand.solo.run()
    assert 2 not in [message.checkpoint for message in stand.solo.messages(CheckpointPublished)]
    assert (stand.spout.acked, stand.spout.failed) == ([1], [2])


def test_after_a_recovery_a_source_with_positions_is_opened_behind_covered_messages() -> None:
    stand = SourceStand(CHECKPOINTED, Replaying)
    stand.admit(1, 2)
    stand.begin_checkpoint()
    stand.admit(3)
    stand.new_epoch(values=stand.kept())
    calls = [call for call in stand.spout.calls if call[0] != "activate"]
    assert calls == [("open", None), ("ack", 1), ("ack", 2), ("close",), ("open", 2)]


def test_after_a_recovery_a_source_without_positions_gets_acks_and_fails() -> None:
    stand = SourceStand(CHECKPOINTED)
    stand.admit(1, 2)
    stand.begin_checkpoint()
    stand.admit(3)
    stand.new_epoch(values=stand.kept())
    stand.solo.run()
    assert stand.spout.failed == [3] and stand.spout.acked == [1, 2]
    assert stand.counters.reset == 1 and stand.guarantee.levels()["finally_failed"] == 1.0


def test_covered_messages_that_a_queue_redelivers_are_acked_and_not_sent() -> None:
    first = SourceStand(CHECKPOINTED)
    first.admit(1, 2)
    first.begin_checkpoint()
    stand = SourceStand(CHECKPOINTED)
    stand.checkpoint = 1
    stand.new_epoch(values=first.kept())
    assert stand.checkpoints.redelivers
    stand.admit(1, 2, 3)
    stand.flush()
    assert stand.solo.values() == [3] and stand.spout.acked == [1, 2]
    assert not stand.checkpoints.redelivers


def test_behind_a_restored_end_a_new_message_is_a_dead_letter_and_the_source_is_over() -> None:
    first = SourceStand(CHECKPOINTED)
    first.admit(1)
    first.begin_checkpoint()
    stand = SourceStand(CHECKPOINTED)
    stand.checkpoint = 1
    stand.new_epoch(values=first.kept(), ended=True)
    assert stand.checkpoints.redelivers
    stand.admit(5)
    stand.flush()
    assert not stand.checkpoints.redelivers, "the covered message is not waited for any more"
    (error,) = stand.solo.errors()
    assert stand.solo.values() == []
    assert error.startswith("EmitError: component 'a' emitted a new message, and checkpoint 1 is behind the end of its input")
    stand.begin_checkpoint()
    stand.complete()
    assert stand.solo.dead_letter_errors() == [f"{error} (component 'a')"]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_partitions_that_a_task_had_not_found_in_a_checkpoint_are_not_taken_for_later_ones(parallelism: int) -> None:
    kept = {"t-0": ("t", 0, 7, None)}
    found = [Snapshot(values={"source": {"partitions": kept}}), Snapshot(values={"source": {}})]
    for _ in range(2):
        records = []
        for index in range(parallelism):
            builder = TopologyBuilder("contract").config(delivery=CHECKPOINTED)
            builder.set_spout("a", MemorySpout(MemoryPartitions()), parallelism=parallelism)
            builder.set_bolt("sink", Sink).shuffle_grouping("a")
            task = Solo(builder.build(), "a", index=index, is_open=False).task
            task.state.restored = found
            partitions = task.guarantee.partitions
            stored = partitions.restore()
            names = [f"t-{number}" for number in range(4)]
            of_second = [(crc32(b"t") + number) % 2 == 1 for number in range(4)]
            assert [begins_first(stored, Partition(name, "t", n)) for n, name in enumerate(names)] == of_second
            records.append(partitions.snapshot(1, None))
            partitions.partitions_found()
            assert partitions.snapshot(2, None)["partitions"].keys() <= {"t-0"}
        found = [Snapshot(values={"source": record}) for record in records]
