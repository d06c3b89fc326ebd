"""A worker process in virtual time: the real `Worker` and its tasks, with the shell's loop around it, and ways to die.

It does what `topo.worker.loop` does, in the same order: read the link and the control inboxes, then data, let every task work,
beat, perform; let out what is buffered when there is nothing else to do. It can be stopped and continued, and it can die before a
turn, in the midst of user code, before it has sent what it decided, or after a part of that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn

from tests.simulator.virtual_store import VirtualThread
from topo.api.topology import Topology
from topo.checkpoint.alignment import SnapshotStore
from topo.ids import IdSource, Incarnation, TaskId, WorkerId
from topo.master.events import InFlightTuples
from topo.plan.physical import PhysicalPlan
from topo.storage.snapshots import TaskSnapshots
from topo.task.commands import SendFrame
from topo.task.context import make_context
from topo.task.environment import AsyncDone, TaskEnvironment, TaskSpec
from topo.task.events import Inbox
from topo.task.factory import task_class
from topo.task.router_factory import custom_groupings
from topo.task.task import Task
from topo.wire import control
from topo.wire.codec import Codec
from topo.wire.frames import unpack_words
from topo.wire.serializers import SerializerRegistry
from topo.worker.core import EXIT_ORPHANED, Exit, InFlightTracker, Worker

if TYPE_CHECKING:
    from tests.simulator.simulation import Simulation

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
    """What the process has in hand, kept outside of it."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self.content: InFlightTuples | None = None

    def write(self, task: TaskId, roots: bytes, positions: list[tuple[TaskId, bytes]]) -> None:
        """Note a batch."""
        self.content = InFlightTuples(tuple(unpack_words(roots)), tuple(positions))
        self._process.take_risk()

    def clear(self) -> None:
        """Nothing is in hand, unless the process is dead: its `finally` clauses run only here."""
        if self._process.is_alive:
            self._process.take_risk()
            self.content = None


class SimulatedProcess:
    """One life of a worker.

    Attributes:
        is_alive: False from the moment of its death.
        resumes_at: while it is stopped, when it continues; infinite: not before it is told to.
        is_out_of_reach: its machine cannot be reached, so it cannot be killed.
        stopped_s: how long it was stopped, in all.
        routes: whom it takes for each task: the incarnations of its epoch.
        time: the moment in virtual time up to which its thread has worked.
    """

    def __init__(
        self,
        simulation: Simulation,
        worker: WorkerId,
        incarnation: Incarnation,
        topology: Callable[[], Topology],
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
        self.stopped_s = 0.0
        self.crash_plan: CrashPlan | None = None
        self.time = now
        self.turn_s = simulation.draw_turn_s()
        self.turns = 0
        self._turned_at = now
        self._beside = VirtualThread(simulation, lambda: self.is_alive, lambda: self.is_stopped)
        self._calls: set[Coroutine[Any, Any, Any]] = set()
        """Those that have not begun."""
        self.note = SimulatedNote(self)
        self.hand = InFlightTracker(self.note)
        self.observer = simulation.history.observe(self)
        self.tasks = self._make_tasks(topology)
        self.worker = Worker(worker, incarnation, self.tasks, self.hand)
        self.inboxes: dict[tuple[TaskId, Inbox], deque[bytes]] = {
            (task, inbox): deque() for inbox in (Inbox.CONTROL, Inbox.DATA) for task in plan.workers[worker]
        }
        self.link: deque[bytes] = deque()
        self.routes: Mapping[TaskId, Incarnation] = {}
        self._to_master: deque[control.FromWorker] = deque()
        self._beat_at = now
        self._heard_at = now
        self._is_busy = True

    def _make_tasks(self, topology: Callable[[], Topology]) -> list[Task]:
        tasks: list[Task] = []
        for task in self.plan.workers[self.id]:
            built = topology()
            spec = self.plan.task(task)
            component: Any = None if task in self.plan.ackers else built.component(spec.component).make()
            config = self.plan.config_of(spec.component)
            context, groupings = make_context(self.plan, task), custom_groupings(built, spec.component)
            watermarks = None if component is None else built.component(spec.component).watermarks
            limits = self._simulation.limits
            setup = TaskSpec(task, self.plan, config, component, context, groupings, watermarks, limits=limits)
            ports = TaskEnvironment(
                IdSource(self._simulation.draw_bytes()),
                self.clock,
                Codec(),
                self.hand,
                self._simulation.wall_ms,
                lambda: self._simulation.wake(self),
                self._run_async,
                self._snapshots_of(task),
                observer=self.observer,
            )
            tasks.append(task_class(self.plan, task, component)(setup, ports))
        return tasks

    def _snapshots_of(self, task: TaskId) -> SnapshotStore | None:
        disk = self._simulation.disk
        if disk is None:
            return None
        store = TaskSnapshots(self.plan, task, disk.store(), SerializerRegistry(), self._beside.submit)
        return self._simulation.history.watched_store(store, self)

    def _run_async(self, call: Coroutine[Any, Any, Any], done: AsyncDone, _blocks: Callable[[Exception], None]) -> None:
        """Drive a coroutine beside the process's thread; what it awaits are virtual seconds."""
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

    # -- what the process's own code calls -------------------------------------------------------------------------------

    def clock(self) -> float:
        """Tell the time to the tasks; a process may die while it asks."""
        self.take_risk()
        return self.time

    def work(self, seconds: float) -> None:
        """User code works for so long; a watchdog ends slices that hold up the loop."""
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

    def register(self) -> None:
        """The inboxes are bound: say so."""
        endpoints = [control.Endpoints(task, f"sim-{task}-{self.incarnation}-d", f"sim-{task}-{self.incarnation}-c")
                     for task in self.plan.workers[self.id]]  # fmt: skip
        self._to_master.append(
            control.Register(self.id, self.incarnation, self.incarnation % 65_536, "sim", "3", self._simulation.digest, endpoints)
        )

    def turn(self, now: float) -> float:
        """Turn the loop once. Returns when it wants to turn again, if nothing arrives before.

        Raises:
            ProcessKilled: the process has died on the way.
        """
        self.time = self._turned_at = max(self.time, now)
        self.turns += 1
        self._die_at(CrashPoint.BEFORE_TURN)
        has_read = self._read()
        self._die_at(CrashPoint.AFTER_READING)
        worker = self.worker
        has_run = worker.exit is None and worker.run(self.time)
        if self.time >= self._beat_at:
            self._beat()
        self._perform()
        if self._is_busy and worker.exit is None and not (has_read or has_run or worker.has_work):
            worker.idle(self.time)
            self._perform()
        self._is_busy = has_read or has_run or worker.has_work
        self._die_at(CrashPoint.AFTER_TURN)
        if worker.exit is not None:
            self._beat()
            self._perform()
            self.is_alive = False
            return _NEVER
        self.time += self.turn_s
        if self._is_busy:
            return self.time
        deadline = worker.next_deadline(self.time)
        until = self._beat_at if deadline is None else min(deadline, self._beat_at)
        return max(self.time, until)

    def _die_at(self, point: CrashPoint) -> None:
        crash_plan = self.crash_plan
        if crash_plan is not None and crash_plan.point is point:
            crash_plan.countdown -= 1
            if crash_plan.countdown < 0:
                self._fall(crash_plan)

    def _read(self) -> bool:
        worker, now = self.worker, self.time
        has_read = bool(self.link)
        if self.link and worker.exit is None:
            self._hear([control.decode_from_master(data) for data in self.link])
            self.link.clear()
        for (task, inbox), frames in self.inboxes.items():
            if frames and (inbox is Inbox.CONTROL or worker.tasks[task].wants_data):
                has_read = True
                for _ in range(min(len(frames), self._simulation.reads_at_once)):
                    worker.arrived(task, inbox, frames.popleft(), now)
        return has_read

    def _hear(self, messages: list[control.FromMaster]) -> None:
        self._heard_at = self.time
        worker = self.worker
        for message in messages:
            if isinstance(message, control.Routes) and message.term >= worker.term and message.epoch > worker.epoch:
                self.routes = {route.task: route.incarnation for route in message.routes}
        worker.on_messages(messages, self.time)
        for message in messages:
            self._simulation.history.told(self, message)

    def _perform(self) -> None:
        commands: Iterable[Any] = self.worker.take_commands()
        self._die_at(CrashPoint.BEFORE_SENDING)
        for command in commands:
            self._die_at(CrashPoint.WHILE_SENDING)
            if isinstance(command, SendFrame):
                assert isinstance(command.frame, bytes), "a frame object left its worker"
                key = (self.incarnation, self.routes[command.target], command.target, command.inbox)
                self._simulation.network.send(key, command.frame, self.time)
            else:
                self._to_master.append(command.message)
        while self._to_master:
            self._simulation.tell_master(self, control.encode(self._to_master.popleft()))

    def _beat(self) -> None:
        config = self.plan.config
        self._beat_at = self.time + config.heartbeat_s
        self._to_master.append(self.worker.heartbeat(""))
        if self.time - self._heard_at > config.master_timeout_s:
            self.worker.exit = self.worker.exit or Exit(EXIT_ORPHANED, "no master was heard of")
