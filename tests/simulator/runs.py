"""A run that is over, of either kind of topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from tests.simulator.external_world import ExternalWorld
from tests.simulator.history import Violation
from tests.simulator.simulation import Simulation

S = TypeVar("S")
W = TypeVar("W", bound=ExternalWorld)


@dataclass(frozen=True, slots=True)
class Run(Generic[S, W]):
    """A run of a scenario, with all violations of oracles."""

    scenario: S
    simulation: Simulation
    outside: W
    violations: list[Violation]

    def counts(self) -> dict[str, int]:
        """Return how often each thing of interest occurred."""
        return self.simulation.history.counts

    def summary(self) -> str:
        """Return the run in a few lines."""
        simulation = self.simulation
        outcome = simulation.master.outcome
        lines = [
            f"{simulation.now:.3f} virtual seconds, {simulation.history.roots} roots, "
            f"{simulation.network.counts.delivered} frames, {len(simulation.all_processes)} processes; "
            f"{'no end' if outcome is None else f'{outcome.kind.value}: {outcome.reason}'}",
            ", ".join(f"{name}: {count}" for name, count in sorted(self.counts().items())),
            f"trace {simulation.trace_hash}",
        ]
        return "\n".join(lines)
