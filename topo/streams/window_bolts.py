"""The bolts of windows and of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from topo.api.durations import duration_ms
from topo.api.operator_bolts import WindowBolt
from topo.api.windows import CountWindows, GlobalWindows
from topo.streams.aggregates import Aggregate
from topo.streams.chain import Chain
from topo.streams.components import OutputFields, WindowResults
from topo.streams.graph import Node
from topo.streams.records import KEY, Layout
from topo.streams.windows import EarlyTrigger, RecordAggregate, ReduceRecords, TopRecords, batch_trigger

LATE_STREAM: Final = "late"


def window_bolt(
    node: Node, function: Any, parts: Sequence[Aggregate[Any, Any]], chain: Chain, layout: Layout, outputs: OutputFields
) -> WindowBolt:
    """Return the bolt of a window.

    Args:
        function: the user's, of one task.
        parts: the aggregates, of one task.
        chain: opens the function and the aggregates.
    """
    settings, place, result = node.settings, str(node), node.settings["result"]
    window, early = settings["window"], settings.get("early")
    if parts:
        chain.bodies = (*parts, function) if result == "aggregate" else parts
    if result == "reduce":
        parts = (ReduceRecords(function, layout, place),)
    elif result == "top_n":
        parts = (TopRecords(settings["n"], function, layout, place),)
    rows = (window.count, window.slide or window.count) if isinstance(window, CountWindows) else None
    return WindowBolt(
        key=KEY,
        window=window,
        trigger=EarlyTrigger(duration_ms(early), is_event_time=window.is_event_time) if early is not None else None,
        aggregate=RecordAggregate(parts, function if result == "aggregate" else None, layout) if parts else None,
        process=WindowResults(chain, function if result == "process" else None, layout, rows),
        allowed_lateness=settings["lateness"],
        late_stream=LATE_STREAM if settings["sides"] else None,
        outputs=dict(outputs),
    )


def batch_bolt(settings: Mapping[str, Any], chain: Chain, layout: Layout, outputs: OutputFields) -> WindowBolt:
    """Return the bolt of a batch: a window of each task's own."""
    results = WindowResults(chain, lambda _key, batch: [batch.value], layout, keyed=False)
    trigger = batch_trigger(settings["size"], settings["within"])
    return WindowBolt(key=None, per_task=True, window=GlobalWindows(), trigger=trigger, process=results, outputs=dict(outputs))
