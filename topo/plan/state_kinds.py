"""The kinds of state in a checkpoint. One kind is not read as another, so a change is refused, not forgotten."""

from __future__ import annotations

from topo.api.batch_bolt import BatchBolt
from topo.api.bolt import StatefulBolt
from topo.api.columns import ColumnBolt, StatefulColumnBolt
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, WindowBolt
from topo.api.partitions import PartitionedSpout
from topo.api.spout import RetryingSpout, Spout
from topo.api.topology import ComponentKind, ComponentSpec, Topology
from topo.api.two_phase import TwoPhaseSink
from topo.api.windows import CountWindows, GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows

NO_STATE = "nothing"
BROADCAST = "the same state in each task"
BY_PARTITION = "positions by partition"


def state_kind(spec: ComponentSpec) -> str:
    """Return, in words, what a component remembers besides event time and dead letters; "" where only its run shows that."""
    kind = spec.type
    if issubclass(kind, PartitionedSpout):
        return BY_PARTITION
    if issubclass(kind, Spout):
        return "a position" if issubclass(kind, RetryingSpout) else "message ids"
    if issubclass(kind, StatefulBolt | StatefulColumnBolt):
        if getattr(spec.component, "key", None):
            return "state by key"
        return BROADCAST if getattr(spec.component, "is_broadcast", False) else "state without a key"
    if issubclass(kind, TwoPhaseSink):
        return "staged output"
    if issubclass(kind, AsyncBolt):
        return "calls"
    if issubclass(kind, OperatorBolt) and not issubclass(kind, BatchBolt | ColumnBolt):
        if not isinstance(spec.component, OperatorBolt):
            return ""
        what = "windows" if issubclass(kind, WindowBolt) else "state and timers"
        if getattr(spec.component, "per_task", False):
            return f"{what} per task"
        return f"{what} by key" if spec.component.key else f"{what} without a key"
    return NO_STATE


def state_facts(spec: ComponentSpec) -> dict[str, str]:
    """Return facts of the state of a component by name: those that it declares, and the kind of its windows."""
    windows = _kind_of_windows(spec.component.window) if isinstance(spec.component, WindowBolt) else ""
    return {**spec.declared, **({"windows": windows} if windows else {})}


def _kind_of_windows(window: object) -> str:
    """Return the kind of windows that no other kind can close: no timer, or no clock, would reach them. "": none is known.

    Those of a size in time close at the ends that they have, under any other size.
    """
    if isinstance(window, TumblingWindows | SlidingWindows | SessionWindows):
        what = "session" if isinstance(window, SessionWindows) else "window"
        return f"{what} of {'event time' if window.is_event_time else 'the clock'}"
    if isinstance(window, CountWindows):
        parts = {"each": window.slide, "each ms": window.slide_ms, "over ms": window.over_ms}
        return f"window of {window.count} rows" + "".join(f", {name} {part}" for name, part in parts.items() if part is not None)
    return "window without end" if isinstance(window, GlobalWindows) else ""


def forgotten_without_checkpoints(topology: Topology, delivery: str) -> list[str]:
    """Return which state a stop without a checkpoint would lose: one sentence for each component that has any.

    Messages in windows are pending with at_least_once, so they are read again; with at_most_once they are gone.

    Args:
        topology: as the code declares it.
        delivery: the mode in force.
    """
    found = []
    for spec in topology.components:
        kind = state_kind(spec)
        has_state = kind.startswith("state") or kind in ("", BROADCAST)
        if has_state or (kind.startswith("windows") and delivery != "at_least_once"):
            found.append(
                f"{spec.id!r}: {kind or 'state'} is kept in memory alone with delivery={delivery}, and a stop would lose it; "
                "run it with -s delivery=exactly_once, where state moves with a savepoint"
            )
    return found


def plain_spouts(topology: Topology) -> list[str]:
    """Return the spouts without positions: a new process of one begins where its own code begins."""
    return [
        spec.id
        for spec in topology.components
        if spec.kind is ComponentKind.SPOUT and not issubclass(spec.type, RetryingSpout | PartitionedSpout)
    ]
