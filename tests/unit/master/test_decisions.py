"""The parts of the master: restarts, edge losses, suspects, positions, dead letters, endings."""

from __future__ import annotations

import msgspec
import pytest

from topo.dead_letters.registry import DeadLetters, Waiting
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.edge_losses import EdgeLosses
from topo.master.outcome import EndCounts, OutcomeKind, outcome_of_end
from topo.master.positions import Positions, SpoutProgress
from topo.master.quiescence import Quiescence
from topo.master.restarts import RestartPolicy
from topo.tracking.suspects import Accused, InFlightTuples, Suspects
from topo.wire.codec import Codec
from topo.wire.control import DeadLetter, Quiet

codec = Codec()
pack = codec.pack_value


def test_the_wait_before_a_restart_doubles_until_a_healthy_minute() -> None:
    policy = RestartPolicy(0.2, 1.0)
    assert [policy.lost(0.0) for _ in range(4)] == pytest.approx([0.2, 0.4, 0.8, 1.0])
    policy.registered(10.0)
    assert policy.lost(69.0) == pytest.approx(70.0)
    policy.registered(100.0)
    assert policy.lost(160.0) == pytest.approx(160.2)


def test_a_worker_that_was_up_is_restarted_at_once_after_the_first_loss() -> None:
    policy = RestartPolicy(0.2, 1.0)
    assert policy.lost(0.0, has_ended=True) == pytest.approx(0.2), "it had never registered"
    policy = RestartPolicy(0.2, 1.0)
    policy.registered(0.0)
    assert policy.lost(1.0, has_ended=True) == 1.0
    policy.registered(1.5)
    assert policy.lost(2.0, has_ended=True) == pytest.approx(2.4)
    policy.registered(3.0)
    assert policy.lost(63.0) == pytest.approx(63.2), "a process that is still there"


def test_a_thousand_losses_in_a_row_still_have_a_wait() -> None:
    policy = RestartPolicy(0.2, 30.0)
    assert [policy.lost(0.0) for _ in range(1000)][-1] == 30.0


def test_three_losses_in_a_row_are_a_crash_loop_until_the_worker_is_healthy() -> None:
    policy = RestartPolicy(0.2, 30.0)
    for _ in range(3):
        assert not policy.is_crash_loop(0.0)
        policy.lost(0.0)
    policy.registered(5.0)
    assert policy.is_crash_loop(64.0)
    assert not policy.is_crash_loop(65.0)


def test_edge_losses_of_different_peers_do_not_add_up() -> None:
    losses = EdgeLosses()
    for worker, now in ((0, 0.0), (1, 1.0), (0, 2.0), (1, 3.0)):
        assert losses.reported(WorkerId(worker), now)
        assert losses.judge(now + 0.1) is None


def test_edge_losses_long_ago_are_forgotten() -> None:
    losses = EdgeLosses()
    for now in (0.0, 1.0, 61.0, 120.0):
        losses.reported(WorkerId(0), now)
        assert losses.judge(now) is None
    losses.reported(WorkerId(0), 120.5)
    assert losses.judge(120.5) == 0


def test_one_root_in_flight_of_all_lost_workers_is_accused_alone() -> None:
    suspects = Suspects()
    suspects.noted(WorkerId(0), InFlightTuples((7,)))
    suspects.noted(WorkerId(1), InFlightTuples((7,)))
    assert suspects.take() == Accused((7,), alone=True)
    assert suspects.take() == Accused()


def test_several_roots_are_all_accused_and_none_is_alone() -> None:
    suspects = Suspects()
    suspects.noted(WorkerId(0), InFlightTuples((7, 8, 7)))
    suspects.noted(WorkerId(1), InFlightTuples((9,)))
    assert suspects.take() == Accused((7, 8, 9), alone=False)


def test_two_workers_that_die_together_again_and_again_take_turns_in_being_accused() -> None:
    suspects = Suspects()
    accused = []
    for strike in range(4):
        suspects.noted(WorkerId(0), InFlightTuples((10 + strike,)))
        suspects.noted(WorkerId(1), InFlightTuples((20 + strike,)))
        accused.append(suspects.take())
    assert [found.roots for found in accused] == [(10,), (21,), (12,), (23,)]
    assert all(found.alone for found in accused)


def test_kills_add_up_over_the_lives_of_a_spout_and_companions_have_none() -> None:
    positions = Positions(codec, {TaskId(1): SpoutProgress(pack(3), pack([(("a", 1), 1)]))})
    positions.died_in_flight(InFlightTuples((7,), ((TaskId(1), pack(("a", 1))),)), 0.0)
    positions.died_in_flight(InFlightTuples((7, 8), ((TaskId(1), pack(4)), (TaskId(1), pack(5)))), 0.0)
    progress = positions.of(TaskId(1))
    assert progress is not None
    assert dict(codec.unpack_value(progress.attempts)) == {("a", 1): 2, 4: 0, 5: 0}
    assert progress.position == pack(3)


def test_a_message_in_flight_beside_one_of_a_living_spout_was_not_alone() -> None:
    positions = Positions(codec, {})
    positions.died_in_flight(InFlightTuples((7, 8), ((TaskId(1), pack(4)),)), 0.0)
    progress = positions.of(TaskId(1))
    assert progress is not None
    assert dict(codec.unpack_value(progress.attempts)) == {4: 0}


def test_a_message_in_flight_that_cannot_be_read_is_passed_over() -> None:
    positions = Positions(codec, {})
    unknown = msgspec.msgpack.encode(msgspec.msgpack.Ext(40, b"x"))
    positions.died_in_flight(InFlightTuples((7, 8), ((TaskId(1), unknown), (TaskId(1), pack({})), (TaskId(1), pack(4)))), 0.0)
    progress = positions.of(TaskId(1))
    assert progress is not None
    assert dict(codec.unpack_value(progress.attempts)) == {4: 0}


def test_a_report_without_a_position_keeps_the_last_and_clears_its_attempts() -> None:
    positions = Positions(codec, {})
    positions.reported(TaskId(1), pack(3), pack([(4, 1)]), 0.0)
    positions.reported(TaskId(1), b"", b"", 0.5)
    assert positions.of(TaskId(1)) == SpoutProgress(pack(3), b"")


def test_a_source_that_does_not_rise_may_commit_a_lower_position_later() -> None:
    positions = Positions(codec, {})
    positions.reported(TaskId(1), pack(10), b"", 0.0)
    positions.reported(TaskId(1), pack(5), b"", 0.1)
    assert positions.of(TaskId(1)) == SpoutProgress(pack(5))


def test_an_unchanged_report_is_not_stored_again() -> None:
    positions = Positions(codec, {TaskId(1): SpoutProgress(pack(3))})
    positions.reported(TaskId(1), pack(3), b"", 0.0)
    assert positions.next_deadline() is None
    assert positions.take_all(9.0) == {}


def dead_letter(position: int) -> DeadLetter:
    return DeadLetter(TaskId(1), position, pack(position), b"\x90", [], 3)


def test_everyone_who_waits_for_a_letter_is_told_when_it_is_written() -> None:
    dead_letters = DeadLetters()
    first, second = (Waiting(WorkerId(0), life, TaskId(1), 1) for life in (101, 102))  # type: ignore[arg-type]
    assert dead_letters.is_new(first, dead_letter(1), 0.0)
    assert not dead_letters.is_new(second, dead_letter(1), 0.0)
    assert dead_letters.in_flight == 1
    assert dead_letters.written((dead_letter(1),)) == [first, second]
    assert (dead_letters.in_flight, dead_letters.count) == (0, 1)
    assert dead_letters.is_stored(second, dead_letter(1)) and not dead_letters.is_stored(second, dead_letter(2))


def reported_by(life: int, number: int) -> Waiting:
    return Waiting(WorkerId(0), Incarnation(life), TaskId(1), number)


def test_a_reused_message_id_has_a_second_dead_letter() -> None:
    dead_letters = DeadLetters()
    for number in (1, 2):
        assert not dead_letters.is_stored(reported_by(101, number), dead_letter(7))
        assert dead_letters.is_new(reported_by(101, number), dead_letter(7), 0.0)
        dead_letters.written((dead_letter(7),))
        assert dead_letters.is_stored(reported_by(101, number), dead_letter(7)), "the same one, reported again"
    assert dead_letters.is_stored(reported_by(102, 1), dead_letter(7)), "a life that begins before it gives the same message up"
    assert not dead_letters.is_stored(reported_by(102, 2), dead_letter(7))
    assert dead_letters.count == 2


def test_a_later_master_knows_a_dead_letter_by_its_identity_from_any_task() -> None:
    dead_letters = DeadLetters(2, [5, 6])
    of_seven = DeadLetter(TaskId(7), 6, b"\xc0", b"\x90", [], 3, identity=6)
    assert dead_letters.is_stored(reported_by(101, 6), of_seven)
    assert not dead_letters.is_stored(reported_by(101, 9), msgspec.structs.replace(of_seven, id=9, identity=9))
    assert dead_letters.count == 2


def facts(task: int, probe: int, *, epoch: int = 1, **changes: object) -> Quiet:
    values: dict[str, object] = {"ended": True, "quiet": True, "sent": 1, "received": 1, **changes}
    return Quiet(task=TaskId(task), epoch=Epoch(epoch), probe=probe, **values)  # type: ignore[arg-type]


def watching() -> Quiescence:
    quiescence = Quiescence(frozenset({TaskId(1), TaskId(2)}))
    quiescence.follow(Epoch(1), 0)
    return quiescence


def test_no_round_begins_before_every_task_has_ended() -> None:
    quiescence = watching()
    quiescence.on_report(facts(1, 0), 0.0)
    assert (quiescence.begin_due(0.0), quiescence.next_deadline()) == (None, None)
    quiescence.on_report(facts(2, 0, ended=False), 0.0)
    assert (quiescence.begin_due(0.0), quiescence.next_deadline()) == (None, None)
    quiescence.on_report(facts(2, 0), 0.0)
    assert quiescence.begin_due(0.0) == 1


@pytest.mark.parametrize(
    "change", [{"quiet": False}, {"ended": False}, {"pending": 1}, {"sent": 2}, {"received": 2}, {"sent": 2, "received": 2}]
)
def test_whatever_changes_between_two_rounds_keeps_them_from_agreeing(change: dict[str, object]) -> None:
    quiescence = watching()
    for probe in (0, 1, 2):
        for task in (1, 2):
            quiescence.on_report(facts(task, probe, **(change if (task, probe) == (2, 2) else {})), 0.0)
        assert not quiescence.is_still
        quiescence.begin_due(0.0)
    assert not quiescence.is_still


def test_frames_that_are_counted_by_the_wrong_task_do_not_cancel_out() -> None:
    quiescence = watching()
    for probe, counts in ((0, (1, 1)), (1, (1, 3)), (2, (3, 1))):
        for task, count in zip((1, 2), counts, strict=True):
            quiescence.on_report(facts(task, probe, sent=count, received=count), 0.0)
        quiescence.begin_due(0.0)
    assert not quiescence.is_still


def test_answers_to_an_earlier_round_are_not_taken_for_this_ones() -> None:
    quiescence = watching()
    for probe in (0, 1):
        for task in (1, 2):
            quiescence.on_report(facts(task, probe), 0.0)
        quiescence.begin_due(0.0)
    for task in (1, 2):
        quiescence.on_report(facts(task, 1), 0.0)
    assert not quiescence.is_still
    for task in (1, 2):
        quiescence.on_report(facts(task, 2), 0.0)
    assert quiescence.is_still


def test_what_tasks_say_of_another_epoch_does_not_count() -> None:
    quiescence = watching()
    for task in (1, 2):
        quiescence.on_report(facts(task, 0, epoch=2), 0.0)
    assert (quiescence.facts, quiescence.begin_due(0.0)) == ({}, None)


def test_the_pauses_of_a_drain_grow_to_half_a_second() -> None:
    quiescence = watching()
    quiescence.drain()
    now, pauses = 0.0, []
    for _ in range(8):
        number = quiescence.begin_due(now)
        assert number is not None
        for task in (1, 2):
            quiescence.on_report(facts(task, number, quiet=False), now)
        deadline = quiescence.next_deadline()
        assert deadline is not None
        pauses.append(deadline - now)
        now = deadline
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.5])


def test_an_outcome_names_everything_that_is_left_over() -> None:
    both = outcome_of_end(EndCounts(finally_failed=1, dead_letters=2))
    assert both.kind is OutcomeKind.FINALLY_FAILED
    assert both.reason == "1 message failed and was not emitted again; 2 messages were given up; see `topo dead-letters`"
    one = outcome_of_end(EndCounts(dead_letters=1))
    assert (both.exit_code, one.exit_code, outcome_of_end(EndCounts()).exit_code) == (1, 1, 0)


def test_an_untracked_run_that_dropped_tuples_says_how_many() -> None:
    one, three = (outcome_of_end(EndCounts(tracked=False, dropped=dropped)) for dropped in (1, 3))
    assert one.reason.endswith("(ackers=0), and 1 tuple failed and was lost; see `topo errors`")
    assert three.reason.endswith("(ackers=0), and 3 tuples failed and were lost; see `topo errors`")
    assert (one.kind, one.exit_code) == (OutcomeKind.DONE, 0)


def test_a_run_that_could_not_send_rows_says_how_many_and_has_failed() -> None:
    one, three = (outcome_of_end(EndCounts(tracked=False, unsent=unsent)) for unsent in (1, 3))
    why = "a value that tuples do not carry, a missing timestamp, or no task to send to; see `topo errors`"
    assert one.reason == f"1 row could not be sent and was lost: {why}"
    assert three.reason == f"3 rows could not be sent and were lost: {why}"
    assert (one.kind, one.exit_code) == (OutcomeKind.RESULTS_LOST, 1)
