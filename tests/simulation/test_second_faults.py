"""Faults that strike before the topology has recovered from the one before, with checkpoints: results are published once.

A worker dies while a manifest is written, and soon another process does; the store is slow, so both fall into one checkpoint.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.test_ends import draw_spout
from tests.simulator import checkpointed_sources as sources
from tests.simulator import checkpointed_stages as stages
from tests.simulator.checkpoint_scenarios import CheckpointRun, CheckpointScenario
from tests.simulator.checkpointed_sources import Source
from tests.simulator.faults import Fault, FaultKind, Moment
from tests.simulator.processes import CrashPoint
from tests.simulator.random_checkpoint_scenarios import SETTINGS
from tests.simulator.topologies import Part

SEEDS = 48


def scenario(seed: int) -> CheckpointScenario:
    """Draw a source, bolts and a sink that publishes, and two or three faults close to each other."""
    random = Random(f"second {seed}")
    settings = {
        **SETTINGS,
        "workers": random.choice((None, 1, 2)),
        "checkpoint_interval": random.choice(("15ms", "40ms")),
        "checkpoint_pause": "20ms",
        "checkpoint_timeout": "5s",
        "max_spout_pending": random.choice((20, 1000)),
        "batch_size": random.choice((2, 32)),
        "flush_interval": random.choice(("0ms", "2ms")),
    }
    source = Source("spout", random.choice((40, 150)), random.choice((0.0, 0.002)))
    is_queue = random.random() < 0.5
    spout = (lambda outside: sources.QueueSpout(outside, source, False)) if is_queue else draw_spout(random, source)
    parts = [
        Part(source.name, spout, random.choice((1, 2)), source=source),
        Part("tally", lambda outside: stages.Tally(outside, "tally"), random.choice((1, 2)), (("spout", "key"),)),
        Part("ledger", lambda outside: stages.Ledger(outside, "ledger"), 1, (("tally", "shuffle"),)),
    ]
    return CheckpointScenario(seed, parts, settings, draw_faults(random))


def draw_faults(random: Random) -> list[Fault]:
    share = random.choice((0.0, random.random() * 0.8))
    slow = Fault(FaultKind.SLOW_STORE, share, for_s=random.uniform(0.2, 0.6))
    moment = random.choice((Moment.COMMITTING, Moment.COMMITTING, Moment.COMPLETE, Moment.PUBLISHING))
    first = Fault(FaultKind.CRASH, share, pick=random.random(), point=CrashPoint.BEFORE_TURN, moment=moment)
    kind = random.choice((FaultKind.CRASH, FaultKind.MASTER, FaultKind.POWER))
    second = Fault(kind, share, random.uniform(0.1, 0.8), random.random(), random.uniform(0.01, 0.1))
    return [slow, first, second] if random.random() < 0.7 else [first, second]


def judged(seed: int) -> CheckpointRun:
    run = scenario(seed).run()
    assert run.violations == [], scenario(seed).describe()
    return run


@pytest.mark.parametrize("chunk", range(4))
def test_rows_are_published_once_when_a_second_fault_strikes_within_a_recovery(chunk: int) -> None:
    runs = [judged(seed) for seed in range(chunk, SEEDS, 4)]
    assert sum(len(run.simulation.strikes.struck) > 1 for run in runs) > len(runs) // 2
