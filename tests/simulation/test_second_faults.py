"""Faults that strike before the topology has recovered from the one before, with checkpoints: results are published once.

A worker dies while a manifest is written, and soon another process does; the store is slow, so both fall into one checkpoint.
Or the master dies in that write: a successor that finds the manifest makes it durable before a sink publishes on it.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.simulation import planted_storage
from tests.simulation.test_ends import draw_spout
from tests.simulator import checkpointed_sources as sources
from tests.simulator import checkpointed_stages as stages
from tests.simulator.checkpoint_scenarios import CheckpointRun, CheckpointScenario
from tests.simulator.checkpointed_sources import Source
from tests.simulator.faults import Fault, FaultKind, Moment
from tests.simulator.memory_files import WriteEnding
from tests.simulator.processes import CrashPoint
from tests.simulator.random_checkpoint_scenarios import SETTINGS
from tests.simulator.topologies import Part

SEEDS = 48
DEATHS_IN_A_WRITE = 24


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
    faults = [slow, first, second] if random.random() < 0.7 else [first, second]
    if random.random() < 0.6:
        # It strikes when the master sends the routes of the epoch that follows the first death, or has an answer to them.
        message = random.choice(("Routes", "TaskReady"))
        faults[-1] = replace(second, share=max(share, 0.01), after_s=0.0, message=message)
    return faults


def death_in_a_write(seed: int) -> CheckpointRun:
    """Run a topology whose master dies while it writes a manifest."""
    slow = Fault(FaultKind.SLOW_STORE, 0.3, for_s=0.4)
    one = scenario(seed)
    one.faults = [slow, Fault(FaultKind.MASTER, 0.3, moment=Moment.COMMITTING, for_s=0.02)]
    return one.run()


def has_second_strike(run: CheckpointRun) -> bool:
    """Whether a process dies after another one and before the Go of the recovery from that."""
    struck = [at for at, fault, _ in run.simulation.strikes.struck if fault.kind is not FaultKind.SLOW_STORE]
    return len(struck) > 1 and not any(struck[0] < at <= struck[1] for at in run.simulation.history.go_at)


def judged(seed: int) -> CheckpointRun:
    run = scenario(seed).run()
    assert run.violations == [], scenario(seed).describe()
    return run


@pytest.mark.parametrize("chunk", range(4))
def test_rows_are_published_once_when_a_second_fault_strikes_within_a_recovery(chunk: int) -> None:
    runs = [judged(seed) for seed in range(chunk, SEEDS, 4)]
    assert sum(map(has_second_strike, runs)) > len(runs) // 3


def test_results_are_published_only_on_manifests_that_a_power_cut_leaves() -> None:
    runs = [death_in_a_write(seed) for seed in range(DEATHS_IN_A_WRITE)]
    assert [run.violations for run in runs if run.violations] == []
    written_whole = f"death in a write: {WriteEnding.WHOLE.value}"
    assert sum(run.simulation.history.counts.get(written_whole, 0) for run in runs) > 3


def test_a_successor_that_does_not_keep_the_manifest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    planted_storage.restored_manifests_are_not_kept(monkeypatch)
    assert any(violation.oracle == 16 for seed in (1, 3, 5, 17, 18) for violation in death_in_a_write(seed).violations)
