"""The topology master's process in virtual time: the real `MasterLoop`, its state folder, and its deaths.

The state folder survives a master; commands that it had not performed are lost. The next one takes a higher term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulator.control_line import message_name
from tests.simulator.virtual_store import VirtualKeeper
from topo.checkpoint.store_messages import StoreAnswer, StoreCommand
from topo.dead_letters.registry import DeadLetters
from topo.errors import TopoEnvironmentError
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.commands import MasterRecord, RecordError
from topo.master.events import MasterEvent, Started, WorkerLaunched
from topo.master.links import WorkerEnd
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.master.positions import SpoutProgress
from topo.master_process.loop import MasterLoop
from topo.master_process.restore_point import Restored, checkpoint_to_restore, settle
from topo.tracking.suspects import InFlightTuples
from topo.wire import control
from topo.wire.codec import Codec
from topo.worker.spec import parse_identity

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation


class MasterKilled(BaseException):
    """The master is dead: nothing more of this turn is performed."""


@dataclass(slots=True)
class Store:
    """The topology's state folder.

    Attributes:
        failing_until: until then nothing but rows of errors can be written, in virtual seconds.
        dead_letters: in the order in which they were written.
        errors: rows of `topo errors`, with the moment each was recorded.
    """

    record: MasterRecord | None = None
    progress: dict[TaskId, SpoutProgress] = field(default_factory=dict)
    dead_letters: list[control.DeadLetter] = field(default_factory=list)
    errors: list[tuple[float, RecordError]] = field(default_factory=list)
    failing_until: float = 0.0


class MasterPorts:
    """The link, the workers, the records and the store of one master's loop. It may die before each thing that it does."""

    def __init__(self, masters: SimulatedMaster, simulation: Simulation) -> None:
        self._masters = masters
        self._simulation = simulation
        self._store = masters.store
        self._unsaved: dict[TaskId, SpoutProgress] = {}
        self._answers: list[StoreAnswer] = []
        self._keeper: VirtualKeeper | None = None
        self.arrived: list[tuple[bytes, bytes]] = []
        self.ended: list[WorkerEnd] = []
        if simulation.disk is not None:
            self._keeper = VirtualKeeper(simulation, lambda: masters.ports is self, self._answered)

    def _take_risk(self) -> None:
        if self._masters.ports is not self:
            raise MasterKilled
        self._masters.take_risk()

    # -- link ------------------------------------------------------------------------------------------------------------

    def from_workers(self) -> list[tuple[bytes, bytes]]:
        """Return the messages that have arrived."""
        arrived, self.arrived = self.arrived, []
        return arrived

    def to_worker(self, identity: bytes, message: bytes) -> bool:
        """Send to a life of a worker, if there is a connection."""
        self._take_risk()
        life = parse_identity(identity)
        assert life is not None
        name = message_name(message)
        if name == control.Routes.__name__:
            self._check_stored(life[1], message)
        elif name == control.Go.__name__:
            go = control.decode_from_master(message)
            assert isinstance(go, control.Go)
            self._simulation.history.go_sent(go, [task.id for task in self._simulation.plan.tasks])
        return self._simulation.send_to_worker(*life, message, is_for_all=name == control.Routes.__name__)

    def _check_stored(self, incarnation: Incarnation, message: bytes) -> None:
        routes, record = control.decode_from_master(message), self._store.record
        assert isinstance(routes, control.Routes)
        if record is None or (record.term, record.epoch) < (routes.term, routes.epoch):
            what = f"epoch {routes.epoch} of term {routes.term} goes out, and the record has {record}"
            self._simulation.history.violated(15, what)

    # -- workers ---------------------------------------------------------------------------------------------------------

    def start(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerLaunched:
        """Launch a process."""
        self._take_risk()
        record = self._store.record
        if record is None or record.incarnations.get(worker) != incarnation:
            self._simulation.history.violated(15, f"life {incarnation} of worker {worker} is started, and the record lacks it")
        self._simulation.launch(worker, incarnation)
        return WorkerLaunched(worker, incarnation)

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        """End a process."""
        self._take_risk()
        self._simulation.stop(incarnation, kill=kill)

    def poll(self) -> list[WorkerEnd]:
        """Return the processes that have ended."""
        ended, self.ended = self.ended, []
        return ended

    def take_marker(self, worker: WorkerId, incarnation: Incarnation) -> InFlightTuples | None:
        """Return the tuples that a life worked on at its end."""
        return self._simulation.notes.pop(incarnation, None)

    # -- records ---------------------------------------------------------------------------------------------------------

    def persist(self, record: MasterRecord) -> None:
        """Write the record."""
        self._take_risk()
        if self._is_failing():
            raise TopoEnvironmentError("cannot write the record: No space left on device")
        self._store.record = record
        self._simulation.trace("persist", record.term, record.epoch)

    def store_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        """Write positions, with those that could not be written before."""
        self._take_risk()
        self._unsaved.update(progress)
        if self._is_failing():
            self.record(RecordError("PositionsNotStored", "No space left on device"))
            return
        self._store.progress.update(self._unsaved)
        self._simulation.history.stored_positions(self._unsaved)
        self._unsaved.clear()

    def store_replays(self, results: Mapping[int, str | None]) -> None:
        pass

    def store_dead_letters(self, dead_letters: Iterable[control.DeadLetter]) -> bool:
        """Append dead letters."""
        self._take_risk()
        if self._is_failing():
            self.record(RecordError("DeadLettersNotStored", "No space left on device"))
            return False
        given_up = list(dead_letters)
        self._store.dead_letters.extend(given_up)
        self._simulation.history.stored_dead_letters(given_up)
        return True

    def record(self, error: RecordError) -> None:
        """Write a row."""
        self._store.errors.append((self._simulation.now, error))
        self._simulation.trace("row", error.kind, error.component)

    def _is_failing(self) -> bool:
        is_failing = self._simulation.now < self._store.failing_until
        if is_failing:
            self._simulation.history.count("the master could not write")
        return is_failing

    # -- store -----------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """The master dies: its write is cut short before a successor starts."""
        if self._keeper is not None:
            self._keeper.end()

    def do(self, command: StoreCommand) -> None:
        """Have a command performed."""
        self._take_risk()
        assert self._keeper is not None
        self._simulation.history.asked_of_store(command)
        self._keeper.do(command)

    def answers(self) -> list[StoreAnswer]:
        """Return the answers since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def _answered(self, answer: StoreAnswer) -> None:
        self._answers.append(answer)
        self._masters.wake()


class SimulatedMaster:
    """Runs master after master of one topology on one store.

    Attributes:
        master: the present one; None while there is none.
        ports: its ports; None while there is none.
        crashes_after: the number of calls of its ports that the present master survives; None: all.
        turn_s: how long a turn takes.
    """

    def __init__(self, simulation: Simulation, turn_s: float) -> None:
        self._simulation = simulation
        self.store = Store()
        self.master: TopologyMaster | None = None
        self.ports: MasterPorts | None = None
        self.outcome: Outcome | None = None
        self.crashes_after: int | None = None
        self.restarts_in_s = 0.0
        self.turn_s = turn_s
        self._loop: MasterLoop
        self._woken_at: float | None = None
        self._ready_at = 0.0

    @property
    def term(self) -> int:
        """The present master's term; 0 when there is none."""
        return 0 if self.master is None else self.master.term

    def start(self) -> None:
        """Start a master on the state folder."""
        simulation = self._simulation
        self.crashes_after = None
        restored = Restored(None)
        if simulation.disk is not None:
            expected = 0 if self.store.record is None else self.store.record.completed
            disk, store = simulation.disk, simulation.disk.store()
            restored = checkpoint_to_restore(
                store, simulation.plan, expected=expected, start_from=disk.start_from, reach=disk.files_in
            )
            settle(store, restored, 0 if self.store.record is None else self.store.record.checkpoint)
            simulation.history.count("a master found a damaged checkpoint", len(restored.problems))
        self.master = TopologyMaster(
            simulation.plan,
            simulation.digest,
            simulation.draw_incarnation,
            self.store.record,
            dict(self.store.progress),
            Codec(),
            DeadLetters(len(self.store.dead_letters), [one.identity for one in self.store.dead_letters if one.identity]),
            completed=restored.manifest,
            completed_in=restored.folder,
        )
        ports = self.ports = MasterPorts(self, simulation)
        checkpoints = None if simulation.disk is None else ports
        self._loop = MasterLoop(self.master, ports, ports, ports, checkpoints, lambda: simulation.now)
        simulation.master_listens()
        self.ask(Started())

    def ask(self, event: MasterEvent) -> None:
        """Ask the present master for something, as an operator does."""
        if self.master is not None:
            self._loop.ask(event)
            self.wake()

    def arrived(self, worker: WorkerId, incarnation: Incarnation, data: bytes) -> None:
        """A message of a worker has arrived."""
        if self.ports is not None:
            self.ports.arrived.append((f"{worker}:{incarnation}".encode(), data))
            self.wake()

    def ended(self, end: WorkerEnd) -> None:
        """A process has ended that the present master has started."""
        if self.ports is not None:
            self.ports.ended.append(end)
            self.wake()

    def take_risk(self) -> None:
        """Die here, if that is how the master is to die."""
        if self.crashes_after is not None:
            self.crashes_after -= 1
            if self.crashes_after < 0:
                raise MasterKilled

    def wake(self, at: float = 0.0) -> None:
        """Have the master turn at a moment, or as soon as it can after that."""
        if self.master is None or self.outcome is not None:
            return
        at = max(at, self._ready_at, self._simulation.now)
        if self._woken_at is None or at < self._woken_at:
            self._woken_at = at
            self._simulation.at(at, lambda: self._turn(at))

    def _turn(self, at: float) -> None:
        simulation, master = self._simulation, self.master
        if self._woken_at != at or master is None:
            return
        self._woken_at = None
        self._ready_at = at + self.turn_s
        try:
            self._loop.turn()
        except MasterKilled:
            if self.master is master:
                self.crash()
            return
        self.outcome = self._loop.outcome
        if self.outcome is not None:
            simulation.trace("finished", self.outcome.kind.value)
        if simulation.draws_check():
            master.validate()
        self.wake(self._loop.next_turn())

    def crash(self) -> None:
        """The master's process dies; another one is started in a while."""
        simulation = self._simulation
        ports, self.master, self.ports = self.ports, None, None
        if ports is not None:
            ports.end()
        self.crashes_after = self._woken_at = None
        simulation.trace("master dies")
        simulation.master_died()
        simulation.at(simulation.now + self.restarts_in_s, self.start)
