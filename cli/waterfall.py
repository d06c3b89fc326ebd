"""The bars of a waterfall: the time of a traced tuple on the scale of its message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

WAY, FRONT, WORK = "·", "░", "█"
LEGEND = f"{WAY} on the way   {FRONT} waiting in front   {WORK} executing, or held by the bolt"


def bar(message: Mapping[str, Any], span: Mapping[str, Any], width: int) -> str:
    """Return the time of a tuple on the scale of its message."""
    start, whole = message["at_us"], max(1, message["took_us"] or 1)
    moments = [span["sent_us"], *(span.get(name, start + whole) for name in ("arrived_us", "began_us", "ended_us"))]
    marks = (WAY, FRONT, WORK) if "arrived_us" in span else (WAY, " ", " ")
    cells = [" "] * width
    for mark, begin, end in zip(marks, moments, moments[1:], strict=False):
        first, last = (min(width - 1, max(0, int((moment - start) * width / whole))) for moment in (begin, end))
        # What took no time is shown where nothing else is.
        if end > begin or mark == WORK:
            cells[first : last + 1] = [mark] * (last + 1 - first)
    return "".join(cells)
