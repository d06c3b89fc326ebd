"""Topologies with checkpoints: drawn from a seed, run under faults, and compared with what comes of them without any.

Nothing is run for the comparison: the components' models say which rows and which state the spouts' rows make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulator import checkpointed_operators as operators
from tests.simulator import checkpointed_sources as sources
from tests.simulator import checkpointed_stages as stages
from tests.simulator.checkpointed_sources import Source
from tests.simulator.checkpointed_stages import Beyond, CheckpointedStage, Mishaps, Row, Stateful
from tests.simulator.faults import Fault, FaultKind, draw_checkpoint_faults
from tests.simulator.history import Violation
from tests.simulator.random_scenarios import draw_sizes
from tests.simulator.simulation import Simulation
from topo.api.topology import Topology
from topo.builder import TopologyBuilder
from topo.checkpoint.encoding import unpack
from topo.checkpoint.manifest import Manifest, name_of
from topo.master.outcome import OutcomeKind
from topo.storage.checkpoint_store import CheckpointStore
from topo.wire.codec import Codec
from topo.wire.serializers import SerializerRegistry

_REFUSING = (stages.Relay, stages.Hand, stages.Tally, stages.Call)
"""Which may always fail for some rows."""
ROWS = 60
"""Rows that the spouts of a run emit, at least."""
SETTINGS: dict[str, Any] = {
    "delivery": "exactly_once",
    "back_off": ("20ms", "50ms"),
    "heartbeat": "250ms",
    "worker_timeout": "1s",
    "progress_timeout": "500ms",
    "start_timeout": "2s",
    "master_timeout": "5s",
    "restart_back_off": "20ms",
    "restart_back_off_max": "300ms",
    "watermark_interval": "5ms",
}


@dataclass(frozen=True, slots=True)
class Part:
    """One component.

    Attributes:
        make: makes it, given what is outside.
        inputs: (source, kind of grouping) for each input.
        source: what it emits, if it is a spout.
    """

    name: str
    make: Callable[[Beyond], Any]
    parallelism: int = 1
    inputs: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None


@dataclass(slots=True)
class Expected:
    """What comes of a topology, whatever goes wrong.

    Attributes:
        states: of stateful components, by name.
        sinks: (sink, id) of every row that reaches one.
        letters: (component, id), and how often.
    """

    states: dict[str, Any] = field(default_factory=dict)
    sinks: set[tuple[str, str]] = field(default_factory=set)
    letters: Counter[tuple[str, str]] = field(default_factory=Counter)


class CheckpointScenario:
    """What is run.

    Args:
        seed: of the run.
        parts: the components, each after those that it reads.
        settings: of the topology.
        faults: what goes wrong.
    """

    def __init__(self, seed: int, parts: Sequence[Part], settings: Mapping[str, Any], faults: Sequence[Fault] = ()) -> None:
        self.seed = seed
        self.parts = tuple(parts)
        self.settings = dict(settings)
        self.faults = tuple(faults)

    def topology(self, outside: Beyond) -> Topology:
        """Build the topology, as every process does."""
        builder = TopologyBuilder(f"checkpoints-{self.seed}").config(**self.settings)
        for part in self.parts:
            made = part.make(outside)
            if part.source is not None:
                builder.set_spout(part.name, made, part.parallelism, watermarks=sources.strategy(), **part.settings)
                continue
            declarer = builder.set_bolt(part.name, made, part.parallelism, **part.settings)
            for source, grouping in part.inputs:
                if grouping in ("key", "root"):
                    declarer.fields_grouping(source, grouping)
                elif grouping == "partial-key":
                    declarer.partial_key_grouping(source, "key")
                else:
                    getattr(declarer, grouping.replace("-", "_") + "_grouping")(source)
        return builder.build()

    def expected(self) -> Expected:
        """Return what has to come of it."""
        expected, outside = Expected(), Beyond()
        rows: dict[str, list[Row]] = {}
        for part in self.parts:
            if part.source is not None:
                rows[part.name] = [
                    part.source.row(index, number) for index in range(part.parallelism) for number in part.source.numbers()
                ]
                continue
            stage: CheckpointedStage = part.make(outside)
            inputs = {source: rows[source] for source, _ in part.inputs}
            rows[part.name] = stage.model(inputs)
            for row in stage.letters(inputs):
                expected.letters[part.name, row.id] += 1
            if isinstance(stage, Stateful):
                expected.states[part.name] = stage.final(inputs)
            if not stage.outputs:
                expected.sinks.update((part.name, row.id) for row in stage.survivors(inputs))
        return expected

    def describe(self) -> str:
        """Return the scenario in words."""
        lines = [f"seed {self.seed}: " + ", ".join(f"{name}={value}" for name, value in self.settings.items())]
        for part in self.parts:
            made = part.make(Beyond())
            what = f"{type(made).__name__} x{part.parallelism}"
            if part.source is not None:
                what += f" {part.source}"
            else:
                what += " reads " + ", ".join(f"{source} by {grouping}" for source, grouping in part.inputs)
                if made.mishaps != Mishaps():
                    what += f", {made.mishaps}"
            settings = "".join(f", {name}={value}" for name, value in part.settings.items())
            lines.append(f"  {part.name}: {what}{settings}")
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])

    def run(self, *, keeps_trace: bool = False) -> CheckpointRun:
        """Run it to its end, and compare what came of it."""
        outside, expected = Beyond(), self.expected()
        simulation = Simulation(
            lambda: self.topology(outside),
            self.seed,
            self.faults,
            lambda: len(outside.effects) / max(1, len(expected.sinks)),
            keeps_trace=keeps_trace,
        )
        outside.work, outside.kill = simulation.work, simulation.kill
        outside.now = lambda: simulation.now
        simulation.run()
        if not simulation.violations:
            Judgement(self, simulation, outside, expected).judge()
        return CheckpointRun(self, simulation, outside, simulation.violations)


@dataclass(frozen=True, slots=True)
class CheckpointRun:
    """A run that is over."""

    scenario: CheckpointScenario
    simulation: Simulation
    outside: Beyond
    violations: list[Violation]

    def counts(self) -> dict[str, int]:
        """Return how often each thing of interest occurred."""
        return self.simulation.history.counts

    def summary(self) -> str:
        """Return the run in a few lines."""
        simulation = self.simulation
        outcome = simulation.master.outcome
        lines = [
            f"{simulation.now:.3f} virtual seconds, {simulation.network.counts.delivered} frames, "
            f"{len(simulation.all_processes)} processes; "
            f"{'no end' if outcome is None else f'{outcome.kind.value}: {outcome.reason}'}",
            ", ".join(f"{name}: {count}" for name, count in sorted(self.counts().items())),
            f"trace {simulation.trace_hash}",
        ]
        return "\n".join(lines)


class Judgement:
    """Compares what came of a run with what has to come of it. The numbers are those of `tests.simulator.oracles`."""

    def __init__(self, scenario: CheckpointScenario, simulation: Simulation, outside: Beyond, expected: Expected) -> None:
        self._scenario = scenario
        self._simulation = simulation
        self._outside = outside
        self._expected = expected
        self._history = simulation.history

    def judge(self) -> None:
        """Judge a run that has ended."""
        self._judge_outcome()
        self._judge_states()
        self._judge_published()
        self._judge_letters()
        self._judge_queues()
        self._judge_silence()
        self._judge_lateness()
        self._gather()

    def _judge_outcome(self) -> None:
        outcome = self._simulation.master.outcome
        assert outcome is not None
        right = OutcomeKind.DEAD_LETTERS if self._expected.letters else OutcomeKind.DONE
        if outcome.kind is not right:
            self._history.violated(10, f"the outcome is {outcome.kind.value} ({outcome.reason}), not {right.value}")

    def _judge_states(self) -> None:
        assert self._simulation.disk is not None
        store = self._simulation.disk.store()
        self._simulation.disk.unreadable_until = 0.0
        manifest = store.latest().manifest
        if manifest is None:
            self._history.violated(7, "there is no checkpoint at the end")
            return
        for part in self._scenario.parts:
            expected = self._expected.states.get(part.name)
            if expected is None:
                continue
            kind = type(part.make(Beyond()))
            found = kind.together(_states_of(store, manifest, part.name, is_keyed=kind.key is not None))
            if found != expected:
                self._history.violated(7, f"the state of {part.name} is {_difference(found, expected)}")

    def _judge_published(self) -> None:
        ledgers = {part.name for part in self._scenario.parts if isinstance(part.make(Beyond()), stages.Ledger)}
        found = sorted((token[0], one) for token, rows in self._outside.published.items() for one in rows)
        expected = sorted(sink for sink in self._expected.sinks if sink[0] in ledgers)
        if found != expected:
            self._history.violated(7, f"what is published is {_difference(found, expected)}")

    def _judge_letters(self) -> None:
        codec, plan = Codec(), self._simulation.plan
        found: Counter[tuple[str, str]] = Counter()
        for letter in self._simulation.master.store.letters:
            found[plan.task(letter.task).component, codec.unpack_value(letter.values)[1]] += 1
        if any(fault.kind is FaultKind.DAMAGE for fault in self._scenario.faults):
            # What was given up since an earlier checkpoint is given up again.
            found = Counter(dict.fromkeys(found, 1))
        if found != self._expected.letters:
            more, less = found - self._expected.letters, self._expected.letters - found
            self._history.violated(1, f"dead letters too many: {dict(more)}, missing: {dict(less)}")

    def _judge_queues(self) -> None:
        for (spout, index), left in self._outside.broker.items():
            if left:
                self._history.violated(2, f"spout {spout}[{index}] was never told of {list(left)[:5]}")

    def _judge_lateness(self) -> None:
        for process in self._simulation.all_processes:
            for task in process.tasks:
                if late := task.counters.late:
                    self._history.violated(13, f"{late} rows were late at task {task.id} ({task.component_id})")

    def _judge_silence(self) -> None:
        rows = [row.kind for _, row in self._simulation.master.store.errors]
        kinds = {fault.kind for _, fault, _ in self._simulation.strikes.struck}
        harmless = {FaultKind.SLOW_LINK, FaultKind.SLOW_WORKER, FaultKind.PAUSE, FaultKind.REPEAT, FaultKind.SLOW_STORE}
        kills = any(part.make(Beyond()).mishaps.kills for part in self._scenario.parts if part.source is None)
        crashes = any(part.settings.get("on_error") == "crash" for part in self._scenario.parts)
        if kinds <= harmless and not kills and not crashes and ("EdgeLost" in rows or "WorkerLost" in rows):
            self._history.violated(11, f"nothing was lost, and the rows say {sorted(set(rows))}")

    def _gather(self) -> None:
        """Count what occurred, for the oracle that looks at many seeds."""
        simulation, history = self._simulation, self._history
        for _, row in simulation.master.store.errors:
            history.count("row: " + row.kind)
        for _, fault, _ in simulation.strikes.struck:
            history.count("fault: " + fault.kind.name)
        for part in self._scenario.parts:
            made = part.make(Beyond())
            kind = f"{made.kind} {'adding ' * made.adds}" if isinstance(made, operators.Windows) else ""
            history.count(f"component: {kind}{type(made).__name__}")
        sources = [part.source for part in self._scenario.parts if part.source is not None]
        history.count("an idle spout", sum(bool(key) for key in self._outside.quiet_until))
        history.count("a spout that ends long before the other", sources[0].total > 3 * sources[-1].total)
        for process in simulation.all_processes:
            for task in process.tasks:
                for name in ("stale_frames", "fenced_frames", "duplicate_frames", "gaps"):
                    history.count(name, getattr(task.counters, name))
            if process.worker.exit is not None:
                history.count(f"exit: {process.worker.exit.why.partition(':')[0]}")
        history.count("dead letters", len(simulation.master.store.letters))
        if any(process.worker.epoch > 1 for process in simulation.all_processes):
            history.count("recovery")
        if simulation.master.term > 1:
            history.count("another master")


def _states_of(store: CheckpointStore, manifest: Manifest, component: str, *, is_keyed: bool) -> list[Any]:
    types = SerializerRegistry()
    states: list[Any] = []
    for part in manifest.parts:
        if part.component == component:
            found = store.read_part(name_of(part, manifest), types)
            if is_keyed:
                groups = [unpack(unpack(packed, types), types) for packed in found.key_groups.values()]
                states += [dict(entries) for entries in groups]
            else:
                states.append(unpack(found.values["user"], types))
    return states


def _difference(found: Any, expected: Any) -> str:
    if isinstance(found, list):
        more, less = Counter(found) - Counter(expected), Counter(expected) - Counter(found)
        return f"wrong; too many: {sorted(more.elements())[:5]}, missing: {sorted(less.elements())[:5]}"
    return f"{found}, not {expected}"


# -- from a seed -------------------------------------------------------------------------------------------------------


def draw_checkpoint_scenario(seed: int) -> CheckpointScenario:
    """Return what a seed stands for; always the same."""
    random = Random(f"checkpoints {seed}")
    drawing = _Drawing(random)
    drawing.settings |= draw_sizes(seed)
    faults = draw_checkpoint_faults(random, has_links=drawing.settings["workers"] != 1, may_damage=not drawing.is_irrevocable)
    return CheckpointScenario(seed, drawing.parts, drawing.settings, faults)


class _Drawing:
    """A topology while it is drawn.

    Attributes:
        is_irrevocable: what a complete checkpoint allows cannot be taken back: an earlier one does not do.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self.parts: list[Part] = []
        self.is_irrevocable = False
        self._work_s = random.choice((0.0, 0.0002, 0.001))
        spouts = random.choice((1, 1, 2))
        needs_time = random.random() < 0.75
        for number in range(spouts):
            self._draw_spout(f"spout{number}", ROWS // spouts, needs_time, number)
        ends = [part.name for part in self.parts]
        keeps_time = True
        for level in range(random.randint(1, 3)):
            ends, keeps_time = self._draw_stage(f"b{level}", ends, keeps_time and needs_time)
        if random.random() < 0.7:
            self._add("sink", stages.Log, ends)
        if len(self.parts) < 3 or random.random() < 0.5 or not any(part.name == "sink" for part in self.parts):
            self._add("ledger", stages.Ledger, ends)
            self.is_irrevocable = True
        tasks = sum(part.parallelism for part in self.parts)
        self.settings = {
            **SETTINGS,
            "attempts": random.choice((2, 3)),
            "ackers": random.choice((1, 1, 2)),
            "workers": random.choice((None, None, 1, 2, 3, max(2, tasks // 2))),
            "max_spout_pending": random.choice((4, 20, 100)),
            "batch_size": random.choice((2, 8, 32)),
            "edge_window": random.choice((1, 2, 4, 16)),
            "outbox_limit": random.choice((1, 4, 64)),
            "flush_interval": random.choice(("0ms", "1ms", "5ms")),
            "checkpoint_interval": random.choice(("15ms", "40ms", "100ms", "300ms")),
            "checkpoint_pause": random.choice(("20ms", "50ms")),
            "checkpoint_timeout": random.choice(("300ms", "1s")),
            "checkpoint_keep": random.choice((2, 3)),
        }

    def _draw_spout(self, name: str, rows: int, needs_time: bool, number: int) -> None:
        random = self._random
        parallelism = random.choice((1, 1, 2))
        total = rows // parallelism + random.randrange(1, 9)
        if number and random.random() < 0.3:
            # Uneven: it ends long before the other.
            total = max(4, total // 6)
        source = Source(
            name,
            total,
            random.choice((0.0, 0.0005, 0.002)),
            quiet_s=random.choice((0.0, 0.0, 0.05, 0.2)),
            ends_quiet=needs_time,
        )
        made: Callable[[Beyond], Any]
        kind = random.choice(("positions", "positions", "telling", "queue", "queue"))
        if kind == "queue":
            in_fail = random.random() < 0.5
            self.is_irrevocable = True
            made = lambda outside: sources.QueueSpout(outside, source, in_fail)  # noqa: E731
        else:
            spout = sources.ReplayableSpout if kind == "positions" else sources.TellingSpout
            made = lambda outside: spout(outside, source)  # noqa: E731
        self.parts.append(Part(name, made, parallelism, source=source))

    def _draw_stage(self, name: str, ends: Sequence[str], has_time: bool) -> tuple[list[str], bool]:
        random = self._random
        kinds = ["relay", "double", "sieve", "hand", "call", "call", "tally", "tally", "whole", "later", "pairs", "pairs"]
        if has_time:
            kinds += ["tumbling", "sliding", "session", "tumbling", "sliding", "session", "buckets", "buckets", "buckets"]
        kind = random.choice(kinds)
        if kind in ("tumbling", "sliding", "session"):
            self._add(name, operators.Windows, ends, kind=kind, adds=random.random() < 0.5)
        elif kind == "call":
            self._add(name, stages.Call, ends, is_ordered=random.random() < 0.5, capacity=random.choice((1, 3, 10)))
        elif kind == "pairs":
            for side in ("l", "r"):
                self._add(f"{name}{side}", random.choice((stages.Relay, stages.Tally)), ends)
            self._add(name, operators.Pairs, [f"{name}l", f"{name}r"], left=f"{name}l", right=f"{name}r")
        else:
            self._add(name, {
                "relay": stages.Relay, "double": stages.Double, "sieve": stages.Sieve, "hand": stages.Hand,
                "tally": stages.Tally, "whole": stages.Whole, "later": operators.Later, "buckets": operators.Buckets,
            }[kind], ends)  # fmt: skip
        # What comes out of windows behind an idle input, or of calls that the news of its idleness has overtaken, may be late.
        is_quiet = any(part.source is not None and part.source.quiet_s for part in self.parts)
        may_be_late = is_quiet and kind in ("call", "buckets", "tumbling", "sliding", "session")
        return [name], has_time and kind != "later" and not may_be_late

    def _add(self, name: str, stage: Any, ends: Sequence[str], **arguments: Any) -> None:
        random, work_s = self._random, self._random.choice((0.0, 0.0, self._work_s))
        settings: dict[str, Any] = {}
        hopeless = kills = 0
        fails = random.choice((0, 0, 0, 20)) if stage not in (stages.Call, stages.Log) else 0
        if fails and stage is not stages.Ledger and random.random() < 0.3:
            settings["on_error"] = "crash"
        may_refuse = arguments["adds"] if stage is operators.Windows else stage in _REFUSING
        if not settings and may_refuse and random.random() < 0.2:
            hopeless = 15
        if stage in (stages.Relay, stages.Tally, operators.Buckets, stages.Ledger) and random.random() < 0.1:
            kills = 30
        mishaps = Mishaps(fails, hopeless, kills)
        made: Callable[[Beyond], Any] = lambda outside: stage(outside, name, work_s, mishaps, **arguments)  # noqa: E731
        grouping = made(Beyond()).grouped_by
        usual = ("shuffle", "shuffle", "key", "global", "partial-key", "none", "local-or-shuffle")
        self.is_irrevocable = self.is_irrevocable or bool(hopeless)
        inputs = tuple((source, grouping or random.choice(usual)) for source in ends)
        self.parts.append(Part(name, made, random.choice((1, 1, 2, 2, 3)), inputs, settings))
