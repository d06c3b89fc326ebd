"""A topology, its settings and its faults; and a run of it under all oracles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.simulator import stages
from tests.simulator.external_world import ExternalWorld, message_key
from tests.simulator.faults import Fault
from tests.simulator.oracles import Oracles
from tests.simulator.runs import Run
from tests.simulator.simulation import Simulation
from tests.simulator.topologies import Part, build, copies_of
from topo.api.bolt import BasicBolt
from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import Topology


@dataclass(frozen=True, slots=True)
class SpoutFacts:
    """A spout, as the oracles need it."""

    name: str
    parallelism: int
    total: int
    has_positions: bool = True


class Scenario:
    """A topology without checkpoints, its settings and its faults.

    Args:
        seed: of the run.
        parts: the components, spouts first.
        spouts: facts of those that are spouts.
        settings: of the topology.
        hopeless: (component, key): messages that the component always fails.
        poison: likewise, messages that take its process down.
        faults: in the order of their shares.

    Attributes:
        forgets: some bolt forgets to ack.
        hangs: some asynchronous call does not return before its timeout.
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
        self.hangs = any(isinstance(stage, stages.Call) and stage.hangs_one_in for stage in self._stages.values())
        self.hopeless = [key for component, key in hopeless if self._meets(key, component)]
        self.poison = [key for component, key in poison if self._meets(key, component)]

    def _meets(self, key: str, component: str) -> bool:
        return component in {name for name, _ in self._follow(key)}

    def topology(self, outside: ExternalWorld) -> Topology:
        """Build the topology, as every process does."""
        return build(f"seed-{self.seed}", self.parts, self.settings, outside)

    def describe(self) -> str:
        """Return the scenario in words."""
        lines = [f"seed {self.seed}: " + ", ".join(f"{name}={value}" for name, value in self.settings.items())]
        for part in self.parts:
            kind = type(part.make(ExternalWorld())).__name__
            reads = ", ".join(f"{source}/{stream} {grouping}" for source, stream, grouping in part.inputs)
            lines.append(f"  {part.name}: {kind} x{part.parallelism}" + (f" reads {reads}" if reads else ""))
        lines += [f"  hopeless {key}" for key in self.hopeless] + [f"  poison {key}" for key in self.poison]
        return "\n".join(lines + [f"  {fault}" for fault in self.faults])

    # -- expected effects ------------------------------------------------------------------------------------------------

    def leaves(self) -> dict[str, frozenset[tuple[str, str]]]:
        """Return the effects that each message must have, by its key."""
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

    def tuples_of_a_message(self) -> float:
        """Return how many tuples a message makes on average, with one target for each."""
        keys = [message_key(spout.name, 0, number) for spout in self.spouts for number in range(20)]
        return sum(len(self._follow(key)) for key in keys) / len(keys)

    def takes_single_roots(self) -> set[str]:
        """Return the basic bolts whose inputs descend from one message each."""
        mixed, found = set[str](), set[str]()
        for part in self.parts:
            reads_mixed = any(source in mixed for source, _, _ in part.inputs)
            if reads_mixed or isinstance(self._stages[part.name], stages.Batch | stages.Join):
                mixed.add(part.name)
            if not reads_mixed and isinstance(self._stages[part.name], BasicBolt):
                found.add(part.name)
        return found

    def oracles(self, outside: ExternalWorld) -> Oracles:
        """Return the oracles of a run."""
        return Oracles(self, outside)

    def run(self, *, keeps_trace: bool = False, may_reopen_trees: bool = False) -> ScenarioRun:
        """Run it to its end, under all oracles. With `may_reopen_trees` ackers may hold trees open that are done."""
        outside = ExternalWorld()
        oracles = self.oracles(outside)
        simulation = Simulation(
            copies_of(self.topology(outside), outside),
            self.seed,
            self.faults,
            oracles.progress,
            keeps_trace=keeps_trace,
        )
        outside.work, outside.kill, outside.now = simulation.work, simulation.kill, lambda: simulation.now
        oracles.attach(simulation)
        simulation.history.may_reopen_trees = may_reopen_trees
        simulation.run()
        if not simulation.violations:
            oracles.judge()
        return Run(self, simulation, outside, simulation.violations)


ScenarioRun = Run[Scenario, ExternalWorld]
