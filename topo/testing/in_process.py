"""A cluster in one process: the tasks and the topology master that real processes run, on a manual clock.

Every task has a worker of its own, so that every tuple is encoded. Messages between two workers stay in order; whose turn it is,
and how much it reads, is drawn from a seed. A round gives everybody one turn and takes ROUND_S; when a round finds nothing to do
the clock goes on to the next deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from random import Random
from typing import TYPE_CHECKING

from topo.errors import FrameworkBug
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.ending import EndingStage
from topo.master.epochs import EpochState
from topo.master.events import InFlightTuples, LaunchFailed, MasterEvent, Started, WorkerLaunched, WorkerMessage
from topo.master.links import Life, WorkerEnd
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.master_process.loop import MasterLoop
from topo.plan.physical import PhysicalPlan
from topo.task.commands import SendFrame
from topo.task.events import Inbox
from topo.task.task import Task
from topo.testing.clock import ManualClock
from topo.testing.memory_files import MemoryCheckpoints
from topo.testing.memory_records import MemoryRecords
from topo.testing.recording_spouts import SpoutState
from topo.testing.script import ScriptedSpout
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.frames import unpack_words
from topo.worker.core import EXIT_DONE, Exit, InFlightTracker, Worker, busy_component
from topo.worker.spec import parse_identity

if TYPE_CHECKING:
    from topo.testing.manual_loop import ManualLoop

ROUND_S = 0.001
"""What a round takes on the clock, so that time passes even for a source that never rests."""
READ_AT_ONCE = 32
PATIENCE_S = 5.0
"""Real seconds to wait for what threads and sockets of asynchronous calls bring, before the clock goes on without them."""
GLANCE_S = 0.02
SILENT_STEP_S = 0.5
"""A spout that has nothing to emit is looked at so often, however often it wants to be asked."""

Link = tuple[Incarnation, TaskId, Inbox]
"""Who sends, to which inbox: what comes on one link stays in order."""


class _Note:
    """What a worker has in hand."""

    def __init__(self) -> None:
        self.in_hand: InFlightTuples | None = None

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        """Note a batch."""
        self.in_hand = InFlightTuples(tuple(unpack_words(roots)), tuple(positions))

    def clear(self) -> None:
        """Nothing is in hand."""
        self.in_hand = None


class Host:
    """One life of a worker: its only task, what has arrived for it, and whom it knows."""

    def __init__(self, worker: WorkerId, incarnation: Incarnation, now: float) -> None:
        self.id = worker
        self.incarnation = incarnation
        self.note = _Note()
        self.hand = InFlightTracker(self.note)
        self.from_master: deque[bytes] = deque()
        self.links: dict[Link, deque[bytes]] = {}
        self.peers: dict[TaskId, Incarnation] = {}
        self.beat_at = now
        self.is_busy = True
        self.loop: ManualLoop | None = None
        """Where the calls of an async bolt run."""
        self.spout: SpoutState | None = None
        self.script: ScriptedSpout | None = None

    def hosts(self, task: Task, spout: SpoutState | None, script: ScriptedSpout | None) -> None:
        """Take the task that runs here, and what is known of its spout."""
        self.task = task
        self.spout, self.script = spout, script
        self.worker = Worker(self.id, self.incarnation, [task], self.hand)

    def run(self, now: float) -> bool:
        """Let the task work, and the calls that it makes; return whether there was anything to do."""
        has_run = self.worker.run(now)
        if self.loop is not None:
            self.loop.turn()
            # What a call gives comes to the task as a mail.
            has_run |= self.worker.run(now)
        return has_run

    def ends(self) -> None:
        """The worker has ended: cancel its calls."""
        if self.loop is not None:
            self.loop.turn()
            self.loop.end()

    def has_mail(self) -> bool:
        """Whether anything has arrived and is not read."""
        return bool(self.from_master) or any(self.links.values())

    def next_deadline(self, now: float) -> float | None:
        """When the worker wants a turn if nothing arrives."""
        at = self.worker.next_deadline(now)
        if self.loop is not None and (due_ms := self.loop.next_due_ms) is not None:
            at = due_ms / 1000 if at is None else min(at, due_ms / 1000)
        if at is not None and self.spout is not None and not self.spout.pending:
            # It asks to be polled every few milliseconds; with nothing to emit, an hour of that would take minutes.
            if self.script is not None:
                at = max(at, min(self.script.quiet_until(), now + SILENT_STEP_S))
            elif self.spout.is_silent:
                at = max(at, now + SILENT_STEP_S)
        return self.beat_at if at is None else min(at, self.beat_at)

    def is_at_rest(self) -> bool:
        """Whether nothing will happen here unless something arrives or a tick is due."""
        task = self.task
        if self.spout is None:
            return task.is_quiet and not task.has_work
        is_silent = self.spout.is_silent if self.script is None else self.script.is_dry and not self.spout.pending
        return is_silent and not task.inbound.queue and task.outbox.is_quiet


class InProcessCluster:
    """One topology and its master: the link and the workers of that master's loop.

    Args:
        build: makes the task of a worker's life, in the host that is given; what it raises ends that life.
        crashes: taken and emptied after every turn: the tasks whose workers are to be killed.

    Attributes:
        records: errors and dead letters.
        hosts: the workers that live, by slot.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        clock: ManualClock,
        seed: int,
        codec: Codec,
        build: Callable[[TaskId, Host], None],
        crashes: Callable[[], list[TaskId]],
    ) -> None:
        assert all(len(tasks) == 1 for tasks in plan.workers), "tuples of tasks that share a worker are not encoded"
        self.plan = plan
        self.clock = clock
        self.chance = Random(seed)
        self.records = MemoryRecords()
        self.hosts: dict[WorkerId, Host] = {}
        self._build = build
        self._crashes = crashes
        self._digest = plan.digest()
        self.checkpoints = MemoryCheckpoints(plan, codec.registry)
        self.master = TopologyMaster(plan, self._digest, self._new_incarnation, codec=codec)
        self._loop = MasterLoop(self.master, self, self, self.records, self.checkpoints, clock)
        self._loop.ask(Started())
        self._arrived: deque[tuple[bytes, bytes]] = deque()
        self._ended: list[WorkerEnd] = []
        self._notes: dict[Life, InFlightTuples | None] = {}
        self._waited_s = 0.0
        """Real seconds since a thread or a socket has brought anything."""

    def _new_incarnation(self) -> Incarnation:
        return Incarnation(self.chance.getrandbits(62) + 1)

    # -- time ------------------------------------------------------------------------------------------------------------

    def step(self, limit_s: float) -> bool:
        """Give everybody a turn, and let time pass: a round's time, or up to the next deadline; never beyond `limit_s`.

        Returns whether anybody had something to do.
        """
        now = self.clock()
        turns: list[Callable[[], bool]] = [self._master_turn, *[partial(self._turn, host) for host in self.hosts.values()]]
        self.chance.shuffle(turns)
        has_run = [turn() for turn in turns].count(True) > 0 or self._is_master_due
        if not has_run and self._wait_outside():
            return True
        at = now + ROUND_S if has_run else self._next_deadline(now)
        # User code may have moved the clock.
        self.clock.advance_to(max(self.clock(), min(limit_s, max(now, at))))
        return has_run

    def _wait_outside(self) -> bool:
        """Wait, in real time, for threads and sockets of asynchronous calls; return whether there are any. The clock stands."""
        loops = [host.loop for host in self.hosts.values() if host.loop is not None and host.loop.waits_outside]
        if not loops or self._waited_s >= PATIENCE_S:
            return False
        for loop in loops:
            loop.wait(GLANCE_S)
            self._waited_s += GLANCE_S
        if any(host.task.mailbox.may_have_mail for host in self.hosts.values()):
            self._waited_s = 0.0
        return True

    def _next_deadline(self, now: float) -> float:
        deadlines = [self._loop.next_turn(), *[host.next_deadline(now) for host in self.hosts.values()]]
        return min((at for at in deadlines if at is not None), default=now + SILENT_STEP_S)

    def is_at_rest(self) -> bool:
        """Whether nothing is under way, and nothing but ticks and the clock could start anything."""
        if self.outcome is not None:
            return True
        if self._has_events or not self._loop.is_idle or self.has_ended():
            return False
        if self.master.recovery.epochs.state is not EpochState.RUNNING or self.master.ending.stage is not EndingStage.SERVING:
            return False
        return all(not host.has_mail() and host.is_at_rest() for host in self.hosts.values())

    @property
    def has_run(self) -> bool:
        """Whether every task was ready at least once."""
        return self.master.recovery.epochs.has_run

    def has_ended(self) -> bool:
        """Whether the input of every spout has ended, so that the topology ends by itself."""
        spouts = [host.spout for host in self.hosts.values() if host.spout is not None]
        return bool(spouts) and all(spout.has_ended for spout in spouts)

    def scripts_wait_until(self) -> float:
        """Return until when some script lets time pass; minus infinity when none does."""
        waits = [host.script.quiet_until() for host in self.hosts.values() if host.script is not None]
        return max((at for at in waits if at < inf), default=-inf)

    def unrest(self) -> list[str]:
        """Return, in words, what is under way."""
        found = []
        if self.master.recovery.epochs.state is not EpochState.RUNNING:
            found.append(f"epoch {self.master.recovery.epochs.epoch} is {self.master.recovery.epochs.state.value}")
        for host in self.hosts.values():
            task = self.plan.task(host.task.id)
            who = f"{task.component}[{task.index}]"
            if host.spout is not None and host.spout.pending:
                some = ", ".join(map(repr, list(host.spout.pending)[:5]))
                found.append(f"{who}: {len(host.spout.pending)} messages pending: {some}")
            elif not host.is_at_rest():
                found.append(f"{who} has work")
        return found

    # -- the master ------------------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> Outcome | None:
        """How the topology has ended; None before."""
        return self._loop.outcome

    def ask(self, event: MasterEvent) -> None:
        """Ask the master for something, as an operator does."""
        self._loop.ask(event)

    def _master_turn(self) -> bool:
        if not self._is_master_due:
            return False
        self._loop.turn()
        return True

    @property
    def _has_events(self) -> bool:
        return bool(self._arrived or self._ended or self.checkpoints.unread)

    @property
    def _is_master_due(self) -> bool:
        return self._has_events or self._loop.next_turn() <= self.clock()

    def from_workers(self) -> list[tuple[bytes, bytes]]:
        """Return some of the messages that have arrived."""
        return [self._arrived.popleft() for _ in range(min(len(self._arrived), self.chance.randint(1, READ_AT_ONCE)))]

    def to_worker(self, identity: bytes, message: bytes) -> bool:
        """Send to a life of a worker; False when it is over."""
        life = parse_identity(identity)
        host = None if life is None else self.hosts.get(life[0])
        if host is None or (host.id, host.incarnation) != life:
            return False
        host.from_master.append(message)
        return True

    def start(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerLaunched | LaunchFailed:
        """Start a life of a worker. One whose component cannot be made ends at once."""
        host = Host(worker, incarnation, self.clock())
        (task,) = self.plan.workers[worker]
        try:
            self._build(task, host)
        except Exception as error:
            why = f"its component could not be made: {type(error).__name__}: {error}"
            self._ended.append(WorkerEnd(worker, incarnation, why))
        else:
            self.hosts[worker] = host
            endpoint = control.Endpoints(task, f"{task}.data", f"{task}.control")
            self._tell_master(host, control.Register(worker, incarnation, 0, "test", "", self._digest, [endpoint]))
        return WorkerLaunched(worker, incarnation)

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        """End a life of a worker, if it is not over."""
        host = self.hosts.get(worker)
        if host is not None and host.incarnation == incarnation:
            if kill:
                self._remove(host, "killed by the master")
            else:
                host.worker.exit = host.worker.exit or Exit(EXIT_DONE, "asked to end")

    def poll(self) -> list[WorkerEnd]:
        """Return the workers that have ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def take_note(self, worker: WorkerId, incarnation: Incarnation) -> InFlightTuples | None:
        """Return the tuples that user code of a life worked on at its end; None for none."""
        return self._notes.pop((worker, incarnation), None)

    def _tell_master(self, host: Host, message: control.FromWorker) -> None:
        self._arrived.append((f"{host.id}:{host.incarnation}".encode(), control.encode(message)))

    # -- workers ---------------------------------------------------------------------------------------------------------

    def _turn(self, host: Host) -> bool:
        if self.hosts.get(host.id) is not host:
            return False
        now, worker = self.clock(), host.worker
        has_read = self._read(host, now)
        has_run = host.run(now)
        for task in self._crashes():
            self.kill(task)
        if self.hosts.get(host.id) is not host:
            # It was killed: what it was about to send is lost.
            return True
        if now >= host.beat_at:
            host.beat_at = now + self.plan.config.heartbeat_s
            self._beat(host)
        has_sent = self._send(host)
        if host.is_busy and not (has_read or has_run or has_sent):
            worker.idle(now)
            has_sent = self._send(host)
        host.is_busy = has_read or has_run or has_sent
        if worker.exit is not None:
            self._beat(host)
            self._remove(host, f"exited with {worker.exit.code}: {worker.exit.why}")
        return host.is_busy

    def _read(self, host: Host, now: float) -> bool:
        has_read = False
        for _ in range(self.chance.randint(1, READ_AT_ONCE)):
            if not host.from_master:
                break
            self._told(host, control.decode_from_master(host.from_master.popleft()), now)
            has_read = True
        links = list(host.links.items())
        self.chance.shuffle(links)
        # Control is read first, so that a verdict counts before a timeout of the same moment.
        links.sort(key=lambda link: link[0][2] is Inbox.DATA)
        for (_, task, inbox), frames in links:
            if inbox is Inbox.DATA and not host.task.wants_data:
                continue
            for _ in range(min(len(frames), self.chance.randint(1, READ_AT_ONCE))):
                host.worker.arrived(task, inbox, frames.popleft(), now)
                has_read = True
        return has_read

    def _told(self, host: Host, message: control.FromMaster, now: float) -> None:
        if isinstance(message, control.Routes) and message.epoch > host.worker.epoch:
            host.peers = {route.task: route.incarnation for route in message.routes}
        host.worker.on_messages([message], now)

    def _send(self, host: Host) -> bool:
        commands = host.worker.take_commands()
        for command in commands:
            if not isinstance(command, SendFrame):
                self._tell_master(host, command.message)
                continue
            if not isinstance(command.frame, bytes):
                raise FrameworkBug(f"worker {host.id} sends a frame that is not encoded: {command.frame!r}")
            target = self.hosts.get(self.plan.worker_of(command.target))
            if target is not None and target.incarnation == host.peers.get(command.target):
                link = (host.incarnation, command.target, command.inbox)
                target.links.setdefault(link, deque()).append(command.frame)
        return bool(commands)

    def _beat(self, host: Host) -> None:
        self._tell_master(host, host.worker.heartbeat(busy_component(host.worker, host.hand)))

    def beat_all(self) -> None:
        """Bring the figures of the master up to date."""
        for host in self.hosts.values():
            beat = host.worker.heartbeat("")
            self._loop.handle(WorkerMessage(host.id, host.incarnation, beat))

    def kill(self, task: TaskId) -> None:
        """Kill the worker of a task, if it lives, with all that is in flight from and to it."""
        host = self.hosts.get(self.plan.worker_of(task))
        if host is not None:
            self._remove(host, "killed by the test")
            for other in self.hosts.values():
                for link in [link for link in other.links if link[0] == host.incarnation]:
                    del other.links[link]

    def _remove(self, host: Host, how: str) -> None:
        del self.hosts[host.id]
        host.ends()
        self._notes[host.id, host.incarnation] = host.note.in_hand
        self._ended.append(WorkerEnd(host.id, host.incarnation, how))

    def validate(self) -> None:
        """Assert the invariants of master and tasks."""
        self.master.validate()
        for host in self.hosts.values():
            host.worker.validate()
