from __future__ import annotations

import pytest

from topo.errors import TopoInternalError
from topo.operators.time.firing import MOST_IN_VAIN, fire_all


class Timers:
    """Timers that raise, each of which may register another; `broken`: how many can fire."""

    def __init__(self, due: int, broken: int = -1) -> None:
        self.due, self.broken, self.fired, self.errors = due, broken, 0, list[str]()

    def fire(self) -> None:
        if self.fired == self.broken:
            raise KeyError("broken")
        if self.fired < self.due:
            self.fired += 1
            raise ValueError(f"timer {self.fired}")

    def raised(self, error: Exception) -> None:
        self.errors.append(str(error))


def test_timers_that_raise_stop_none_of_the_others() -> None:
    timers = Timers(30 * MOST_IN_VAIN)
    fire_all(timers.fire, timers.raised, lambda: timers.fired)
    assert len(timers.errors) == 30 * MOST_IN_VAIN


def test_an_error_that_is_not_that_of_a_timer_is_raised_and_not_repeated_without_end() -> None:
    timers = Timers(5, broken=3)
    with pytest.raises(TopoInternalError, match="timers cannot fire, and the error is not that of one: KeyError: 'broken'"):
        fire_all(timers.fire, timers.raised, lambda: timers.fired)
    assert timers.errors[:3] == ["timer 1", "timer 2", "timer 3"] and len(timers.errors) == 3 + MOST_IN_VAIN


def test_an_internal_error_is_raised_at_once() -> None:
    def fire() -> None:
        raise TopoInternalError("broken")

    timers = Timers(5)
    with pytest.raises(TopoInternalError, match="broken"):
        fire_all(fire, timers.raised, lambda: timers.fired)
    assert timers.errors == []
