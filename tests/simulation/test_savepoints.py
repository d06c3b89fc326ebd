"""Savepoints of topologies with checkpoints, asked for at odd moments, and under faults that strike before they are written.

A failing seed replays with `python -m tests.simulator --savepoints --seed N`.
"""

from __future__ import annotations

import pytest

from tests.simulation import planted_savepoints
from tests.simulation.chunks_of_seeds import never_seen, totals_by_chunk
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

pytestmark = pytest.mark.usefixtures("quiet")


totals_of = totals_by_chunk(draw_savepoint_scenario, CHUNK, "--savepoints")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_each_savepoint_has_one_answer_and_runs_go_on_from_that_of_the_end(chunk: int) -> None:
    assert totals_of(chunk)["savepoint written"] > CHUNK // 4


@pytest.mark.timeout(600)
def test_each_situation_of_interest_occurs_in_some_seed() -> None:
    assert never_seen(SOMETIMES, totals_of, SEEDS // CHUNK) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", planted_savepoints.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: planted_savepoints.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = planted_savepoints.PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), lambda seed: draw_savepoint_scenario(seed).run())
