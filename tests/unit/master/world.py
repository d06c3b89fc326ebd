"""Naive workers around a real master: processes that are born, talk, stop, die; tasks that pass tokens along edges.

The model is simple, so that the checks are easy to see. A spout emits numbered messages and untracked tokens; a bolt passes an
ack to an acker for each message; the acker sends a verdict to the spout. Tasks do not see frames under way on edges, so only
the master's counting can keep a topology open for an untracked token. Every call of the master is checked by `_check`.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from tests.unit.master.playbook import DIGEST
from topo.checkpoint.store_messages import CheckpointStored, CommitCheckpoint, DiscardCheckpoint
from topo.ids import Epoch, Incarnation, TaskId, WorkerId
from topo.master.commands import Finished, MasterCommand, MasterRecord, Persist, SendTo, StartWorker, StopWorker
from topo.master.events import LaunchFailed, MasterEvent, Started, Tick, WorkerExited, WorkerLaunched, WorkerMessage
from topo.master.master import TopologyMaster
from topo.master.outcome import Outcome
from topo.plan.physical import PhysicalPlan
from topo.tracking.suspects import InFlightTuples
from topo.wire import control

Token = tuple[str, int]
"""("open" | "end" | "data" | "untracked" | "noise" | "ack" | "verdict", message)"""


@dataclass
class FakeTask:
    id: TaskId
    epoch: int = 0
    opened: set[TaskId] = field(default_factory=set)
    ends: set[TaskId] = field(default_factory=set)
    remaining: list[int] = field(default_factory=list)
    pending: set[int] = field(default_factory=set)
    sent: int = 0
    received: int = 0
    is_ready: bool = False
    is_going: bool = False
    has_ended: bool = False
    reported: tuple[bool, bool] = (False, False)


@dataclass
class Process:
    worker: WorkerId
    life: Incarnation
    tasks: dict[TaskId, FakeTask]
    inbox: deque[control.FromMaster] = field(default_factory=deque)
    outbox: deque[control.FromWorker] = field(default_factory=deque)
    paused_until: float = 0.0
    beat_at: float = 0.0
    is_active: bool = True
    routes: control.Routes | None = None


class World:
    """Drives a master for one seed. `is_healed` ends the faults."""

    def __init__(self, plan: PhysicalPlan, seed: int, messages: int, previous: MasterRecord | None = None) -> None:
        self.plan = plan
        self.random = random.Random(seed)
        self.now = 0.0
        self.master = TopologyMaster(plan, DIGEST, self._draw, previous)
        self.lives: set[Incarnation] = set()
        self.births: list[StartWorker] = []
        self.processes: dict[Incarnation, Process] = {}
        self.exits: list[WorkerExited] = []
        self.late: deque[WorkerMessage] = deque()
        self.laziness = self.random.choice((0.0, 0.0, 0.9))
        self.edges: dict[tuple[TaskId, TaskId], deque[tuple[int, Token]]] = {}
        self.dead_edges: set[tuple[TaskId, TaskId]] = set()
        self.undone = {task: dict.fromkeys(range(messages)) for task in plan.spouts}
        self.durable = previous
        self.last_epoch = 0 if previous is None else previous.epoch
        self.outcome: Outcome | None = None
        self.is_healed = False
        self.seen: set[str] = set()
        self.commits: deque[CommitCheckpoint] = deque()
        self.complete = 0
        self.passed: set[int] = set()
        self.begun: dict[int, Epoch] = {}
        self.feed(Started())

    def _draw(self) -> Incarnation:
        life = Incarnation(self.random.getrandbits(62) + 1)
        assert life not in self.lives
        self.lives.add(life)
        return life

    # -- the master ------------------------------------------------------------------------------------------------------

    def feed(self, event: MasterEvent) -> None:
        commands = self.master.handle(event, self.now)
        self.master.validate()
        self._check(commands)
        for command in commands:
            self._perform(command)

    def _check(self, commands: list[MasterCommand]) -> None:
        for command in commands:
            if isinstance(command, Persist):
                assert self.durable is None or command.record.term >= self.durable.term
                assert self.durable is None or command.record.epoch >= self.durable.epoch
                self.durable = command.record
            elif isinstance(command, StartWorker):
                assert self.durable is not None
                assert self.durable.incarnations[command.worker] == command.incarnation, "a life was not persisted"
            elif isinstance(command, SendTo):
                self._check_message(command)
        sent = [command.message for command in commands if isinstance(command, SendTo)]
        if epochs := {message.epoch for message in sent if isinstance(message, control.Routes)}:
            (epoch,) = epochs
            assert epoch > self.last_epoch, "the epoch did not rise"
            self.last_epoch = epoch
        if any(isinstance(message, control.Close) for message in sent):
            self._check_close()

    def _check_message(self, command: SendTo) -> None:
        message, durable = command.message, self.durable
        assert durable is not None
        if isinstance(message, control.Routes):
            assert (message.term, message.epoch) == (durable.term, durable.epoch), "routes before they were persisted"
            assert {route.worker: route.incarnation for route in message.routes} == durable.incarnations
            assert [route.task for route in message.routes] == [task.id for task in self.plan.tasks]
            assert not self.commits, "an epoch began while the checkpoint to restore was undecided"
            assert message.checkpoint == self.complete
        elif isinstance(message, control.BeginCheckpoint):
            assert durable.checkpoint == message.checkpoint, "a checkpoint began before its number was persisted"
            assert self.begun.setdefault(message.checkpoint, message.epoch) == message.epoch, "a number was used again"
        elif isinstance(message, control.CheckpointComplete):
            assert message.checkpoint == self.complete
        elif isinstance(message, control.Go):
            current = self.master.membership.incarnations()
            assert current == durable.incarnations
            for life in current.values():
                process = self.processes.get(life)
                # A task that has died since its report is replaced later; any other must be ready.
                assert process is None or all(task.is_ready and task.epoch == message.epoch for task in process.tasks.values())

    def _check_close(self) -> None:
        outcome = self.master.ending.outcome
        if outcome is not None and outcome.kind.value != "drained":
            return
        if not self.master.recovery.epochs.has_run:
            return
        self.seen.add("closed")
        if self.plan.config.delivery == "exactly_once":
            assert self.begun[self.complete] == self.master.recovery.epochs.epoch, "closed without a final checkpoint"
        epoch = self.master.recovery.epochs.epoch
        under_way = {edge: tokens for edge, queue in self.edges.items() if (tokens := [t for e, t in queue if e == epoch])}
        assert not under_way, f"closed while frames were under way: {under_way}"
        current = self.master.membership.incarnations().values()
        for process in [process for process in self.processes.values() if process.life in current]:
            for task in process.tasks.values():
                assert not task.pending, "closed while a message was pending"
                assert task.has_ended or self.master.ending.is_draining, "closed before a task had ended"

    def _perform(self, command: MasterCommand) -> None:
        if isinstance(command, StartWorker):
            self.births.append(command)
        elif isinstance(command, StopWorker):
            self.births = [birth for birth in self.births if birth.incarnation != command.incarnation]
            process = self.processes.get(command.incarnation)
            if process is not None:
                # A machine that is cut off cannot be reached: its processes are zombies until it comes back.
                if process.paused_until <= self.now or self.random.random() < 0.5:
                    self.kill(process)
            elif self.outcome is None:
                self.exits.append(WorkerExited(command.worker, command.incarnation, "never born"))
        elif isinstance(command, SendTo):
            if command.incarnation in self.processes:
                self.processes[command.incarnation].inbox.append(command.message)
        elif isinstance(command, CommitCheckpoint):
            assert not self.commits
            self.commits.append(command)
        elif isinstance(command, DiscardCheckpoint):
            assert command.checkpoint != self.complete, "a complete checkpoint was thrown away"
            self.seen.add("discarded")
        elif isinstance(command, Finished):
            assert self.outcome is None
            self.outcome = command.outcome

    # -- one step --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let some time pass and one random thing happen."""
        target = self.now + self.random.choice((0.0, 0.001, 0.01, 0.1))
        deadline = self.master.next_deadline()
        if deadline is not None and deadline <= target:
            self.now = max(self.now, deadline)
            self.feed(Tick())
            return
        self.now = target
        for process in self.processes.values():
            if process.beat_at <= self.now and process.paused_until <= self.now:
                process.beat_at = self.now + 1.0
                process.outbox.append(control.Heartbeat(process.worker, process.life, 1, Epoch(0)))
        actions = [self._birth] * bool(self.births) + [self._exit] * bool(self.exits)
        awake = [process for process in self.processes.values() if process.paused_until <= self.now]
        actions += [lambda: self.feed(self.late.popleft())] * bool(self.late)
        actions += [self._store] * bool(self.commits)
        actions += [self._read] * any(process.inbox for process in awake)
        actions += [self._hear] * 2 * any(process.outbox for process in self.processes.values())
        actions += [self._emit, self._deliver, self._deliver] * bool(awake)
        if actions:
            self.random.choice(actions)()

    def _birth(self) -> None:
        birth = self.births.pop(self.random.randrange(len(self.births)))
        if not self.is_healed and self.random.random() < 0.03:
            self.seen.add("failed launch")
            self.feed(LaunchFailed(birth.worker, birth.incarnation, "no room"))
            return
        tasks = {task: FakeTask(task) for task in self.plan.workers[birth.worker]}
        process = self.processes[birth.incarnation] = Process(birth.worker, birth.incarnation, tasks)
        process.beat_at = self.now + 1.0
        process.outbox.append(
            control.Register(birth.worker, birth.incarnation, 1, "", "", DIGEST, list(tasks), f"inbox-{birth.incarnation}")
        )
        self.feed(WorkerLaunched(birth.worker, birth.incarnation))

    def _store(self) -> None:
        manifest = self.commits.popleft().manifest
        if self.is_healed or self.random.random() < 0.8:
            self.complete = manifest.checkpoint
            self.seen.add("checkpoint")
            self.feed(CheckpointStored(manifest))
        else:
            self.seen.add("failed commit")
            self.feed(CheckpointStored(manifest, "no room"))

    def _checkpoint(self, begin: control.BeginCheckpoint) -> None:
        """Let the barriers pass, all at once, through the present tasks."""
        for process in self.processes.values():
            for task in process.tasks.values():
                if task.epoch != begin.epoch or task.id in self.plan.ackers:
                    continue
                if not self.is_healed and self.random.random() < 0.05:
                    process.outbox.append(control.SnapshotFailed(task.id, begin.epoch, begin.checkpoint, "no room"))
                    continue
                if task.id in self.plan.spouts:
                    process.outbox.append(control.BarrierAcked(task.id, begin.epoch, begin.checkpoint))
                process.outbox.append(control.SnapshotTaken(task.id, begin.epoch, begin.checkpoint, "part", 1, "c"))

    def _publish(self, process: Process, checkpoint: int) -> None:
        for task in process.tasks.values():
            if checkpoint and task.id not in self.plan.ackers:
                process.outbox.append(control.CheckpointPublished(task.id, Epoch(task.epoch), checkpoint))

    def _exit(self) -> None:
        self.feed(self.exits.pop(self.random.randrange(len(self.exits))))

    def _hear(self) -> None:
        process = self.random.choice([process for process in self.processes.values() if process.outbox])
        self.feed(WorkerMessage(process.worker, process.life, process.outbox.popleft()))

    def _read(self) -> None:
        waiting = [process for process in self.processes.values() if process.inbox and process.paused_until <= self.now]
        process = self.random.choice(waiting)
        message = process.inbox.popleft()
        if isinstance(message, control.Routes):
            self._adopt(process, message)
        elif isinstance(message, control.Go):
            for task in process.tasks.values():
                task.is_going = task.epoch == message.epoch
        elif isinstance(message, control.Activate):
            process.is_active = True
        elif isinstance(message, control.Deactivate | control.Drain):
            process.is_active = False
        elif isinstance(message, control.BeginCheckpoint):
            # Every worker with spouts gets it; the first that reads it stands for all.
            if message.checkpoint not in self.passed:
                self.passed.add(message.checkpoint)
                self._checkpoint(message)
        elif isinstance(message, control.CheckpointComplete):
            self._publish(process, message.checkpoint)
        elif isinstance(message, control.Probe):
            for task in process.tasks.values():
                if task.epoch == message.epoch:
                    self._report_quiet(process, task, message.number)
        elif isinstance(message, control.Close):
            process.outbox.extend(control.Closed(task) for task in process.tasks)
            while process.outbox:
                self.feed(WorkerMessage(process.worker, process.life, process.outbox.popleft()))
            self.kill(process)
        elif isinstance(message, control.Stop):
            self.seen.add("zombie stopped")
            self.kill(process)

    # -- faults ----------------------------------------------------------------------------------------------------------

    def fault(self) -> None:
        """Let something go wrong."""
        if not self.processes:
            return
        process = self.random.choice(list(self.processes.values()))
        kind = self.random.choice(("kill", "kill", "pause", "edge", "kill two"))
        self.seen.add(kind)
        if kind == "pause":
            process.paused_until = self.now + self.random.choice((0.5, 3.0, 7.0))
        elif kind == "edge" and self.edges:
            sender, target = edge = self.random.choice(list(self.edges))
            self.dead_edges.add(edge)
            self.edges[edge].clear()
            for found in self.processes.values():
                if target in found.tasks:
                    epoch = Epoch(found.tasks[target].epoch)
                    found.outbox.append(control.EdgeLost(target, epoch, sender, "a gap"))
        else:
            self.kill(process)
            if kind == "kill two" and self.processes:
                self.kill(self.random.choice(list(self.processes.values())))

    def kill(self, process: Process) -> None:
        """End a process: a part of its sent messages may still arrive; messages on their way to it are lost."""
        del self.processes[process.life]
        for edge, queue in self.edges.items():
            if edge[1] in process.tasks and self._host(edge[1]) is None:
                queue.clear()
        arriving = self.random.randint(0, len(process.outbox))
        self.late += [WorkerMessage(process.worker, process.life, message) for message in list(process.outbox)[:arriving]]
        in_flight = InFlightTuples((self.random.getrandbits(64),)) if self.random.random() < 0.5 else None
        self.exits.append(WorkerExited(process.worker, process.life, "killed", in_flight))

    # -- tasks -----------------------------------------------------------------------------------------------------------

    def _host(self, task: TaskId) -> Process | None:
        """Return the process that frames for a task reach: that of the life in the newest routes."""
        for process in self.processes.values():
            is_named = self.durable is not None and self.durable.incarnations.get(process.worker) == process.life
            if is_named and task in process.tasks:
                return process
        return None

    def _adopt(self, process: Process, routes: control.Routes) -> None:
        mine = {route.incarnation for route in routes.routes if route.worker == process.worker}
        assert mine == {process.life}
        process.routes = routes
        self._publish(process, routes.checkpoint)
        for task in process.tasks.values():
            sources = self.undone.get(task.id)
            process.tasks[task.id] = fresh = FakeTask(task.id, routes.epoch)
            fresh.remaining = [] if sources is None else list(sources)
            self.dead_edges -= {edge for edge in self.dead_edges if edge[0] == task.id}
            for target in self._targets(task.id):
                self._put(fresh, target, ("open", 0))
            self._opened(process, fresh)

    def _targets(self, task: TaskId) -> tuple[TaskId, ...]:
        verdicts = self.plan.spouts if task in self.plan.ackers else ()
        return (*self.plan.downstream_tasks(task), *verdicts)

    def _sources(self, task: TaskId) -> tuple[TaskId, ...]:
        verdicts = self.plan.ackers if task in self.plan.spouts else ()
        return (*self.plan.upstream_tasks(task), *verdicts)

    def _put(self, task: FakeTask, target: TaskId, token: Token) -> None:
        task.sent += 1
        queue = self.edges.setdefault((task.id, target), deque())
        if (task.id, target) not in self.dead_edges and self._host(target) is not None:
            queue.append((task.epoch, token))

    def _opened(self, process: Process, task: FakeTask) -> None:
        if not task.is_ready and task.opened.issuperset(self._sources(task.id)):
            task.is_ready = True
            process.outbox.append(control.TaskReady(task.id, Epoch(task.epoch)))

    def _emit(self) -> None:
        spouts = [(p, t) for p in self.processes.values() for t in p.tasks.values() if t.id in self.undone]
        going = [(p, t) for p, t in spouts if t.is_going and p.is_active and not t.has_ended and p.paused_until <= self.now]
        if not going:
            return
        process, task = self.random.choice(going)
        bolts = [target for target in self._targets(task.id) if target not in self.plan.ackers]
        if task.remaining:
            message = task.remaining.pop(0)
            task.pending.add(message)
            self._put(task, self.random.choice(bolts), ("data", message * 1000 + task.id))
            self._put(task, self.random.choice(bolts), ("untracked", 0))
        else:
            task.has_ended = True
            for target in self._targets(task.id):
                self._put(task, target, ("end", 0))
        self._watch(process, task)

    def _deliver(self) -> None:
        if self.random.random() < self.laziness:
            return
        ready = []
        for (sender, target), queue in self.edges.items():
            process = self._host(target)
            if not queue or process is None or process.paused_until > self.now:
                continue
            if queue[0][0] <= process.tasks[target].epoch:
                ready.append((sender, process, process.tasks[target], queue))
        if not ready:
            return
        sender, process, task, queue = self.random.choice(ready)
        epoch, (kind, message) = queue.popleft()
        if epoch < task.epoch:
            return
        task.received += 1
        if kind == "open":
            task.opened.add(sender)
            self._opened(process, task)
        elif kind == "end":
            task.ends.add(sender)
            if not task.has_ended and task.ends.issuperset(self.plan.upstream_tasks(task.id)):
                task.has_ended = True
                for target in self._targets(task.id):
                    self._put(task, target, ("end", 0))
        elif kind == "data":
            acker = self.random.choice(self.plan.ackers)
            self._put(task, acker, ("ack", message))
        elif kind == "untracked":
            self._put(task, self.random.choice(self.plan.ackers), ("noise", 0))
        elif kind == "ack":
            self._put(task, TaskId(message % 1000), ("verdict", message // 1000))
        elif kind == "verdict":
            task.pending.discard(message)
            self.undone[task.id].pop(message, None)
        self._watch(process, task)

    def _watch(self, process: Process, task: FakeTask) -> None:
        facts = (task.has_ended, not task.pending)
        if facts != task.reported and (facts == (True, True) or task.reported[1]):
            self._report_quiet(process, task, 0)

    def _report_quiet(self, process: Process, task: FakeTask, probe: int) -> None:
        task.reported = (task.has_ended, not task.pending)
        quiet = control.Quiet(
            task.id, Epoch(task.epoch), probe, task.has_ended, not task.pending, task.sent, task.received, len(task.pending)
        )
        process.outbox.append(quiet)
