"""Bolts that hold inputs back, with checkpoints and deaths at random: what they make of them is published once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from tests.simulation.test_ends import draw_fault, draw_spout
from tests.simulator import checkpointed_sinks as sinks
from tests.simulator.checkpoint_scenarios import CheckpointRun, CheckpointScenario
from tests.simulator.checkpointed_sources import Source
from tests.simulator.checkpointed_stages import CheckpointedStage, Row, row_of
from tests.simulator.random_checkpoint_scenarios import SETTINGS
from tests.simulator.topologies import Part
from topo.api.bolt import Bolt, Collector
from topo.api.context import TaskContext
from topo.api.tuples import Tuple

SEEDS = 60
BATCH = 4


class Batches(CheckpointedStage, Bolt):
    """Emits its inputs and acks them, some at a time."""

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.outside.work(self.work_s)
        self.held.append(tup)
        if len(self.held) == BATCH:
            self.end_of_input()

    def end_of_input(self) -> None:
        held, self.held = self.held, []
        for tup in held:
            self.collector.emit(self.renamed(row_of(tup.values)).values, held)
        for tup in held:
            self.collector.ack(tup)

    def on_reset(self) -> None:
        self.held = []

    def model(self, inputs: Mapping[str, Sequence[Row]]) -> list[Row]:
        return [self.renamed(row) for row in self.survivors(inputs)]


class Forgetful(Batches):
    """Drops nothing after a recovery."""

    on_reset = Bolt.on_reset


def scenario(seed: int, kind: type[Batches] = Batches) -> CheckpointScenario:
    """Draw a source, bolts that hold inputs, a sink, and faults."""
    random = Random(f"held {seed}")
    settings = {
        **SETTINGS,
        "workers": random.choice((None, 1, 2)),
        "checkpoint_interval": random.choice(("15ms", "40ms")),
        "checkpoint_pause": "20ms",
        "batch_size": random.choice((2, 8)),
        "edge_window": random.choice((1, 4)),
        "flush_interval": random.choice(("0ms", "2ms")),
    }
    source = Source("spout", random.choice((20, 47)), random.choice((0.0005, 0.002)))
    parts = [
        Part(source.name, draw_spout(random, source), random.choice((1, 2)), source=source),
        Part("batches", lambda outside: kind(outside, "batches"), random.choice((1, 2)), (("spout", "key"),)),
        Part("ledger", lambda outside: sinks.Ledger(outside, "ledger"), 1, (("batches", "shuffle"),)),
    ]
    faults = [draw_fault(random) for _ in range(random.choice((1, 2, 3)))]
    return CheckpointScenario(seed, parts, settings, faults)


def judged(seed: int, kind: type[Batches]) -> CheckpointRun:
    run = scenario(seed, kind).run()
    found = [violation for violation in run.violations if kind is Batches or violation.oracle != 11]
    assert found == [], scenario(seed, kind).describe()
    return run


@pytest.mark.parametrize("chunk", range(6))
@pytest.mark.parametrize("kind", [Batches, Forgetful])
def test_what_is_made_of_held_inputs_is_published_once_whatever_dies(kind: type[Batches], chunk: int) -> None:
    counts = [judged(seed, kind).counts() for seed in range(chunk, SEEDS, 6)]
    assert sum(count.get("restored", 0) for count in counts) > 0


def test_held_inputs_that_are_left_out_of_a_checkpoint_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.checkpoint.held_inputs.HeldInputs.restore", lambda self, states, now: None)
    assert any(violation.oracle == 7 for seed in range(SEEDS) for violation in scenario(seed).run().violations)


def test_a_bolt_that_keeps_what_it_held_before_a_recovery_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.task.guarantees.checkpointed.CheckpointedInputs.keep_stale", lambda self, stale: None)
    assert any(violation.oracle == 7 for seed in range(SEEDS) for violation in scenario(seed, Forgetful).run().violations)
