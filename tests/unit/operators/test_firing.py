from __future__ import annotations

import pytest

from topo.errors import TopoInternalError
from topo.operators.time.firing import MOST_IN_VAIN, fire_all


class Timers:
    """Timers that raise: `stays` of them are never taken away."""

    def __init__(self, due: int, stays: int = 0) -> None:
        self.due, self.stays, self.errors = due, stays, list[str]()

    def fire(self) -> None:
        if self.due:
            self.due -= self.due > self.stays
            raise ValueError(f"{self.due} left")

    def raised(self, error: Exception) -> None:
        self.errors.append(str(error))

    def left(self) -> int:
        return self.due


def test_timers_that_raise_stop_none_of_the_others() -> None:
    timers = Timers(3 * MOST_IN_VAIN)
    fire_all(timers.fire, timers.raised, timers.left)
    assert len(timers.errors) == 3 * MOST_IN_VAIN and timers.due == 0


def test_an_error_that_takes_no_timer_away_is_raised_and_not_repeated_for_ever() -> None:
    timers = Timers(5, stays=2)
    with pytest.raises(TopoInternalError, match="as many are left as before: ValueError: 2 left"):
        fire_all(timers.fire, timers.raised, timers.left)
    assert len(timers.errors) == 3 + MOST_IN_VAIN + 2 + 1


def test_timers_that_register_a_later_one_and_raise_all_have_their_turn() -> None:
    due, errors = 3 * MOST_IN_VAIN, list[Exception]()

    def fire() -> None:
        nonlocal due
        if due:
            due -= 1
            raise ValueError(f"{due} left")

    fire_all(fire, errors.append, lambda: 3 * MOST_IN_VAIN)
    assert len(errors) == 3 * MOST_IN_VAIN


def test_an_internal_error_is_raised_at_once() -> None:
    def fire() -> None:
        raise TopoInternalError("broken")

    timers = Timers(5)
    with pytest.raises(TopoInternalError, match="broken"):
        fire_all(fire, timers.raised, timers.left)
    assert timers.errors == []
