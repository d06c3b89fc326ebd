"""The components that a program is lowered to, as `explain` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from topo.streams.chain import Chain


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
