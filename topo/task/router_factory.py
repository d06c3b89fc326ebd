"""Makes the router of a task: its streams, the subscriptions of the plan, and a grouper for each."""

from __future__ import annotations

from collections.abc import Sequence

from topo.api.groupings import Custom, CustomGrouping, GroupingKind
from topo.api.topology import Topology
from topo.emission.batch_splitter import BatchSplitter, SplitSubscription
from topo.emission.emitter import Emitter
from topo.emission.groupers import (
    CustomGrouper,
    EveryTarget,
    FieldsGrouper,
    Grouper,
    OneOwner,
    OneTarget,
    PartialKeyGrouper,
    ShuffleGrouper,
)
from topo.emission.router import DirectGrouper, GroupedSubscription, RoutedSubscription, Router
from topo.emission.shuffle_shares import ShuffleShares
from topo.hot import Ids
from topo.ids import TaskId
from topo.plan.logical import PlannedSubscription as Declared
from topo.task.environment import TaskSpec
from topo.task.outbox import Outbox


class OutboxEdges:
    """The edges of an outbox to the target tasks of one shuffle, by position."""

    __slots__ = ("_outbox", "_targets")

    def __init__(self, outbox: Outbox, targets: Sequence[TaskId]) -> None:
        self._outbox = outbox
        self._targets = targets

    def has_room(self, position: int) -> bool:
        """Whether the edge to a task would send a frame at once."""
        return self._outbox.has_room(self._targets[position])

    def load(self, position: int) -> int | None:
        """Return the load of a task's worker, in percent; None while it is not known."""
        return self._outbox.edges[self._targets[position]].load

    @property
    def now(self) -> float:
        """Monotonic seconds."""
        return self._outbox.now


def custom_groupings(topology: Topology, component: str) -> dict[tuple[str, int], CustomGrouping]:
    """Return the user's own groupings on a component's output, by reader and number of its input.

    `prepare` is called for each sender, so no two senders may share them: build the topology again for another one.
    """
    return {
        (spec.id, number): declared.grouping.grouping
        for spec in topology.components
        for number, declared in enumerate(spec.inputs)
        if declared.source == component and isinstance(declared.grouping, Custom)
    }


def make_router(setup: TaskSpec, ids: Ids, outbox: Outbox, emitter: Emitter) -> Router:
    """Resolve who reads which stream of this task, and join its collector to it."""
    emitter.executor = setup.context.executor
    outbox.changeable = emitter.changeable
    outbox.nested = emitter.nested
    outbox.places = emitter.places
    outbox.columnar = {stream.index for stream in emitter.streams if stream.declaration.columnar}
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
        return GroupedSubscription(DirectGrouper(stream, targets), targets)
    grouper = _grouper(setup, declared, targets, outbox)
    if isinstance(grouper, FieldsGrouper) and setup.plan.is_columnar(declared.source, declared.stream):
        return SplitSubscription(BatchSplitter(declared.fields, grouper), targets)
    return GroupedSubscription(grouper, targets)


def _grouper(setup: TaskSpec, declared: Declared, targets: tuple[TaskId, ...], outbox: Outbox) -> Grouper:
    plan, kind, count = setup.plan, declared.grouping, len(targets)
    if kind is GroupingKind.CUSTOM:
        custom = setup.groupings[declared.target, declared.input]
        custom.prepare(setup.context, declared.stream, targets)
        return CustomGrouper(custom.choose, count)
    max_parallelism = plan.component(declared.target).max_parallelism
    if count == 1 and declared.key_indexes:
        keys = FieldsGrouper(declared.key_indexes, 1, max_parallelism)
        if plan.is_columnar(declared.source, declared.stream):
            splitter = BatchSplitter(declared.fields, keys)
            return OneOwner(lambda row: splitter.split(row[0]))
        return OneOwner(lambda row: keys.split([row]))
    if count == 1 or kind is GroupingKind.GLOBAL:
        return OneTarget()
    if kind is GroupingKind.ALL:
        return EveryTarget(count)
    if kind is GroupingKind.FIELDS:
        return FieldsGrouper(declared.key_indexes, count, max_parallelism, setup.limits.remembered_keys)
    if kind is GroupingKind.PARTIAL_KEY:
        return PartialKeyGrouper(declared.key_indexes, count, max_parallelism, setup.limits.remembered_keys)
    positions = list(range(count))
    if kind is GroupingKind.LOCAL_OR_SHUFFLE:
        here = plan.worker_of(setup.task)
        positions = [position for position in positions if plan.worker_of(targets[position]) == here] or positions
    workers = [plan.worker_of(targets[position]) for position in positions]
    return ShuffleGrouper(positions, OutboxEdges(outbox, targets), ShuffleShares(workers))
