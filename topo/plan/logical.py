"""The logical plan: components, streams and subscriptions as data, before any task exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from topo.api.groupings import Custom, Fields, GroupingKind, PartialKey
from topo.api.operator_bolts import WindowBolt
from topo.api.streams import StreamDeclaration, streams_of
from topo.api.topology import ComponentKind, ComponentSpec, Topology
from topo.config import TopologyConfig
from topo.keys import default_max_parallelism
from topo.plan.batch_windows import takes_columns
from topo.plan.state_kinds import state_facts, state_kind


class PlannedComponent(Struct, frozen=True, kw_only=True):
    """One component.

    Attributes:
        id: its name in the topology.
        kind: spout, bolt or acker.
        code: qualified name of its class.
        parallelism: how many tasks it has.
        max_parallelism: how many key groups its keys fall into.
        streams: its output streams; frames name a stream by its index here.
        settings: its own settings, read and by public name.
        originates: whether it draws root ids and receives their verdicts, as spouts do: a window bolt does for its firings.
        state: which kind of state it has in a checkpoint; see `state_kind`.
        takes_columns: whether its windows take batches of columns whole.
        operators: as in `ComponentSpec`.
        identity, declared: as in `ComponentSpec`.
        emits: the streams that its code emits on, where a chain makes rows of other streams of them.
    """

    id: str
    kind: ComponentKind
    code: str
    parallelism: int
    max_parallelism: int
    streams: tuple[StreamDeclaration, ...] = ()
    settings: dict[str, Any] = {}
    originates: bool = False
    state: str = ""
    takes_columns: bool = False
    operators: tuple[str, ...] = ()
    identity: str = ""
    declared: dict[str, str] = {}
    emits: tuple[StreamDeclaration, ...] = ()


class PlannedSubscription(Struct, frozen=True, kw_only=True):
    """One stream of one component, read by another.

    Attributes:
        source: the component that emits.
        stream: name of its stream.
        target: the component that reads.
        input: position among the target's declared inputs.
        fields: names of the key fields, of a fields or partial-key grouping.
        key_indexes: their positions in the stream's values.
        code: qualified name of the class of a custom grouping.
    """

    source: str
    stream: str
    target: str
    input: int
    grouping: GroupingKind
    fields: tuple[str, ...] = ()
    key_indexes: tuple[int, ...] = ()
    code: str = ""


class LogicalPlan(Struct, frozen=True, kw_only=True):
    """The graph of a valid topology, in the order of declaration."""

    name: str
    components: tuple[PlannedComponent, ...]
    subscriptions: tuple[PlannedSubscription, ...]


def logical_plan(topology: Topology, config: TopologyConfig | None = None) -> LogicalPlan:
    """Return the graph of a topology that has been validated, under these settings or its own."""
    config = config or topology.config
    components = tuple(_component(spec, config) for spec in topology.components)
    streams = {(c.id, stream.name): stream for c in components for stream in c.streams}
    columnar = {place for place, stream in streams.items() if stream.columnar}
    whole = {spec.id for spec in topology.components if takes_columns(spec, lambda one: (one.source, one.stream) in columnar)}
    components = tuple(replace(one, takes_columns=True) if one.id in whole else one for one in components)
    subscriptions = []
    for spec in topology.components:
        for index, declared in enumerate(spec.inputs):
            grouping = declared.grouping
            keys = grouping.fields if isinstance(grouping, Fields | PartialKey) else ()
            fields = streams[declared.source, declared.stream].fields
            subscriptions.append(
                PlannedSubscription(
                    source=declared.source,
                    stream=declared.stream,
                    target=spec.id,
                    input=index,
                    grouping=grouping.kind,
                    fields=keys,
                    key_indexes=tuple(map(fields.index, keys)),
                    code=type(grouping.grouping).__qualname__ if isinstance(grouping, Custom) else "",
                )
            )
    return LogicalPlan(name=topology.name, components=components, subscriptions=tuple(subscriptions))


def _component(spec: ComponentSpec, config: TopologyConfig) -> PlannedComponent:
    own, _ = config.changed(spec.settings, per_component=True)
    read = own.settings()
    return PlannedComponent(
        id=spec.id,
        kind=spec.kind,
        code=spec.type.__qualname__,
        parallelism=spec.parallelism,
        max_parallelism=own.max_parallelism or default_max_parallelism(spec.parallelism),
        streams=spec.streams,
        emits=streams_of(spec.component) if spec.chain is not None else (),
        settings={name: read[name] for name in spec.settings},
        originates=spec.kind is ComponentKind.SPOUT or (issubclass(spec.type, WindowBolt) and config.delivery != "exactly_once"),
        state=state_kind(spec),
        operators=spec.operators,
        identity=spec.identity,
        declared=state_facts(spec),
    )


def find_cycle(readers: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the components of one cycle, in order and with the first again at the end, or None.

    Args:
        readers: for each component those that read from it.
    """
    sorter = TopologicalSorter[str]()
    for name, found in readers.items():
        for reader in found:
            sorter.add(reader, name)
    try:
        sorter.prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return None
