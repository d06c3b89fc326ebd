"""Messages to workers, counts, last messages of processes, and commands that cannot be written."""

from __future__ import annotations

import pytest

from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.commands import MasterRecord, Persist, RecordError, SendTo, StorePositions
from topo.master.links import ENDED_WELL, LAST_WORDS_S, LATE_WORDS_S, RETRY_S, HeldCommands, Life, WorkerEnd, WorkerLinks
from topo.wire import control

HERE, GONE = (WorkerId(0), Incarnation(5)), (WorkerId(0), Incarnation(4))
ENDED = WorkerEnd(*HERE, ENDED_WELL)


class Wire:
    """Connections that can be cut."""

    def __init__(self) -> None:
        self.is_connected = True
        self.sent: list[tuple[Life, bytes]] = []

    def __call__(self, life: Life, data: bytes) -> bool:
        if self.is_connected:
            self.sent.append((life, data))
        return self.is_connected


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def current() -> set[Life]:
    return {HERE}


@pytest.fixture
def closing() -> set[WorkerId]:
    return set()


@pytest.fixture
def links(current: set[Life], closing: set[WorkerId]) -> WorkerLinks:
    return WorkerLinks(lambda *life: life in current, closing.__contains__)


# -- to workers ----------------------------------------------------------------------------------------------------------


def test_messages_wait_for_the_connection_in_order(links: WorkerLinks, wire: Wire) -> None:
    wire.is_connected = False
    links.send(HERE, b"1", wire)
    links.send_again(wire)
    wire.is_connected = True
    links.send(HERE, b"2", wire)
    links.send(HERE, b"3", wire)
    links.send_again(wire)
    assert wire.sent == [(HERE, b"1"), (HERE, b"2"), (HERE, b"3")]
    assert links.alive(HERE) == control.Alive(3)


def test_message_to_another_life_is_tried_once(links: WorkerLinks, wire: Wire, current: set[Life]) -> None:
    links.send(GONE, b"stop", wire)
    wire.is_connected = False
    links.send(GONE, b"stop", wire)
    wire.is_connected = True
    current.add(GONE)
    links.send_again(wire)
    assert wire.sent == [(GONE, b"stop")]


def test_messages_for_a_life_that_was_replaced_are_dropped(links: WorkerLinks, wire: Wire, current: set[Life]) -> None:
    wire.is_connected = False
    links.send(HERE, b"1", wire)
    current.clear()
    wire.is_connected = True
    links.send_again(wire)
    current.add(HERE)
    links.send_again(wire)
    assert wire.sent == []


# -- from workers --------------------------------------------------------------------------------------------------------


def beat(count: int) -> control.Heartbeat:
    return control.Heartbeat(*HERE, 1, Epoch(1), "", {}, count)


def test_heartbeat_shows_that_messages_were_lost(links: WorkerLinks) -> None:
    closed = control.Closed(TaskId(1))
    messages = (beat(0), closed, None, beat(3), beat(-1))
    assert [links.received(HERE, b"0:5", message) for message in messages] == [""] * 5
    assert links.received(HERE, b"0:5", beat(7)) == "the connection has lost messages: it has sent 7, and 5 have arrived"


def test_each_connection_of_a_worker_has_its_own_count(links: WorkerLinks) -> None:
    assert links.received(HERE, b"0:5:w", beat(-1)) == ""
    assert links.received(HERE, b"0:5", beat(1)) != ""


# -- ends of workers -----------------------------------------------------------------------------------------------------


def test_end_of_a_process_is_due_when_its_last_messages_must_have_come(links: WorkerLinks) -> None:
    assert links.next_deadline() is None
    links.ended([ENDED], 10.0)
    assert links.due_ends(10.0) == []
    assert links.next_deadline() == 10.0 + LAST_WORDS_S
    assert links.due_ends(10.0 + LAST_WORDS_S) == [ENDED]
    assert links.due_ends(20.0) == []
    assert links.next_deadline() is None


def test_end_waits_for_the_report_that_components_are_closed(links: WorkerLinks, closing: set[WorkerId]) -> None:
    crashed = WorkerEnd(WorkerId(1), Incarnation(1), "killed by SIGKILL")
    closing.update((WorkerId(0), WorkerId(1)))
    links.ended([ENDED, crashed], 10.0)
    assert links.due_ends(10.1) == [crashed]
    assert links.next_deadline() == 10.0 + LATE_WORDS_S
    closing.clear()
    assert links.due_ends(10.1) == [ENDED]


def test_counts_of_a_life_end_with_it(links: WorkerLinks, wire: Wire) -> None:
    links.send(HERE, b"1", wire)
    links.received(HERE, b"0:5", beat(0))
    links.ended([ENDED], 10.0)
    assert links.due_ends(11.0) == [ENDED]
    assert links.alive(HERE) == control.Alive(0)
    assert not links._received_count


# -- commands that cannot be written -------------------------------------------------------------------------------------

RECORD, POSITIONS = Persist(MasterRecord(1, Epoch(1), {})), StorePositions({})
FULL = OSError("No space left on device")


def test_command_that_cannot_be_written_holds_up_those_behind_it() -> None:
    held = HeldCommands()
    held.add([RECORD, POSITIONS])
    assert held.next(10.0) is RECORD
    why = "No space left on device; the topology stands still until it can be written"
    assert held.failed(FULL, 10.0, is_serving=True) == RecordError("StateNotStored", why)
    assert held.problem == why
    assert held.next(10.0) is None
    assert held.next_deadline() == 10.0 + RETRY_S
    assert held.next(10.0 + RETRY_S) is RECORD
    held.done()
    assert held.problem == ""
    assert held.next_deadline() is None
    assert held.next(10.0 + RETRY_S) is POSITIONS
    held.done()
    assert held.next(20.0) is None


def test_replaced_worker_is_stopped_while_a_command_cannot_be_written() -> None:
    held = HeldCommands()
    held.add([RECORD, POSITIONS])
    held.failed(FULL, 10.0, is_serving=True)
    stop = SendTo(WorkerId(1), Incarnation(2), control.Stop("another worker has taken this one's place"))
    held.add([stop])
    assert held.next(10.0) is stop
    held.done()
    assert held.problem
    assert held.next(10.0) is None
    assert held.next(10.0 + RETRY_S) is RECORD


def test_command_that_cannot_be_written_is_dropped_when_the_topology_ends() -> None:
    held = HeldCommands()
    held.add([RECORD, POSITIONS])
    assert held.failed(FULL, 10.0, is_serving=False) == RecordError("StateNotStored", "No space left on device")
    assert held.problem == ""
    assert held.next(10.0) is POSITIONS


def test_stop_that_comes_while_a_command_is_performed_is_next() -> None:
    held = HeldCommands()
    held.add([RECORD, POSITIONS])
    assert held.next(10.0) is RECORD
    stop = SendTo(WorkerId(1), Incarnation(2), control.Stop("another worker has taken this one's place"))
    held.add([stop])
    held.done()
    assert held.next(10.0) is stop
    held.done()
    assert held.next(10.0) is POSITIONS
