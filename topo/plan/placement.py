"""Assigns tasks to workers."""

from __future__ import annotations

from collections.abc import Sequence

from topo.ids import TaskId


def placement(
    components: Sequence[Sequence[TaskId]], ackers: Sequence[TaskId], workers: int | None
) -> tuple[tuple[TaskId, ...], ...]:
    """Return the tasks of each worker slot, in ascending order.

    Without a number of workers every task has its own slot, in the order of their ids. With one, tasks are dealt in turn,
    so that the tasks of one component lie on as many workers as possible; ackers then go where there is least, from the last
    slot backwards, since spouts were dealt from the first. There are never more slots than tasks.

    Args:
        components: task ids of each component, in the order of declaration, without the ackers.
        ackers: task ids of the ackers.
        workers: how many slots to pack the tasks into; None: one for each task.
    """
    tasks = [task for component in components for task in component]
    count = len(tasks) + len(ackers)
    if workers is None or workers >= count:
        return tuple((task,) for task in [*tasks, *ackers])
    slots: list[list[TaskId]] = [[] for _ in range(workers)]
    for turn, task in enumerate(tasks):
        slots[turn % workers].append(task)
    for acker in ackers:
        min(reversed(slots), key=len).append(acker)
    return tuple(tuple(sorted(slot)) for slot in slots)
