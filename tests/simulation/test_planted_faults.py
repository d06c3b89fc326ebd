"""The oracles catch faults that are planted into the engine, within the seeds that the engine as it is passes."""

from __future__ import annotations

import pytest

from tests.simulation import planted, planted_control, planted_decisions
from tests.simulation.planted import check_caught
from tests.simulator.random_scenarios import draw_scenario

SEEDS = range(500)
PLANTS = {
    **planted.PLANTS,
    **planted_control.PLANTS,
    **{plant: known for plant, known in planted_decisions.PLANTS.items() if known[0]},
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: planted.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = PLANTS[plant]
    plant(monkeypatch)
    check_caught(plant, oracles, promising, SEEDS, lambda seed: draw_scenario(seed).run())


def test_repeated_inits_alone_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.inits_are_repeated(monkeypatch)
    # An init that is repeated when its tree is done opens a tree that only rotates out.
    for seed in range(10):
        assert draw_scenario(seed).run(may_reopen_trees=True).violations == []
