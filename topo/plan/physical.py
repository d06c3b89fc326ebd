"""The physical plan: tasks with ids, ackers inserted, edges between tasks, and the worker slots that host them.

A plan is data. Every process that builds it from the same topology and settings gets the same plan: ids follow the order of
declaration, and nothing in it depends on addresses, hash seeds or the order of sets.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
from msgspec import Struct

from topo.api.streams import ACKER_COMPONENT, StreamDeclaration
from topo.api.topology import ComponentKind, Topology
from topo.config import TopologyConfig
from topo.digests import sha256
from topo.ids import TaskId, WorkerId
from topo.keys import KeyGroupRange, default_max_parallelism, range_of
from topo.plan.logical import PlannedComponent, PlannedSubscription, logical_plan
from topo.plan.placement import WorkerSlots, default_placement, placement
from topo.plan.settled import settled

MANY_PENDING = 1024
"""Messages that a spout task may have in flight: with as many it need not stop while acks take `flush_interval` longer."""


class PlannedTask(Struct, frozen=True):
    """One task.

    Attributes:
        id: unique in the topology, from 1.
        component: id of its component; `ACKER_COMPONENT` for an acker.
        index: its number within the component, from 0.
    """

    id: TaskId
    component: str
    index: int


class PhysicalPlan(Struct, frozen=True, kw_only=True, dict=True):
    """A topology as tasks. Made by `physical_plan`; travels as JSON.

    Attributes:
        config: its settings.
        components: in the order of declaration, the ackers' last.
        subscriptions: who reads whom, by component.
        tasks: in the order of their ids, which count from 1.
        workers: the tasks of each worker slot, by slot number.
    """

    name: str
    config: TopologyConfig
    components: tuple[PlannedComponent, ...]
    subscriptions: tuple[PlannedSubscription, ...]
    tasks: tuple[PlannedTask, ...]
    workers: WorkerSlots

    def check(self) -> None:
        """Refuse a plan whose parts do not fit together, such as that of a damaged file. Raises ValueError."""
        used = [task.component for task in self.tasks] + [end for one in self.subscriptions for end in (one.source, one.target)]
        for component in used:
            if component not in self._components:
                raise ValueError(f"component {component!r} is used and not declared")
        for one in self.subscriptions:
            if one.stream not in (stream.name for stream in self.streams(one.source)):
                raise ValueError(f"component {one.source!r} has no stream {one.stream!r}")
        if [task.id for task in self.tasks] != list(range(1, len(self.tasks) + 1)):
            raise ValueError("the ids of its tasks do not count from 1")
        if sorted(task for slot in self.workers for task in slot) != [task.id for task in self.tasks]:
            raise ValueError("its workers do not host each task once")

    def task(self, task_id: int) -> PlannedTask:
        """Return the task of that id. Raises KeyError when there is none."""
        if not 0 < task_id <= len(self.tasks):
            raise KeyError(task_id)
        return self.tasks[task_id - 1]

    @cached_property
    def _components(self) -> dict[str, PlannedComponent]:
        return {component.id: component for component in self.components}

    def component(self, component_id: str) -> PlannedComponent:
        """Return the component of that id. Raises KeyError when there is none."""
        return self._components[component_id]

    def component_of(self, task_id: int) -> PlannedComponent:
        return self._components[self.task(task_id).component]

    @cached_property
    def task_ids(self) -> dict[str, tuple[TaskId, ...]]:
        """Task ids of every component, by task index; the ackers included."""
        found: dict[str, list[TaskId]] = {component.id: [] for component in self.components}
        for task in self.tasks:
            found[task.component].append(task.id)
        return {component: tuple(ids) for component, ids in found.items()}

    def tasks_of(self, component_id: str) -> tuple[TaskId, ...]:
        """Return the ids of a component's tasks, by task index; empty for an unknown component."""
        return self.task_ids.get(component_id, ())

    @property
    def ackers(self) -> tuple[TaskId, ...]:
        """Ids of the acker tasks; empty when nothing is tracked."""
        return self.tasks_of(ACKER_COMPONENT)

    @property
    def spouts(self) -> tuple[TaskId, ...]:
        return tuple(task.id for task in self.tasks if self._components[task.component].kind is ComponentKind.SPOUT)

    @cached_property
    def sources(self) -> tuple[TaskId, ...]:
        """Ids of the tasks that no barrier reaches, so that a checkpoint begins there: spouts, and bolts with ticks alone."""
        readers = {subscription.target for subscription in self.subscriptions} | {ACKER_COMPONENT}
        return tuple(task.id for task in self.tasks if task.component not in readers)

    @property
    def origins(self) -> tuple[TaskId, ...]:
        """Ids of the tasks that draw root ids and receive verdicts from the ackers: all spouts, and window bolts."""
        return tuple(task.id for task in self.tasks if self._components[task.component].originates)

    @property
    def has_tracked_windows(self) -> bool:
        """Whether windows hold messages until they fire, and draw root ids for their firings."""
        return len(self.origins) > len(self.spouts)

    def subscriptions_on(self, component_id: str, stream: str | None = None) -> tuple[PlannedSubscription, ...]:
        """Return who reads a component, or one of its streams."""
        return tuple(s for s in self.subscriptions if s.source == component_id and stream in (None, s.stream))

    def inputs_of(self, component_id: str) -> tuple[PlannedSubscription, ...]:
        """Return what a component reads, in the order of declaration."""
        return tuple(s for s in self.subscriptions if s.target == component_id)

    def streams(self, component_id: str) -> tuple[StreamDeclaration, ...]:
        """Return the streams that a component emits, in the order of declaration."""
        return self._components[component_id].streams

    def emitted_streams(self, component_id: str) -> tuple[StreamDeclaration, ...]:
        """Return the streams that the component's code emits on: others than `streams` where a chain comes behind it."""
        return self._components[component_id].emits or self.streams(component_id)

    def stream_index(self, component_id: str, stream: str) -> int:
        """Return the number that frames name a stream by. Raises KeyError when the component does not declare it."""
        for index, declared in enumerate(self.streams(component_id)):
            if declared.name == stream:
                return index
        raise KeyError(stream)

    def fields(self, component_id: str, stream: str) -> tuple[str, ...]:
        """Return the field names of a stream. Raises KeyError when the component does not declare it."""
        return self.streams(component_id)[self.stream_index(component_id, stream)].fields

    def is_columnar(self, component_id: str, stream: str) -> bool:
        """Return whether a stream has batches of columns. Raises KeyError when the component does not declare it."""
        return self.streams(component_id)[self.stream_index(component_id, stream)].columnar

    @cached_property
    def _edges(self) -> tuple[dict[TaskId, tuple[TaskId, ...]], dict[TaskId, tuple[TaskId, ...]]]:
        down: dict[TaskId, set[TaskId]] = {task.id: set() for task in self.tasks}
        up: dict[TaskId, set[TaskId]] = {task.id: set() for task in self.tasks}
        pairs = [(s, t) for sub in self.subscriptions for s in self.tasks_of(sub.source) for t in self.tasks_of(sub.target)]
        pairs += [(task.id, acker) for task in self.tasks if task.component != ACKER_COMPONENT for acker in self.ackers]
        for source, target in pairs:
            down[source].add(target)
            up[target].add(source)
        return {task: tuple(sorted(ids)) for task, ids in down.items()}, {task: tuple(sorted(ids)) for task, ids in up.items()}

    def downstream_tasks(self, task_id: int) -> tuple[TaskId, ...]:
        """Return the tasks that a task has an edge to, in ascending order: its readers, and all ackers."""
        return self._edges[0][TaskId(task_id)]

    def upstream_tasks(self, task_id: int) -> tuple[TaskId, ...]:
        """Return the tasks that have an edge to a task, in ascending order: for an acker all spouts and bolts."""
        return self._edges[1][TaskId(task_id)]

    def peers(self, task_id: int) -> frozenset[TaskId]:
        """Return the tasks that a task exchanges frames with: rows, ids, verdicts or confirmations."""
        return frozenset((*self.downstream_tasks(task_id), *self.upstream_tasks(task_id)))

    @cached_property
    def edges(self) -> tuple[tuple[TaskId, TaskId], ...]:
        """All edges, (sender, receiver), in ascending order."""
        return tuple((task.id, target) for task in self.tasks for target in self.downstream_tasks(task.id))

    @property
    def is_packed_by_default(self) -> bool:
        """Whether tasks share workers without a request of the user."""
        return self.config.workers == "auto" and len(self.workers) < len(self.tasks)

    @cached_property
    def _workers(self) -> dict[TaskId, WorkerId]:
        return {task: WorkerId(slot) for slot, tasks in enumerate(self.workers) for task in tasks}

    def worker_of(self, task_id: int) -> WorkerId:
        return self._workers[TaskId(task_id)]

    def key_groups(self, task_id: int) -> KeyGroupRange:
        component = self.component_of(task_id)
        return range_of(self.task(task_id).index, component.max_parallelism, component.parallelism)

    @cached_property
    def _configs(self) -> dict[str, TopologyConfig]:
        return {component.id: self.config.changed(component.settings)[0] for component in self.components}

    def config_of(self, component_id: str) -> TopologyConfig:
        return self._configs[component_id]

    @cached_property
    def secret_fields(self) -> frozenset[str]:
        """The fields whose values are not shown: secret with one component, secret with all."""
        texts = [config.secret_fields for config in (self.config, *self._configs.values())]
        return frozenset(name.strip() for text in texts if text for name in text.split(",") if name.strip())

    @cached_property
    def ids_may_wait(self) -> bool:
        """Whether ids for ackers may wait for others: every spout may have many messages in flight meanwhile."""
        spouts = [component.id for component in self.components if component.kind is ComponentKind.SPOUT]
        limits = [self.config_of(spout).max_spout_pending for spout in spouts]
        return all(limit is None or limit >= MANY_PENDING for limit in limits)

    @property
    def longest_message_timeout_s(self) -> float | None:
        """The longest `message_timeout` of all spouts, which the ackers must outlive; None when a spout has none."""
        timeouts = self._message_timeouts
        return None if None in timeouts else max(timeouts, default=None)  # type: ignore[type-var]

    @property
    def shortest_message_timeout_s(self) -> float | None:
        """The shortest `message_timeout` of all spouts; None when none of them has one."""
        return min((timeout for timeout in self._message_timeouts if timeout is not None), default=None)

    @property
    def _message_timeouts(self) -> list[float | None]:
        spouts = [component.id for component in self.components if component.kind is ComponentKind.SPOUT]
        return [self.config_of(spout).message_timeout_s for spout in spouts]

    def to_json(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")

    def digest(self, code_hash: str = "") -> str:
        """Return what master and workers compare before they work together: a hash of the plan and of the user's code."""
        return sha256(self.to_json() + b"\0" + code_hash.encode()).hexdigest()


def physical_plan(topology: Topology, cores: int | None = None) -> PhysicalPlan:
    """Return the tasks of a topology that has been validated.

    Args:
        cores: of the machine that all workers share; None where they are spread over machines, or are no processes.
    """
    config = settled(topology.config, topology.components)
    logical = logical_plan(topology, config)
    components = logical.components
    if config.ackers:
        acker = PlannedComponent(
            id=ACKER_COMPONENT,
            kind=ComponentKind.ACKER,
            code="",
            parallelism=config.ackers,
            max_parallelism=default_max_parallelism(config.ackers),
        )
        components += (acker,)
    tasks: list[PlannedTask] = []
    ids: dict[str, list[TaskId]] = {}
    for component in components:
        first = len(tasks) + 1
        ids[component.id] = [TaskId(first + index) for index in range(component.parallelism)]
        tasks += [PlannedTask(task_id, component.id, index) for index, task_id in enumerate(ids[component.id])]
    ackers = ids.pop(ACKER_COMPONENT, [])
    return PhysicalPlan(
        name=topology.name,
        config=config,
        components=components,
        subscriptions=logical.subscriptions,
        tasks=tuple(tasks),
        workers=_slots(components, ids, ackers, config, cores),
    )


def _slots(
    components: tuple[PlannedComponent, ...],
    ids: dict[str, list[TaskId]],
    ackers: list[TaskId],
    config: TopologyConfig,
    cores: int | None,
) -> WorkerSlots:
    if config.workers != "auto":
        return placement(list(ids.values()), ackers, config.workers)
    if cores is None:
        return placement(list(ids.values()), ackers, None)
    spouts = [ids[component.id] for component in components if component.kind is ComponentKind.SPOUT]
    bolts = [ids[component.id] for component in components if component.kind is ComponentKind.BOLT]
    return default_placement(spouts, bolts, ackers, cores)
