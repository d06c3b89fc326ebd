"""Fits a checkpoint to a plan: the shapes that must match, and the parts that each task reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import UNSET

from topo.api.groupings import GroupingKind
from topo.api.topology import ComponentKind
from topo.checkpoint.manifest import ComponentFigures, ComponentShape, Manifest, Part, has_ended, shares_for
from topo.ids import TaskId
from topo.plan.physical import PhysicalPlan
from topo.wire.control import PartToRead, SnapshotTaken


def shapes_of(plan: PhysicalPlan) -> dict[str, ComponentShape]:
    """Return what decides whether state can be restored into the components of a plan; ackers have none."""
    keyed: dict[str, list[str]] = {}
    for subscription in plan.subscriptions:
        if subscription.grouping is GroupingKind.FIELDS:
            fields = f"{subscription.source}.{subscription.stream}: {', '.join(subscription.fields)}"
            keyed.setdefault(subscription.target, []).append(fields)
    return {
        component.id: ComponentShape(
            kind=component.kind.value,
            parallelism=component.parallelism,
            max_parallelism=component.max_parallelism,
            keyed_by=tuple(sorted(keyed.get(component.id, ()))),
            state=component.state,
            origin=component.operators[0] if component.operators else UNSET,
            identity=component.identity or UNSET,
            declared=component.declared or UNSET,
        )
        for component in plan.components
        if component.kind is not ComponentKind.ACKER
    }


def stateful_tasks(plan: PhysicalPlan) -> frozenset[TaskId]:
    """Return the tasks that have a part in every checkpoint: all but ackers."""
    return frozenset(task.id for task in plan.tasks) - frozenset(plan.ackers)


def manifest_of(plan: PhysicalPlan, checkpoint: int, taken: Mapping[TaskId, SnapshotTaken], duration_s: float) -> Manifest:
    """Return the manifest of a checkpoint all of whose parts are durable. When it was created is not in it yet."""
    parts = []
    for task_id, taken_part in sorted(taken.items()):
        task = plan.task(task_id)
        part = Part(
            file=taken_part.file,
            length=taken_part.length,
            checksum=taken_part.checksum,
            component=task.component,
            task=task_id,
            index=task.index,
            ended=taken_part.ended,
        )
        parts.append(part)
    figures = ComponentFigures(
        bytes=sum(part.length for part in parts),
        duration_ms=duration_s * 1000,
        alignment_ms=max((taken_part.alignment_ms for taken_part in taken.values()), default=0.0),
        pause_ms=max((taken_part.pause_ms for taken_part in taken.values()), default=0.0),
    )
    return Manifest(topology=plan.name, checkpoint=checkpoint, components=shapes_of(plan), parts=tuple(parts), figures=figures)


def parts_to_read(plan: PhysicalPlan, manifest: Manifest, tasks: Iterable[TaskId]) -> dict[TaskId, list[PartToRead]]:
    """Return what tasks of a plan read of a checkpoint, which may have been taken under another parallelism."""
    found: dict[TaskId, list[PartToRead]] = {}
    for task_id in tasks:
        task = plan.task(task_id)
        shares = shares_for(manifest, task.component, task.index, plan.component(task.component).parallelism)
        if shares:
            found[task_id] = [
                PartToRead(
                    file=share.part.file,
                    length=share.part.length,
                    checksum=share.part.checksum,
                    component=share.part.component,
                    task=share.part.task,
                    index=share.part.index,
                    groups=(share.groups.start, share.groups.end),
                    takes_values=share.takes_values,
                )
                for share in shares
            ]
    return found


def ended_tasks(plan: PhysicalPlan, manifest: Manifest, tasks: Iterable[TaskId]) -> list[TaskId]:
    """Return those of the tasks that continue behind the end of their input."""
    specs = [plan.task(task_id) for task_id in tasks]
    return [
        task.id for task in specs if has_ended(manifest, task.component, task.index, plan.component(task.component).parallelism)
    ]
