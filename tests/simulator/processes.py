"""A worker process in virtual time: the real `Loop` with its `Worker` and tasks, on a virtual transport, and ways to die.

It can be stopped and continued, and it can die before a turn, in the midst of user code, before it has sent its decisions, or
after a part of them: where its tasks ask for the time or mark their work, and where the loop calls the worker or the transport.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from tests.simulator.control_line import ControlLine
from tests.simulator.virtual_store import VirtualThread
from tests.simulator.virtual_transport import VirtualTransport, endpoint_of
from topo.api.topology import Topology
from topo.checkpoint.alignment import SnapshotStore
from topo.hot import Ids, unpack_words
from topo.ids import Incarnation, TaskId, WorkerId
from topo.plan.physical import PhysicalPlan
from topo.storage.snapshots import TaskSnapshots
from topo.task.context import make_context
from topo.task.environment import AsyncDone, TaskEnvironment, TaskSpec
from topo.task.factory import make_task
from topo.task.router_factory import custom_groupings
from topo.task.task import Task
from topo.tracking.suspects import InFlightTuples
from topo.wire import control
from topo.wire.codec import Codec, split_packed
from topo.wire.serializers import SerializerRegistry
from topo.worker.connections import Connections, bind_inbox
from topo.worker.core import InFlightTracker, Worker
from topo.worker.loop import LINK, Loop
from topo.worker.session import WorkerSession

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

KILLED = "killed by signal 9 (SIGKILL)"
_NEVER = float("inf")


class ProcessKilled(BaseException):
    """The process whose code runs is dead: nothing of this turn leaves it."""


class CrashPoint(Enum):
    """Where in a turn a process dies."""

    BEFORE_TURN = "before the turn"
    AFTER_READING = "after reading"
    IN_TURN = "within the turn"
    """At one of the calls of the tasks for the time or the note: before, in or after user code."""
    BEFORE_SENDING = "before sending"
    WHILE_SENDING = "while sending"
    AFTER_TURN = "after the turn"


@dataclass(slots=True)
class CrashPlan:
    """How a process is to die: where, and after how many calls or commands there."""

    point: CrashPoint
    countdown: int = 0
    has_come: bool = False


class SimulatedNote:
    """The tuples in flight in the process, kept outside of it."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self.content: InFlightTuples | None = None

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        """Note a batch."""
        each = [(spout, position) for spout, packed in positions for position in split_packed(packed)]
        self.content = InFlightTuples(tuple(unpack_words(roots)), tuple(each))
        self._process.observer.work_noted(task, self.content.roots)
        self._process.take_risk()

    def clear(self) -> None:
        """Nothing is in flight, unless the process is dead: its `finally` clauses run only here."""
        if self._process.is_alive:
            self._process.take_risk()
            self.content = None


class SimulatedWorker(Worker):
    """The tasks of a simulated process, which may die when it has read; reports messages of the master to the history."""

    def __init__(self, process: SimulatedProcess, simulation: Simulation) -> None:
        super().__init__(process.id, process.incarnation, process.tasks, process.hand)
        self._process = process
        self._simulation = simulation

    def run(self, now: float) -> bool:
        """Give every task a turn."""
        self._process.die_at(CrashPoint.AFTER_READING)
        return super().run(now)

    def on_messages(self, messages: Sequence[control.FromMaster], now: float) -> None:
        """Act on messages of the master."""
        super().on_messages(messages, now)
        for message in messages:
            if isinstance(message, control.Routes) and message.epoch == self.epoch:
                self._process.routes = {route.task: route.incarnation for route in message.routes}
                self._simulation.adopted(self._process, message.epoch)
            self._simulation.history.master_message(self._process, message)


class SimulatedProcess:
    """One life of a worker.

    Attributes:
        is_alive: False from the moment of its death.
        resumes_at: while it is stopped, when it continues; infinite: until `resume`.
        ended_at: when it ended; None before.
        is_out_of_reach: its machine cannot be reached, so it cannot be killed.
        routes: whom it takes for each task: the incarnations of its epoch.
        time: the moment in virtual time up to which its thread has worked.
    """

    def __init__(
        self,
        simulation: Simulation,
        worker: WorkerId,
        incarnation: Incarnation,
        topology_for: Callable[[str], Topology],
        plan: PhysicalPlan,
        term: int,
        now: float,
    ) -> None:
        self._simulation = simulation
        self.id = worker
        self.incarnation = incarnation
        self.term = term
        self.plan = plan
        self.is_alive = True
        self.resumes_at: float | None = None
        self.is_out_of_reach = False
        self.ended_at: float | None = None
        self.crash_plan: CrashPlan | None = None
        self.time = now
        self.turn_s = simulation.draw_turn_s()
        self.turns = 0
        self._has_sent = False
        """In this turn."""
        self._turned_at = now
        self._beside = VirtualThread(simulation, lambda: self.is_alive, lambda: self.is_stopped)
        self._calls: set[Coroutine[Any, Any, Any]] = set()
        """Those that have not begun."""
        self.note = SimulatedNote(self)
        self.hand = InFlightTracker(self.note)
        self.observer = simulation.history.observe(self)
        self.tasks = self._make_tasks(topology_for)
        self.routes: Mapping[TaskId, Incarnation] = {}
        self.line = ControlLine(simulation.random, simulation.at, self._reach_master, self._reach_worker)
        self.line.on_send = simulation.strikes.control_sent
        self.transport = VirtualTransport(
            incarnation,
            simulation.network,
            self.line,
            simulation.reads_at_once,
            lambda: self.time,
            self._before_send,
            lambda at: simulation.wake(self, at),
            simulation.draw_delay_s,
        )
        self.transport.on_full = lambda: simulation.history.count("a full connection refused frames")
        self.transport.on_full_line = lambda: simulation.history.count("a report was refused")
        self.is_booted = False
        self.worker = SimulatedWorker(self, simulation)
        components = {task.id: task.component_id for task in self.tasks}
        bind_inbox(self.transport, plan.config)
        self.loop = Loop(
            self.worker,
            WorkerSession(plan.config, components, now),
            self.transport,
            self.transport.link(LINK, "", b""),
            Connections(self.transport, plan, frozenset(components)),
            lambda: "",
            self.clock,
            stint_s=0.0,
        )

    def _make_tasks(self, topology_for: Callable[[str], Topology]) -> list[Task]:
        tasks: list[Task] = []
        for task in self.plan.workers[self.id]:
            spec = self.plan.task(task)
            built = topology_for(spec.component)
            component: Any = None if task in self.plan.ackers else built.component(spec.component).make()
            config = self.plan.config_of(spec.component)
            context, groupings = make_context(self.plan, task), custom_groupings(built, spec.component)
            watermarks = None if component is None else built.component(spec.component).watermarks
            limits, chain = self._simulation.limits, None if component is None else built.component(spec.component).chain
            setup = TaskSpec(task, self.plan, config, component, context, groupings, watermarks, limits=limits, chain=chain)
            ports = TaskEnvironment(
                Ids(self._simulation.draw_bytes()),
                self.clock,
                Codec(),
                self.hand,
                self._simulation.wall_ms,
                lambda: self._simulation.wake(self),
                self._run_async,
                self._snapshots_of(task),
                observer=self.observer,
                load=self._load,
            )
            tasks.append(make_task(setup, ports))
        return tasks

    def _load(self) -> int:
        """Return a load that changes each second: nothing is drawn for it."""
        return (97 * self.id + 61 * int(self._simulation.now)) % 101

    def _snapshots_of(self, task: TaskId) -> SnapshotStore | None:
        disk = self._simulation.disk
        if disk is None:
            return None
        store = TaskSnapshots(self.plan, task, disk.store(), SerializerRegistry(), self._beside.submit, disk.files_in)
        return self._simulation.history.watched_store(store, self)

    def _run_async(self, call: Coroutine[Any, Any, Any], done: AsyncDone, _blocks: Callable[[Exception], None]) -> None:
        """Drive a coroutine beside the process's thread; it awaits virtual seconds."""
        self._calls.add(call)

        def step() -> None:
            if self.is_alive and self.is_stopped:
                self._simulation.at(self._simulation.now + 0.01, step)
                return
            self._calls.discard(call)
            if not self.is_alive:
                call.close()
            else:
                try:
                    seconds = call.send(None)
                except StopIteration as end:
                    done(end.value, None)
                except Exception as error:
                    done(None, error)
                else:
                    self._simulation.at(self._simulation.now + seconds, step)

        self._simulation.at(self.time, step)

    def drop_calls(self) -> None:
        """The simulation is over: calls that have not begun never will."""
        for call in self._calls:
            call.close()

    # -- called by the process's code -------------------------------------------------------------------------------

    def clock(self) -> float:
        """Return the time for the tasks; the process may die in this call."""
        if self.crash_plan is not None:
            self.take_risk()
        return self.time

    def work(self, seconds: float) -> None:
        """User code works for a time; a watchdog ends slices that hold up the loop."""
        self.time += seconds
        if self.time - self._turned_at >= self.plan.config.heartbeat_s:
            self.worker.cut_short()

    def kill_itself(self) -> NoReturn:
        """User code ends the process."""
        self.is_alive = False
        raise ProcessKilled

    def _fall(self, crash_plan: CrashPlan) -> NoReturn:
        crash_plan.has_come = True
        self.kill_itself()

    def take_risk(self) -> None:
        """Die here, if that is how the process is to die."""
        crash_plan = self.crash_plan
        if crash_plan is not None and crash_plan.point is CrashPoint.IN_TURN and self.is_alive:
            crash_plan.countdown -= 1
            if crash_plan.countdown < 0:
                self._fall(crash_plan)

    # -- the loop --------------------------------------------------------------------------------------------------------

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped and has not continued."""
        return self.resumes_at is not None

    def boot(self) -> None:
        """Report that the inbox is bound."""
        self.is_booted = True
        tasks, endpoint = list(self.plan.workers[self.id]), endpoint_of(self.incarnation)
        pid, digest = self.incarnation % 65_536, self._simulation.digest
        self.loop.session.send(control.Register(self.id, self.incarnation, pid, "sim", "3", digest, tasks, endpoint))

    def turn(self, now: float) -> float:
        """Turn the loop once. Returns when it wants to turn again, if nothing arrives before.

        Raises:
            ProcessKilled: the process has died on the way.
        """
        self.time = self._turned_at = max(self.time, now)
        self.turns += 1
        self._has_sent = False
        self.die_at(CrashPoint.BEFORE_TURN)
        wants = self.loop.turn(self.transport.ready(), self.time)
        self.die_at(CrashPoint.AFTER_TURN)
        if wants is None:
            self.is_alive = False
            return _NEVER
        # The watchdog is on time while the process runs, whatever user code does.
        self.loop.alive_at = self.time
        self.time += self.turn_s
        # `wait` does not sleep while an inbox is readable.
        return self.time if self.transport.ready() else max(self.time, wants)

    def die_at(self, point: CrashPoint) -> None:
        """Die here, if that is where the process is to die."""
        crash_plan = self.crash_plan
        if crash_plan is not None and crash_plan.point is point:
            crash_plan.countdown -= 1
            if crash_plan.countdown < 0:
                self._fall(crash_plan)

    def _before_send(self) -> None:
        if not self.is_alive:
            raise ProcessKilled
        if not self._has_sent:
            self._has_sent = True
            self.die_at(CrashPoint.BEFORE_SENDING)
        self.die_at(CrashPoint.WHILE_SENDING)

    def _reach_master(self, data: bytes) -> None:
        self._simulation.arrived_at_master(self, data)

    def _reach_worker(self, data: bytes) -> None:
        self._simulation.arrived_at_worker(self, data)
