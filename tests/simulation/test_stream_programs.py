"""Programs of streams under faults: tables in all tasks, joins whose state expires, other numbers of tasks, second requests.

A failing seed replays with `python -m tests.simulator --streams --seed N`.
"""

from __future__ import annotations

import pytest

from tests.simulation import planted_streams
from tests.simulation.chunks_of_seeds import never_seen, totals_by_chunk
from tests.simulation.planted import Plant, check_caught
from tests.simulator.stream_scenarios import PROGRAMS, draw_stream_scenario

SEEDS = 36
CHUNK = 12
SOMETIMES = (
    *(f"component: {program.__name__}" for program in PROGRAMS),
    "recovery",
    "another master",
    "row: Trouble",
    "run with other numbers of tasks",
    "savepoint asked again while waiting",
    "savepoint asked again while copying",
)
"""The situations that must occur in some seed, or the seeds do not test their purpose."""

pytestmark = pytest.mark.usefixtures("quiet")


totals_of = totals_by_chunk(draw_stream_scenario, CHUNK, "--streams")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_results_tables_and_joins_are_right_whatever_goes_wrong(chunk: int) -> None:
    assert totals_of(chunk)["restored"] > CHUNK // 2


@pytest.mark.timeout(300)
def test_each_situation_of_interest_occurs_in_some_seed() -> None:
    assert never_seen(SOMETIMES, totals_of, SEEDS // CHUNK) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plant", planted_streams.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = planted_streams.PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), lambda seed: draw_stream_scenario(seed).run())
