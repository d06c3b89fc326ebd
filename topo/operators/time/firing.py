"""Firing of all timers that are due, where some raise."""

from __future__ import annotations

from collections.abc import Callable

from topo.errors import TopoInternalError
from topo.user_errors import kind_and_message

MOST_IN_VAIN = 100
"""Errors in a row between which no timer begins to fire."""


def fire_all(fire: Callable[[], object], raised: Callable[[Exception], object], fired: Callable[[], int]) -> None:
    """Fire until all timers that are due have fired. A timer that raises is gone: the next call begins behind it.

    Args:
        fire: fires timers, and ends at the first that raises.
        raised: called with each error.
        fired: returns how many timers have begun to fire.

    Raises:
        TopoInternalError: a call raised it, or errors repeat that are not those of timers.
    """
    last, in_vain = -1, 0
    while True:
        try:
            fire()
            return
        except TopoInternalError:
            raise
        except Exception as error:
            raised(error)
            number = fired()
            in_vain = in_vain + 1 if number == last else 0
            last = number
            if in_vain >= MOST_IN_VAIN:
                what = kind_and_message(error)
                raise TopoInternalError(f"timers cannot fire, and the error is not that of one: {what}") from error
