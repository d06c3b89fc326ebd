"""Firing of all timers that are due, where some raise."""

from __future__ import annotations

import math
from collections.abc import Callable

from topo.errors import TopoInternalError

MOST_IN_VAIN = 1000
"""How many more errors in a row than there are timers may leave as many as before: each timer that is due may register a
later one before it raises."""


def fire_all(fire: Callable[[], object], raised: Callable[[Exception], object], left: Callable[[], int]) -> None:
    """Fire until all timers that are due have fired. A timer that raises is gone: the next call begins behind it.

    Args:
        fire: fires timers, and ends at the first that raises.
        raised: called with each error.
        left: returns how many timers there are.

    Raises:
        TopoInternalError: a call raised it, or calls raise and their timers do not become fewer.
    """
    least, in_vain = math.inf, 0
    while True:
        try:
            fire()
            return
        except TopoInternalError:
            raise
        except Exception as error:
            raised(error)
            there = left()
            in_vain = 0 if there < least else in_vain + 1
            least = min(least, there)
            if in_vain > MOST_IN_VAIN + there:
                what = f"{type(error).__name__}: {error}"
                raise TopoInternalError(
                    f"the firing of timers raised {in_vain} times in a row, and as many are left as before: {what}"
                ) from error
