"""The promises of the guarantees of inputs, without a runner: each holds in each delivery mode unless its name restricts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.guarantees.stand import Stand
from tests.tasks.components import CHECKPOINTED, MODES, TRACKED, UNTRACKED
from tests.tasks.environment import Store
from topo.checkpoint.alignment import Snapshot
from topo.errors import FrameError, TopoInternalError, UnsupportedValueError, UserError
from topo.task.batch import Batch, Undecoded
from topo.wire.control import SnapshotTaken, TuplesFailed
from topo.wire.frames import FrameKind

ALL = pytest.mark.parametrize("mode", MODES)
WITH_ROWS_OR_IDS = (FrameKind.DATA, FrameKind.ACK, FrameKind.FAIL, FrameKind.RESET, FrameKind.BARRIER)
NOT_REPEATED = pytest.mark.parametrize("mode", [TRACKED, UNTRACKED])


def ids_of(*batches: Batch) -> list[tuple[int, int]]:
    """Each root of the inputs of batches, with its edge."""
    ids = [batch.ids_at(index) for batch in batches for index in range(batch.count)]
    return [pair for roots, edges in ids for pair in zip(roots, edges, strict=True)]


# -- slices ------------------------------------------------------------------------------------------------------------------


@ALL
def test_a_slice_sends_its_rows_and_closes_the_trees_of_its_inputs(mode: str) -> None:
    stand = Stand(mode)
    batches = [stand.batch("x", "y", "z"), stand.batch("last")]
    stand.settle_slice(batches[0], [["x1", "x2"], [], ["z1"]])
    stand.settle_slice(batches[1], [["last1"]])
    stand.flush()
    assert stand.solo.values() == ["x1", "x2", "z1", "last1"]
    assert stand.counts == (4, 0)
    assert stand.solo.undecided(ids_of(*batches)) == []
    if mode != TRACKED:
        assert stand.solo.kinds(*WITH_ROWS_OR_IDS) == ["DATA"] and stand.solo.roots(FrameKind.DATA) == []


@ALL
def test_the_failures_of_a_slice_fail_alone(mode: str) -> None:
    stand = Stand(mode, attempts=3)
    batch = stand.batch("x", "bad", "z")
    stand.settle_slice(batch, [["x1"], [], ["z1"]], {1: ValueError("no")})
    stand.flush()
    assert stand.solo.values() == ["x1", "z1"]
    assert stand.counts == (2, 1)
    assert stand.errors() == ["no"]
    assert stand.solo.roots(FrameKind.FAIL) == list(batch.ids_at(1)[0])
    assert not stand.solo.acks().keys() & set(batch.ids_at(1)[0])
    assert stand.solo.undecided(ids_of(batch)) == []


def test_with_checkpoints_a_failure_of_a_slice_is_a_dead_letter_after_all_attempts() -> None:
    stand = Stand(CHECKPOINTED, attempts=3)
    stand.settle_slice(stand.batch("x", "bad"), [[], []], {1: ValueError("no")})
    assert stand.dead_letters() == [(("bad",), 3)]


@ALL
def test_rows_without_input_are_sent_without_ids(mode: str) -> None:
    stand = Stand(mode)
    stand.slices.emit(("tick",))
    stand.guarantee.settle_rows(stand.slices.streams, stand.now)
    stand.flush()
    assert stand.solo.values() == ["tick"] and stand.solo.roots(FrameKind.DATA) == []
    assert stand.slices.count() == 0


# -- calls that name anchors -------------------------------------------------------------------------------------------------


@ALL
def test_calls_send_their_rows_and_close_the_trees_of_acked_inputs(mode: str) -> None:
    stand = Stand(mode)
    x, y = stand.inputs("x", "y")
    roots, edges = x.roots + y.roots, x.edges + y.edges
    stand.calls.emit(("both",), anchors=[x, y])
    stand.calls.ack(x)
    stand.settle()
    stand.flush()
    assert stand.solo.values() == ["both"] and stand.counts == (1, 0)
    assert stand.solo.undecided(zip(roots, edges, strict=True)) == [*y.roots]
    stand.calls.ack(y)
    stand.settle()
    stand.flush()
    assert stand.counts == (2, 0)
    assert stand.solo.undecided(zip(roots, edges, strict=True)) == []


@ALL
def test_an_input_that_user_code_fails_counts_as_failed(mode: str) -> None:
    stand = Stand(mode)
    (tup,) = stand.inputs("x")
    stand.calls.fail(tup)
    stand.settle()
    stand.flush()
    assert stand.counts == (0, 1)
    assert stand.solo.roots(FrameKind.FAIL) == list(tup.roots) and stand.solo.acks() == {}
    if mode == TRACKED:
        (failed,) = stand.solo.messages(TuplesFailed)
        assert [(str(cause), roots) for cause, roots in failed.causes] == [("the bolt called fail (component 'b')", [*tup.roots])]
    if mode == CHECKPOINTED:
        assert stand.dead_letters() == [(("x",), 1)]


def test_only_tracked_inputs_have_timeouts_that_start_over() -> None:
    for mode in MODES:
        stand = Stand(mode)
        tup, other = stand.inputs("x", "y")
        tup.roots += other.roots
        tup.edges += other.edges
        stand.calls.reset_timeout(tup)
        stand.settle()
        stand.flush()
        assert len(tup.roots) == (2 if mode == TRACKED else 0)
        assert stand.solo.roots(FrameKind.RESET) == list(tup.roots)


@ALL
def test_inputs_of_an_earlier_epoch_are_counted_and_nothing_is_owed_for_them(mode: str) -> None:
    stand = Stand(mode)
    acked, failed, touched = stand.inputs("x", "y", "z", epoch=0)
    stand.calls.ack(acked)
    stand.calls.fail(failed)
    stand.calls.reset_timeout(touched)
    stand.settle()
    stand.flush()
    assert stand.task.counters.stale_tuples == 2 and stand.counts == (0, 0)
    assert stand.solo.frames(FrameKind.ACK, FrameKind.FAIL, FrameKind.RESET) == [] and stand.is_quiet
    assert stand.errors() == []


# -- ids ---------------------------------------------------------------------------------------------------------------------


def test_ids_leave_behind_the_rows_that_they_stand_for_and_fails_before_acks() -> None:
    stand = Stand(TRACKED)
    x, y, z = stand.inputs("x", "y", "z")
    stand.calls.emit(("row",), anchors=x)
    stand.calls.ack(x)
    stand.calls.fail(y)
    stand.calls.reset_timeout(z)
    stand.settle()
    stand.flush()
    assert stand.solo.kinds(*WITH_ROWS_OR_IDS) == ["DATA", "FAIL", "ACK", "RESET"]


def test_values_of_a_root_are_combined_until_they_leave() -> None:
    stand = Stand(TRACKED)
    x, y = stand.inputs("x", "y")
    y.roots = x.roots
    for tup in (x, y):
        stand.calls.ack(tup)
    stand.settle()
    assert not stand.is_quiet
    stand.flush()
    (frame,) = stand.solo.frames(FrameKind.ACK)
    assert frame.root_list() == list(x.roots) and frame.edge_list() == [x.edges[0] ^ y.edges[0]]
    assert stand.is_quiet


def test_acks_wait_for_the_flush_interval() -> None:
    stand = Stand(TRACKED, flush_interval="100ms")
    (tup,) = stand.inputs("x")
    stand.calls.ack(tup)
    stand.settle()
    stand.guarantee.id_sender.flush_full(stand.now)
    stand.solo.turn()
    assert stand.solo.acks() == {}
    assert stand.task.next_deadline(stand.now) == pytest.approx(stand.now + 0.1)
    stand.solo.clock.now += 0.1
    stand.solo.turn()
    assert stand.solo.acks().keys() == set(tup.roots)


@ALL
def test_an_epoch_begins_with_nothing_owed(mode: str) -> None:
    stand = Stand(mode)
    x, y, z = stand.inputs("x", "y", "z")
    stand.calls.ack(x)
    stand.calls.fail(y)
    stand.calls.reset_timeout(z)
    stand.settle()
    stand.new_epoch()
    stand.flush()
    assert stand.solo.frames(FrameKind.ACK, FrameKind.FAIL, FrameKind.RESET) == [] and stand.is_quiet


@ALL
def test_an_epoch_begins_with_the_event_time_of_its_own_input(mode: str) -> None:
    stand = Stand(mode)
    stand.solo.feed_time(7)
    stand.flush()
    stand.new_epoch()
    stand.solo.out.clear()
    stand.solo.feed_time(3)
    stand.flush()
    assert stand.solo.times() == [3]


def test_causes_of_an_earlier_epoch_are_not_reported() -> None:
    stand = Stand(TRACKED)
    old, new = stand.inputs("old", "new")
    stand.guarantee.lose_input(("old",), old.roots, ValueError("no"))
    stand.new_epoch()
    stand.guarantee.lose_input(("new",), new.roots, ValueError("no"))
    stand.flush()
    (failed,) = stand.solo.messages(TuplesFailed)
    assert [roots for _, roots in failed.causes] == [list(new.roots)]


# -- what cannot be read or sent ---------------------------------------------------------------------------------------------


@ALL
def test_an_input_that_cannot_be_decoded_fails(mode: str) -> None:
    stand = Stand(mode)
    (tup,) = stand.inputs("x")
    stand.guarantee.undecoded(Undecoded(tup.roots, ("x",), UnsupportedValueError("no codec")), stand.now)
    stand.flush()
    assert stand.counts == (0, 1) and stand.errors() == ["no codec"]
    assert stand.solo.roots(FrameKind.FAIL) == list(tup.roots) and stand.task.counters.unsent == 0
    if mode == CHECKPOINTED:
        assert stand.dead_letters() == [(("x",), 1)]


@ALL
def test_a_row_that_cannot_be_carried_fails_its_messages_or_is_not_lost_unseen(mode: str) -> None:
    stand = Stand(mode)
    (tup,) = stand.inputs("x")
    stand.guarantee.reject_row(("row",), tup.roots, UnsupportedValueError("no codec"))
    stand.guarantee.reject_row(("other",), (), UnsupportedValueError("no codec"))
    stand.flush()
    assert stand.solo.roots(FrameKind.FAIL) == list(tup.roots)
    assert stand.task.counters.unsent == {TRACKED: 1, UNTRACKED: 2, CHECKPOINTED: 0}[mode]
    if mode == CHECKPOINTED:
        assert stand.dead_letters() == [(("row",), 1), (("other",), 1)]


@ALL
def test_an_unreadable_frame_fails_its_messages_or_ends_the_epoch(mode: str) -> None:
    stand = Stand(mode)
    frame = stand.frame("x", "y")
    stand.guarantee.frame_lost(frame, FrameError("rubbish"), stand.now)
    stand.flush()
    assert stand.task.counters.malformed_frames == 1
    assert stand.solo.roots(FrameKind.FAIL) == frame.root_list()
    is_lost = any("cannot be read" in str(command) for command in stand.solo.out)
    assert is_lost == (mode == CHECKPOINTED)


# -- inputs that a bolt holds ------------------------------------------------------------------------------------------------


@ALL
def test_inputs_that_user_code_holds_are_kept_and_forgotten_ones_are_not(mode: str) -> None:
    stand = Stand(mode)
    undecided = stand.inputs("held", "forgotten")
    for tup in undecided:
        tup.has_emitted, tup.since = False, stand.now
    held = undecided[0]
    del tup
    stand.settle(undecided)
    assert undecided == [] and [one.values for one in stand.guarantee.held.now()] == [("held",)]
    stand.flush()
    # With ids the message fails by its timeout; else the loss would be silent in no other way.
    assert len(stand.errors()) == (mode == TRACKED)
    del held


@ALL
def test_inputs_held_over_a_recovery_are_kept_where_they_are_not_replayed(mode: str) -> None:
    stand = Stand(mode)
    stale = stand.inputs("held")
    (held,) = stale
    if mode == CHECKPOINTED:
        with pytest.raises(UserError, match="still holds 1 inputs"):
            stand.guarantee.keep_stale(stale)
    else:
        stand.guarantee.keep_stale(stale)
        assert bool(stand.guarantee.held) == (mode == UNTRACKED)
    del held


def test_with_checkpoints_rows_anchored_on_a_held_input_are_noted() -> None:
    stand = Stand(CHECKPOINTED)
    undecided = stand.inputs("held")
    (held,) = undecided
    held.has_emitted, held.since = False, stand.now
    stand.settle(undecided)
    stand.calls.emit(("row",), anchors=held)
    stand.settle()
    with pytest.raises(UserError, match="has emitted for 1 inputs that it holds back"):
        stand.guarantee.held.snapshot()


# -- checkpoints -------------------------------------------------------------------------------------------------------------


def test_the_snapshot_is_taken_ahead_of_the_barrier_and_acked_when_it_is_stored() -> None:
    stand = Stand(CHECKPOINTED)
    stand.calls.emit(("before",))
    stand.settle()
    stored: list[Callable[[], None]] = []

    class SlowStore(Store):
        def write(self, checkpoint: int, snapshot: Snapshot, stored_now: Any) -> None:
            stored.append(lambda: Store.write(self, checkpoint, snapshot, stored_now))

    def snapshot() -> Snapshot:
        assert stand.solo.frames(FrameKind.BARRIER) == []
        return Snapshot(values={"user": 1})

    stand.solo.env.snapshots = store = SlowStore()
    stand.barrier(7, {11: 1 << 40, 12: 1 << 41}, snapshot, waited_s=0.5, has_ended=True)
    stand.calls.emit(("behind",))
    stand.settle()
    stand.flush()
    assert stand.solo.kinds(*WITH_ROWS_OR_IDS) == ["DATA", "BARRIER", "DATA"]
    (barrier,) = stand.solo.frames(FrameKind.BARRIER)
    assert barrier.mark == 7 and barrier.root_list() == [11, 12]
    assert stand.solo.messages(SnapshotTaken) == [] and stand.solo.acks() == {}
    stored[0]()
    stand.flush()
    (taken,) = stand.solo.messages(SnapshotTaken)
    assert (taken.checkpoint, taken.alignment_ms, taken.ended) == (7, 500.0, True)
    assert store.kept[7].values == stand.output.snapshot(7) | {"user": 1}
    (edge,) = set(barrier.edge_list())
    assert stand.solo.acks() == {11: 1 << 40 ^ edge, 12: 1 << 41 ^ edge}


def test_a_row_that_cannot_be_carried_is_a_dead_letter_of_the_barrier_behind_it() -> None:
    stand = Stand(CHECKPOINTED)
    stand.calls.emit((object(),))
    stand.settle()
    stand.barrier(1, {11: 1})
    assert len(stand.complete(1)) == 1


def test_the_output_begins_with_the_watermark_of_the_restored_checkpoint() -> None:
    stand = Stand(CHECKPOINTED)
    stand.restore(1, {**stand.output.snapshot(1), "watermark": 7})
    assert stand.output.snapshot(2)["watermark"] == 7


@NOT_REPEATED
def test_without_checkpoints_a_barrier_is_an_internal_error(mode: str) -> None:
    stand = Stand(mode)
    with pytest.raises(TopoInternalError, match="barrier"):
        stand.solo.barrier(1)


def test_a_dead_letter_is_stored_with_the_first_checkpoint_that_covers_it_and_once() -> None:
    stand = Stand(CHECKPOINTED)
    stand.output.snapshot(1)
    stand.guarantee.lose_row(("late",), (), ValueError("no"))
    assert stand.complete(1) == [], "the checkpoint is older"
    assert stand.dead_letters(2) == [(("late",), 1)]
    assert stand.task.counters.dead_lettered == 1
    assert stand.dead_letters(3) == []


def test_dead_letters_of_a_restored_checkpoint_are_stored_and_later_ones_forgotten() -> None:
    stand = Stand(CHECKPOINTED)
    stand.guarantee.lose_row(("kept",), (), ValueError("no"))
    snapshot: dict[str, Any] = stand.output.snapshot(1)
    stand.guarantee.lose_row(("replayed",), (), ValueError("no"))
    stand.restore(1, snapshot)
    assert stand.dead_letters(2) == [(("kept",), 1)]
