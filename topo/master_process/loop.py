"""The loop around the topology master: events in, commands out, in order. One thread, no decisions.

Decisions are in `topo.master`: `TopologyMaster` decides about the topology, `WorkerLinks` and `HeldCommands` about messages and
about commands that cannot be written. A Persist is on disk before any command behind it is performed. `turn` never sleeps; the
shell does, and so do the other users of this loop, each with its own link, workers and recorder.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from topo.checkpoint.store_messages import StoreAnswer, StoreCommand
from topo.errors import FrameError, TopoEnvironmentError
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
    StoreReplays,
)
from topo.master.ending import EndingStage
from topo.master.events import (
    DeadLettersWritten,
    LaunchFailed,
    MasterEvent,
    MessagesLost,
    Tick,
    WorkerExited,
    WorkerLaunched,
    WorkerMessage,
)
from topo.master.links import HeldCommands, Life, WorkerEnd, WorkerLinks
from topo.master.master import TopologyMaster
from topo.master.observations import Observations
from topo.master.outcome import Outcome
from topo.master.positions import SpoutProgress
from topo.tracking.suspects import InFlightTuples
from topo.transport.base import MAX_LINK_MESSAGE
from topo.wire import control
from topo.worker.spec import parse_identity

_LOG = logging.getLogger(__name__)


class Link(Protocol):
    """The socket that workers talk to."""

    def from_workers(self) -> list[tuple[bytes, bytes]]:
        """Return (identity, message) of each message that has arrived."""

    def to_worker(self, identity: bytes, message: bytes) -> bool:
        """Send to a connection; False when there is none."""


class Workers(Protocol):
    """The processes of the workers."""

    def start(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerLaunched | LaunchFailed:
        """Start a life of a worker."""

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        """End a process."""

    def poll(self) -> list[WorkerEnd]:
        """Return the workers that have ended since the last call."""

    def take_marker(self, worker: WorkerId, incarnation: Incarnation) -> InFlightTuples | None:
        """Clear up after a life; return the tuples that its user code worked on, None for none."""


class Records(Protocol):
    """The store of the facts that outlive the master."""

    def persist(self, record: MasterRecord) -> None:
        """Write the master's record. Raises TopoEnvironmentError when it cannot be written."""

    def store_positions(self, progress: Mapping[TaskId, SpoutProgress]) -> None:
        """Write the positions of some spout tasks."""

    def store_dead_letters(self, dead_letters: Iterable[control.DeadLetter]) -> bool:
        """Append dead letters; False when they were not stored."""

    def store_replays(self, results: Mapping[int, str | None]) -> None:
        """Append results of dead letters that were emitted again."""

    def record(self, error: RecordError) -> None:
        """Write a row of `topo errors`."""


class Store(Protocol):
    """The store of checkpoints, which works in the background."""

    def do(self, command: StoreCommand) -> None:
        """Have a command performed, after those before it."""

    def answers(self) -> list[StoreAnswer]:
        """Return the answers since the last call."""


class MasterLoop:
    """Turns one master.

    Args:
        store: None where no checkpoints are taken.
        asked: events that others put in, such as signal handlers; taken in each turn.

    Attributes:
        outcome: how the topology ended; None before.
    """

    def __init__(
        self,
        master: TopologyMaster,
        link: Link,
        workers: Workers,
        records: Records,
        store: Store | None,
        clock: Callable[[], float],
        asked: list[MasterEvent] | None = None,
    ) -> None:
        self.master = master
        self.outcome: Outcome | None = None
        self.links = WorkerLinks(master.membership.is_current, self._is_closing)
        self.held = HeldCommands()
        self.observations = Observations(master.plan)
        self._link = link
        self._workers = workers
        self._records = records
        self._store = store
        self._clock = clock
        self._asked: list[MasterEvent] = [] if asked is None else asked
        self._unwritten: list[StoreDeadLetters] = []
        self._alive_at = 0.0

    def ask(self, event: MasterEvent) -> None:
        """Have an event handled in the next turn."""
        self._asked.append(event)

    def handle(self, event: MasterEvent) -> None:
        now = self._clock()
        self.held.add(self.master.handle(event, now))
        self._work_off(now)

    def turn(self) -> None:
        """Handle all that has happened, and perform all that is due."""
        self._work_off(self._clock())
        if self._store is not None:
            self._asked += self._store.answers()
        while self._asked:
            self.handle(self._asked.pop(0))
        for identity, data in self._link.from_workers():
            self._from_worker(identity, data)
        self._write_unwritten()
        self.links.send_again(self._transmit)
        now = self._clock()
        self.links.ended(self._workers.poll(), now)
        for end in self.links.due_ends(now):
            in_flight = self._workers.take_marker(end.worker, end.incarnation)
            self.handle(WorkerExited(end.worker, end.incarnation, end.description, in_flight))
        now = self._clock()
        if (deadline := self.master.next_deadline()) is not None and now >= deadline:
            self.handle(Tick())
        self._write_unwritten()
        self.pass_observations(now)
        if now >= self._alive_at:
            self._alive_at = now + self.master.plan.config.heartbeat_s
            for slot in self.master.membership.live():
                if slot.incarnation is not None:
                    life = slot.worker, slot.incarnation
                    self._transmit(life, control.encode(self.links.alive(life)))

    def _write_unwritten(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        self._write_dead_letters(unwritten)

    def _write_dead_letters(self, commands: Sequence[StoreDeadLetters]) -> None:
        """Write dead letters together: it takes long to have them on disk, however few they are."""
        if not commands:
            return
        if self._records.store_dead_letters([one for command in commands for one in command.dead_letters]):
            self._asked += [DeadLettersWritten(one.worker, one.incarnation, one.dead_letters) for one in commands]
        elif len(commands) > 1:
            for command in commands:
                self._write_dead_letters([command])

    def pass_observations(self, now: float) -> None:
        """Send workers the observations that begin and end."""
        lives = {(slot.worker, slot.incarnation) for slot in self.master.membership.live() if slot.incarnation is not None}
        for life, message in self.observations.messages(lives, now):
            self.links.send(life, control.encode(message), self._transmit)

    def next_turn(self) -> float:
        """When the loop has to turn if nothing arrives before."""
        if self._asked:
            return self._clock()
        deadlines = (self._alive_at, self.links.next_deadline(), self.held.next_deadline(), self.master.next_deadline())
        return min(at for at in deadlines if at is not None)

    @property
    def is_idle(self) -> bool:
        """Whether no event waits to be handled."""
        return not self._asked and self.links.next_deadline() is None

    def _work_off(self, now: float) -> None:
        while (command := self.held.next(now)) is not None:
            try:
                self._perform(command)
            except TopoEnvironmentError as error:
                is_serving = self.master.ending.stage is EndingStage.SERVING
                self._records.record(self.held.failed(error, now, is_serving=is_serving))
            else:
                self.held.done()

    def _perform(self, command: MasterCommand) -> None:
        if isinstance(command, SendTo):
            life, data = (command.worker, command.incarnation), control.encode(command.message)
            if len(data) > MAX_LINK_MESSAGE:
                self._records.record(_too_long(command, len(data)))
                return
            self.links.send(life, data, self._transmit)
        elif isinstance(command, RecordError):
            self._records.record(command)
        elif isinstance(command, Persist):
            self._records.persist(command.record)
        elif isinstance(command, StartWorker):
            self._asked.append(self._workers.start(command.worker, command.incarnation, self.master.term))
        elif isinstance(command, StopWorker):
            self._workers.stop(command.worker, command.incarnation, kill=command.kill)
        elif isinstance(command, StorePositions):
            self._records.store_positions(command.progress)
        elif isinstance(command, StoreDeadLetters):
            self._unwritten.append(command)
        elif isinstance(command, StoreReplays):
            self._records.store_replays(command.results)
        elif isinstance(command, Finished):
            self.outcome = command.outcome
        elif self._store is not None:
            self._store.do(command)

    def _transmit(self, life: Life, data: bytes) -> bool:
        return self._link.to_worker(f"{life[0]}:{life[1]}".encode(), data)

    def _from_worker(self, identity: bytes, data: bytes) -> None:
        life = parse_identity(identity)
        if life is None:
            _LOG.warning("dropped a message of %r, which is no worker", identity)
            return
        try:
            message = control.decode_from_worker(data, MAX_LINK_MESSAGE)
        except FrameError as error:
            _LOG.warning("worker %s sent %s", life[0], error)
            self.handle(MessagesLost(*life, f"it has sent {error}", is_unreadable=True))
            return
        if lost := self.links.received(life, identity, message):
            self.handle(MessagesLost(*life, lost))
        if isinstance(message, control.Observed):
            self.observations.took(message, self._clock())
        else:
            self.handle(WorkerMessage(*life, message))

    def _is_closing(self, worker: WorkerId) -> bool:
        ending = self.master.ending
        return ending.stage is EndingStage.CLOSING and not ending.has_closed(self.master.plan.workers[worker])


def _too_long(command: SendTo, length: int) -> RecordError:
    """Report a message that the worker's socket would drop, with its connection, each time."""
    why = (
        f"{type(command.message).__name__} for worker {command.worker} has {length:,} bytes, and at most {MAX_LINK_MESSAGE:,} "
        "can be sent, so its tasks never become ready: spread positions over more tasks and workers, or make them shorter"
    )
    return RecordError("MessageTooLong", why, worker=command.worker)
