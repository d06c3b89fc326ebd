"""Programs of streams with windows, times to live, timers, batches and running results under faults: exact, and published once.

A failing seed replays with `python -m tests.simulator --keyed-streams --seed N`.
"""

from __future__ import annotations

import pytest

from tests.simulation import planted_keyed_streams
from tests.simulation.chunks_of_seeds import never_seen, totals_by_chunk
from tests.simulation.planted import Plant, check_caught
from tests.simulator.keyed_programs import KEYED_PROGRAMS
from tests.simulator.keyed_stream_scenarios import draw_keyed_stream_scenario

SEEDS = 18
CHUNK = 9
SOMETIMES = (
    *(f"component: {program.__name__}" for program in KEYED_PROGRAMS),
    *("component: Log", "component: Ledger", "recovery", "row: Trouble"),
)
"""The situations that must occur in some seed, or the seeds do not test their purpose."""

pytestmark = pytest.mark.usefixtures("quiet")


totals_of = totals_by_chunk(draw_keyed_stream_scenario, CHUNK, "--keyed-streams")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(SEEDS // CHUNK))
def test_results_are_those_of_a_naive_model_whatever_goes_wrong(chunk: int) -> None:
    assert totals_of(chunk)["restored"] > CHUNK // 2


@pytest.mark.timeout(300)
def test_each_situation_of_interest_occurs_in_some_seed() -> None:
    assert never_seen(SOMETIMES, totals_of, SEEDS // CHUNK) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plant", planted_keyed_streams.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = planted_keyed_streams.PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, range(SEEDS), lambda seed: draw_keyed_stream_scenario(seed).run())
