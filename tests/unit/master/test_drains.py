"""Drains: what they wait for, and how they end."""

from __future__ import annotations

from tests.unit.master.playbook import ACKER, LINES, SINK, Play, close, closing, messages_in, probe, running, small_plan
from topo.ids import Epoch, Incarnation, WorkerId
from topo.master.commands import Finished, SendTo, StopWorker
from topo.master.events import DrainAsked, Started
from topo.master.outcome import Outcome, OutcomeKind
from topo.observability.status import describe
from topo.wire.control import Close, DeadLetter, Drain, Heartbeat


def test_a_drain_pauses_the_spouts_and_closes_when_nothing_moves() -> None:
    play = running()
    commands = play.do(DrainAsked(10.0))
    assert commands == [SendTo(WorkerId(0), Incarnation(101), Drain()), *probe(1)]
    assert describe(play.master, play.now)["status"] == "DRAINING"
    play.quiet(LINES, 1, ended=False, quiet=False, pending=3)
    play.quiet(SINK, 1, ended=False)
    assert play.quiet(ACKER, 1, ended=False) == []
    assert describe(play.master, play.now)["reason"] == "3 messages pending"
    play.quiet(LINES, 1, ended=False, quiet=False, pending=1)
    assert describe(play.master, play.now)["reason"] == "1 message pending"
    assert play.until(play.now + 0.02) == probe(2)
    assert play.answer_probe(2, ended=False, sent=9, received=9) == probe(3)
    assert play.answer_probe(3, ended=False, sent=9, received=9) == closing(drain=True)
    assert close(play) == [Finished(Outcome(OutcomeKind.DRAINED, "drained; nothing was left in flight"))]
    assert describe(play.master, play.now)["status"] == "KILLED"


def test_a_drain_that_runs_out_of_time_closes_and_says_what_was_pending() -> None:
    play = running()
    play.do(DrainAsked(2.0))
    play.quiet(LINES, 1, ended=False, quiet=False, pending=3)
    sent = [message for _, message in messages_in(play.until(3.0)) if isinstance(message, Close)]
    assert sent == [Close(Epoch(1), drain=True)] * 3
    reason = "drained, not to the end: 3 messages were pending (task 2 (sink) did not answer)"
    assert close(play) == [Finished(Outcome(OutcomeKind.CUT_SHORT, reason))]
    assert describe(play.master, play.now)["status"] == "KILLED"


def test_a_drain_ends_when_nothing_is_left_but_messages_that_a_sink_is_refused_a_right_for() -> None:
    play = running()
    play.do(DrainAsked(30.0))
    play.quiet(LINES, 1, ended=False, quiet=False, pending=3, sent=3)
    play.quiet(SINK, 1, ended=False, received=3, refused="grant it")
    assert play.quiet(ACKER, 1, ended=False, quiet=False) == []
    play.until(play.now + 0.1)
    # A frame is on its way: it may be of another sink.
    play.quiet(LINES, 2, ended=False, quiet=False, pending=3, sent=3)
    play.quiet(SINK, 2, ended=False, received=2, refused="grant it")
    assert play.quiet(ACKER, 2, ended=False) == []
    play.until(play.now + 0.1)
    play.quiet(LINES, 3, ended=False, quiet=False, pending=3, sent=3)
    play.quiet(SINK, 3, ended=False, quiet=False, received=3, refused="grant it")
    assert play.quiet(ACKER, 3, ended=False) == closing(drain=True)
    reason = f"drained, not to the end: 3 messages were pending (task {SINK} (sink): grant it)"
    assert close(play) == [Finished(Outcome(OutcomeKind.CUT_SHORT, reason))]


def test_without_a_drain_a_sink_is_waited_for_until_its_right_is_granted() -> None:
    play = running()
    play.quiet(LINES, quiet=False, pending=3, sent=3)
    play.quiet(SINK, received=3, refused="grant it")
    play.quiet(ACKER)
    assert not any(isinstance(message, Close) for _, message in messages_in(play.until(play.now + 60.0)))


def test_a_worker_lost_in_a_drain_is_replaced_and_told_to_drain() -> None:
    play = running()
    play.do(DrainAsked(10.0))
    play.exits(0)
    play.until(play.now + 0.2)
    assert messages_in(play.register(0))[-1] == (0, Drain())


def test_asked_again_the_earlier_deadline_of_a_drain_holds() -> None:
    play = running()
    play.do(DrainAsked(2.0))
    assert not [message for _, message in messages_in(play.do(DrainAsked(60.0))) if isinstance(message, Drain)]
    assert [message for _, message in messages_in(play.until(3.0)) if isinstance(message, Close)]


def test_a_topology_that_has_not_begun_is_drained_at_once() -> None:
    play = Play()
    play.do(Started())
    play.register(0)
    commands = play.do(DrainAsked(10.0))
    assert commands == [
        SendTo(WorkerId(0), Incarnation(101), Close(Epoch(0), drain=True)),
        StopWorker(WorkerId(1), Incarnation(102), kill=True),
        StopWorker(WorkerId(2), Incarnation(103), kill=True),
    ]
    assert close(play)[-1] == Finished(Outcome(OutcomeKind.DRAINED, "ended before it began"))


def cut_short(play: Play, *silent: int) -> str:
    play.until(play.now + 2.0, silent=silent)
    assert play.master.ending.outcome is not None
    return play.master.ending.outcome.reason.removeprefix("drained, not to the end: ")


def test_a_task_that_does_not_answer_is_the_reason_with_the_call_that_its_worker_is_in() -> None:
    """No worker was being replaced, though no task has answered."""
    play = running(small_plan(workers=1))
    play.receives(0, Heartbeat(WorkerId(0), play.life(0), 1, play.epoch, "sink", {}))
    play.do(DrainAsked(2.0))
    assert cut_short(play, 0) == f"task {LINES} (lines) did not answer, its worker was in a call of sink"


def test_what_a_bolt_still_does_is_the_reason_before_what_spouts_wait_for() -> None:
    play = running()
    play.do(DrainAsked(2.0))
    for number in range(1, 4):
        play.quiet(LINES, number, ended=False, quiet=False, pending=3)
        play.quiet(SINK, number, ended=False, quiet=False)
        play.quiet(ACKER, number, ended=False)
        play.until(play.now + 0.2)
    assert cut_short(play) == f"3 messages were pending (task {SINK} (sink): busy)"


def test_a_worker_that_is_being_replaced_is_the_reason() -> None:
    play = running()
    play.do(DrainAsked(2.0))
    play.exits(1)
    assert cut_short(play) == "a worker was being replaced"


def test_tasks_that_have_not_opened_again_are_the_reason() -> None:
    play = running()
    play.do(DrainAsked(2.0))
    play.replace(1)
    play.ready(LINES)
    play.ready(ACKER)
    assert cut_short(play) == f"not open again after a recovery: task {SINK} (sink)"


def test_a_dead_letter_that_is_not_stored_is_the_reason() -> None:
    play = running()
    play.receives(0, DeadLetter(LINES, 1, b"\xc0", b"\x90", [], 3))
    play.do(DrainAsked(2.0))
    assert cut_short(play) == "1 dead letter not stored, see `topo errors`"
