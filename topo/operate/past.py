"""The past of a topology: the lines on disk, and the points that its master has not written yet."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from topo.errors import FrameError
from topo.master_process.client import Client, Unreachable
from topo.observability.history import PastPoints, columns_of, joined, reach_back
from topo.storage.state_folder import TopologyFolder, json_lines

DEADLINE_S = 10.0


def history(
    folder: TopologyFolder,
    since_s: int,
    step_s: int,
    *,
    until_s: int | None = None,
    subjects: Collection[str] | None = None,
    series: Collection[str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> PastPoints:
    """Return the points of a topology from `since_s` (seconds since 1970) until now, at a distance of `step_s`.

    An ended or lost topology has those on disk, at most every 10 s. With `subjects` or `series` there are these alone.

    Raises:
        AnswerTimeout: its master runs, and does not answer.
        UserError: that would be too many points.
    """
    parts: list[PastPoints] = []
    if folder.is_running():
        # It may have ended meanwhile, or have just begun: then the lines on disk are all.
        with suppress(Unreachable):
            asked = {"since_ms": 1000 * since_s, "step_s": step_s, "subjects": list(subjects or ()), "series": list(series or ())}
            parts = [columns_of(row) for row in Client.of(folder).request("history", deadline_s, **asked)]
    parts = with_stored(folder, parts, since_s)
    for part in parts:
        kept = [key for key in part.series if (subjects is None or key[0] in subjects) and (series is None or key[1] in series)]
        part.series = {key: part.series[key] for key in kept}
    return joined(parts, since_s, int(time.time()) + 1 if until_s is None else until_s, step_s)


def with_stored(folder: TopologyFolder, parts: list[PastPoints], since_s: int) -> list[PastPoints]:
    """Return the points of a master, and before them those on disk that are older: what both have would count twice."""
    if reach_back(parts, since_s):
        return parts
    until_s = min((part.first_s for part in parts if part.length), default=math.inf)
    return [*_stored(folder, since_s, until_s), *parts]


def _stored(folder: TopologyFolder, since_s: int, until_s: float) -> Iterator[PastPoints]:
    for path in (folder.older_history, folder.history):
        for row in json_lines(path):
            # Most lines of a long run are older than the question, or have points that the master knows.
            with suppress(FrameError, TypeError, AttributeError):
                first_s = row.get("first_s", 0)
                if first_s < until_s and first_s + row.get("step_s", 0) * row.get("length", 0) >= since_s:
                    yield columns_of(row)


def as_data(columns: PastPoints) -> dict[str, Any]:
    """Return points as plain values: missing ones are None."""
    series: dict[str, dict[str, list[float | None]]] = {}
    for (subject, name), column in sorted(columns.series.items()):
        series.setdefault(subject, {})[name] = [None if math.isnan(value) else float(f"{value:.6g}") for value in column]
    return {
        "first_ms": 1000 * columns.first_s,
        "step_s": columns.step_s,
        "length": columns.length,
        "series": series,
        "marks": [{"at_ms": at_ms, "text": text} for at_ms, text in columns.marks],
    }
