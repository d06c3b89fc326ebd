"""Facts of one task that all its parts read: identity, settings, epoch, phase."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from topo.checkpoint.alignment import Snapshot
from topo.ids import Epoch, Incarnation, TaskId
from topo.task.commands import TaskCommand
from topo.task.environment import TaskEnvironment, TaskSpec
from topo.wire.frames import SenderStamp
from topo.wire.statistics import Counters


class TaskPhase(Enum):
    """Life of a task within its process."""

    NEW = "new"
    """No routes yet: the user's component is not open."""
    UNREADABLE = "unreadable"
    """A part of the checkpoint could not be read: no call reaches the component until other routes come."""
    OPENING = "opening"
    """The OPEN frame of an in-edge is not processed yet."""
    RUNNING = "running"
    """All in-edges are open, and the master knows it."""
    CLOSED = "closed"
    """The component is closed; frames are dropped."""


class TaskState:
    """Plain facts. Only the task changes them; its parts read them, and append to `commands`.

    Attributes:
        now: monotonic seconds at which the turn began.
        commands: for the worker to perform after the current event, in order.
        phase: of its life; changed by `enter` alone.
        is_working: whether the user's component is open, where the epoch begins or further.
        incarnations: of all tasks, by the routes of this epoch.
        observer: watches the task; None as a rule.
        lookout: the observer that is called for frames taken and roots drawn; `observer`, if there is one.
        local: the tasks of this worker, to which frames are handed over in memory.
        restored: the snapshots that the epoch begins with: one for each task that this one takes state over from.
        restore_point: the checkpoint that the epoch begins with; 0: none.
        restored_ended: whether that checkpoint was taken behind the end of this task's input.
    """

    __slots__ = (
        "clock", "commands", "component_id", "config", "counters", "epoch", "id", "ids", "incarnation", "incarnations",
        "is_checkpointed", "is_working", "load", "local", "lookout", "now", "observer", "phase", "plan", "restore_point",
        "restored", "restored_ended", "stamp", "streams", "wall_ms",
    )  # fmt: skip

    def __init__(self, spec: TaskSpec, env: TaskEnvironment) -> None:
        self.id: TaskId = spec.task
        self.plan = spec.plan
        self.config = spec.config
        self.component_id = spec.plan.task(spec.task).component
        self.streams = spec.plan.streams(self.component_id)
        self.is_checkpointed = spec.config.delivery == "exactly_once" and spec.task not in spec.plan.ackers
        self.clock = env.clock
        self.wall_ms = env.wall_ms
        self.ids = env.ids
        self.load = env.load
        self.observer = self.lookout = env.observer
        self.counters = Counters()
        self.commands: list[TaskCommand] = []
        self.phase = TaskPhase.NEW
        self.is_working = False
        self.now = 0.0
        self.epoch = Epoch(0)
        self.incarnation = Incarnation(0)
        self.stamp = SenderStamp(self.epoch, self.id, self.incarnation)
        self.incarnations: Mapping[TaskId, Incarnation] = {}
        self.local: frozenset[TaskId] = frozenset()
        self.restored: list[Snapshot] = []
        self.restore_point = 0
        self.restored_ended = False

    def enter(self, phase: TaskPhase) -> None:
        """Begin a phase."""
        self.phase = phase
        self.is_working = phase is TaskPhase.RUNNING or phase is TaskPhase.OPENING

    def begin_epoch(self, epoch: Epoch, incarnations: Mapping[TaskId, Incarnation], local: frozenset[TaskId]) -> None:
        """Adopt the epoch of new routes."""
        self.epoch = epoch
        self.incarnations = incarnations
        self.incarnation = incarnations[self.id]
        self.local = local
        self.stamp = SenderStamp(epoch, self.id, self.incarnation)
