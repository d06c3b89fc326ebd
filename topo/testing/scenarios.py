"""From a seed: a topology, its settings and its faults; and a run of it, with what every oracle has to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from topo.api.streams import DEFAULT_STREAM
from topo.api.topology import BoltDeclarer, Topology, TopologyBuilder
from topo.testing import outside as world
from topo.testing.faults import Fault, draw_faults
from topo.testing.history import Violation
from topo.testing.oracles import Oracles
from topo.testing.outside import Outside, message_key
from topo.testing.simulation import Simulation

ROOTS = 200
"""Messages of a run, at least; replays come on top."""
SETTINGS: dict[str, Any] = {
    "back_off": ("20ms", "50ms"),
    "heartbeat": "250ms",
    "worker_timeout": "1s",
    "progress_timeout": "500ms",
    "start_timeout": "2s",
    "master_timeout": "5s",
    "restart_back_off": "20ms",
    "restart_back_off_max": "300ms",
}
"""Short times, so that faults and their mending take seconds: a lost tail is noticed after 1.5 s, before messages time out."""


@dataclass(frozen=True, slots=True)
class Part:
    """One component of a drawn topology, as data.

    Attributes:
        make: makes it in one run's outside world.
        inputs: (source, stream, kind of grouping) for each input.
    """

    name: str
    make: Callable[[Outside], Any]
    parallelism: int
    inputs: tuple[tuple[str, str, str], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SpoutFacts:
    """What the oracles have to know of a spout."""

    name: str
    parallelism: int
    total: int
    has_positions: bool


class Scenario:
    """What a seed stands for.

    Attributes:
        parts: the components.
        spouts: facts of those that are spouts.
        hopeless, poison: keys of messages that always fail, and that always take their process down.
        faults: what goes wrong.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = Random(f"scenario {seed}")
        self.parts: list[Part] = []
        self.spouts: list[SpoutFacts] = []
        self.hopeless: list[str] = []
        self.poison: list[str] = []
        self.settings: dict[str, Any] = {}
        self._trouble: list[tuple[str, str, list[str]]] = []
        self._draw_topology()
        self._readers: dict[tuple[str, str], list[str]] = {}
        for part in self.parts:
            for source, stream, _ in part.inputs:
                self._readers.setdefault((source, stream), []).append(part.name)
        outside = Outside()
        self._stages = {part.name: part.make(outside) for part in self.parts}
        for component, key, doomed in self._trouble:
            if component in {name for name, _ in self._follow(key)}:
                doomed.append(key)
        self.faults: tuple[Fault, ...] = draw_faults(self._random, has_links=self.settings["workers"] != 1)

    # -- the topology ----------------------------------------------------------------------------------------------------

    def _draw_topology(self) -> None:
        random = self._random
        self._work_s = random.choice((0.0, 0.0001, 0.0005))
        # With the short timeout, messages may time out whenever something is mended, so they have more attempts.
        self._timeout, self._attempts = random.choice((("3s", 4), ("3s", 4), ("1s", 10)))
        spouts = random.choice((1, 1, 1, 2))
        for number in range(spouts):
            self._draw_spout(f"spout{number}", ROOTS // spouts)
        ends = [(spout.name, DEFAULT_STREAM) for spout in self.spouts]
        is_batched = False
        for level in range(random.randint(1, 3)):
            ends, is_batched = self._draw_stage(f"b{level}", ends, is_batched, level)
        for number in range(random.choice((1, 1, 2))):
            settings = {"tick_interval": "30ms"} if random.random() < 0.3 else {}
            kind = world.BufferingSink if settings else world.Sink
            extra = {"holds": random.choice((2, 8))} if settings else {}
            self._add(f"sink{number}", kind, ends, settings=settings, **extra)
        tasks = sum(part.parallelism for part in self.parts)
        self.settings = {
            **SETTINGS,
            "message_timeout": self._timeout,
            "attempts": self._attempts,
            "ackers": random.choice((1, 1, 2, 3)),
            "workers": random.choice((None, None, 1, 2, 3, max(2, tasks // 2))),
            "max_spout_pending": random.choice((3, 20, 100, 1000)),
            "batch_size": random.choice((2, 8, 32, 512)),
            "edge_window": random.choice((1, 2, 4, 16)),
            "outbox_limit": random.choice((1, 4, 64)),
            "flush_interval": random.choice(("0ms", "1ms", "1ms", "5ms", "5ms")),
        }

    def _draw_spout(self, name: str, roots: int) -> None:
        random = self._random
        parallelism, work_s = random.choice((1, 1, 2)), random.choice((0.0, 0.0002, 0.001))
        total = roots // parallelism + random.randrange(1, 9)
        has_positions = random.random() < 0.65
        self.spouts.append(SpoutFacts(name, parallelism, total, has_positions))
        if has_positions:
            self.parts.append(Part(name, lambda outside: world.PositionedSpout(outside, name, total, work_s), parallelism))
        else:
            in_fail, untracked = random.random() < 0.5, random.random() < 0.2
            self.parts.append(
                Part(
                    name,
                    lambda outside: world.BrokerSpout(outside, name, total, work_s, self._attempts, in_fail, untracked),
                    parallelism,
                )
            )

    def _draw_stage(
        self, name: str, ends: Sequence[tuple[str, str]], is_batched: bool, level: int
    ) -> tuple[list[tuple[str, str]], bool]:
        random = self._random
        kinds = ["map", "map", "split", "filter", "fork", "address", "odd", "forward", "forward", "batch"]
        if level and not is_batched:
            kinds += ["diamond", "diamond"]
        kind = random.choice(kinds)
        # One path that fails takes all those with it that were gathered into its tuple.
        flaky = random.choice((0, 0, 60 if is_batched else 15))
        ends = list(ends)
        if kind == "diamond":
            # Both branches read all there is, and keep the key by which they are joined again.
            for side in ("l", "r"):
                self._add(f"{name}{side}", world.Map, ends, fails_one_in=flaky, keeps_key=True)
            branches = [(f"{name}l", DEFAULT_STREAM), (f"{name}r", DEFAULT_STREAM)]
            self._add(name, world.Join, branches, grouping="fields")
        elif kind == "address":
            self._add(name, world.Address, ends, reader=f"{name}x")
            self._add(f"{name}x", world.Map, [(name, DEFAULT_STREAM)], grouping="direct")
            return [(f"{name}x", DEFAULT_STREAM)], is_batched
        elif kind in ("forward", "batch"):
            holds = random.choice((1, 3, 10))
            settings = {"tick_interval": "20ms"} if holds > 1 or kind == "batch" else {}
            made = world.Batch if kind == "batch" else world.Forward
            extra: dict[str, Any] = {"forgets_one_in": random.choice((0, 0, 50)), "keeps_held": random.random() < 0.3}
            if kind == "forward":
                extra |= {"fails_one_in": flaky, "touches": random.random() < 0.3}
            self._add(name, made, ends, holds=holds, settings=settings, **extra)
            is_batched = is_batched or kind == "batch"
        elif kind == "odd":
            self._add(name, world.Odd, ends)
        else:
            trouble = {} if is_batched else self._draw_trouble(name)
            made_of = {"map": world.Map, "split": world.Split, "filter": world.Filter, "fork": world.Fork}[kind]
            self._add(name, made_of, ends, fails_one_in=flaky, **trouble)
            if kind == "fork":
                return [(name, "even"), (name, "odd")] if random.random() < 0.8 else [(name, "odd")], is_batched
        return [(name, DEFAULT_STREAM)], is_batched

    def _draw_trouble(self, component: str) -> dict[str, Any]:
        random = self._random
        trouble: dict[str, Any] = {}
        spout = random.choice(self.spouts)
        if random.random() < 0.15:
            trouble["hopeless"] = [message_key(spout.name, 0, random.randrange(spout.total))]
            self._trouble.append((component, *trouble["hopeless"], self.hopeless))
        if random.random() < 0.12 and self._attempts < 10 and all(found.has_positions for found in self.spouts):
            trouble["poison"] = [message_key(spout.name, 0, random.randrange(spout.total))]
            self._trouble.append((component, *trouble["poison"], self.poison))
        return trouble

    def _add(
        self,
        name: str,
        kind: Any,
        ends: Sequence[tuple[str, str]],
        *,
        grouping: str = "",
        settings: dict[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        random, work_s = self._random, self._random.choice((0.0, self._work_s))
        parallelism = random.choice((1, 1, 2, 3))
        usual = ("shuffle", "shuffle", "fields", "global", "partial-key", "none", "local-or-shuffle", "custom")
        rare = ("all",) if random.random() < 0.1 else ()
        inputs = tuple((source, stream, grouping or random.choice(rare or usual)) for source, stream in ends)
        self.parts.append(
            Part(name, lambda outside: kind(outside, name, work_s, **arguments), parallelism, inputs, settings or {})
        )

    def topology(self, outside: Outside) -> Topology:
        """Build the topology, as every process does."""
        builder = TopologyBuilder(f"seed-{self.seed}").config(**self.settings)
        for part in self.parts:
            if not part.inputs:
                builder.set_spout(part.name, part.make(outside), part.parallelism)
                continue
            declarer = builder.set_bolt(part.name, part.make(outside), part.parallelism, **part.settings)
            for source, stream, grouping in part.inputs:
                _declare(declarer, source, stream, grouping)
        return builder.build()

    def describe(self) -> str:
        """Return the scenario in words."""
        lines = [f"seed {self.seed}: " + ", ".join(f"{name}={value}" for name, value in self.settings.items()
                                                  if SETTINGS.get(name) != value)]  # fmt: skip
        for part in self.parts:
            kind = type(part.make(Outside())).__name__
            reads = ", ".join(f"{source}/{stream} {grouping}" for source, stream, grouping in part.inputs)
            lines.append(f"  {part.name}: {kind} x{part.parallelism}" + (f" reads {reads}" if reads else ""))
        lines += [f"  hopeless {key}" for key in self.hopeless] + [f"  poison {key}" for key in self.poison]
        return "\n".join(lines + [f"  {fault}" for fault in self.faults])

    # -- what has to come of it ------------------------------------------------------------------------------------------

    def leaves(self) -> dict[str, frozenset[tuple[str, str]]]:
        """Return, for each message key, the effects that it has to have."""
        sinks = {name for name, stage in self._stages.items() if isinstance(stage, world.Sink | world.BufferingSink)}
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
            if isinstance(stage, world.Join):
                path = path.rpartition(">")[0]
            for stream, made in stage.of_path(path):
                ways += [(reader, made) for reader in self._readers.get((component, stream), ())]
        return met

    def run(self, *, keeps_trace: bool = False, faults: Sequence[Fault] | None = None) -> Run:
        """Run it to its end, under all oracles."""
        outside = Outside()
        oracles = Oracles(self, outside)
        simulation = Simulation(
            lambda: self.topology(outside),
            self.seed,
            self.faults if faults is None else faults,
            oracles.progress,
            keeps_trace=keeps_trace,
        )
        outside.work, outside.kill = simulation.work, simulation.kill
        oracles.attach(simulation)
        simulation.run()
        if not simulation.violations:
            oracles.judge()
        return Run(self, simulation, outside, simulation.violations)


@dataclass(frozen=True, slots=True)
class Run:
    """A run that is over."""

    scenario: Scenario
    simulation: Simulation
    outside: Outside
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


def _declare(declarer: BoltDeclarer, source: str, stream: str, grouping: str) -> None:
    if grouping == "fields":
        declarer.fields_grouping(source, "key", stream=stream)
    elif grouping == "partial-key":
        declarer.partial_key_grouping(source, "key", stream=stream)
    elif grouping == "custom":
        declarer.custom_grouping(source, world.ByLength(), stream=stream)
    else:
        getattr(declarer, grouping.replace("-", "_") + "_grouping")(source, stream=stream)
