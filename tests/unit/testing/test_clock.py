from __future__ import annotations

from datetime import timedelta

import pytest

from topo import ConfigError, UserError
from topo.testing import ManualClock


def test_it_stands_until_it_is_moved() -> None:
    clock = ManualClock(100.0)

    assert clock() == clock() == 100.0
    clock.advance("1m30s")
    clock.advance(timedelta(seconds=10))
    clock.advance(0.5)
    assert clock() == 200.5
    assert clock.now_ms == 200_500
    assert repr(clock) == "ManualClock(3m20.5s)"


def test_it_does_not_go_back() -> None:
    clock = ManualClock(10.0)
    clock.advance_to(10.0)

    with pytest.raises(UserError, match="does not go back"):
        clock.advance_to(9.0)
    with pytest.raises(ConfigError):
        clock.advance(-1)
    assert clock() == 10.0
