"""The input of the task factory: the task's identity, the user's component, and the services of its surroundings."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from topo.api.bolt import BasicBolt
from topo.api.component import Component
from topo.api.context import TaskContext
from topo.api.groupings import CustomGrouping
from topo.api.hooks import Hooks
from topo.api.watermarks import WatermarkStrategy
from topo.checkpoint.alignment import SnapshotStore
from topo.config import TopologyConfig
from topo.hot import Ids
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan
from topo.task.limits import TaskLimits
from topo.task.observer import TaskObserver
from topo.wire.codec import Codec

AsyncDone = Callable[[Any, BaseException | None], None]
RunAsync = Callable[[Coroutine[Any, Any, Any], AsyncDone, Callable[[Exception], None]], None]


class InFlightMarker(Protocol):
    """A task marks the tuples that it is about to run here; the master reads the mark after the process has died."""

    def hold(self, task: TaskId, roots: bytes) -> None:
        """Mark tuples that descend from these roots (packed words) as in flight in user code."""

    def release(self) -> None:
        """Clear the mark: no user code runs."""


@dataclass(slots=True)
class TaskEnvironment:
    """The services of a task's surroundings. In the simulator all of them are virtual."""

    ids: Ids
    clock: Callable[[], float]
    codec: Codec
    marker: InFlightMarker
    wall_ms: Callable[[], int] = lambda: 0
    wake: Callable[[], None] = lambda: None
    """Gets the worker's loop out of its wait; any thread may call it."""
    run_async: RunAsync | None = None
    """Runs a coroutine beside the task's thread. Calls back with its result or its error, and before with an error if it blocks
    the others; on any thread."""
    snapshots: SnapshotStore | None = None
    """The store of snapshots; with `exactly_once` only."""
    is_memory_short: Callable[[], bool] = lambda: False
    """Asked after a MemoryError of user code: whether the process is to end, or only the tuple to fail."""
    wait: Callable[[], None] | None = None
    """Called by a call that yields, while there is no mail for it: lets the other tasks of the worker run, and waits until
    something has arrived. Without it the thread waits for a mail alone."""
    observer: TaskObserver | None = None
    """Watches the task, in tests."""
    load: Callable[[], int] = lambda: 0
    """How busy the worker is, in percent; 0 where that is not measured."""
    run_beside: Callable[[Callable[[], object]], None] | None = None
    """Runs an action that may block on a helper thread; None: at once."""


@dataclass(slots=True)
class TaskSpec:
    """The identity of a task, and the user's component that it runs (None for an acker)."""

    task: TaskId
    plan: PhysicalPlan
    config: TopologyConfig
    component: Component | None
    context: TaskContext = field(repr=False)
    groupings: Mapping[tuple[str, int], CustomGrouping] = field(default_factory=dict)
    """The user's own groupings, by target component and number of its input."""
    watermarks: WatermarkStrategy | None = None
    """How the task's output gets timestamps and watermarks."""
    hooks: Hooks = field(default_factory=Hooks, repr=False)
    """The user's hooks for the task's life; an acker has none."""
    limits: TaskLimits = field(default_factory=TaskLimits)
    chain: BasicBolt | None = None
    """What runs on the rows of a spout before they leave."""
