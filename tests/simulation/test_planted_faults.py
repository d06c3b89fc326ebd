"""The oracles catch faults that are planted into the engine, within the seeds that the engine as it is passes."""

from __future__ import annotations

import pytest

from tests.simulation import planted
from topo.testing.random_scenarios import draw_scenario

SEEDS = range(500)

PROMISING: dict[planted.Plant, tuple[int, ...]] = {}
"""Seeds that have caught a fault before; they are tried first, then all the others."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", planted.PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_caught(plant: planted.Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in (*PROMISING.get(plant, ()), *SEEDS):
        violations = draw_scenario(seed).run().violations
        if any(violation.oracle in planted.PLANTS[plant] for violation in violations):
            return
    pytest.fail(f"no seed has caught: {plant.__doc__}")


def test_repeated_inits_alone_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.inits_are_repeated(monkeypatch)
    for seed in range(10):
        assert draw_scenario(seed).run().violations == []
