"""Finds windows, triggers and timers of event time whose tuples have none: nothing before them has a `WatermarkStrategy`.

A component that emits timestamps itself is recognised by its code: a call with `timestamp=`, or of `emit_watermark`. Code that
cannot be followed is not refused. What code does not show has to be declared with `WatermarkStrategy.emitted()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from topo.api.operator_bolts import ProcessBolt, WindowBolt
from topo.api.partitions import PartitionedSpout
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import ComponentSpec, Input
from topo.api.triggers import ContinuousEventTimeTrigger, EventTimeTrigger, Trigger
from topo.api.watermarks import EXAMPLE, WatermarkStrategy
from topo.api.windows import CountWindows, GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows, WindowAssigner
from topo.plan.code_reach import CodeReach
from topo.plan.operator_validation import Streams

_TIMER = "register_event_time_timer"


def event_time_problems(specs: Sequence[ComponentSpec], streams: Streams) -> Iterator[str]:
    """Yield what goes by event time, and has no event time: one sentence each, with the fix.

    Args:
        streams: the output streams of each component; None where they are invalid, which has been reported.
    """
    sources = _Sources(specs, streams)
    for spec in specs:
        if streams.get(spec.id) is None:
            continue  # reported elsewhere, such as a bolt whose __init__ was not called
        wanted = _goes_by_event_time(spec)
        if wanted is None:
            continue
        what, instead, needs_all = wanted
        without = [declared for declared in spec.inputs if not sources.have_time(declared)]
        if needs_all or len(without) == len(spec.inputs):
            for declared in without if needs_all else without[:1]:
                yield _problem(spec, what, sources, declared, instead)


def _goes_by_event_time(spec: ComponentSpec) -> tuple[str, str, bool] | None:
    """Return what of a bolt goes by event time, what to use instead, and whether each input needs it; None if nothing does."""
    if isinstance(spec.component, WindowBolt):
        if _has_windows(spec.component):
            return "windows of event time", "use windows of processing time", True
        what = _other_event_time(spec.component)
        return (what, "take the one of processing time", False) if what else None
    if issubclass(spec.type, ProcessBolt) and _TIMER in _words(spec.type):
        return f"timers of event time ({spec.type.__name__} calls {_TIMER})", "use register_processing_time_timer", False
    return None


def _problem(spec: ComponentSpec, what: str, sources: _Sources, declared: Input, instead: str) -> str:
    source = sources.by_id[declared.source]
    reason = "neither it nor a component before it has a WatermarkStrategy"
    on = f" (stream {declared.stream!r})" if declared.stream != DEFAULT_STREAM else ""
    if sources.is_timeless(source):
        reason = f"the windows of {source.id!r} end with the stream, and so do the timestamps of their results"
    elif source.watermarks is not None:
        reason = f"the WatermarkStrategy of {source.id!r} reads the stream {DEFAULT_STREAM!r} alone"
    return (
        f"bolt {spec.id!r} has {what}, but the tuples of {source.id!r}{on} have none: {reason}; set one, such as "
        f"set_{source.kind}({source.id!r}, ..., watermarks={EXAMPLE}), or watermarks=WatermarkStrategy.emitted() where the "
        f"component itself calls emit(..., timestamp=...), or {instead}"
    )


class _Sources:
    """The components of a topology, and which of their streams have event time."""

    def __init__(self, specs: Sequence[ComponentSpec], streams: Streams) -> None:
        self.by_id = {spec.id: spec for spec in specs}
        self._streams = streams

    def have_time(self, declared: Input) -> bool:
        """Return whether the tuples of an input may have timestamps. True where the input is invalid, which has been reported."""
        waiting, seen = [declared], {declared.source}
        while waiting:
            one = waiting.pop()
            spec = self.by_id.get(one.source)
            if spec is None or not self._streams.get(spec.id) or self._gives_time(spec, one.stream):
                return True
            if not self.is_timeless(spec):
                waiting += [above for above in spec.inputs if above.source not in seen]
                seen.update(above.source for above in spec.inputs)
        return False

    @staticmethod
    def _gives_time(spec: ComponentSpec, stream: str) -> bool:
        if getattr(spec.component, "stamps_all_streams", False):
            return True
        strategy: Any = spec.watermarks
        if strategy is not None and (stream == DEFAULT_STREAM or strategy == WatermarkStrategy.emitted()):
            return True
        # A PartitionedSpout gives rows timestamps, and cannot emit watermarks.
        return not issubclass(spec.type, PartitionedSpout) and _may_give_time(spec)

    @staticmethod
    def is_timeless(spec: ComponentSpec) -> bool:
        """Return whether results get the end of time as their timestamp."""
        return isinstance(spec.component, WindowBolt) and isinstance(spec.component.window, GlobalWindows | CountWindows)


def _has_windows(bolt: WindowBolt) -> bool:
    """Return whether each row needs a timestamp."""
    return isinstance(bolt.window, TumblingWindows | SlidingWindows | SessionWindows) and bolt.window.is_event_time


def _other_event_time(bolt: WindowBolt) -> str:
    """Return what else of a window goes by event time; empty if nothing does."""
    if isinstance(bolt.window, WindowAssigner) and bolt.window.is_event_time:
        return "windows of event time (is_event_time of their assigner)"
    is_bounded = not isinstance(bolt.window, GlobalWindows)
    trigger: Any = bolt.trigger
    while trigger is not None:
        if isinstance(trigger, ContinuousEventTimeTrigger) or (is_bounded and isinstance(trigger, EventTimeTrigger)):
            return "a trigger of event time"
        if isinstance(trigger, Trigger) and _TIMER in _words(type(trigger)):
            return f"a trigger of event time ({type(trigger).__name__} calls {_TIMER})"
        trigger = getattr(trigger, "inner", None)
    return ""


def _words(cls: type) -> set[str]:
    """Return the names that the methods of a class use, and the functions that these come to, and the keywords of their calls."""
    reach = CodeReach()
    reach.follow_class(cls)
    return reach.words


def _may_give_time(spec: ComponentSpec) -> bool:
    """Return whether the code of a component shows that it emits timestamps, or does not show that it emits none."""
    reach = CodeReach(all_values=True)
    reach.follow_class(spec.type)
    reach.follow_attributes(spec.component)
    return not (reach.is_whole and reach.words.isdisjoint(("emit_watermark", "timestamp=", "timestamps=")))
