"""Every way in which a topology ends."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.master.playbook import ACKER, LINES, SINK, Play, close, closing, messages_in, probe, running, small_plan
from topo.dead_letters.registry import CAUSES, DeadLetters
from topo.ids import Epoch, Incarnation, WorkerId
from topo.master.commands import (
    Finished,
    MasterCommand,
    RecordError,
    SendTo,
    StartWorker,
    StopWorker,
    StoreDeadLetters,
    StorePositions,
)
from topo.master.events import DeadLettersWritten, DrainAsked, KillAsked, MessagesLost, Started
from topo.master.outcome import Outcome, OutcomeKind
from topo.master.positions import SpoutProgress
from topo.observability.status import describe
from topo.wire.codec import Codec
from topo.wire.control import Cause, Closed, DeadLetter, DeadLettersStored, PositionReport, Probe, TuplesFailed

pack = Codec().pack_value
DEAD_LETTER = DeadLetter(LINES, 1, pack(17), pack(("x",)), ["boom"], 3)


def all_end(play: Play) -> list[MasterCommand]:
    """Let every task report that it has ended and is quiet; return the last answer."""
    commands: list[MasterCommand] = []
    for task in play.plan.tasks:
        commands = play.quiet(task.id, sent=5, received=5)
    return commands


def test_a_topology_whose_tasks_are_all_quiet_is_probed_twice_and_closed() -> None:
    play = running()
    assert play.quiet(LINES) == play.quiet(SINK) == []
    assert play.quiet(ACKER) == probe(1)
    assert play.answer_probe(1, sent=5, received=5) == probe(2)
    assert play.answer_probe(2, sent=5, received=5) == closing()
    assert close(play) == [Finished(Outcome(OutcomeKind.DONE, "every message was processed"))]
    assert play.master.next_deadline() is None
    assert describe(play.master, play.now)["status"] == "FINISHED"


def test_a_task_that_worked_between_the_rounds_postpones_the_end() -> None:
    play = running()
    all_end(play)
    play.answer_probe(1, sent=5, received=5)
    assert play.answer_probe(2, sent=6, received=6) == probe(3)
    assert play.answer_probe(3, sent=6, received=6) == closing()


def test_a_frame_under_way_postpones_the_end() -> None:
    play = running()
    all_end(play)
    assert play.answer_probe(1, sent=5, received=4) == []
    assert play.until(play.now + 0.02) == probe(2)


def test_a_pending_message_keeps_the_topology_open_until_its_task_is_quiet_again() -> None:
    play = running()
    all_end(play)
    play.quiet(LINES, 1, pending=1, quiet=False)
    play.quiet(SINK, 1)
    assert play.quiet(ACKER, 1) == []
    assert play.until(play.now + 0.9) == []
    assert play.quiet(LINES) == probe(2)


def test_the_answers_of_an_epoch_that_was_broken_do_not_count() -> None:
    play = running()
    all_end(play)
    play.answer_probe(1, sent=5, received=5)
    play.quiet(LINES, 2, sent=5, received=5)
    play.quiet(SINK, 2, sent=5, received=5)
    play.exits(0)
    assert play.quiet(ACKER, 2, sent=5, received=5) == []
    play.until(play.now + 0.2)
    play.register(0)
    play.all_ready()
    assert play.until(play.now + 3.0) == []
    numbers = [message.number for _, message in messages_in(all_end(play)) if isinstance(message, Probe)]
    assert numbers == [3, 3, 3]


def test_an_answer_that_never_comes_is_asked_for_again() -> None:
    play = running()
    all_end(play)
    play.quiet(LINES, 1)
    play.quiet(SINK, 1)
    assert play.until(play.now + 5.0) == probe(2)
    assert play.quiet(ACKER, 1) == []


def test_finally_failed_messages_make_the_outcome() -> None:
    play = running()
    play.beat(0, finally_failed=2)
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    reason = "2 messages failed and were not emitted again"
    (finished,) = close(play)
    assert finished == Finished(Outcome(OutcomeKind.FINALLY_FAILED, reason, finally_failed=2))
    assert finished.outcome.exit_code == 1
    assert describe(play.master, play.now)["status"] == "FAILED"


def test_a_dead_letter_is_confirmed_when_it_is_stored_and_makes_the_outcome() -> None:
    play = running()
    store = StoreDeadLetters(WorkerId(0), Incarnation(101), (DEAD_LETTER,))
    assert play.receives(0, DEAD_LETTER) == [store]
    assert all_end(play) == []  # not while a dead letter is being written
    confirmed = play.do(DeadLettersWritten(WorkerId(0), Incarnation(101), (DEAD_LETTER,)))
    assert confirmed == [SendTo(WorkerId(0), Incarnation(101), DeadLettersStored(LINES, [1])), *probe(1)]
    play.answer_probe(1)
    play.answer_probe(2)
    reason = "1 message was given up; see `topo dead-letters`"
    assert close(play) == [Finished(Outcome(OutcomeKind.DEAD_LETTERS, reason, dead_letters=1))]


def test_a_letter_says_why_its_last_attempt_failed_if_a_task_has_told() -> None:
    play = running()
    cause = Cause("ValueError", "no", "count", "/home/a.py", 3)
    play.receives(1, TuplesFailed(SINK, [(cause, [7, 8])]))
    dead_letter = msgspec.structs.replace(DEAD_LETTER, root=8)
    explained = msgspec.structs.replace(dead_letter, errors=["boom", "ValueError: no (a.py:3, component 'count')"], cause=cause)
    assert play.receives(0, dead_letter) == [StoreDeadLetters(WorkerId(0), Incarnation(101), (explained,))]


@pytest.mark.parametrize("comes", [True, False])
def test_a_letter_that_comes_before_its_cause_waits_a_moment_for_it(comes: bool) -> None:
    play = running()
    cause = Cause("ValueError", "no", "count")
    assert play.receives(0, msgspec.structs.replace(DEAD_LETTER, root=8)) == []
    if comes:
        play.receives(1, TuplesFailed(SINK, [(cause, [8])]))
    stored = [command for command in play.until(play.now + 1.0) if isinstance(command, StoreDeadLetters)]
    (dead_letters,) = [command.dead_letters for command in stored]
    assert dead_letters[0].cause == (cause if comes else None)
    assert play.do(DeadLettersWritten(WorkerId(0), Incarnation(101), dead_letters))[0] == SendTo(
        WorkerId(0), Incarnation(101), DeadLettersStored(LINES, [1])
    )


def test_of_the_causes_the_latest_are_remembered() -> None:
    dead_letters = DeadLetters()
    cause = Cause("ValueError", "no", "count")
    dead_letters.failed([(cause, list(range(1, CAUSES + 2)))])
    assert dead_letters.explained(msgspec.structs.replace(DEAD_LETTER, root=1)).cause is None
    assert dead_letters.explained(msgspec.structs.replace(DEAD_LETTER, root=2)).cause == cause


def test_a_letter_that_is_told_again_is_stored_once() -> None:
    play = running()
    play.receives(0, DEAD_LETTER)
    assert play.receives(0, DEAD_LETTER) == []
    written = DeadLettersWritten(WorkerId(0), Incarnation(101), (DEAD_LETTER,))
    assert messages_in(play.do(written)) == [(0, DeadLettersStored(LINES, [1]))]
    assert messages_in(play.receives(0, DEAD_LETTER)) == [(0, DeadLettersStored(LINES, [1]))]
    play.replace(0)
    again = DeadLetter(LINES, 5, DEAD_LETTER.position, DEAD_LETTER.values, ["boom"], 3)
    assert play.receives(0, again) == [SendTo(WorkerId(0), Incarnation(104), DeadLettersStored(LINES, [5]))]
    assert play.master.dead_letters.count == 1


def test_a_letter_is_not_confirmed_to_a_later_life_by_an_earlier_lifes_number() -> None:
    play = running()
    play.receives(0, DEAD_LETTER)
    play.replace(0)
    assert play.do(DeadLettersWritten(WorkerId(0), Incarnation(101), (DEAD_LETTER,))) == []


def test_a_letter_that_could_not_be_written_is_written_again() -> None:
    play = running()
    store = StoreDeadLetters(WorkerId(0), Incarnation(101), (DEAD_LETTER,))
    play.receives(0, DEAD_LETTER)
    assert play.until(5.9) == []
    assert play.until(6.0) == [store]


def test_workers_that_are_ended_before_they_have_come_up_are_no_row_of_errors() -> None:
    play = Play()
    play.do(Started())
    play.register(0)
    play.do(DrainAsked(10.0))
    assert play.exits(1) == play.exits(2) == []


def test_killed_workers_are_not_replaced() -> None:
    play = running()
    play.replace(2)
    play.exits(2)
    assert play.do(KillAsked()) == [
        StopWorker(WorkerId(0), Incarnation(101), kill=True),
        StopWorker(WorkerId(1), Incarnation(102), kill=True),
    ]
    assert play.do(KillAsked()) == []
    assert play.exits(0) == []
    assert play.exits(1) == [Finished(Outcome(OutcomeKind.KILLED, "killed by the operator"))]
    assert describe(play.master, play.now)["status"] == "KILLED"


def test_a_kill_ends_though_a_process_is_never_reported_gone() -> None:
    play = running()
    play.do(KillAsked())
    play.exits(0)
    assert play.until(5.9) == []
    assert play.until(6.0) == [Finished(Outcome(OutcomeKind.KILLED, "killed by the operator"))]


def test_components_that_do_not_close_in_time_are_killed() -> None:
    play = running(small_plan(drain_timeout="3s"))
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    for worker, task in ((0, LINES), (2, ACKER)):
        play.receives(worker, Closed(task))
        play.exits(worker)
    assert play.until(3.9) == []
    assert play.until(4.0) == [
        RecordError("CloseTimeout", "its components did not close in time; it is killed", "sink", None, WorkerId(1)),
        StopWorker(WorkerId(1), Incarnation(102), kill=True),
    ]
    (finished,) = play.exits(1)
    assert finished.outcome.kind is OutcomeKind.RESULTS_LOST and finished.outcome.exit_code == 1


def test_a_process_that_outlives_its_closed_components_is_killed_and_loses_nothing() -> None:
    play = running(small_plan(drain_timeout="3s"))
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    for worker, task in ((0, LINES), (1, SINK), (2, ACKER)):
        play.receives(worker, Closed(task))
    play.exits(0)
    play.exits(2)
    why = "its components closed, but the process did not end, as when a thread of user code is no daemon; it is killed"
    assert RecordError("CloseTimeout", why, "sink", None, WorkerId(1)) in play.until(4.0)
    (finished,) = play.exits(1)
    assert finished.outcome.exit_code == 0


def test_a_worker_that_dies_while_closing_is_reported_and_not_replaced() -> None:
    play = running()
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    why = "ended before its components had closed: killed by SIGKILL"
    assert play.exits(1) == [RecordError("WorkerLost", why, "sink", None, WorkerId(1))]
    assert not [command for command in play.until(3.0) if isinstance(command, StartWorker)]
    for worker, task in ((0, LINES), (2, ACKER)):
        play.receives(worker, Closed(task))
    play.exits(0)
    (finished,) = play.exits(2)
    assert finished.outcome.kind is OutcomeKind.RESULTS_LOST


@pytest.mark.parametrize(("raises", "kind"), [(0, OutcomeKind.DONE), (1, OutcomeKind.RESULTS_LOST)])
def test_a_source_whose_process_was_lost_has_emitted_nothing_only_if_its_successor_raises_too(
    raises: int, kind: OutcomeKind
) -> None:
    play = running()
    play.beat(0, errors=1)
    play.replace(0)  # how much it has emitted since its heartbeat is not known
    play.all_ready()
    play.beat(0, errors=raises)
    all_end(play)
    play.answer_probe(1, sent=5, received=5)
    play.answer_probe(2, sent=5, received=5)
    finished = close(play)[-1]
    assert isinstance(finished, Finished) and finished.outcome.kind is kind


def test_a_message_that_cannot_be_read_while_closing_may_have_had_the_figures_of_a_failure() -> None:
    play = running()
    lost = MessagesLost(WorkerId(1), play.life(1), "it has sent 5 bytes that are no control message", is_unreadable=True)
    assert play.do(lost) == [], "the next heartbeat shows that it is missing"
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    (row,) = play.do(lost)
    assert isinstance(row, RecordError) and row.message == "its last figures may be missing: " + lost.why
    finished = close(play)[-1]
    assert isinstance(finished, Finished) and finished.outcome.kind is OutcomeKind.RESULTS_LOST


def test_an_acker_that_dies_while_closing_loses_nothing() -> None:
    play = running()
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    for worker, task in ((0, LINES), (1, SINK)):
        play.receives(worker, Closed(task))
        play.exits(worker)
    assert play.exits(2)[-1] == Finished(Outcome(OutcomeKind.DONE, "every message was processed"))


def test_what_was_committed_last_is_stored_before_the_end() -> None:
    play = running()
    play.receives(0, PositionReport(LINES, Epoch(1), pack(1), b""))
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    play.receives(0, PositionReport(LINES, Epoch(1), pack(2), b""))
    finished = close(play)
    assert finished[0] == StorePositions({LINES: SpoutProgress(pack(2))})
    assert [type(command) for command in finished] == [StorePositions, Finished]


def test_figures_that_arrive_while_closing_are_in_the_outcome() -> None:
    play = running()
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    play.beat(0, finally_failed=1)
    (finished,) = close(play)
    assert isinstance(finished, Finished)
    assert finished.outcome.finally_failed == 1


def test_what_a_lost_worker_had_not_emitted_again_is_not_final() -> None:
    play = running()
    play.beat(0, finally_failed=2, acked=3)
    play.replace(0)
    play.all_ready()
    all_end(play)
    play.answer_probe(1)
    play.answer_probe(2)
    (finished,) = close(play)
    assert isinstance(finished, Finished)
    assert (finished.outcome.kind, finished.outcome.finally_failed) == (OutcomeKind.DONE, 0)
    assert play.master.figures.of(LINES).counters == {"finally_failed": 0, "acked": 3}


def test_attempts_before_the_last_say_why_they_failed() -> None:
    play = running()
    cause = Cause("ValueError", "no", "count", "a.py", 3)
    play.receives(1, TuplesFailed(SINK, [(cause, [7])]))
    earlier = [("a task failed it", 7), ("a task failed it", 8)]
    dead_letter = msgspec.structs.replace(DEAD_LETTER, errors=["no verdict within 10 s"], earlier=earlier)

    (store,) = play.receives(0, dead_letter)

    assert isinstance(store, StoreDeadLetters)
    assert store.dead_letters[0].errors == [
        "attempt 1: ValueError: no (a.py:3, component 'count')",
        "attempt 2: a task failed it",
        "no verdict within 10 s",
    ]


def test_a_dead_letter_has_one_error_for_each_attempt() -> None:
    play = running()
    cause = Cause("ValueError", "no", "count", "a.py", 3)
    play.receives(1, TuplesFailed(SINK, [(cause, [7, 8, 9])]))
    earlier = [("a task failed it", 7), ("a task failed it", 8)]
    dead_letter = msgspec.structs.replace(DEAD_LETTER, errors=["a task failed it"], root=9, earlier=earlier)

    (store,) = play.receives(0, dead_letter)

    assert isinstance(store, StoreDeadLetters)
    why = "ValueError: no (a.py:3, component 'count')"
    assert store.dead_letters[0].errors == [f"attempt 1: {why}", f"attempt 2: {why}", why]
