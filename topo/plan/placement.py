"""Assigns tasks to workers: to as many as the user asks for, or to as many as one machine carries well."""

from __future__ import annotations

from collections.abc import Sequence

from topo.ids import TaskId

WorkerSlots = tuple[tuple[TaskId, ...], ...]

WORKERS_PER_CORE = 8
LEAST_WORKERS = 16
"""This number of tasks has a worker each, however few cores there are.

Fewer would carry more of the tuples that only cost CPU time. But many tasks on few cores are often tasks that wait: a worker is
one thread, so eight tasks that sleep in one worker do an eighth of the work. Figures are in docs/benchmarks.md.
"""
_SPOUTS_SHARE = 4
_ACKERS_SHARE = 8
"""Shares of the workers that spouts and ackers have at least by default, where there are as many of them."""


def placement(components: Sequence[Sequence[TaskId]], ackers: Sequence[TaskId], workers: int | None) -> WorkerSlots:
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


def default_placement(
    spouts: Sequence[Sequence[TaskId]], bolts: Sequence[Sequence[TaskId]], ackers: Sequence[TaskId], cores: int
) -> WorkerSlots:
    """Return the tasks of each worker slot of one machine, where the user gives no number of workers.

    Up to `most_workers` every task has its own. More tasks share as many workers, with spouts, bolts and ackers apart: a bolt
    whose calls wait then delays other bolts, and never the source, nor the acks of all messages.

    Args:
        spouts, bolts: task ids of each component, in the order of declaration.
        ackers: task ids of the ackers.
        cores: of the machine.
    """
    most = most_workers(cores)
    counts = [sum(map(len, components)) for components in (spouts, bolts)]
    if counts[0] + counts[1] + len(ackers) <= most:
        return placement([*spouts, *bolts], ackers, None)
    least_of_spouts, least_of_ackers = min(counts[0], most // _SPOUTS_SHARE), min(len(ackers), most // _ACKERS_SHARE)
    for_bolts = min(counts[1], most - least_of_spouts - least_of_ackers)
    for_spouts = min(counts[0], most - for_bolts - least_of_ackers)
    shares = ((spouts, for_spouts), (bolts, for_bolts), ([ackers], most - for_bolts - for_spouts))
    return tuple(slot for components, workers in shares for slot in placement(components, [], workers))


def most_workers(cores: int) -> int:
    """Return how many workers a topology has at most by default on a machine with this number of cores."""
    return max(LEAST_WORKERS, WORKERS_PER_CORE * cores)
