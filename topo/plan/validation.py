"""Validates a topology: every rule, all findings at once, each with its place and its fix."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, Final

from topo.api.bolt import BasicBolt, Bolt, WithOwnFile, WithRequiredFields
from topo.api.component import Component
from topo.api.groupings import Custom, CustomGrouping, Direct, Fields, Grouping, PartialKey
from topo.api.hooks import Hook
from topo.api.operator_bolts import OperatorBolt
from topo.api.partitions import PartitionedSpout
from topo.api.spout import BlockingSpout, RetryingSpout, Spout
from topo.api.streams import DEFAULT_STREAM, RESERVED_PREFIX, StreamDeclaration, streams_of
from topo.api.topology import TYPE_CODES, ComponentKind, ComponentSpec, Input, Topology
from topo.api.watermarks import EXAMPLE, WatermarkStrategy, strategy_problem
from topo.config import MAX_PARALLELISM_LIMIT, TopologyConfig, has_effect
from topo.errors import ConfigError, TopologyError
from topo.ids import topology_name_problem
from topo.keys import default_max_parallelism
from topo.plan.batch_validation import batch_problems
from topo.plan.event_time import event_time_problems
from topo.plan.logical import find_cycle
from topo.plan.method_validation import method_problems
from topo.plan.operator_validation import operator_problems
from topo.plan.settled import settled

_COMPONENT_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
_NAME_RULE = "1 to 63 of a-z, A-Z, 0-9, '-' and '_'"
CYCLE: Final = "the components form a cycle: "
_BASES: dict[ComponentKind, tuple[type[Component], ...]] = {
    ComponentKind.SPOUT: (Spout,),
    ComponentKind.BOLT: (Bolt, BasicBolt, OperatorBolt),
}


def validate(topology: Topology) -> None:
    """Check a topology.

    Raises:
        TopologyError: something is wrong; `problems` has all of it.
    """
    found = problems_of(topology)
    if found:
        raise TopologyError(found)


def problems_of(topology: Topology) -> list[str]:
    """Return all that is wrong with a topology: one sentence each, with the fix."""
    config = settled(topology.config, topology.components)
    specs = topology.components
    found = [*_names(topology), *_settings(topology, config)]
    streams: dict[str, tuple[StreamDeclaration, ...] | None] = {}
    for spec in specs:
        faults = list(_class(spec))
        faults = faults or list(method_problems(spec))
        found += faults
        # None: its mistake has been reported, and the expectations of its readers cannot be checked.
        is_second = spec.id in streams
        streams[spec.id] = None
        if not faults and not is_second:
            try:
                streams[spec.id] = spec.streams
            except ConfigError as error:
                found.append(f"component {spec.id!r}: outputs: {error}")
        found += _parallelism(spec, config)
        found += _values_wanted(spec, config)
        found += _watermarks(spec, streams[spec.id])
        found += _partitions(spec, streams[spec.id] and streams_of(spec.component))
    if not any(spec.kind is ComponentKind.SPOUT for spec in specs):
        found.append(f"topology {topology.name!r} has no spout, so nothing would ever happen; add one with set_spout(...)")
    classes = {spec.id for spec in specs if isinstance(spec.component, type)}
    for spec in specs:
        found += _inputs(spec, streams, classes)
    found += operator_problems(specs, streams, config)
    found += batch_problems(specs, streams)
    found += event_time_problems(specs, streams)
    found += _shared_files(specs)
    found += _carried_types(topology)
    given: Sequence[Any] = topology.hooks
    for hook in given:
        if not isinstance(hook, Hook):
            found.append(f"add_hook: {hook!r:.80} is no instance of a Hook; derive from topo.Hook and give an object of it")
    return found + _cycle(specs)


def unusable_names(declared: Iterable[tuple[Any, Iterable[Input]]]) -> Iterator[str]:
    """Yield the names of components, each with its inputs, and of streams, that are lists or the like."""
    for component_id, inputs in declared:
        if not isinstance(component_id, Hashable):
            yield f"component id {component_id!r} is not allowed; use {_NAME_RULE}"
        names: list[tuple[Any, Any]] = [(one.source, one.stream) for one in inputs]
        for source, stream in names:
            if not isinstance(source, Hashable):
                yield f"bolt {component_id!r}: reads from {source!r}, which is no name; give each component its own grouping"
            if not isinstance(stream, Hashable):
                yield f"bolt {component_id!r}: reads stream {stream!r} of {source!r}, which is no name; give that of one stream"


def _names(topology: Topology) -> Iterator[str]:
    if problem := topology_name_problem(topology.name):
        yield problem
    for spec in topology.components:
        if not isinstance(spec.id, str) or not _COMPONENT_NAME.fullmatch(spec.id):
            yield f"component id {spec.id!r} is not allowed; use {_NAME_RULE}"
        elif spec.id.startswith(RESERVED_PREFIX):
            yield f"component id {spec.id!r} begins with {RESERVED_PREFIX!r}, which is reserved; choose another"
    for component_id, count in Counter(spec.id for spec in topology.components).items():
        if count > 1:
            yield f"component id {component_id!r} is used {count} times; give each component its own id"


def _settings(topology: Topology, config: TopologyConfig) -> Iterator[str]:
    for problem in config.problems():
        yield f"settings of the topology: {problem}"
    for spec in topology.components:
        own, problems = config.changed(spec.settings, per_component=True)
        # Mistakes in the whole topology's settings have been reported; only those of the component's own are left.
        for problem in [*problems, *(p for p in own.problems() if p not in config.problems())]:
            yield f"component {spec.id!r}: {problem}"
        for name in spec.settings:
            if not has_effect(name, spec.kind.value):
                other = "bolt" if spec.kind is ComponentKind.SPOUT else "spout"
                yield f"component {spec.id!r}: {name} has no effect for a {spec.kind.value}; set it for a {other} or leave it out"


def _class(spec: ComponentSpec) -> Iterator[str]:
    where = f"component {spec.id!r}"
    cls: Any = spec.type
    bases = _BASES[spec.kind]
    if not isinstance(spec.component, Component) and not (isinstance(spec.component, type) and issubclass(cls, Component)):
        wanted = " or ".join(base.__name__ for base in bases)
        given = f"{spec.component!r:.80}"
        if callable(spec.component):
            given = f"{getattr(spec.component, '__name__', given)}, which is no class,"
        yield f"{where}: {given} was given; set_{spec.kind} takes a {wanted}: an instance, or a class with args"
        return
    if not issubclass(cls, bases):
        if spec.kind is ComponentKind.SPOUT and issubclass(cls, _BASES[ComponentKind.BOLT]):
            yield f"{where}: {cls.__name__} is a bolt; add it with set_bolt(...)"
        else:
            yield f"{where}: {cls.__name__} is a spout; add it with set_spout(...)"
        return
    if issubclass(cls, BlockingSpout) and issubclass(cls, RetryingSpout):
        yield f"{where}: {cls.__name__} derives from BlockingSpout and RetryingSpout, which do not go together; take one of them"
        return
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        yield f"{where}: {cls.__name__} does not define {', '.join(missing)}; add the missing methods"
        return
    if isinstance(spec.component, type):
        yield from _arguments(spec, cls)
    elif spec.args or spec.kwargs:
        yield f"{where}: args and kwargs are for a class, but an instance was given; give the class, or leave them out"


def _partitions(spec: ComponentSpec, streams: Sequence[StreamDeclaration] | None) -> Iterator[str]:
    cls: Any = spec.type
    if not issubclass(cls, PartitionedSpout):
        return
    where = f"component {spec.id!r}: {cls.__name__}"
    plain = [stream.name for stream in streams or () if not stream.direct and not stream.columnar]
    if streams is not None and plain != [DEFAULT_STREAM]:
        yield f"{where} is a PartitionedSpout, which emits on one stream alone; set outputs to a tuple of field names"
    if spec.watermarks == WatermarkStrategy.emitted():
        yield (
            f"{where} is a PartitionedSpout, which cannot emit watermarks; give set_spout(..., watermarks=...) a strategy that "
            f"makes them, such as {EXAMPLE}"
        )
    drift = getattr(spec.component, "max_drift", None)
    if drift is not None and spec.watermarks is None:
        yield (
            f"{where} has max_drift={drift!r}, which compares watermarks, and no watermark strategy; give set_spout(..., "
            "watermarks=...), or leave max_drift out"
        )
    if cls.read is PartitionedSpout.read and cls.reader is PartitionedSpout.reader:
        yield f"{where} defines neither read nor reader; define one of them"


def _arguments(spec: ComponentSpec, cls: type[Component]) -> Iterator[str]:
    try:
        signature = inspect.signature(cls)
    except ValueError:
        return  # a class written in C may have none
    try:
        signature.bind(*spec.args, **spec.kwargs)
    except TypeError as error:
        yield f"component {spec.id!r}: {cls.__name__}{signature} cannot be made: {error}; give args=(...) or kwargs={{...}}"


def _parallelism(spec: ComponentSpec, config: TopologyConfig) -> Iterator[str]:
    parallelism = spec.parallelism
    if not isinstance(parallelism, int) or isinstance(parallelism, bool) or parallelism < 1:
        yield f"component {spec.id!r}: parallelism is {parallelism!r}; it must be a whole number of at least 1"
        return
    most = config.changed(spec.settings, per_component=True)[0].max_parallelism or default_max_parallelism(parallelism)
    if parallelism > most:
        fix = "raise max_parallelism or lower the parallelism" if most < MAX_PARALLELISM_LIMIT else "lower it"
        yield f"component {spec.id!r}: parallelism {parallelism} is more than max_parallelism {most}; {fix}"
    if (needed := getattr(spec.component, "tasks_needed", parallelism)) != parallelism:
        yield (
            f"component {spec.id!r}: {spec.type.__name__} needs one task for each of its paths, which are {needed}; set its "
            f"parallelism to {needed}"
        )


def _watermarks(spec: ComponentSpec, streams: Sequence[StreamDeclaration] | None) -> Iterator[str]:
    if streams is None and isinstance(spec.watermarks, WatermarkStrategy):
        return  # its outputs are invalid, which has been reported
    main = next((stream.fields for stream in streams or () if stream.name == DEFAULT_STREAM), None)
    if problem := strategy_problem(spec.watermarks, main):
        yield f"component {spec.id!r}: {problem}"


def _values_wanted(spec: ComponentSpec, config: TopologyConfig) -> Iterator[str]:
    if config.delivery == "exactly_once" and spec.kind is ComponentKind.SPOUT and getattr(spec.component, "wants_values", False):
        yield (
            f"component {spec.id!r}: wants_values is set, but with delivery='exactly_once' no values are kept for ack and fail; "
            "leave it out and keep by message id what they need, or set delivery='at_least_once'"
        )


def _inputs(
    spec: ComponentSpec, streams: dict[str, tuple[StreamDeclaration, ...] | None], classes: Collection[str]
) -> Iterator[str]:
    if spec.kind is not ComponentKind.BOLT:
        return
    if not spec.inputs:
        yield from _without_input(spec, streams)
    for (source, stream), count in Counter((declared.source, declared.stream) for declared in spec.inputs).items():
        if count > 1:
            yield (
                f"bolt {spec.id!r} reads stream {stream!r} of {source!r} {count} times, so each tuple would come {count} times; "
                "keep one grouping"
            )
    for declared in spec.inputs:
        for problem in _input(declared, streams, is_class=declared.source in classes):
            yield f"bolt {spec.id!r}: {problem}"
        for problem in _missing_fields(spec, declared, streams.get(declared.source) or ()):
            yield f"bolt {spec.id!r}: {problem}"


def _without_input(spec: ComponentSpec, streams: dict[str, tuple[StreamDeclaration, ...] | None]) -> Iterator[str]:
    """A bolt that is given nothing but ticks may read nothing."""
    example = f".shuffle_grouping({_example(spec, streams)!r})"
    # Its own setting: with one of the whole topology, a grouping may have been forgotten.
    has_ticks = TopologyConfig().changed(spec.settings, per_component=True)[0].tick_interval_s is not None
    if not has_ticks or not issubclass(spec.type, Bolt | BasicBolt):
        yield f"bolt {spec.id!r} reads nothing; say what with a grouping, such as {example}"
    elif streams[spec.id]:
        yield (
            f"bolt {spec.id!r} reads nothing but ticks, but emits; make it a Spout, which emits when it wants to, or give it an "
            f"input, such as {example}"
        )


def _example(spec: ComponentSpec, streams: dict[str, tuple[StreamDeclaration, ...] | None]) -> str:
    return next((component_id for component_id in streams if component_id != spec.id), "source")


def _input(declared: Input, streams: dict[str, tuple[StreamDeclaration, ...] | None], *, is_class: bool) -> Iterator[str]:
    """Yield the mistakes in one input; `is_class`: its source was given as a class."""
    source, stream, grouping = declared.source, declared.stream, declared.grouping
    given: Any = grouping
    if not isinstance(given, Grouping):
        yield f"the grouping on {source!r} is {given!r:.80}; call shuffle_grouping({source!r}) or another of the declarer"
        return
    if source not in streams:
        yield f"reads from {source!r}, which is not a component{_hint(source, list(streams))}"
        return
    outputs = streams[source]
    if outputs is None:
        return
    found = next((candidate for candidate in outputs if candidate.name == stream), None)
    if found is None:
        if not outputs:
            own = ", or give an instance where its __init__ does" if is_class else ""
            yield f'reads from {source!r}, which emits nothing; declare its outputs, such as outputs = ("field",){own}'
        else:
            yield f"reads stream {stream!r} of {source!r}, which does not declare it{_hint(stream, [o.name for o in outputs])}"
        return
    if found.direct and not isinstance(grouping, Direct):
        yield f"stream {stream!r} of {source!r} is a direct stream; read it with direct_grouping({source!r}, stream={stream!r})"
    if not found.direct and isinstance(grouping, Direct):
        yield (
            f"direct_grouping needs a direct stream, and {stream!r} of {source!r} is none; declare its fields with direct(...), "
            "or take another grouping"
        )
    if isinstance(grouping, Fields | PartialKey):
        if not grouping.fields:
            yield f"the {grouping.kind} grouping on {source!r} names no field; give at least one of {', '.join(found.fields)}"
        names: tuple[Any, ...] = grouping.fields
        for field in names:
            if not isinstance(field, str):
                call = "fields_grouping" if isinstance(grouping, Fields) else "partial_key_grouping"
                yield f"{call} was given {field!r}; give it the names of the fields one by one, as {call}({source!r}, 'a', 'b')"
            elif field not in found.fields:
                where = f"stream {stream!r} of {source!r}"
                yield f"the {grouping.kind} grouping names {field!r}, which {where} does not have{_hint(field, found.fields)}"
    custom: Any = grouping.grouping if isinstance(grouping, Custom) else None
    if isinstance(grouping, Custom) and not isinstance(custom, CustomGrouping):
        yield f"custom_grouping on {source!r} needs an instance of a CustomGrouping, not {custom!r}"


def _missing_fields(spec: ComponentSpec, declared: Input, outputs: Sequence[StreamDeclaration]) -> Iterator[str]:
    """Yield the fields that a sink needs and an input does not have."""
    component: Any = spec.component
    if not isinstance(component, WithRequiredFields):
        return
    for stream in outputs:
        if stream.name == declared.stream:
            for field in component.required_fields:
                if field not in stream.fields:
                    where = f"stream {stream.name!r} of {declared.source!r}"
                    hint = f"{_hint(field, stream.fields)}{component.missing_field_fix}"
                    yield f"it needs the field {field!r}, which {where} does not have{hint}"


def _shared_files(specs: Iterable[ComponentSpec]) -> Iterator[str]:
    """Yield the sinks that would overwrite lines of another one."""
    first: dict[str, str] = {}
    for spec in specs:
        sink: Any = spec.component
        if not isinstance(sink, WithOwnFile) or not sink.own_file:
            continue
        if (other := first.setdefault(sink.own_file, spec.id)) != spec.id:
            yield (
                f"bolt {spec.id!r}: it writes to {sink.own_file}, as {other!r} does, and each would overwrite lines of the "
                "other; give it another file, or let one sink read both inputs"
            )


def _hint(name: Any, known: Sequence[str]) -> str:
    near = get_close_matches(str(name), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(map(repr, known)) or 'none'}"


def _carried_types(topology: Topology) -> Iterator[str]:
    for carried in topology.carried_types:
        cls: Any = carried.cls
        if not isinstance(cls, type):
            yield f"register_type: {cls!r} is not a class"
        elif not isinstance(carried.code, int) or carried.code not in TYPE_CODES:
            yield f"register_type({cls.__name__}): code {carried.code!r} is not one of {TYPE_CODES[0]} to {TYPE_CODES[-1]}"
    for what, counted in (("code", Counter(c.code for c in topology.carried_types)), ("class", _class_counts(topology))):
        for value, count in counted.items():
            if count > 1:
                yield f"register_type: {what} {value} is registered {count} times; give each class its own code"


def _class_counts(topology: Topology) -> Counter[Any]:
    return Counter(getattr(carried.cls, "__qualname__", carried.cls) for carried in topology.carried_types)


def _cycle(specs: Sequence[ComponentSpec]) -> list[str]:
    readers: dict[str, list[str]] = {spec.id: [] for spec in specs}
    for spec in specs:
        for declared in spec.inputs:
            if declared.source in readers and spec.id not in readers[declared.source]:
                readers[declared.source].append(spec.id)
    found: list[str] = []
    # Each cycle found is cut open and the search continues, so that one run names them all.
    while cycle := find_cycle(readers):
        path = " -> ".join(cycle)
        found.append(f"{CYCLE}{path}; a topology must flow one way, so take out one of these groupings")
        source, target = list(pairwise(cycle))[-1]
        readers[source].remove(target)
    return found
