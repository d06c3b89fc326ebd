"""The oracles catch faults that are planted into the engine, within the seeds that the engine as it is passes."""

from __future__ import annotations

import pytest

from tests.simulation import planted
from tests.simulator.random_scenarios import draw_scenario

SEEDS = range(500)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", planted.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: planted.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    oracles, promising = planted.PLANTS[plant]
    plant(monkeypatch)
    for seed in (*promising, *SEEDS):
        if any(violation.oracle in oracles for violation in draw_scenario(seed).run().violations):
            return
    pytest.fail(f"no seed has caught: {plant.__doc__}")


def test_repeated_inits_alone_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.inits_are_repeated(monkeypatch)
    # An init that comes again when its tree is done opens one that only rotates out.
    for seed in range(10):
        assert draw_scenario(seed).run(may_reopen_trees=True).violations == []
