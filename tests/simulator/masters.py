"""The topology master's shell in virtual time: the real `TopologyMaster`, what it stores, and its deaths.

What was stored survives a master; what it had not performed is lost with it. The next one takes a higher term.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulator.virtual_store import VirtualKeeper
from topo.checkpoint.store_messages import CommitCheckpoint, CopyCheckpoint, DiscardCheckpoint, FindCheckpoint
from topo.dead_letters.registry import DeadLetters
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.commands import (
    Finished,
    MasterCommand,
    MasterRecord,
    Persist,
    RecordError,
    SendTo,
    StartWorker,
    StopWorker,
    StoreDeadLetters,
    StorePositions,
)
from topo.master.events import DeadLettersWritten, MasterEvent, Started, Tick, WorkerLaunched, WorkerMessage
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.master.positions import SpoutProgress
from topo.master_process.restore_point import Restored, checkpoint_to_restore
from topo.wire import control
from topo.wire.codec import Codec

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation


@dataclass(slots=True)
class Store:
    """The topology's state folder.

    Attributes:
        letters: dead letters in the order in which they were written.
        errors: rows of `topo errors`, with the moment each was recorded.
    """

    record: MasterRecord | None = None
    progress: dict[TaskId, SpoutProgress] = field(default_factory=dict)
    letters: list[control.DeadLetter] = field(default_factory=list)
    errors: list[tuple[float, RecordError]] = field(default_factory=list)


class SimulatedMaster:
    """Runs master after master of one topology on one store.

    Attributes:
        master: the present one; None while there is none.
        crashes_after: the present master dies before it performs the command after so many; None: it does not.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.store = Store()
        self.master: TopologyMaster | None = None
        self.outcome: Outcome | None = None
        self.crashes_after: int | None = None
        self.restarts_in_s = 0.0
        self._keeper: VirtualKeeper | None = None
        self._alive_at = 0.0
        self._woken_at: float | None = None

    @property
    def term(self) -> int:
        """The present master's term; 0 when there is none."""
        return 0 if self.master is None else self.master.term

    def start(self) -> None:
        """Start a master on what is stored."""
        simulation = self._simulation
        self.crashes_after = None
        restored = Restored(None)
        if simulation.disk is not None:
            expected = 0 if self.store.record is None else self.store.record.completed
            store = simulation.disk.store()
            restored = checkpoint_to_restore(store, simulation.plan, expected=expected)
            store.abandon(restored.passed_over)
            simulation.history.count("a master found a damaged checkpoint", len(restored.problems))
        master = self.master = TopologyMaster(
            simulation.plan,
            simulation.digest,
            simulation.draw_incarnation,
            self.store.record,
            dict(self.store.progress),
            Codec(),
            DeadLetters(len(self.store.letters), [letter.identity for letter in self.store.letters if letter.identity]),
            completed=restored.manifest,
            completed_in=restored.folder,
        )
        if simulation.disk is not None:
            self._keeper = VirtualKeeper(simulation, lambda: self.master is master, self.handle)
        self._alive_at = simulation.now
        self.handle(Started())

    def crash(self) -> None:
        """The master's process dies; another one is started in a while."""
        simulation = self._simulation
        self.master = None
        self.crashes_after = None
        simulation.trace("master dies")
        simulation.master_died()
        simulation.at(simulation.now + self.restarts_in_s, self.start)

    def handle(self, event: MasterEvent) -> None:
        """Give the present master an event, and perform what it asks for."""
        simulation = self._simulation
        if self.master is None:
            return
        for command in self.master.handle(event, simulation.now):
            if self.crashes_after is not None:
                self.crashes_after -= 1
                if self.crashes_after < 0:
                    self.crash()
                    return
            self._perform(command)
        if simulation.draws_check():
            self.master.validate()
        self._wake()

    def heard(self, worker: WorkerId, incarnation: Incarnation, data: bytes) -> None:
        """A message of a worker has arrived."""
        self.handle(WorkerMessage(worker, incarnation, control.decode_from_worker(data)))

    def _handle_next(self, event: MasterEvent) -> None:
        """Have an answer to a command handled, by the master that gave the command."""
        asked = self.master
        self._simulation.at(self._simulation.now, lambda: self.handle(event) if self.master is asked else None)

    def _wake(self) -> None:
        if self.master is None or self.outcome is not None:
            return
        deadline = self.master.next_deadline()
        at = self._alive_at if deadline is None else min(deadline, self._alive_at)
        at = max(at, self._simulation.now)
        if self._woken_at is None or at < self._woken_at:
            self._woken_at = at
            self._simulation.at(at, lambda: self._tick(at))

    def _tick(self, at: float) -> None:
        if self._woken_at != at:
            return
        self._woken_at = None
        master, now = self.master, self._simulation.now
        if master is None:
            return
        if now >= self._alive_at:
            self._alive_at = now + self._simulation.plan.config.heartbeat_s
            for slot in master.recovery.membership.live():
                if slot.incarnation is not None:
                    self._simulation.tell_worker(slot.worker, slot.incarnation, control.Alive())
        if (deadline := master.next_deadline()) is not None and now >= deadline:
            self.handle(Tick())
        else:
            self._wake()

    def _perform(self, command: MasterCommand) -> None:
        simulation, store = self._simulation, self.store
        if isinstance(command, SendTo):
            simulation.tell_worker(command.worker, command.incarnation, command.message)
        elif isinstance(command, Persist):
            store.record = command.record
            simulation.trace("persist", command.record.term, command.record.epoch)
        elif isinstance(command, StartWorker):
            simulation.launch(command.worker, command.incarnation)
            self._handle_next(WorkerLaunched(command.worker, command.incarnation))
        elif isinstance(command, StopWorker):
            simulation.stop(command.worker, command.incarnation, kill=command.kill)
        elif isinstance(command, StorePositions):
            store.progress.update(command.progress)
            simulation.history.stored_positions(command.progress)
        elif isinstance(command, StoreDeadLetters):
            store.letters.extend(command.letters)
            simulation.history.stored_letters(command.letters)
            self._handle_next(DeadLettersWritten(command.worker, command.incarnation, command.letters))
        elif isinstance(command, CommitCheckpoint | DiscardCheckpoint | CopyCheckpoint | FindCheckpoint):
            assert self._keeper is not None
            simulation.history.asked_of_store(command)
            self._keeper.do(command)
        elif isinstance(command, RecordError):
            store.errors.append((simulation.now, command))
            simulation.trace("row", command.kind, command.component)
        elif isinstance(command, Finished):
            self.outcome = command.outcome
            simulation.trace("finished", command.outcome.kind.value)
