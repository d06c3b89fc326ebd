"""Runs in which ids for ackers wait for others: spouts may have many messages in flight."""

from __future__ import annotations

import pytest

from tests.simulator.random_scenarios import draw_scenario
from topo.plan.physical import MANY_PENDING


@pytest.mark.parametrize("seed", range(30))
def test_no_promise_is_broken_while_ids_wait(seed: int) -> None:
    scenario = draw_scenario(seed)
    scenario.settings = {**scenario.settings, "max_spout_pending": 2 * MANY_PENDING}
    assert scenario.run().violations == []
