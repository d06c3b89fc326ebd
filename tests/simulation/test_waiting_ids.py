"""Runs in which ids for ackers wait for others: spouts may have many messages in flight."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulator.random_scenarios import draw_scenario
from topo.plan.physical import MANY_PENDING
from topo.task.guarantees.tracked import TrackedInputs
from topo.task.guarantees.tracked_source import TrackedSource

SEEDS = 30


@pytest.mark.parametrize("chunk", range(2))
def test_no_promise_is_broken_while_ids_wait(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = {TrackedInputs: 0, TrackedSource: 0}
    for kind in waited:

        def on_idle(self: Any, now: float, kind: Any = kind, whole: Any = kind.on_idle) -> None:
            whole(self, now)
            waited[kind] += not self.is_quiet

        monkeypatch.setattr(kind, "on_idle", on_idle)
    for seed in range(chunk, SEEDS, 2):
        scenario = draw_scenario(seed)
        scenario.settings = {**scenario.settings, "max_spout_pending": 2 * MANY_PENDING}
        assert scenario.run().violations == [], scenario.describe()
    assert all(waited.values()), waited
