"""All tasks of a topology, joined by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tests.tasks.environment import Calls, Clock, Hand, make_env, make_task, routes
from topo.api.topology import Topology
from topo.ids import Epoch, TaskId
from topo.plan.physical import physical_plan
from topo.task.commands import TellMaster
from topo.task.events import FrameArrived, Idle, RoutesChanged, TaskEvent, Turn
from topo.wire.control import FromTask, Go, Quiet, TaskReady
from topo.wire.frames import Frame, parse

M = TypeVar("M", bound=FromTask)


class Ring:
    """All tasks of a topology, joined by hand: frames wait in inboxes until the test lets the tasks read them."""

    def __init__(self, topology: Topology, *, local: bool = False, seed: bytes = b"ring") -> None:
        self.topology = topology
        self.plan = physical_plan(topology)
        self.clock = Clock()
        self.calls = Calls()
        envs = {t.id: make_env(t.id, self.clock, Hand(), seed, self.calls) for t in self.plan.tasks}
        self.tasks = {task: make_task(topology, self.plan, task, env) for task, env in envs.items()}
        self.inboxes: dict[TaskId, list[Any]] = {task: [] for task in self.tasks}
        self.reports: list[FromTask] = []
        self.local = frozenset(self.tasks) if local else frozenset[TaskId]()
        self.lose: Callable[[TaskId, Frame], bool] = lambda target, frame: False

    def start(self, epoch: int = 1, **more: Any) -> Ring:
        """Open all edges and let the spouts go."""
        for task in self.tasks:
            self.handle(task, RoutesChanged(routes(self.plan, epoch, **more), self.local))
        self.settle()
        ready = {message.task for message in self.reports if isinstance(message, TaskReady) and message.epoch == epoch}
        assert ready == set(self.tasks), f"not ready: {set(self.tasks) - ready}"
        for task in self.tasks:
            self.handle(task, Go(Epoch(epoch)))
        return self

    def handle(self, task: TaskId, event: TaskEvent) -> None:
        for command in self.tasks[task].handle(event, self.clock.now):
            if isinstance(command, TellMaster):
                self.reports.append(command.message)
                continue
            frame = command.frame if isinstance(command.frame, Frame) else parse(command.frame)
            if not self.lose(command.target, frame):
                self.inboxes[command.target].append(command.frame)
        self.tasks[task].validate()

    def step(self, task: TaskId) -> bool:
        """Let one task read its frames and take a turn; False when it had nothing to do."""
        did = False
        waiting = self.inboxes[task]
        while waiting:
            self.handle(task, FrameArrived(waiting.pop(0)))
            did = True
        deadline = self.tasks[task].next_deadline(self.clock.now)
        if self.tasks[task].has_work or (deadline is not None and deadline <= self.clock.now):
            self.handle(task, Turn())
            did = True
        return did

    def settle(self) -> None:
        """Step all tasks until nothing is left to do at this moment."""
        for _ in range(100_000):
            if not sum(self.step(task) for task in self.tasks):
                before = sum(map(len, self.inboxes.values()))
                for task in self.tasks:
                    self.handle(task, Idle())
                if before == sum(map(len, self.inboxes.values())) and not any(task.has_work for task in self.tasks.values()):
                    return
        raise AssertionError("the tasks never rest")

    def run(self, seconds: float = 60.0, until: Callable[[], bool] | None = None) -> None:
        """Let time pass from deadline to deadline until all tasks have ended and are quiet, or `until` returns True."""
        end = self.clock.now + seconds
        stop = until or (lambda: self.is_over)
        self.settle()
        while not stop() and self.clock.now < end:
            deadlines = [at for task in self.tasks.values() if (at := task.next_deadline(self.clock.now)) is not None]
            if not deadlines:
                break
            self.clock.now = max(self.clock.now, min(deadlines))
            self.settle()

    @property
    def is_over(self) -> bool:
        """Whether the last report of every task is that it has ended and is quiet."""
        last = {message.task: message for message in self.reports if isinstance(message, Quiet)}
        return last.keys() == self.tasks.keys() and all(quiet.ended and quiet.quiet for quiet in last.values())

    def messages(self, kind: type[M]) -> list[M]:
        return [message for message in self.reports if isinstance(message, kind)]
