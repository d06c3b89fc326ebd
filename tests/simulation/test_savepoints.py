"""Savepoints of topologies with checkpoints, asked for at odd moments, and under faults that strike before they are written.

A failing seed replays with `python -m tests.simulator --savepoints --seed N`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import planted_savepoints
from tests.simulation.planted import check_caught
from tests.simulator.faults import Moment
from tests.simulator.random_checkpoint_scenarios import draw_savepoint_scenario
from tests.simulator.savepoints import Occasion

SEEDS = 80
CHUNK = 20
SOMETIMES = (
    *(f"savepoint asked {occasion.value}" for occasion in Occasion),
    *(f"savepoint {answer}" for answer in ("written", "failed", "master died")),
    *(f"savepoint to end with {answer}" for answer in ("written", "failed", "master died")),
    f"struck when {Moment.COPYING.value}",
    "run again from a savepoint",
    "run with other numbers of tasks",
)
"""The situations that must occur in some seed, or the seeds do not test their purpose."""

_totals: dict[int, Counter[str]] = {}


pytestmark = pytest.mark.usefixtures("quiet")


def totals_of(chunk: int) -> Counter[str]:
    """Run the seeds of a chunk, once, and return what occurred in them."""
    if chunk not in _totals:
        totals: Counter[str] = Counter()
        for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
            run = draw_savepoint_scenario(seed).run()
            assert run.violations == [], f"replay it with: python -m tests.simulator --savepoints --seed {seed}"
            totals.update(run.counts())
        _totals[chunk] = totals
    return _totals[chunk]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_each_savepoint_has_one_answer_and_runs_go_on_from_that_of_the_end(chunk: int) -> None:
    assert totals_of(chunk)["savepoint written"] > CHUNK // 4


@pytest.mark.timeout(600)
def test_each_situation_of_interest_occurs_in_some_seed() -> None:
    never = [name for name in SOMETIMES if not any(totals_of(chunk)[name] for chunk in range(SEEDS // CHUNK))]
    assert never == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", planted_savepoints.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: planted_savepoints.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = planted_savepoints.PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), lambda seed: draw_savepoint_scenario(seed).run())
