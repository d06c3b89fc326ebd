"""The times of checkpoints."""

from __future__ import annotations

import pytest

from topo.checkpoint.pace import CheckpointPace


def test_rests_at_the_end_become_longer_until_they_are_long_enough_for_any_worker() -> None:
    pace = CheckpointPace(0.04, 0.02)
    assert pace.rests_until() == 0.0
    now, rests = 1.0, []
    for number in range(10):
        pace.began(now, has_ended=number > 0)
        now += 0.03
        pace.ended(now)
        rests.append(pace.rests_until() - now)
        now = pace.rests_until()
    assert rests == pytest.approx([0.12, 0.24, 0.48, 0.96, 1.92, 3.84, 7.68, 10.0, 10.0, 10.0])
    pace.began(now)
    pace.ended(now)
    assert pace.rests_until() - now == pytest.approx(0.02)
