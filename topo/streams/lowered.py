"""The components that a program is lowered to, as `explain` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topo.api.bolt import WithRequiredFields
from topo.streams.chain import Chain
from topo.streams.graph import Node
from topo.streams.records import layout_of

_NAME_THEM = "; of tuples and dicts .to(sink, fields=(...)) makes columns, and of=Click gives records their fields"


@dataclass(frozen=True, slots=True)
class StreamEdge:
    """One stream of one component on its way to an exchange."""

    component: str
    stream: str
    parallelism: int


@dataclass(slots=True)
class LoweredComponent:
    """A component as `explain` shows it."""

    id: str
    label: str
    parallelism: int
    reads: list[tuple[StreamEdge, str]]
    chains: list[Chain] = field(default_factory=list)
    identity: str = ""
    declared: Mapping[str, str] = field(default_factory=dict)

    def labels(self) -> list[str]:
        """Return the operators fused into it, each once."""
        return list(dict.fromkeys(step.label for chain in self.chains for step in chain.steps()))


def explain_missing_fields(sink: Node) -> None:
    """Have the refusal of a field that the records have not name the fix, where they reach the sink as one value."""
    are_named = sink.settings.get("fields") or all(layout_of(source.record_of(name)).attributes for source, name in sink.inputs)
    if isinstance(sink.function, WithRequiredFields) and not are_named:
        sink.function.missing_field_fix = _NAME_THEM
