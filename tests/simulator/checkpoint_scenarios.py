"""Topologies with checkpoints, run under faults; results and state are compared with those of a run without faults.

Nothing is run for the comparison: rows and state follow from the spouts' rows by the models of the components.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from tests.simulator import checkpointed_operators as operators
from tests.simulator import checkpointed_sinks as sinks
from tests.simulator import checkpointed_sources as sources
from tests.simulator import checkpointed_stages as stages
from tests.simulator.checkpointed_stages import Beyond, CheckpointedStage, Mishaps, Row, Stateful
from tests.simulator.consistency_checker import ConsistencyChecker
from tests.simulator.faults import Fault, FaultKind
from tests.simulator.runs import Run
from tests.simulator.savepoints import SavepointDesk, SavepointRequest
from tests.simulator.simulation import Simulation
from tests.simulator.topologies import Part, build, copies_of
from topo.api.topology import Topology
from topo.checkpoint.encoding import unpack
from topo.checkpoint.manifest import Manifest, name_of
from topo.master.outcome import OutcomeKind
from topo.plan.parallelism import with_parallelism
from topo.storage.checkpoint_store import CheckpointStore
from topo.wire.codec import Codec
from topo.wire.serializers import SerializerRegistry


@dataclass(slots=True)
class Expected:
    """The results of a topology, which faults do not change.

    Attributes:
        states: of stateful components, by name.
        sinks: (sink, id) of every row that reaches one.
        dead_letters: (component, id) of each message given up, with its count.
    """

    states: dict[str, Any] = field(default_factory=dict)
    sinks: set[tuple[str, str]] = field(default_factory=set)
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)


class CheckpointScenario:
    """A topology with checkpoints, its settings and its faults.

    Args:
        seed: of the run.
        parts: the components, each after those that it reads.
        settings: of the topology.
        faults: in the order of their shares.
        requests: of savepoints, likewise.
        rescaled: numbers of tasks by component, in a run from a savepoint.
    """

    def __init__(
        self,
        seed: int,
        parts: Sequence[Part],
        settings: Mapping[str, Any],
        faults: Sequence[Fault] = (),
        requests: Sequence[SavepointRequest] = (),
        rescaled: Mapping[str, int] | None = None,
    ) -> None:
        self.seed = seed
        self.parts = tuple(parts)
        self.settings = dict(settings)
        self.faults = tuple(faults)
        self.requests = tuple(requests)
        self.rescaled = dict(rescaled or {})

    def topology(self, outside: Beyond) -> Topology:
        """Build the topology, as every process does."""
        return build(f"checkpoints-{self.seed}", self.parts, self.settings, outside, sources.strategy())

    def topology_from_savepoint(self, outside: Beyond) -> Topology:
        """Build the topology as it runs from a savepoint, after a rebalance."""
        topology = self.topology(outside)
        return with_parallelism(topology, self.rescaled, topology.config)

    def expected(self) -> Expected:
        """Return the results that every run must have."""
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
            for row in stage.dead_letters(inputs):
                expected.dead_letters[part.name, row.id] += 1
            if isinstance(stage, stages.Odd):
                readers = sum(source == part.name for other in self.parts for source, _ in other.inputs)
                for row in stage.refused(inputs):
                    expected.dead_letters[part.name, row.id] += readers
            if isinstance(stage, Stateful):
                expected.states[part.name] = stage.final(inputs)
            if not stage.outputs:
                expected.sinks.update((part.name, row.id) for row in stage.survivors(inputs))
        return expected

    def given(self, name: str, expected: Any, found: Any) -> Any:
        """Return the state that a component has to have; a subclass looks at the state that it has."""
        return expected

    def published(self, expected: Any, found: Any) -> Any:
        """Return what sinks have to publish; a subclass looks at what they have published."""
        return expected

    @property
    def may_be_late(self) -> bool:
        """Whether rows may be late."""
        return False

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
        return "\n".join([*lines, *(f"  {what}" for what in (*self.faults, *self.requests))])

    def run(self, *, keeps_trace: bool = False) -> CheckpointRun:
        """Run it to its end, and compare the results with the expected ones."""
        outside, expected = Beyond(), self.expected()
        topology = copies_of(self.topology(outside), outside)

        def progress() -> float:
            return len(outside.effects) / max(1, len(expected.sinks))

        simulation = Simulation(topology, self.seed, self.faults, progress, keeps_trace=keeps_trace)
        desk = SavepointDesk(simulation, self.requests, progress)
        _run(simulation, outside, desk)
        outcome = simulation.master.outcome
        if not simulation.violations and outcome is not None and outcome.kind in (OutcomeKind.DRAINED, OutcomeKind.CUT_SHORT):
            before, place = simulation, desk.last_written()
            if not before.violations:
                faults = self.requests[-1].later_faults
                topology = copies_of(self.topology_from_savepoint(outside) if place else self.topology(outside), outside)
                simulation = Simulation(topology, self.seed + 1_000_000, faults, progress)
                _succeed(simulation, before, place)
                simulation.history.count("run with other numbers of tasks", bool(place and self.rescaled))
                _run(simulation, outside, SavepointDesk(simulation, (), progress))
        if not simulation.violations:
            Judgement(self, simulation, outside, expected).judge()
        if not simulation.violations and self._is_repeatable and (place := desk.written_on_the_way()):
            simulation = self._run_again(simulation, place, expected)
        return Run(self, simulation, outside, simulation.violations)

    @property
    def _is_repeatable(self) -> bool:
        """Whether a run from an earlier savepoint has the same results: nothing has been taken from a queue, or published."""
        made = [part.make(Beyond()) for part in self.parts]
        return not any(isinstance(one, sources.QueueSpout | sinks.Ledger) for one in made)

    def _run_again(self, before: Simulation, savepoint: str, expected: Expected) -> Simulation:
        """Run the topology from a savepoint to its end, in another outside world, and compare its state with the expected one."""
        outside = Beyond()
        simulation = Simulation(copies_of(self.topology_from_savepoint(outside), outside), self.seed + 2_000_000)
        _succeed(simulation, before, savepoint)
        simulation.history.count("run again from a savepoint")
        _run(simulation, outside, SavepointDesk(simulation, (), lambda: 1.0))
        if not simulation.violations:
            Judgement(self, simulation, outside, expected).judge_states()
        return simulation


def _succeed(simulation: Simulation, before: Simulation, savepoint: str) -> None:
    """Continue what another simulation has stored: from a savepoint, or, where that is "", from its last checkpoint."""
    simulation._hash, simulation._lines, simulation.began_at = before._hash, before._lines, before.began_at + before.now
    simulation.history.counts = before.history.counts
    for given_up in before.master.store.dead_letters:
        task = simulation.plan.tasks_of(before.plan.task(given_up.task).component)[0]
        simulation.master.store.dead_letters.append(replace(given_up, task=task))
    checker, earlier = simulation.history, before.history
    assert isinstance(checker, ConsistencyChecker)
    assert isinstance(earlier, ConsistencyChecker)
    assert simulation.disk is not None
    assert before.disk is not None
    if savepoint:
        simulation.disk.begin_from(before.disk, savepoint)
        checker.begin_from_savepoint(earlier)
    else:
        simulation.disk.files = before.disk.files
        checker.succeed(earlier)


def _run(simulation: Simulation, outside: Beyond, desk: SavepointDesk) -> None:
    """Run a simulation to its end."""
    outside.work, outside.kill, outside.now = simulation.work, simulation.kill, lambda: simulation.began_at + simulation.now
    checker = simulation.history
    assert isinstance(checker, ConsistencyChecker)
    outside.on_stage, outside.on_commit = checker.token_staged, checker.token_committed
    simulation.run(until=desk.look)
    if not simulation.violations:
        checker.check_kept()
        desk.judge()


CheckpointRun = Run[CheckpointScenario, Beyond]


class Judgement:
    """Compares the results of a run with the expected ones. The numbers of oracles are those of `tests.simulator.oracles`."""

    def __init__(self, scenario: CheckpointScenario, simulation: Simulation, outside: Beyond, expected: Expected) -> None:
        self._scenario = scenario
        self._simulation = simulation
        self._outside = outside
        self._expected = expected
        self._history = simulation.history

    def judge(self) -> None:
        """Judge a run that has ended."""
        self._judge_outcome()
        self.judge_states()
        self._judge_published()
        self._judge_letters()
        self._judge_queues()
        self._judge_silence()
        self._judge_lateness()
        self._gather()

    def _judge_outcome(self) -> None:
        outcome = self._simulation.master.outcome
        assert outcome is not None
        right = OutcomeKind.DEAD_LETTERS if self._expected.dead_letters else OutcomeKind.DONE
        if outcome.kind is not right:
            self._history.violated(10, f"the outcome is {outcome.kind.value} ({outcome.reason}), not {right.value}")

    def judge_states(self) -> None:
        """Compare the state of the last checkpoint with the expected one."""
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
            expected = self._scenario.given(part.name, expected, found)
            if found != expected:
                self._history.violated(7, f"the state of {part.name} is {_difference(found, expected)}")

    def _judge_published(self) -> None:
        ledgers = {part.name for part in self._scenario.parts if isinstance(part.make(Beyond()), sinks.Ledger)}
        found = sorted((token[0], one) for token, rows in self._outside.published.items() for one in rows)
        expected = sorted(sink for sink in self._expected.sinks if sink[0] in ledgers)
        expected = self._scenario.published(expected, found)
        if found != expected:
            self._history.violated(7, f"the published rows are {_difference(found, expected)}")
        last: dict[tuple[str, int], int] = {}
        for name, index, number in self._outside.published:
            if number < last.get((name, index), 0):
                self._history.violated(14, f"{name}[{index}] committed token {number} after token {last[name, index]}")
            last[name, index] = number

    def _judge_letters(self) -> None:
        codec, plan = Codec(), self._simulation.plan
        found: Counter[tuple[str, str]] = Counter()
        for given_up in self._simulation.master.store.dead_letters:
            values = codec.unpack_value(given_up.values)
            # Values that cannot be carried are stored in words.
            row_id = values.split("'")[3] if isinstance(values, str) else values[1]
            found[plan.task(given_up.task).component, row_id] += 1
        if any(fault.kind is FaultKind.DAMAGE for fault in self._scenario.faults):
            # A message that was given up behind the earlier checkpoint is given up a second time.
            found = Counter(dict.fromkeys(found, 1))
        if found != self._expected.dead_letters:
            more, less = found - self._expected.dead_letters, self._expected.dead_letters - found
            self._history.violated(1, f"dead letters too many: {dict(more)}, missing: {dict(less)}")

    def _judge_queues(self) -> None:
        for (spout, index), left in self._outside.broker.items():
            if left:
                self._history.violated(2, f"spout {spout}[{index}] had neither ack nor fail of {list(left)[:5]}")

    def _judge_lateness(self) -> None:
        if self._scenario.may_be_late:
            return
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
            self._history.violated(11, f"nothing was lost, and there are rows {sorted(set(rows))}")

    def _gather(self) -> None:
        """Count situations of interest, for the oracle over many seeds."""
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
        history.count("dead letters", len(simulation.master.store.dead_letters))
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
