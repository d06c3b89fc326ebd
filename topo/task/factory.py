"""From the plan to a task: its groupers and router, and the right kind of task for a component."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from topo.api.batch_bolt import BatchBolt
from topo.api.bolt import BasicBolt
from topo.api.context import Connection, TaskContext
from topo.api.groupings import Custom, CustomGrouping, GroupingKind
from topo.api.operator_bolts import AsyncBolt, ProcessBolt, WindowBolt
from topo.api.topology import ComponentKind, Topology
from topo.emission.emitter import Emitter
from topo.emission.groupers import (
    CustomGrouper,
    EveryTarget,
    FieldsGrouper,
    Grouper,
    OneTarget,
    PartialKeyGrouper,
    ShuffleGrouper,
)
from topo.emission.router import DirectGrouper, RoutedSubscription, Router
from topo.errors import FrameworkBug
from topo.ids import IdSource, TaskId
from topo.plan.logical import PlannedSubscription as Declared
from topo.plan.physical import PhysicalPlan
from topo.task.environment import TaskSpec
from topo.task.outbox import Outbox
from topo.task.task import Task

CustomGroupings = Mapping[tuple[str, int], CustomGrouping]
"""The user's groupings by target component and number of its input."""


def make_router(setup: TaskSpec, ids: IdSource, outbox: Outbox, emitter: Emitter) -> Router:
    """Resolve who reads which stream of this task, and join its collector to it."""
    emitter.executor = setup.context.executor
    outbox.changeable = emitter.changeable
    outbox.nested = emitter.nested
    outbox.places = emitter.places
    plan, component = setup.plan, setup.plan.task(setup.task).component
    subscriptions: list[list[RoutedSubscription]] = []
    for stream in emitter.streams:
        declared = plan.subscriptions_on(component, stream.declaration.name)
        subscriptions.append([_subscription(setup, one, outbox, emitter) for one in declared])
        if stream.declaration.direct:
            stream.direct_targets = frozenset(target for one in declared for target in plan.tasks_of(one.target))
    return Router(subscriptions, ids, outbox)


def _subscription(setup: TaskSpec, declared: Declared, outbox: Outbox, emitter: Emitter) -> RoutedSubscription:
    targets = setup.plan.tasks_of(declared.target)
    if declared.grouping is GroupingKind.DIRECT:
        stream = emitter.streams[setup.plan.stream_index(declared.source, declared.stream)]
        return RoutedSubscription(DirectGrouper(stream, targets), targets)
    return RoutedSubscription(_grouper(setup, declared, targets, lambda position: outbox.has_room(targets[position])), targets)


def _grouper(setup: TaskSpec, declared: Declared, targets: tuple[TaskId, ...], has_room: Callable[[int], bool]) -> Grouper:
    plan, kind, count = setup.plan, declared.grouping, len(targets)
    if kind is GroupingKind.CUSTOM:
        custom = setup.groupings[declared.target, declared.input]
        custom.prepare(setup.context, declared.stream, targets)
        return CustomGrouper(custom.choose, count)
    if count == 1 or kind is GroupingKind.GLOBAL:
        return OneTarget()
    if kind is GroupingKind.ALL:
        return EveryTarget(count)
    max_parallelism = plan.component(declared.target).max_parallelism
    if kind is GroupingKind.FIELDS:
        return FieldsGrouper(declared.key_indexes, count, max_parallelism)
    if kind is GroupingKind.PARTIAL_KEY:
        return PartialKeyGrouper(declared.key_indexes, count, max_parallelism)
    positions = list(range(count))
    if kind is GroupingKind.LOCAL_OR_SHUFFLE:
        here = plan.worker_of(setup.task)
        positions = [position for position in positions if plan.worker_of(targets[position]) == here] or positions
    return ShuffleGrouper(positions, has_room)


def make_context(
    plan: PhysicalPlan, task: TaskId, folder: Path | None = None, report_progress: Callable[[str], bool] | None = None
) -> TaskContext:
    """Return what the task's component is told about itself.

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


def custom_groupings(topology: Topology, component: str) -> dict[tuple[str, int], CustomGrouping]:
    """Return the user's own groupings on what a component emits, by reader and number of its input.

    `prepare` is called for each sender, so no two senders may share them: build the topology anew for another one.
    """
    return {
        (spec.id, number): declared.grouping.grouping
        for spec in topology.components
        for number, declared in enumerate(spec.inputs)
        if declared.source == component and isinstance(declared.grouping, Custom)
    }


def task_class(plan: PhysicalPlan, task: TaskId, component: object) -> type[Task]:
    """Return the class that runs a task."""
    # Imported here since the kinds of task import this module.
    from topo.task.guarantees.checkpointed_spout import CheckpointedSpoutTask
    from topo.task.guarantees.checkpointed_window import CheckpointedWindowTask
    from topo.task.runners.acker import AckerTask
    from topo.task.runners.async_calls import AsyncTask
    from topo.task.runners.basic_bolt import BasicBoltTask
    from topo.task.runners.batch import BatchTask
    from topo.task.runners.bolt import TrackingBoltTask
    from topo.task.runners.process import ProcessTask
    from topo.task.runners.spout import SpoutTask
    from topo.task.runners.window import WindowTask

    kind = plan.component_of(task).kind
    is_checkpointed = plan.config.delivery == "exactly_once"
    if kind is ComponentKind.ACKER:
        return AckerTask
    if kind is ComponentKind.SPOUT:
        return CheckpointedSpoutTask if is_checkpointed else SpoutTask
    if isinstance(component, WindowBolt):
        return CheckpointedWindowTask if is_checkpointed else WindowTask
    if isinstance(component, ProcessBolt):
        return ProcessTask
    if isinstance(component, AsyncBolt):
        return AsyncTask
    if isinstance(component, BatchBolt):
        return BatchTask
    if kind is ComponentKind.BOLT:
        return BasicBoltTask if isinstance(component, BasicBolt) else TrackingBoltTask
    raise FrameworkBug(f"no task runs a component of kind {kind}")
