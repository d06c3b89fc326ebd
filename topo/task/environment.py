"""What a task is made of: which one it is, the user's component, and what it is given from outside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from topo.api.component import Component
from topo.api.context import TaskContext
from topo.api.groupings import CustomGrouping
from topo.api.hooks import Hooks
from topo.api.watermarks import WatermarkStrategy
from topo.checkpoint.alignment import SnapshotStore
from topo.config import TopologyConfig
from topo.ids import IdSource, TaskId
from topo.plan.physical import PhysicalPlan
from topo.task.limits import TaskLimits
from topo.task.observer import TaskObserver
from topo.wire.codec import Codec

AsyncDone = Callable[[Any, BaseException | None], None]
RunAsync = Callable[[Coroutine[Any, Any, Any], AsyncDone, Callable[[Exception], None]], None]


class InFlightMarker(Protocol):
    """Where a task notes what it is about to run, so that it can be found after the process has died."""

    def hold(self, task: TaskId, roots: bytes) -> None:
        """The task runs user code on tuples that descend from these roots (packed words)."""

    def release(self) -> None:
        """Nothing is in hand."""


@dataclass(slots=True)
class TaskEnvironment:
    """What a task is given from outside. In the simulator all of it is virtual."""

    ids: IdSource
    clock: Callable[[], float]
    codec: Codec
    in_hand: InFlightMarker
    wall_ms: Callable[[], int] = lambda: 0
    wake: Callable[[], None] = lambda: None
    """Gets the worker's loop out of its wait; any thread may call it."""
    run_async: RunAsync | None = None
    """Runs a coroutine beside the task's thread. Calls back with its result or its error, and before with an error if it blocks
    the others; on any thread."""
    snapshots: SnapshotStore | None = None
    """Where snapshots go; with `exactly_once` only."""
    is_memory_short: Callable[[], bool] = lambda: False
    """Asked after a MemoryError of user code: whether the process is to end, or only the tuple to fail."""
    wait: Callable[[], None] | None = None
    """What a call that yields does while there is no mail for it: lets the other tasks of the worker run, and waits until
    something has arrived. Without it the thread waits for a mail alone."""
    observer: TaskObserver | None = None
    """Watches the task, in tests."""


@dataclass(slots=True)
class TaskSpec:
    """Which task this is, and the user's component that it runs (None for an acker)."""

    task: TaskId
    plan: PhysicalPlan
    config: TopologyConfig
    component: Component | None
    context: TaskContext = field(repr=False)
    groupings: Mapping[tuple[str, int], CustomGrouping] = field(default_factory=dict)
    """The user's own groupings, by target component and number of its input."""
    watermarks: WatermarkStrategy | None = None
    """How event time is made for what the task emits."""
    hooks: Hooks = field(default_factory=Hooks, repr=False)
    """What is told of the task's life; of an acker's nobody is."""
    limits: TaskLimits = field(default_factory=TaskLimits)
