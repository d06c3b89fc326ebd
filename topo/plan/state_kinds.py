"""The kinds of state in a checkpoint. One kind is not read as another, so a change is refused, not forgotten."""

from __future__ import annotations

from topo.api.batch_bolt import BatchBolt
from topo.api.bolt import StatefulBolt
from topo.api.columns import ColumnBolt, StatefulColumnBolt
from topo.api.operator_bolts import AsyncBolt, OperatorBolt, WindowBolt
from topo.api.partitions import PartitionedSpout
from topo.api.spout import RetryingSpout, Spout
from topo.api.topology import ComponentSpec
from topo.api.two_phase import TwoPhaseSink

NO_STATE = "nothing"
BY_PARTITION = "positions by partition"


def state_kind(spec: ComponentSpec) -> str:
    """Return, in words, what a component remembers besides event time and dead letters; "" where only its run shows that."""
    kind = spec.type
    if issubclass(kind, PartitionedSpout):
        return BY_PARTITION
    if issubclass(kind, Spout):
        return "a position" if issubclass(kind, RetryingSpout) else "message ids"
    if issubclass(kind, StatefulBolt | StatefulColumnBolt):
        return "state by key" if getattr(spec.component, "key", None) else "state without a key"
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
