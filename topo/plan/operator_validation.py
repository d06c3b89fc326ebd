"""Finds mistakes in window, process and async bolts: in keys and parts, and in work that tracking cannot cover."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from topo.api.aggregates import Count, Mean, Together
from topo.api.batch_bolt import BatchBolt
from topo.api.bolt import StatefulBolt
from topo.api.columns import ColumnBolt
from topo.api.groupings import Fields, GroupingKind
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, ProcessBolt, WindowBolt, key_fields
from topo.api.partitions import PartitionedSpout
from topo.api.spout import RetryingSpout
from topo.api.streams import DEFAULT_STREAM, StreamDeclaration
from topo.api.topology import ComponentKind, ComponentSpec
from topo.api.triggers import CountTrigger, PurgingTrigger
from topo.api.tuples import Origin
from topo.api.windows import AssignerLike, CountWindows, GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows
from topo.config import TopologyConfig, format_duration
from topo.errors import UserError
from topo.operators.bolt_operators import window_operator_of

Streams = Mapping[str, tuple[StreamDeclaration, ...] | None]

_PARTS = {
    "aggregate": ("create_accumulator", "one of an AggregateFunction"),
    "process": ("process", "one of a ProcessWindowFunction"),
    "reduce": ("reduce", "a function of two elements"),
}
"""What a window is given to make results: its method, and how to give it."""


def operator_problems(specs: Sequence[ComponentSpec], streams: Streams, config: TopologyConfig) -> list[str]:
    """Return the mistakes in the bolts that the operator core runs: one sentence each, with the fix.

    Args:
        streams: the output streams of each component; None where they are invalid, which has been reported.
        config: the settings in force.
    """
    found: list[str] = []
    for spec in specs:
        if streams.get(spec.id) is None:
            continue  # reported elsewhere
        if spec.kind is ComponentKind.BOLT and issubclass(spec.type, StatefulBolt):
            key = key_fields(getattr(spec.component, "key", None))
            if key and spec.parallelism != 1:
                found += [f"bolt {spec.id!r}: {problem}" for problem in _grouped_by(key, spec)]
            if spec.type.is_broadcast:
                found += [f"bolt {spec.id!r}: {problem}" for problem in _shared(key, spec)]
        if spec.kind is ComponentKind.BOLT and issubclass(spec.type, OperatorBolt):
            where = f"bolt {spec.id!r}"
            found += [f"{where}: {problem}" for problem in _bolt(spec)]
            bolt = spec.component
            if isinstance(bolt, BatchBolt | ColumnBolt):
                found += [f"{where}: {problem}" for problem in _batch(spec, bolt, specs, config)]
            if isinstance(bolt, ProcessBolt) and bolt.forgets_at_a_loss and config.delivery == "at_least_once":
                found += [f"{where}: {problem}" for problem in _delivered_again(spec, specs)]
            if isinstance(bolt, WindowBolt):
                found += [f"{where}: {problem}" for problem in _window(spec, bolt, streams)]
                if config.delivery == "at_least_once":
                    found += [f"{where}: {problem}" for problem in _timeout(spec, bolt, specs, config)]
                    found += [f"{where}: {problem}" for problem in _count(spec, bolt, specs, config)]
    return found


def _bolt(spec: ComponentSpec) -> Iterator[str]:
    if "tick_interval" in spec.settings:
        instead = "wait=..." if issubclass(spec.type, BatchBolt | ColumnBolt) else "timers"
        yield f"tick_interval is set, but a {spec.type.__name__} gets no ticks; use {instead}, or leave it out"
    if isinstance(spec.component, type):
        if issubclass(spec.component, WindowBolt):
            yield f"the class {spec.type.__name__} was given; give an instance, {spec.type.__name__}(key=..., window=...)"
        return
    bolt = spec.component
    if not isinstance(bolt, OperatorBolt) or isinstance(bolt, AsyncBolt):
        return
    kind = spec.type.__name__
    if not bolt.key:
        if spec.parallelism != 1 and not isinstance(bolt, BatchBolt | ColumnBolt) and not getattr(bolt, "per_task", False):
            yield f"a {kind} with key=None takes everything in one task, but its parallelism is {spec.parallelism}; set it to 1"
        return
    yield from _grouped_by(bolt.key, spec)


def _grouped_by(key: tuple[str, ...], spec: ComponentSpec) -> Iterator[str]:
    """Keyed state is with the task that owns the key's group: each input has to be grouped by exactly the key."""
    for declared in spec.inputs:
        fields = declared.grouping.fields if isinstance(declared.grouping, Fields) else ()
        if fields != key:
            by = f"fields {_names(fields)}" if fields else f"{declared.grouping.kind} grouping"
            yield (
                f"its key is {_names(key)}, but the tuples of {declared.source!r} come by {by}; "
                f"use fields_grouping({declared.source!r}, {_names(key)}), or change the key"
            )


def _shared(key: tuple[str, ...], spec: ComponentSpec) -> Iterator[str]:
    """State that all tasks have alike comes from inputs that all are given: a checkpoint has that of one task alone."""
    if key:
        yield f"is_broadcast is for state without a key, but its key is {_names(key)}; leave one of the two out"
    elif spec.parallelism != 1 and not any(declared.grouping.kind is GroupingKind.ALL for declared in spec.inputs):
        yield "its state is_broadcast, the same in each task, but no input comes by all_grouping; group those that change it so"


def _batch(
    spec: ComponentSpec, bolt: BatchBolt | ColumnBolt, specs: Sequence[ComponentSpec], config: TopologyConfig
) -> Iterator[str]:
    timeouts = _timeouts_above(spec, specs, config)
    if timeouts and config.delivery == "at_least_once" and bolt.settings.wait_ms >= 1000 * min(timeouts.values()):
        spout = min(timeouts, key=timeouts.__getitem__)
        yield (
            f"a tuple waits {format_duration(bolt.settings.wait_ms / 1000)} for its batch, but message_timeout of {spout!r} "
            f"is {format_duration(timeouts[spout])}: messages would fail meanwhile; shorten wait or raise message_timeout"
        )


def _delivered_again(spec: ComponentSpec, specs: Sequence[ComponentSpec]) -> Iterator[str]:
    """A message that its own spout delivers again looks like a new one, and is lost where its first tuple has left state."""
    for source in _spouts_above(spec, {one.id: one for one in specs}):
        if not issubclass(source.type, RetryingSpout | PartitionedSpout):
            yield (
                f"with delivery='at_least_once' the {source.type.__name__} {source.id!r} delivers a message again that was lost "
                "behind this bolt, which would drop it as seen; set delivery='exactly_once', or make it a RetryingSpout"
            )


def _timeouts_above(spec: ComponentSpec, specs: Sequence[ComponentSpec], config: TopologyConfig) -> dict[str, float]:
    """Return the message timeout in seconds of each spout that a bolt's inputs come from, of those that have one."""
    timeouts = {
        source.id: config.changed(source.settings, per_component=True)[0].message_timeout_s
        for source in _spouts_above(spec, {one.id: one for one in specs})
    }
    return {spout: timeout_s for spout, timeout_s in timeouts.items() if timeout_s is not None}


def _names(fields: Sequence[str]) -> str:
    return ", ".join(map(repr, fields))


def _window(spec: ComponentSpec, bolt: WindowBolt, streams: Streams) -> Iterator[str]:
    if bolt.per_task and bolt.key:
        yield f"per_task=True does not go with a key ({_names(bolt.key)}); leave one of them out"
    for name, (method, wanted) in _PARTS.items():
        given = getattr(bolt, name)
        is_class = isinstance(given, type) and (name != "reduce" or hasattr(given, method))
        is_function = name == "reduce" and callable(given)
        if is_class or not (given is None or is_function or hasattr(given, method)):
            yield f"{name}= takes an instance; got {given!r:.80}: give {f'{given.__name__}()' if is_class else wanted}"
            return
    yield from _width(bolt, streams.get(spec.id) or ())
    if bolt.sources and (bolt.aggregate is not None or bolt.reduce is not None or bolt.late_stream is not None):
        yield "sources=True is for process= alone; leave out aggregate=, reduce= and late_stream="
    if hasattr(bolt.process, "outputs"):
        given = type(bolt.process).__name__
        yield f"{given}.outputs has no effect on a window function; declare them on the bolt: {spec.type.__name__}(outputs=...)"
    inputs: dict[tuple[str, ...], str] = {}
    origins: list[Origin] = []
    for declared in spec.inputs:
        outputs = streams.get(declared.source) or ()
        stream = next((candidate for candidate in outputs if candidate.name == declared.stream), None)
        if stream is None:
            return  # reported elsewhere
        origins.append(Origin(declared.source, 0, declared.stream, stream.fields))
        inputs.setdefault(stream.fields, f"{declared.source!r} with {_names(stream.fields)}")
    if len(inputs) > 1 and not bolt.sources:
        yield (
            f"its inputs have different fields: {' and '.join(inputs.values())}; give them the same, in the same order, or set "
            "sources=True and read context.rows by field in a process= function"
        )
    if not origins:
        return
    own: Any = bolt.outputs
    late = own.get(bolt.late_stream) if isinstance(own, Mapping) else None
    if late is not None and late != origins[0].fields:
        yield (
            f"its late stream has the fields {_names(late)} of another input, since one WindowBolt is set under several names; "
            "make one for each"
        )
    try:
        window_operator_of(bolt, origins, lambda _size: 0)
    except UserError as error:
        yield str(error)


def _width(bolt: WindowBolt, outputs: Sequence[StreamDeclaration]) -> Iterator[str]:
    """How many values a result has is known without a function of the user's, and where no result is taken apart."""
    aggregate, width = bolt.aggregate, bolt.result_width
    if aggregate is not None and width != 1 and type(aggregate) in (Count, Mean, Together):
        width = len(aggregate.fields)
    elif width != 1:
        return
    declared = next((stream.fields for stream in outputs if stream.name == DEFAULT_STREAM), None)
    row = [*map(repr, bolt.key), "start", "end", f"{width} of the result"]
    if bolt.process is None and declared is not None and len(declared) != len(row) - 1 + width:
        yield (
            f"it emits {len(row) - 1 + width} values ({', '.join(row)}), and its outputs are {len(declared)} fields, "
            f"{_names(declared)}; give outputs= as many, or name each value of the result in result_fields="
        )


def _timeout(spec: ComponentSpec, bolt: WindowBolt, specs: Sequence[ComponentSpec], config: TopologyConfig) -> Iterator[str]:
    """Windows ack their inputs with their end. Event time is taken to pass as the clock does, unless there is `max_wait`."""
    held_ms = bolt.max_wait_ms if bolt.max_wait_ms is not None else _length_ms(bolt.window, bolt.allowed_lateness_ms)
    timeouts = _timeouts_above(spec, specs, config)
    if held_ms is None or not timeouts:
        return
    spout, least_s = min(timeouts.items(), key=lambda pair: pair[1])
    if held_ms >= least_s * 1000:
        held = format_duration(held_ms / 1000)
        yield (
            f"its windows hold their inputs for {held}, but message_timeout of {spout!r} is {format_duration(least_s)}: each "
            f"message would fail before its window ends; set message_timeout to more than {held}, make the windows shorter, run "
            "with delivery='exactly_once', which holds no messages, or, where event time passes faster than the clock, give a "
            "WindowBolt the longest wait in real time with max_wait=..."
        )


def _count(spec: ComponentSpec, bolt: WindowBolt, specs: Sequence[ComponentSpec], config: TopologyConfig) -> Iterator[str]:
    """A count window holds its messages until it is full. How many reach it is known where it reads from spouts alone."""
    needed = _tuples_needed(bolt)
    by_id = {one.id: one for one in specs}
    spouts = [by_id[name] for name in {declared.source for declared in spec.inputs} if name in by_id]
    if needed is None or any(source.kind is not ComponentKind.SPOUT for source in spouts):
        return
    limits = [(source, config.changed(source.settings, per_component=True)[0].max_spout_pending) for source in spouts]
    most = sum(source.parallelism * (limit or needed) for source, limit in limits)
    if most < needed:
        names = " and ".join(repr(source.id) for source in spouts)
        yield (
            f"its windows hold {needed:,} tuples before they fire, but max_spout_pending lets {names} have {most:,} messages in "
            f"flight, so none would ever fire; set max_spout_pending to {needed:,} or more, or make the windows smaller"
        )


def _tuples_needed(bolt: WindowBolt) -> int | None:
    """How many tuples of a key are in a count window when it fires; None for other windows."""
    if isinstance(bolt.window, CountWindows) and bolt.window.count:
        return bolt.window.count + (bolt.window.slide or 0)
    inner = bolt.trigger.inner if isinstance(bolt.trigger, PurgingTrigger) else None
    return inner.count if isinstance(bolt.window, GlobalWindows) and isinstance(inner, CountTrigger) else None


def _length_ms(window: AssignerLike, lateness_ms: int) -> int | None:
    """Return the longest wait of an input in the window by its declaration; None where the declaration has no bound."""
    if isinstance(window, TumblingWindows | SlidingWindows):
        return window.size_ms + (lateness_ms if window.is_event_time else 0)
    if isinstance(window, SessionWindows) and isinstance(window.gap, int):
        # A session is as long as its elements make it; the shortest one holds its element for the gap.
        return window.gap + (lateness_ms if window.is_event_time else 0)
    return None


def _spouts_above(spec: ComponentSpec, by_id: Mapping[str, ComponentSpec]) -> list[ComponentSpec]:
    found: dict[str, ComponentSpec] = {}
    waiting, seen = [spec], {spec.id}
    while waiting:
        for declared in waiting.pop().inputs:
            source = by_id.get(declared.source)
            if source is not None and source.id not in seen:
                seen.add(source.id)
                waiting.append(source)
                if source.kind is ComponentKind.SPOUT:
                    found[source.id] = source
    return list(found.values())
