"""Storage that cannot be read for a moment, while tasks restore a checkpoint: they wait, and nothing is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from tests.simulation.test_ends import draw_fault, scenario
from tests.simulator.faults import Fault, FaultKind

SEEDS = 30


def faults(seed: int) -> list[Fault]:
    """A worker dies, and storage fails to read from a moment before that on."""
    random = Random(f"unreadable {seed}")
    share = random.choice((0.3, 0.6, 1.0))
    death = replace(draw_fault(random), kind=FaultKind.CRASH, share=share, moment=None, countdown=0, after_s=0.01)
    return [Fault(FaultKind.UNREADABLE_STORE, death.share, for_s=random.uniform(0.05, 3.0)), death]


@pytest.mark.parametrize("chunk", range(3))
def test_storage_that_fails_to_read_for_a_moment_costs_time_and_nothing_else(chunk: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(chunk * SEEDS // 3, (chunk + 1) * SEEDS // 3):
        one = scenario(seed)
        one.faults = faults(seed)
        run = one.run()
        assert run.violations == [], one.describe()
        counts.update(run.counts())
    assert counts["read failed"] > 0, "no read has failed"
