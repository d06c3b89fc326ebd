"""Makes the `TaskContext` of a task from the plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from topo.api.context import Connection, TaskContext
from topo.api.topology import ComponentKind
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan


def make_context(
    plan: PhysicalPlan, task: TaskId, folder: Path | None = None, report_progress: Callable[[str], bool] | None = None
) -> TaskContext:
    """Return the context of a task of the plan.

    Args:
        plan: the topology.
        task: whose context it is.
        folder: where the component may keep files.
        report_progress: takes what `TaskContext.progress` reports; None outside of worker processes.
    """
    spec = plan.task(task)
    return TaskContext(
        topology=plan.name,
        component=spec.component,
        task=task,
        task_index=spec.index,
        parallelism=plan.component(spec.component).parallelism,
        config=plan.config_of(spec.component),
        tasks=plan.task_ids,
        folder=folder,
        report_progress=report_progress or (lambda _text: False),
        streams={
            one.id: {stream.name: stream.fields for stream in one.streams}
            for one in plan.components
            if one.kind is not ComponentKind.ACKER
        },
        connections=tuple(Connection(s.source, s.stream, s.target, str(s.grouping), s.fields) for s in plan.subscriptions),
    )
