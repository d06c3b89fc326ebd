"""Faults that strike before the topology has recovered from the one before, with checkpoints: results are published once.

A worker dies while a manifest is written, and soon another process does; the store is slow, so both fall into one checkpoint.
Or the master dies in that write: a successor that finds the manifest makes it durable before a sink publishes on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from tests.simulation import planted_decisions
from tests.simulation.planted import check_caught
from tests.simulation.test_ends import draw_spout, judged
from tests.simulator import checkpointed_sinks as sinks
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
DEATHS_IN_A_WRITE = 36


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
        Part("ledger", lambda outside: sinks.Ledger(outside, "ledger"), 1, (("tally", "shuffle"),)),
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


def death_between_acks(seed: int) -> CheckpointRun:
    """Run a queue in one process, which dies when `ack` was called for a part of the messages that checkpoints cover."""
    random = Random(f"acks {seed}")
    one = scenario(seed)
    source = Source("spout", 400)
    one.parts = (
        Part("spout", lambda outside: sources.QueueSpout(outside, source, False), 1, source=source),
        Part("ledger", lambda outside: sinks.Ledger(outside, "ledger"), 1, (("spout", "shuffle"),)),
    )
    one.settings |= {"workers": 1, "checkpoint_interval": "100ms", "max_spout_pending": 1000, "batch_size": 32}
    one.faults = (Fault(FaultKind.CRASH, 0.9, random.random() * 0.2, moment=Moment.PUBLISHING, countdown=random.randrange(8)),)
    return one.run()


def slow_news(seed: int) -> CheckpointRun:
    """Run a topology whose connections to the master are slow in turn; in odd seeds two workers die one after the other."""
    random = Random(f"news {seed}")
    one = scenario(seed)
    one.settings |= {"workers": None, "checkpoint_interval": "15ms"}
    slow = [Fault(FaultKind.CONTROL_SLOW, share, pick=random.random(), for_s=0.3) for share in (0.05, 0.1, 0.2, 0.2, 0.3, 0.5)]
    first = Fault(FaultKind.CRASH, 0.2, pick=random.random())
    deaths = [first, replace(first, pick=random.random(), message="TaskReady", after_s=0.005)] if seed % 2 else []
    one.faults = tuple(sorted(slow + deaths, key=lambda fault: fault.share))
    return one.run()


Draw = Callable[[int], CheckpointRun]
RUNS: dict[str, Draw] = {
    "scenario": lambda seed: scenario(seed).run(),
    "death_in_a_write": death_in_a_write,
    "death_between_acks": death_between_acks,
    "slow_news": slow_news,
}


def has_second_strike(run: CheckpointRun) -> bool:
    """Whether a process dies after another one and before the Go of the recovery from that."""
    struck = [at for at, fault, _ in run.simulation.strikes.struck if fault.kind is not FaultKind.SLOW_STORE]
    return len(struck) > 1 and not any(struck[0] < at <= struck[1] for at in run.simulation.history.go_at)


@pytest.mark.parametrize("chunk", range(4))
def test_rows_are_published_once_when_a_second_fault_strikes_within_a_recovery(chunk: int) -> None:
    runs = [judged(scenario(seed)) for seed in range(chunk, SEEDS, 4)]
    assert sum(map(has_second_strike, runs)) > len(runs) // 3


def test_results_are_published_only_on_manifests_that_a_power_cut_leaves() -> None:
    runs = [death_in_a_write(seed) for seed in range(DEATHS_IN_A_WRITE)]
    assert [run.violations for run in runs if run.violations] == []
    written_whole = f"death in a write: {WriteEnding.WHOLE.value}"
    assert sum(run.simulation.history.counts.get(written_whole, 0) for run in runs) > 3


@pytest.mark.parametrize("draw", [death_between_acks, slow_news], ids=lambda draw: draw.__name__)
def test_no_message_is_sent_twice_or_published_early_where_acks_and_news_of_checkpoints_are_slow(draw: Draw) -> None:
    assert [violation for seed in range(12) for violation in draw(seed).violations] == []


@pytest.mark.parametrize("plant", planted_decisions.SECOND_PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: planted_decisions.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising, draw = planted_decisions.SECOND_PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), RUNS[draw])
