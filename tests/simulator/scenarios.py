"""A topology, its settings and its faults; and a run of it, with what every oracle has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulator import stages
from tests.simulator.external_world import ExternalWorld, message_key
from tests.simulator.faults import Fault
from tests.simulator.history import Violation
from tests.simulator.oracles import Oracles
from tests.simulator.simulation import Simulation
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import Topology
from topo.builder import BoltDeclarer, TopologyBuilder


@dataclass(frozen=True, slots=True)
class Part:
    """One component of a topology, as data.

    Attributes:
        make: makes it in one run's outside stages.
        inputs: (source, stream, kind of grouping) for each input.
    """

    name: str
    make: Callable[[ExternalWorld], Any]
    parallelism: int = 1
    inputs: tuple[tuple[str, str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpoutFacts:
    """What the oracles have to know of a spout."""

    name: str
    parallelism: int
    total: int
    has_positions: bool = True


class Scenario:
    """What is run.

    Args:
        seed: of the run.
        parts: the components, spouts first.
        spouts: facts of those that are spouts.
        settings: of the topology.
        hopeless: (component, key): messages that the component always fails.
        poison: likewise, messages that take its process down.
        faults: what goes wrong.

    Attributes:
        forgets: some bolt forgets to ack.
        hopeless, poison: the keys of those that get as far as their component.
    """

    def __init__(
        self,
        seed: int,
        parts: Sequence[Part],
        spouts: Sequence[SpoutFacts],
        settings: Mapping[str, Any],
        *,
        hopeless: Sequence[tuple[str, str]] = (),
        poison: Sequence[tuple[str, str]] = (),
        faults: Sequence[Fault] = (),
    ) -> None:
        self.seed = seed
        self.parts = tuple(parts)
        self.spouts = tuple(spouts)
        self.settings = dict(settings)
        self.faults = tuple(faults)
        self._readers: dict[tuple[str, str], list[str]] = {}
        for part in self.parts:
            for source, stream, _ in part.inputs:
                self._readers.setdefault((source, stream), []).append(part.name)
        outside = ExternalWorld()
        self._stages = {part.name: part.make(outside) for part in self.parts}
        self.forgets = any(isinstance(stage, stages.Forward) and stage.forgets_one_in for stage in self._stages.values())
        self.hopeless = [key for component, key in hopeless if self._meets(key, component)]
        self.poison = [key for component, key in poison if self._meets(key, component)]

    def _meets(self, key: str, component: str) -> bool:
        return component in {name for name, _ in self._follow(key)}

    def topology(self, outside: ExternalWorld) -> Topology:
        """Build the topology, as every process does."""
        builder = TopologyBuilder(f"seed-{self.seed}").config(**self.settings)
        for part in self.parts:
            if not part.inputs:
                builder.set_spout(part.name, part.make(outside), part.parallelism)
                continue
            declarer = builder.set_bolt(part.name, part.make(outside), part.parallelism, **part.settings)
            for source, stream, grouping in part.inputs:
                _declare(declarer, source, stream, grouping, outside)
        return builder.build()

    def describe(self) -> str:
        """Return the scenario in words."""
        lines = [f"seed {self.seed}: " + ", ".join(f"{name}={value}" for name, value in self.settings.items())]
        for part in self.parts:
            kind = type(part.make(ExternalWorld())).__name__
            reads = ", ".join(f"{source}/{stream} {grouping}" for source, stream, grouping in part.inputs)
            lines.append(f"  {part.name}: {kind} x{part.parallelism}" + (f" reads {reads}" if reads else ""))
        lines += [f"  hopeless {key}" for key in self.hopeless] + [f"  poison {key}" for key in self.poison]
        return "\n".join(lines + [f"  {fault}" for fault in self.faults])

    # -- what has to come of it ------------------------------------------------------------------------------------------

    def leaves(self) -> dict[str, frozenset[tuple[str, str]]]:
        """Return, for each message key, the effects that it has to have."""
        sinks = {name for name, stage in self._stages.items() if isinstance(stage, stages.Sink | stages.BufferingSink)}
        return {
            key: frozenset(met for met in self._follow(key) if met[0] in sinks)
            for spout in self.spouts
            for key in (message_key(spout.name, index, n) for index in range(spout.parallelism) for n in range(spout.total))
        }

    def _follow(self, key: str) -> list[tuple[str, str]]:
        """Return every (component, path) that comes of a message."""
        met: list[tuple[str, str]] = []
        ways = [(reader, key) for reader in self._readers.get((key.partition(".")[0], DEFAULT_STREAM), ())]
        while ways:
            component, path = ways.pop()
            met.append((component, path))
            stage = self._stages[component]
            if isinstance(stage, stages.Join):
                path = path.rpartition(">")[0]
            for stream, made in stage.of_path(path):
                ways += [(reader, made) for reader in self._readers.get((component, stream), ())]
        return met

    def run(self, *, keeps_trace: bool = False, may_reopen_trees: bool = False) -> Run:
        """Run it to its end, under all oracles. With `may_reopen_trees` ackers may hold trees open that are done."""
        outside = ExternalWorld()
        oracles = Oracles(self, outside)
        simulation = Simulation(
            lambda: self.topology(outside),
            self.seed,
            self.faults,
            oracles.progress,
            keeps_trace=keeps_trace,
        )
        outside.work, outside.kill = simulation.work, simulation.kill
        oracles.attach(simulation)
        simulation.history.may_reopen_trees = may_reopen_trees
        simulation.run()
        if not simulation.violations:
            oracles.judge()
        return Run(self, simulation, outside, simulation.violations)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is over."""

    scenario: Scenario
    simulation: Simulation
    outside: ExternalWorld
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


def _declare(declarer: BoltDeclarer, source: str, stream: str, grouping: str, outside: ExternalWorld) -> None:
    if grouping == "fields":
        declarer.fields_grouping(source, "key", stream=stream)
    elif grouping == "partial-key":
        declarer.partial_key_grouping(source, "key", stream=stream)
    elif grouping == "custom":
        declarer.custom_grouping(source, stages.Picky(outside, f"{source} {stream}", 40), stream=stream)
    else:
        getattr(declarer, grouping.replace("-", "_") + "_grouping")(source, stream=stream)
