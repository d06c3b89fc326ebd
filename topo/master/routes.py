"""The Routes of an epoch, one message for each worker: where every task is reached, and what this worker's spouts resume from."""

from __future__ import annotations

from collections.abc import Iterable

from topo.checkpoint.assignment import ended_tasks, parts_to_read
from topo.checkpoint.coordinator import CheckpointCoordinator
from topo.ids import Epoch
from topo.master.membership import Slot
from topo.master.positions import Positions
from topo.plan.physical import PhysicalPlan
from topo.tracking.suspects import Accused
from topo.wire.control import Routes, TaskRoute


def routing_table(slots: Iterable[Slot]) -> list[TaskRoute]:
    """Return where every task of live slots is reached, in the order of their ids."""
    routes = [
        TaskRoute(task, slot.worker, slot.incarnation, slot.endpoint, slot.public_key)
        for slot in slots
        if slot.incarnation is not None and slot.endpoint
        for task in slot.tasks
    ]
    return sorted(routes, key=lambda route: route.task)


def routes_for(
    slot: Slot,
    table: list[TaskRoute],
    term: int,
    epoch: Epoch,
    accused: Accused,
    positions: Positions,
    plan: PhysicalPlan,
    checkpoints: CheckpointCoordinator | None,
) -> Routes:
    """Return what one worker adopts. A spout task that is open already ignores which position it would resume from."""
    progress = {task: found for task in slot.tasks if (found := positions.of(task)) is not None}
    completed = None if checkpoints is None else checkpoints.completed
    return Routes(
        term=term,
        epoch=epoch,
        routes=table,
        suspects=list(accused.roots),
        alone=accused.alone,
        positions={task: found.position for task, found in progress.items() if found.position},
        attempts={task: found.attempts for task, found in progress.items() if found.attempts},
        checkpoint=0 if completed is None else completed.checkpoint,
        folder="" if checkpoints is None else checkpoints.folder,
        restore={} if completed is None else parts_to_read(plan, completed, slot.tasks),
        ended=[] if completed is None else ended_tasks(plan, completed, slot.tasks),
    )
