"""The worker's conversation with the master: counts, silence, stalls, and what cannot be sent."""

from __future__ import annotations

from typing import Any

import pytest

from topo.config import TopologyConfig
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.transport.base import MAX_LINK_MESSAGE
from topo.wire import control
from topo.worker.core import EXIT_ORPHANED
from topo.worker.session import FINISH_S, OrderlyEnd, WorkerSession

CONFIG = TopologyConfig(heartbeat_s=1.0, worker_timeout_s=5.0, master_timeout_s=30.0)
TASK = TaskId(3)
ERROR = control.ComponentError(task=TASK, component="c", kind="K", message="m", traceback="")
STARTED = 100.0


@pytest.fixture
def session() -> WorkerSession:
    return WorkerSession(CONFIG, {TASK: "c"}, STARTED)


def beat(metrics: Any = None, figures: Any = None) -> control.Heartbeat:
    tasks = {TASK: {"counters": figures or {}, "user": {"metrics": metrics}}}
    return control.Heartbeat(WorkerId(1), Incarnation(7), 1, Epoch(1), tasks=tasks)


def sent(session: WorkerSession) -> list[control.FromWorker]:
    return [control.decode_from_worker(data, MAX_LINK_MESSAGE) for data in session.outgoing]


def receive(session: WorkerSession, *messages: control.FromMaster, now: float = STARTED) -> None:
    session.received([control.encode(message) for message in messages], now)


# -- counts --------------------------------------------------------------------------------------------------------------


def test_heartbeat_carries_the_count_of_messages_before_it(session: WorkerSession) -> None:
    for number in range(3):
        session.send_beat(beat(), STARTED + number)
        session.send(ERROR)
    session.send_beat(beat(metrics=object()), STARTED + 3)
    messages = sent(session)
    beats = [message for message in messages if isinstance(message, control.Heartbeat)]
    assert [beat.sent_count for beat in beats] == [messages.index(beat) for beat in beats] == [0, 2, 4, 7]


@pytest.mark.parametrize(("reported", "ends"), [(2, False), (-1, False), (1, False), (3, True)])
def test_worker_ends_when_the_master_has_sent_more_than_arrived(session: WorkerSession, reported: int, ends: bool) -> None:
    messages = (control.Deactivate(), control.Alive(1), control.Activate(), control.Alive(reported))
    receive(session, *messages)
    assert session.due_messages(STARTED) == list(messages)
    exit_ = session.verdict(STARTED)
    assert (exit_ is not None) is ends
    if exit_ is not None:
        assert exit_.code == EXIT_ORPHANED
        assert exit_.why.endswith(f"the master has sent {reported}, and 2 have arrived")


def test_damaged_message_counts_as_lost(session: WorkerSession) -> None:
    session.received([b"\xc1", control.encode(control.Alive(1))], STARTED)
    assert session.due_messages(STARTED) == [control.Alive(1)]
    exit_ = session.verdict(STARTED)
    assert exit_ is not None and exit_.why.endswith("the master has sent 1, and 0 have arrived")


def test_bytes_of_a_stranger_are_in_no_count(session: WorkerSession) -> None:
    session.received([b"\xc1", control.encode(control.Alive(0))], STARTED)
    assert session.due_messages(STARTED) == [control.Alive(0)]
    assert session.verdict(STARTED) is None


# -- silence and stalls --------------------------------------------------------------------------------------------------


def test_worker_ends_after_master_timeout_without_a_message(session: WorkerSession) -> None:
    assert session.verdict(STARTED + 30.0) is None
    exit_ = session.verdict(STARTED + 30.1)
    assert exit_ is not None and (exit_.code, exit_.why) == (EXIT_ORPHANED, "no master has sent a message for 30 s")
    session.received([], STARTED + 30.1)
    assert session.verdict(STARTED + 60.0) is None


def test_messages_wait_while_a_call_yields(session: WorkerSession) -> None:
    receive(session, control.Activate())
    assert session.due_messages(STARTED, is_in_call=True) == []
    receive(session, control.Deactivate())
    assert session.due_messages(STARTED) == [control.Activate(), control.Deactivate()]
    assert session.due_messages(STARTED) == []


@pytest.mark.parametrize(("gap_s", "waits"), [(5.0, False), (5.1, True)])
def test_messages_wait_for_a_heartbeat_after_a_stall(session: WorkerSession, gap_s: float, waits: bool) -> None:
    woken = STARTED + gap_s
    session.woke(woken, last_seen=STARTED)
    receive(session, control.Activate(), now=woken)
    assert (session.due_messages(woken) == []) is waits
    session.woke(woken + 0.5, last_seen=woken)
    receive(session, control.Deactivate(), now=woken + 0.5)
    found = session.due_messages(woken + 1.0)
    assert found == [control.Activate(), control.Deactivate()][not waits :]


def test_heartbeats_are_due_in_intervals(session: WorkerSession) -> None:
    assert session.next_beat == STARTED
    session.send_beat(beat(), STARTED + 0.25)
    assert session.next_beat == STARTED + 1.25


# -- what cannot be sent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [object(), 2**70])
def test_unencodable_metrics_are_left_out_and_reported_once(session: WorkerSession, odd: Any) -> None:
    for now in (1.0, 2.0):
        session.send_beat(beat(metrics=odd, figures={"executed": 4}), STARTED + now)
    messages = sent(session)
    (error,) = [message for message in messages if isinstance(message, control.ComponentError)]
    assert (error.component, error.task) == ("c", TASK)
    assert "metrics of component 'c' cannot be sent" in error.message
    beats = [message for message in messages if isinstance(message, control.Heartbeat)]
    assert [beat.tasks[TASK]["counters"] for beat in beats] == [{"executed": 4}] * 2


def test_any_other_unencodable_message_is_an_error_of_the_engine(session: WorkerSession) -> None:
    with pytest.raises(TypeError):
        session.send(control.ComponentError(task=TASK, component="c", kind="K", message=object(), traceback=""))  # type: ignore[arg-type]
    assert not session.outgoing


def test_message_over_the_limit_is_sent_shortened(session: WorkerSession) -> None:
    session.send(control.DeadLetter(TASK, 1, b"", bytes(MAX_LINK_MESSAGE), ["e"], 1))
    (dead_letter,) = sent(session)
    assert isinstance(dead_letter, control.DeadLetter) and b"left out" in dead_letter.values


def test_a_heartbeat_over_the_limit_keeps_the_counts_that_the_outcome_rests_on(session: WorkerSession) -> None:
    session.send_beat(beat(metrics=bytes(MAX_LINK_MESSAGE), figures={"lost_results": 2}), STARTED)
    (heartbeat,) = sent(session)
    assert isinstance(heartbeat, control.Heartbeat) and heartbeat.tasks == {TASK: {"counters": {"lost_results": 2}}}


# -- an end that was asked for -------------------------------------------------------------------------------------------


def test_orderly_end_closes_when_all_that_was_read_is_worked_off() -> None:
    end = OrderlyEnd(STARTED)
    assert end.next_message(Epoch(4), STARTED, has_work=True) == control.Deactivate()
    assert end.next_message(Epoch(4), STARTED + 0.1, has_work=True) is None
    assert not end.is_over(STARTED + 0.1, is_closed=True)
    assert end.next_message(Epoch(4), STARTED + 0.2, has_work=False) == control.Close(Epoch(4), drain=True)
    assert end.next_message(Epoch(4), STARTED + 0.3, has_work=False) is None
    assert not end.is_over(STARTED + 0.3, is_closed=False)
    assert end.is_over(STARTED + 0.3, is_closed=True)


def test_orderly_end_closes_and_is_over_when_time_is_up() -> None:
    end = OrderlyEnd(STARTED)
    end.next_message(Epoch(4), STARTED, has_work=True)
    late = STARTED + FINISH_S
    assert end.next_message(Epoch(4), late, has_work=True) == control.Close(Epoch(4), drain=True)
    assert end.is_over(late, is_closed=False)
