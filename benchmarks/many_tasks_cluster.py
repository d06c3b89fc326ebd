"""A topology of many tasks in one process: the real master, its loop, and the real loops of its workers, on a manual clock."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from topo.api.bolt import BasicBolt
from topo.api.spout import Spout
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.hot import Ids
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.epochs import EpochState
from topo.master.events import DrainAsked, Started, WorkerLaunched
from topo.master.links import ENDED_WELL, WorkerEnd
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.master_process.loop import MasterLoop
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.task.context import make_context
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.task.factory import make_task
from topo.task.task import Task
from topo.testing.clock import ManualClock
from topo.testing.memory_files import MemoryCheckpoints
from topo.testing.memory_records import MemoryRecords
from topo.transport.base import Outlet
from topo.transport.memory import MemoryNetwork, MemoryRouter, MemoryTransport
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.serializers import SerializerRegistry
from topo.worker.connections import Connections, bind_inbox
from topo.worker.core import InFlightTracker, Worker
from topo.worker.loop import LINK, Loop
from topo.worker.session import WorkerSession

BOLTS = 4
MESSAGES = 20
CHECKPOINT_S = 30
ROUND_S = 0.001
"""What a turn of everybody takes on the manual clock."""
LONGEST_S = 300.0
_MASTER = "memory://master"


class Numbers(Spout):
    """Emits some numbers, then nothing."""

    outputs = ("value",)

    def open(self, context: Any, collector: Any) -> None:
        self.next, self.collector = 0, collector

    def next_tuple(self) -> None:
        if self.next == MESSAGES:
            self.collector.nothing_before(3600.0)
            return
        self.collector.emit((self.next,), message_id=self.next)
        self.next += 1


class Pass(BasicBolt):
    """Emits what it gets."""

    outputs = ("value",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(tup.values)


def many(tasks: int, workers: int) -> Topology:
    """Return a topology of so many tasks: a tenth of them spouts, a twentieth ackers, and at least one of each component."""
    spouts, ackers = max(1, tasks // 10), max(1, tasks // 20)
    left = tasks - spouts - ackers
    stages = [count for place in range(BOLTS) if (count := left // BOLTS + (place < left % BOLTS))]
    builder = TopologyBuilder("many").config(
        workers=workers, ackers=ackers, delivery="exactly_once", checkpoint_interval=f"{CHECKPOINT_S}s", start_timeout="600s"
    )
    builder.set_spout("numbers", Numbers, spouts)
    source = "numbers"
    for place, count in enumerate(stages):
        builder.set_bolt(f"pass-{place}", Pass, count).fields_grouping(source, "value")
        source = f"pass-{place}"
    return builder.build()


def kind_of(data: bytes) -> str:
    """Return the class name of an encoded control message: the first element of a short msgpack array."""
    return data[2 : 2 + (data[1] & 0x1F)].decode()


class CountedTransport(MemoryTransport):
    """Counts what leads to other workers, apart from the link to the master."""

    def __init__(self, network: MemoryNetwork, sent: Counter[str]) -> None:
        super().__init__(network)
        self.outlets: set[Outlet] = set()
        self._sent = sent

    def connect(self, endpoint: str, public_key: str | None = None, **limits: int) -> Outlet:
        outlet = super().connect(endpoint, public_key, **limits)
        self.outlets.add(outlet)
        return outlet

    def disconnect(self, outlet: Outlet) -> None:
        self.outlets.discard(outlet)
        super().disconnect(outlet)

    def send(self, outlet: Outlet, frame: bytes) -> bool:
        is_sent = super().send(outlet, frame)
        if is_sent and outlet in self.outlets:
            self._sent["messages"] += 1
            self._sent["bytes"] += len(frame)
        return is_sent


class NoMarker:
    """Marks nothing."""

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None: ...

    def clear(self) -> None: ...


class Process:
    """One life of a worker."""

    def __init__(self, cluster: Cluster, worker: WorkerId, incarnation: Incarnation) -> None:
        plan, clock, mine = cluster.plan, cluster.clock, cluster.plan.workers[worker]
        self.id, self.incarnation = worker, incarnation
        self.transport = CountedTransport(cluster.network, cluster.sent)
        tracker = InFlightTracker(NoMarker())
        self.worker = Worker(worker, incarnation, [cluster.make_task(task, tracker) for task in mine], tracker)
        endpoint = bind_inbox(self.transport, plan.config)
        master = self.transport.link(LINK, _MASTER, f"{worker}:{incarnation}".encode())
        components = {task.id: task.component_id for task in self.worker.tasks.values()}
        session = WorkerSession(plan.config, components, clock())
        connections = Connections(self.transport, plan, frozenset(mine))
        self.loop = Loop(self.worker, session, self.transport, master, connections, lambda: "", clock, stint_s=0.0)
        session.send(control.Register(worker, incarnation, 0, "here", "", cluster.digest, list(mine), endpoint))
        self.wants = clock()
        self.cpu_s = 0.0
        self.turns = 0

    def turn(self, now: float) -> bool | None:
        """Turn if there is something to do; return whether there was, None when it has ended."""
        ready = self.transport.wait(0.0)
        if not ready and self.wants > now:
            return False
        self.loop.alive_at = now
        began = time.thread_time()
        self.turns += 1
        wants = self.loop.turn(ready, now)
        self.cpu_s += time.thread_time() - began
        if wants is None:
            return None
        self.wants = wants
        return True


@dataclass
class Phase:
    """The figures of one phase.

    Attributes:
        to_master, from_master: control messages by kind.
        bytes_to_master, bytes_from_master: of these.
        frames, frame_bytes: messages from worker to worker, each with the frames of a turn.
        rounds: turns of everybody, one behind the other: hops that nothing shortens.
        master_s: processor time of the master.
        worker_s: processor time of each worker on average; longest_s: of the one that took the most.
    """

    to_master: Counter[str] = field(default_factory=Counter)
    from_master: Counter[str] = field(default_factory=Counter)
    bytes_to_master: Counter[str] = field(default_factory=Counter)
    bytes_from_master: Counter[str] = field(default_factory=Counter)
    frames: int = 0
    frame_bytes: int = 0
    rounds: int = 0
    master_s: float = 0.0
    worker_s: float = 0.0
    longest_s: float = 0.0

    @property
    def messages(self) -> int:
        """Control messages, both ways."""
        return self.to_master.total() + self.from_master.total()

    @property
    def bytes(self) -> int:
        """Bytes of control messages, both ways."""
        return self.bytes_to_master.total() + self.bytes_from_master.total()


class Cluster:
    """A topology and its master in one process: the link and the workers of the master's loop."""

    def __init__(self, topology: Topology, round_s: float = ROUND_S) -> None:
        self.topology = topology
        self.round_s = round_s
        self.plan: PhysicalPlan = physical_plan(topology)
        self.digest = self.plan.digest()
        self.clock = ManualClock()
        self.network = MemoryNetwork()
        self.checkpoints = MemoryCheckpoints(self.plan, SerializerRegistry())
        self.processes: dict[WorkerId, Process] = {}
        self.phase = Phase()
        self.sent: Counter[str] = Counter()
        """Messages between workers, and their bytes."""
        self._router = MemoryRouter(self.network, _MASTER)
        self._ended: list[WorkerEnd] = []
        self._sent: list[bytes] = []
        self._arrived: deque[tuple[bytes, bytes]] = deque()
        chance = Random(1)
        self.master = TopologyMaster(self.plan, self.digest, lambda: Incarnation(chance.getrandbits(62) + 1))
        self._loop = MasterLoop(self.master, self, self, MemoryRecords(), self.checkpoints, self.clock)

    def make_task(self, task: TaskId, tracker: InFlightTracker) -> Task:
        """Return a task of a new life."""
        spec, plan = self.plan.task(task), self.plan
        component = None if task in plan.ackers else self.topology.component(spec.component).make()
        setup = TaskSpec(task, plan, plan.config_of(spec.component), component, make_context(plan, task))
        snapshots = self.checkpoints.of(task)
        ids = Ids(b"%d" % task)
        return make_task(
            setup,
            TaskEnvironment(ids, self.clock, Codec(), tracker, lambda: self.clock.now_ms, lambda: None, snapshots=snapshots),
        )

    # -- the master's link and workers -----------------------------------------------------------------------------------

    def from_workers(self) -> list[tuple[bytes, bytes]]:
        arrived = list(self._arrived)
        self._arrived.clear()
        return arrived

    def to_worker(self, identity: bytes, message: bytes) -> bool:
        process = self.processes.get(WorkerId(int(identity.partition(b":")[0])))
        is_sent = process is not None and process.transport.answer(_MASTER, identity, message)
        if is_sent:
            self._sent.append(message)
        return is_sent

    def start(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerLaunched:
        began = time.thread_time()
        self.processes[worker] = Process(self, worker, incarnation)
        # The master starts it within its turn; the work is the worker's own.
        self.phase.master_s -= time.thread_time() - began
        return WorkerLaunched(worker, incarnation)

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        self._end(self.processes[worker], "killed")

    def poll(self) -> list[WorkerEnd]:
        ended, self._ended = self._ended, []
        return ended

    def take_marker(self, worker: WorkerId, incarnation: Incarnation) -> None:
        return None

    def kill(self, worker: WorkerId) -> None:
        """Kill a worker; messages in flight to it are lost."""
        self._end(self.processes[worker], "killed by signal 9")

    def _end(self, process: Process, how: str) -> None:
        del self.processes[process.id]
        process.transport.close()
        self._ended.append(WorkerEnd(process.id, process.incarnation, how))

    # -- time ------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Have the master start the topology."""
        self._loop.ask(Started())

    def drain(self) -> None:
        """Ask the master to end the topology."""
        self._loop.ask(DrainAsked(60.0))

    def step(self) -> None:
        """Give the master and each worker a turn; move the clock by a round, or to when somebody wants to turn."""
        now, phase = self.clock(), self.phase
        phase.rounds += 1
        self._arrived += self._router.receive()
        for _, message in self._arrived:
            phase.to_master[kind_of(message)] += 1
            phase.bytes_to_master[kind_of(message)] += len(message)
        is_busy = bool(self._arrived or self._ended or self.checkpoints.unread) or self._loop.next_turn() <= now
        if is_busy:
            began = time.thread_time()
            self._loop.turn()
            phase.master_s += time.thread_time() - began
        for message in self._sent:
            phase.from_master[kind_of(message)] += 1
            phase.bytes_from_master[kind_of(message)] += len(message)
        self._sent.clear()
        for process in list(self.processes.values()):
            has_turned = self.turn(process, now)
            if has_turned is None:
                self._end(process, ENDED_WELL)
            is_busy |= has_turned is not False
        wanted = [self._loop.next_turn(), *(process.wants for process in self.processes.values())]
        self.clock.advance_to(now + self.round_s if is_busy else max(now + self.round_s, min(wanted)))

    def turn(self, process: Process, now: float) -> bool | None:
        """Turn a worker if there is something to do; see `Process.turn`."""
        return process.turn(now)

    def until(self, condition: Callable[[], bool]) -> None:
        """Step until a condition holds. Raises AssertionError when it does not for long."""
        deadline = self.clock() + LONGEST_S
        while not condition():
            assert self.clock() < deadline, "it does not come about"
            self.step()

    def until_time(self, moment: float) -> None:
        """Step until a moment of the clock."""
        self.until(lambda: self.clock() >= moment)

    @property
    def outcome(self) -> Outcome | None:
        return self._loop.outcome

    @property
    def is_running(self) -> bool:
        return self.master.recovery.epochs.state is EpochState.RUNNING

    def executed(self, prefix: str) -> int:
        """Return the tuples that the components of such names have executed."""
        tasks = [task for process in self.processes.values() for task in process.worker.tasks.values()]
        return int(sum(task.statistics().counters.executed for task in tasks if task.component_id.startswith(prefix)))

    @property
    def complete(self) -> int:
        """The number of complete checkpoints."""
        assert self.master.checkpoints is not None
        return int(self.master.checkpoints.describe(self.clock())["complete"])

    @contextmanager
    def measured(self) -> Iterator[Phase]:
        """Measure what happens within."""
        phase = self.phase = Phase()
        before = {process.incarnation: process.cpu_s for process in self.processes.values()}
        processes, sent = dict(self.processes), Counter(self.sent)
        yield phase
        processes |= self.processes
        spent = [process.cpu_s - before.get(process.incarnation, 0.0) for process in processes.values()]
        phase.worker_s, phase.longest_s = sum(spent) / len(spent), max(spent)
        phase.frames, phase.frame_bytes = (self.sent[name] - sent[name] for name in ("messages", "bytes"))
        self.phase = Phase()
