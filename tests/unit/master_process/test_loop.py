"""The loop around the topology master, turn by turn, with everything it runs on in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

import pytest
from msgspec.structs import replace

from tests.unit.master.playbook import small_plan
from topo.errors import TopoEnvironmentError
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.commands import MasterRecord, RecordError, SendTo
from topo.master.events import DrainAsked, LaunchFailed, Started, WorkerLaunched
from topo.master.links import LAST_WORDS_S, RETRY_S, WorkerEnd
from topo.master.master import TopologyMaster
from topo.master.outcome import OutcomeKind
from topo.master.positions import SpoutProgress
from topo.master_process.loop import MasterLoop
from topo.testing.clock import ManualClock
from topo.tracking.suspects import InFlightTuples
from topo.wire import control


class Surroundings:
    """Link, workers and records of a master."""

    def __init__(self) -> None:
        self.arrived: list[tuple[bytes, bytes]] = []
        self.connected: set[bytes] = set()
        self.sent: list[tuple[bytes, control.FromMaster]] = []
        self.alive: set[tuple[WorkerId, Incarnation]] = set()
        self.ended: list[WorkerEnd] = []
        self.records: list[MasterRecord] = []
        self.errors: list[RecordError] = []
        self.is_full = False
        self.written: list[list[bytes]] = []

    def from_workers(self) -> list[tuple[bytes, bytes]]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def to_worker(self, identity: bytes, message: bytes) -> bool:
        if identity in self.connected:
            self.sent.append((identity, control.decode_from_master(message)))
        return identity in self.connected

    def start(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerLaunched | LaunchFailed:
        self.alive.add((worker, incarnation))
        return WorkerLaunched(worker, incarnation)

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        self.alive.discard((worker, incarnation))
        self.ended.append(WorkerEnd(worker, incarnation, "killed by SIGKILL"))

    def poll(self) -> list[WorkerEnd]:
        ended, self.ended = self.ended, []
        return ended

    def take_marker(self, worker: WorkerId, incarnation: Incarnation) -> InFlightTuples | None:
        return None

    def persist(self, record: MasterRecord) -> None:
        if self.is_full:
            raise TopoEnvironmentError("No space left on device")
        self.records.append(record)

    def store_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        pass

    def store_dead_letters(self, dead_letters: Iterable[control.DeadLetter]) -> bool:
        values = [one.values for one in dead_letters]
        if b"bad" in values:
            return False
        self.written.append(values)
        return True

    def record(self, error: RecordError) -> None:
        self.errors.append(error)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


@pytest.fixture
def loop(clock: ManualClock, around: Surroundings) -> MasterLoop:
    numbers = count(1)
    master = TopologyMaster(small_plan(), "digest", lambda: Incarnation(next(numbers)))
    return MasterLoop(master, around, around, around, None, clock)


def test_no_worker_starts_before_the_record_is_on_disk(loop: MasterLoop, around: Surroundings, clock: ManualClock) -> None:
    around.is_full = True
    loop.handle(Started())
    loop.turn()
    assert not around.alive
    assert [row.kind for row in around.errors] == ["StateNotStored"]
    assert "stands still until it can be written" in loop.held.problem
    around.is_full = False
    clock.advance(RETRY_S)
    loop.turn()
    assert loop.held.problem == ""
    assert around.records and around.alive == set(loop.master.membership.incarnations().items())


@pytest.mark.parametrize(("sent", "damaged"), [(4, ""), (1, "its own")])
def test_worker_whose_messages_were_lost_or_damaged_is_killed(
    loop: MasterLoop, around: Surroundings, sent: int, damaged: str
) -> None:
    loop.handle(Started())
    (worker, life), *_ = loop.master.membership.incarnations().items()
    beat = control.Heartbeat(worker, life, 1, Epoch(1), "", {}, sent)
    identity = f"{worker}:{life}".encode()
    before = [(identity, b"\xc1")] if damaged else []
    around.arrived = [*before, (identity, control.encode(beat)), (b"stranger", b""), (b"0:1", b"\xc1")]
    loop.turn()
    assert (worker, life) not in around.alive
    assert f"it has sent {sent}, and 0 have arrived" in around.errors[0].message


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([b"a", b"b", b"c"], [[b"a", b"b", b"c"]]),
        ([b"a", b"bad", b"c"], [[b"a"], [b"c"]]),
    ],
)
def test_dead_letters_that_arrive_together_are_written_together(
    loop: MasterLoop, around: Surroundings, values: list[bytes], written: list[list[bytes]]
) -> None:
    loop.handle(Started())
    (worker, life), *_ = loop.master.membership.incarnations().items()
    identity = f"{worker}:{life}".encode()
    around.arrived = [
        (identity, control.encode(control.DeadLetter(TaskId(1), number, bytes([number]), each, ["boom"], 3)))
        for number, each in enumerate(values)
    ]
    loop.turn()
    assert around.written == written
    loop.turn()
    assert loop.master.dead_letters.count == sum(map(len, written))


def test_message_waits_for_the_connection_of_its_worker(loop: MasterLoop, around: Surroundings) -> None:
    loop.handle(Started())
    (worker, life), *_ = loop.master.membership.incarnations().items()
    identity = f"{worker}:{life}".encode()
    for message in (control.Go(Epoch(1)), control.Probe(1, Epoch(1))):
        loop.held.add([SendTo(worker, life, message)])
        loop.turn()
    assert not around.sent
    around.connected.add(identity)
    loop.turn()
    assert around.sent == [(identity, control.Go(Epoch(1))), (identity, control.Probe(1, Epoch(1)))]


def test_topology_is_over_when_its_last_worker_has_ended(loop: MasterLoop, around: Surroundings, clock: ManualClock) -> None:
    loop.handle(Started())
    loop.turn()
    loop.ask(DrainAsked(10.0))
    assert loop.next_turn() == clock()
    loop.turn()
    loop.turn()
    assert loop.outcome is None and not around.alive
    clock.advance(LAST_WORDS_S)
    assert loop.next_turn() <= clock()
    loop.turn()
    assert loop.outcome is not None and loop.outcome.kind is OutcomeKind.DRAINED


def test_a_message_that_is_too_long_for_a_worker_is_reported_and_not_sent(loop: MasterLoop, around: Surroundings) -> None:
    loop.handle(Started())
    worker, incarnation = min(around.alive)
    around.connected.add(identity := f"{worker}:{incarnation}".encode())
    routes = control.Routes(term=1, epoch=Epoch(1), routes=[], suspects=[], alone=False, positions={}, attempts={})
    for length, is_sent in ((1000, True), (17 * 1024 * 1024, False)):
        around.sent.clear()
        around.errors.clear()
        loop._perform(SendTo(worker, incarnation, replace(routes, positions={TaskId(1): bytes(length)})))
        assert [one for one, _ in around.sent] == [identity] * is_sent
        assert [(error.kind, error.worker) for error in around.errors] == [("MessageTooLong", worker)] * (not is_sent)
