"""Topologies that read partitions, in both modes, under faults, with one parallelism of the source and then another one.

Even seeds have checkpoints, odd ones do not. With checkpoints rows go through windows, which emit each of their rows: what a sink
publishes is the input, each row once, in whatever window or late. Without checkpoints each row reaches the sink at least once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.simulator import checkpointed_sinks, checkpointed_sources, checkpointed_stages, random_scenarios
from tests.simulator.checkpointed_stages import FIELDS, Mishaps
from tests.simulator.consistency_checker import ConsistencyChecker
from tests.simulator.faults import Fault, draw_checkpoint_faults, draw_faults
from tests.simulator.partitioned_source import TALKER, PartitionedWorld, PartitionPlan, PartitionsSpout
from tests.simulator.simulation import Simulation
from tests.simulator.topologies import Part, build, copies_of
from topo.api.bolt import BasicBolt, BasicCollector
from topo.api.operator_bolts import WindowBolt
from topo.api.partition_values import Partition
from topo.api.topology import Topology
from topo.api.tuples import Tuple
from topo.api.windows import ProcessWindowFunction, TumblingEventTimeWindows
from topo.launch.resuming import split_by_partition
from topo.master.outcome import OutcomeKind
from topo.master.positions import SpoutProgress
from topo.wire.codec import Codec


class Members(ProcessWindowFunction):
    """Emits the rows of a window."""

    def process(self, key: Any, elements: Sequence[Any], context: Any, collector: Any) -> None:
        for values in elements:
            collector.emit(values)


class Out(BasicBolt):
    """Writes its inputs to the outside world."""

    def __init__(self, outside: PartitionedWorld) -> None:
        self.outside = outside

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.outside.effects["out", tup["id"]] = 1


class PartitionScenario:
    """The scenario of a seed; always the same.

    Attributes:
        counts: how often each situation of interest occurred in its run.
        violations: of oracles.
    """

    def __init__(self, seed: int) -> None:
        self.seed, self.is_checkpointed = seed, seed % 2 == 0
        random = self._random = Random(f"partitions {seed}")
        self.world = PartitionedWorld(
            bad_one_in=random.choice((0, 12)), fails_one_in=random.choice((0, 0, 40)), trims=random.random() < 0.5
        )
        self.world.plans = {plan.partition.name: plan for plan in self._draw_plans()}
        self.world.is_checkpointed = self.is_checkpointed
        self._drift = random.choice((None, None, "150ms"))
        self._mishaps = Mishaps(random.choice((0, 15)), 0, random.choice((0, 0, 40)))
        self._parallelism = [random.choice((1, 2, 3))]
        if random.random() < 0.5:
            self._parallelism.append(random.choice((1, 2, 3)))
        self.settings = {
            **random_scenarios.SETTINGS,
            "delivery": "exactly_once" if self.is_checkpointed else "at_least_once",
            "watermark_interval": "20ms",
            "attempts": 9,
            "message_timeout": "3s",
            "workers": random.choice((None, None, 1, 2)),
            "max_spout_pending": random.choice((4, 100)),
            "batch_size": random.choice((2, 8, 32)),
            "edge_window": random.choice((1, 4, 16)),
            "flush_interval": random.choice(("0ms", "2ms")),
            "checkpoint_interval": random.choice(("15ms", "40ms", "100ms")),
            "checkpoint_pause": "20ms",
            "checkpoint_timeout": "1s",
        }
        self.counts: Counter[str] = Counter()
        self.violations: list[Any] = []

    def _draw_plans(self) -> list[PartitionPlan]:
        random = self._random
        has_numbers = random.random() < 0.5
        plans = [PartitionPlan(Partition(TALKER), random.choice((12, 25)), step_s=0.015, has_end=True)]
        for number, name in enumerate("abcde"[: random.choice((2, 3, 5))]):
            partition = Partition(name, "group", number) if has_numbers else Partition(name)
            plan = PartitionPlan(
                partition,
                random.choice((0, 1, 8, 20)),
                begins_at=random.choice((0.0, 0.0, random.random() * 0.3)),
                step_s=random.choice((0.001, 0.01)),
                has_end=random.random() < 0.5,
            )
            change = random.choice(("", "", "away", "removed", "forgets"))
            at = plan.begins_at + random.random() * 0.3
            if change in ("away", "removed"):
                until = at + random.choice((0.05, 0.3)) if change == "away" else float("inf")
                plan = PartitionPlan(partition, plan.total, plan.begins_at, plan.step_s, plan.has_end, (at, until))
            elif change:
                plan = PartitionPlan(partition, plan.total, plan.begins_at, plan.step_s, plan.has_end, forgets_at=at)
            plans.append(plan)
        return plans

    def topology(self, parallelism: int) -> Topology:
        """Build the topology with as many tasks of its source."""
        name, drift, mishaps = "partitions", self._drift, self._mishaps
        relay = Part(
            "relay", lambda outside: checkpointed_stages.Relay(outside, "relay", 0.0005, mishaps), 2, (("spout", "shuffle"),)
        )
        parts = [Part("spout", lambda outside: PartitionsSpout(outside, drift), parallelism), relay]
        if self.is_checkpointed:
            window = TumblingEventTimeWindows.of("100ms")
            bolt = lambda _: WindowBolt(  # noqa: E731
                key="key", window=window, process=Members(), outputs=FIELDS, late_stream="late"
            )
            ends = (("windows", "shuffle"), ("windows", "late", "shuffle"))
            parts.append(Part("windows", bolt, 2, (("relay", "key"),)))
            parts.append(Part("ledger", lambda outside: checkpointed_sinks.Ledger(outside, "ledger"), 1, ends))
        else:
            parts.append(Part("out", Out, 1, (("relay", "shuffle"),)))
        strategy = checkpointed_sources.strategy().with_idleness("100ms")
        return build(name, parts, self.settings, self.world, strategy)

    def run(self) -> PartitionScenario:
        """Run it to its end, or to the first violation."""
        before: Simulation | None = None
        for number, parallelism in enumerate(self._parallelism):
            if self.violations:
                break
            is_last = number == len(self._parallelism) - 1
            before = self._run_once(parallelism, before, stops_at=2.0 if is_last else 0.2 + self._random.random() * 0.6)
        assert before is not None
        if not self.violations:
            self._judge(before)
        return self

    def _faults(self) -> Sequence[Fault]:
        has_links = self.settings["workers"] != 1
        if self.is_checkpointed:
            return draw_checkpoint_faults(self._random, has_links=has_links, may_damage=False, most=2)
        return draw_faults(self._random, has_links=has_links, most=2)

    def _run_once(self, parallelism: int, before: Simulation | None, stops_at: float) -> Simulation:
        world, total = self.world, len(self.world.places())
        topology = self.topology(parallelism)
        copies, seed = copies_of(topology, world), self.seed + 1_000_000 * (before is not None)
        simulation = Simulation(copies, seed, self._faults(), lambda: len(world.effects) / total)
        if before is not None:
            self._resume(simulation, before, parallelism)
        world.work, world.kill, world.now = simulation.work, simulation.kill, lambda: simulation.now
        world.quiet_since = lambda: simulation.strikes.quiet_since
        world.complain = simulation.history.violated
        world.dead_letters = lambda: set(self._dead_letters(simulation))
        checker = simulation.history
        if isinstance(checker, ConsistencyChecker):
            world.on_stage, world.on_commit = checker.token_staged, checker.token_committed
        simulation.run(until=lambda: len(world.effects) > stops_at * total)
        self.violations += simulation.violations
        for process in simulation.all_processes:
            self.counts["recovery"] += process.worker.epoch > 1
        for _, row in simulation.master.store.errors:
            self.counts["row: " + row.kind] += 1
        return simulation

    def _resume(self, simulation: Simulation, before: Simulation, parallelism: int) -> None:
        """Continue what another simulation has stored, with another number of tasks of the source."""
        self.counts["another parallelism"] += 1
        self.world.began_at += before.now
        store, tasks = simulation.master.store, simulation.plan.tasks_of("spout")
        store.dead_letters += before.master.store.dead_letters
        progress = before.master.store.progress
        if progress:
            kept = [progress.get(task, SpoutProgress()) for task in before.plan.tasks_of("spout")]
            rows = split_by_partition([(one.position, one.attempts) for one in kept], parallelism)
            store.progress = {task: SpoutProgress(*row) for task, row in zip(tasks, rows, strict=True)}
        checker, earlier = simulation.history, before.history
        if simulation.disk is not None and before.disk is not None:
            simulation.disk.files = before.disk.files
            assert isinstance(checker, ConsistencyChecker) and isinstance(earlier, ConsistencyChecker)
            checker.succeed(earlier)

    # -- in the end ------------------------------------------------------------------------------------------------------

    def _dead_letters(self, simulation: Simulation) -> Counter[tuple[str, int]]:
        codec = Codec()
        return Counter(tuple(codec.unpack_value(one.position)) for one in simulation.master.store.dead_letters)

    def _judge(self, simulation: Simulation) -> None:
        world, history = self.world, simulation.history
        bad = {place for place in world.owed() if world.is_bad(*place)}
        rows = {f"{name}.{number}": (name, number) for name, number in world.places()}
        found = self._dead_letters(simulation)
        if missing := bad - found.keys():
            history.violated(1, f"there is no dead letter of {sorted(missing)[:3]}")
        if wrong := [place for place in found if not world.is_bad(*place)]:
            history.violated(1, f"{wrong[:3]} were given up")
        if self.is_checkpointed and max(found.values(), default=1) > 1:
            history.violated(7, f"records have several dead letters: {found.most_common(3)}")
        published = Counter(one.partition(">")[0] for ids in world.published.values() for one in ids)
        came = published if self.is_checkpointed else Counter(world.seen())
        if missing := set(world.owed()) - bad - {rows[one] for one in came}:
            history.violated(1, f"{sorted(missing)[:3]} have not come out")
        if twice := [one for one, times in published.items() if times > 1]:
            history.violated(7, f"{sorted(twice)[:3]} were published twice")
        unreported = [name for name, last in world.owed() if last == world.plans[name].total - 1 != world.committed.get(name, -1)]
        if unreported and not self.is_checkpointed:
            history.violated(4, f"{unreported} are read to their ends, and the source has not learned that")
        outcome = simulation.master.outcome
        right = OutcomeKind.DEAD_LETTERS if found else OutcomeKind.DONE
        if outcome is None or outcome.kind is not right:
            history.violated(10, f"the outcome is {outcome}, not {right.value}")
        if world.lost:
            self.counts["records lost"] += 1
            if not self.counts["row: RecordsLost"]:
                history.violated(11, "the source has lost records, and there is no row of it")
        self.counts["dead letters"] += len(found)
        self.counts["partition gone"] += any(plan.is_removed for plan in world.plans.values())
        self.violations += simulation.violations
