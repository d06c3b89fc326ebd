"""Chooses the class that runs a task: by the kind of its component, and by the delivery mode."""

from __future__ import annotations

from topo.api.batch_bolt import BatchBolt
from topo.api.bolt import BasicBolt
from topo.api.operator_bolts import AsyncBolt, ProcessBolt, WindowBolt
from topo.api.topology import ComponentKind
from topo.errors import FrameworkBug
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan
from topo.task.guarantees.checkpointed_spout import CheckpointedSpoutTask
from topo.task.runners.acker import AckerTask
from topo.task.runners.async_calls import AsyncTask
from topo.task.runners.basic_bolt import BasicBoltTask
from topo.task.runners.batch import BatchTask
from topo.task.runners.bolt import TrackingBoltTask
from topo.task.runners.process import ProcessTask
from topo.task.runners.spout import SpoutTask
from topo.task.runners.window import WindowTask
from topo.task.task import Task


def task_class(plan: PhysicalPlan, task: TaskId, component: object) -> type[Task]:
    """Return the class that runs a task."""
    kind = plan.component_of(task).kind
    is_checkpointed = plan.config.delivery == "exactly_once"
    if kind is ComponentKind.ACKER:
        return AckerTask
    if kind is ComponentKind.SPOUT:
        return CheckpointedSpoutTask if is_checkpointed else SpoutTask
    if isinstance(component, WindowBolt):
        return WindowTask
    if isinstance(component, ProcessBolt):
        return ProcessTask
    if isinstance(component, AsyncBolt):
        return AsyncTask
    if isinstance(component, BatchBolt):
        return BatchTask
    if kind is ComponentKind.BOLT:
        return BasicBoltTask if isinstance(component, BasicBolt) else TrackingBoltTask
    raise FrameworkBug(f"no task runs a component of kind {kind}")
