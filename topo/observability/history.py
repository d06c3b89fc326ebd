"""The past of a topology: a point a second, kept for a quarter of an hour, and coarser ones for longer. Pure.

A point has figures by subject ("total", "component/NAME", "edge/SOURCE>TARGET", "worker/N", "checkpoints") and series. Three
tiers keep them as 32-bit floats: 1 s for 15 minutes, 10 s for 6 hours, 5 minutes for 14 days; about 28 kB a series when all are
full. Coarser points are means of finer ones, but for series of which the greatest matters (GREATEST), and for messages by
latency, which add up, and of which there are no points of 1 s. A missing figure is NaN.

Each minute the points of 10 s that are complete become a block, which is a line of the topology's `history.jsonl`.
"""

from __future__ import annotations

import base64
import math
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from operator import attrgetter
from typing import Any

import msgspec

from topo.errors import FrameError, UserError
from topo.observability.changes import LATENCY, Changes

TIERS = ((1, 900), (10, 2160), (300, 4032))
"""Seconds between two points, and how many are kept."""
BLOCK_STEP_S = 10
MARKS = 500
MOST_DROPPED = 60
GREATEST = frozenset(("capacity", "p99", "lag", "in_front", "rss", "full", "took"))

Point = Mapping[str, Mapping[str, float | None]]
"""Figures at a moment, by subject and series."""


def point_of(overview: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Return the point of an overview, which is that of the last second."""
    totals = overview["totals"]
    found: dict[str, dict[str, float | None]] = {
        "total": {"emitted": totals["emitted_per_s"], "acked": totals["acked_per_s"], "pending": totals["pending"]}
    }
    for row in overview["components"]:
        if row["kind"] == "acker":
            continue
        latency = row.get("execute_s") or row.get("complete_s") or {}
        figures = {
            "in": row["in_per_s"],
            "out": row["out_per_s"],
            "acked": row["acked_per_s"],
            "failed": row["failed_per_s"],
            "capacity": row["capacity"],
            "busy": row["busy"],
            "blocked": row["backpressured"],
            "in_front": row["in_front"],
            "p50": latency.get("p50"),
            "p99": latency.get("p99"),
            "lag": (row["event_time"] or {}).get("lag_s"),
            "pending": row["levels"].get("pending"),
            "state": row["levels"].get("state_entries"),
        }
        if row["kind"] == "spout":
            del figures["in"], figures["in_front"]
        found[f"component/{row['component']}"] = {name: value for name, value in figures.items() if value is not None}
    for edge in overview["edges"]:
        subject = f"edge/{edge['source']}>{edge['target']}"
        found[subject] = {"out": edge["per_s"], "in_front": edge["in_front"], "full": edge["full"]}
    for worker in overview["workers"]:
        found[f"worker/{worker['worker']}"] = {"cpu": worker["cpu"], "rss": worker["rss_bytes"]}
    return found


def _by_key(point: Point) -> dict[tuple[str, str], float]:
    flat = (((subject, name), value) for subject, figures in point.items() for name, value in figures.items())
    return {key: float(value) for key, value in flat if value is not None}


@dataclass(slots=True)
class PastPoints:
    """Points at equal distances.

    Attributes:
        first_s: the moment of the first, in seconds since 1970.
        step_s: seconds between two.
        length: how many there are.
        series: by subject and name, each of `length` values.
        marks: events, as (milliseconds since 1970, text).
    """

    first_s: int
    step_s: int
    length: int
    series: dict[tuple[str, str], array[float]]
    marks: list[tuple[int, str]] = field(default_factory=list)


class _Tier:
    def __init__(self, step_s: int, kept: int) -> None:
        self.step_s, self._kept = step_s, kept
        self._first = 0
        """The number of the first point: its moment through the step."""
        self._length = 0
        self._series: dict[tuple[str, str], array[float]] = {}
        self._sums: dict[tuple[str, str], tuple[float, int]] = {}
        self._at: int | None = None
        """The number of the point that is being gathered."""

    def add(self, second: int, values: Mapping[tuple[str, str], float]) -> None:
        number = second // self.step_s
        if self._at is None:
            # A coarse point of a part of its time would hide the finer ones that an earlier master has stored.
            self._at = number if self.step_s <= BLOCK_STEP_S else -(-second // self.step_s)
        elif number > self._at:
            self._close(number)
        if number < self._at:
            return
        for key, value in values.items():
            total, count = self._sums.get(key, (0.0, 0))
            if key[1] in GREATEST:
                self._sums[key] = (max(value, total) if count else value, 1)
            else:
                self._sums[key] = (total + value, 1 if key[0].startswith(LATENCY) else count + 1)

    def _close(self, number: int) -> None:
        """Append the point that was gathered, and begin another."""
        assert self._at is not None
        if not self._length:
            self._first = self._at
        missing = min(self._at - self._first - self._length, self._kept)
        if missing < self._at - self._first - self._length:
            # The master stood still for longer than the tier is long: nothing of it is left.
            self._first, self._length, missing = self._at, 0, 0
            self._series.clear()
        for key in self._sums.keys() - self._series.keys():
            self._series[key] = array("f", [math.nan]) * self._length
        for key, column in self._series.items():
            column.extend([math.nan] * missing)
            total, count = self._sums.get(key, (math.nan, 1))
            column.append(total / count)
        self._length += missing + 1
        if self._length > self._kept + self._kept // 4:
            cut = self._length - self._kept
            for column in self._series.values():
                del column[:cut]
            self._first, self._length = self._first + cut, self._kept
        self._sums, self._at = {}, number

    @property
    def has_points(self) -> bool:
        """Whether a point is complete."""
        return self._length > 0

    def since(self, second: int) -> PastPoints:
        """Return the complete points from that of a moment on."""
        skipped = min(max(0, second // self.step_s - self._first), self._length)
        columns = {key: column[skipped:] for key, column in self._series.items()}
        return PastPoints((self._first + skipped) * self.step_s, self.step_s, self._length - skipped, columns)


class History:
    """The history of one run of a master."""

    def __init__(self) -> None:
        self._tiers = [_Tier(*tier) for tier in TIERS]
        self._marks: deque[tuple[int, str]] = deque(maxlen=MARKS)
        self._written_s = self._last_ms = self._dropped = 0
        self._changes = Changes()

    def record(self, at_ms: int, overview: Mapping[str, Any]) -> None:
        """Take the overview of the last second, at a moment of the wall clock. One before the last moment is dropped: the clock
        has been set back. After MOST_DROPPED in a row the history begins again: else it would stand still until then."""
        self._dropped = self._dropped + 1 if at_ms < self._last_ms else 0
        if self._dropped > MOST_DROPPED:
            self._tiers, self._written_s, self._last_ms = [_Tier(*tier) for tier in TIERS], 0, 0
        self._last_ms = max(self._last_ms, at_ms)
        marks, changes = self._changes.taken(overview)
        self._marks.extend((at_ms, text) for text in marks)
        values = _by_key(point_of(overview) | changes)
        self._tiers[0].add(at_ms // 1000, values)
        values |= _by_key(self._changes.latencies(overview))
        for tier in self._tiers[1:]:
            tier.add(at_ms // 1000, values)

    def since(self, since_s: int, step_s: int) -> list[PastPoints]:
        """Return the points from a moment on: those of the coarsest tier that is as fine as `step_s` and has any, and before
        them, where it does not reach back as far, those of coarser ones."""
        fine_enough = (place for place, tier in enumerate(self._tiers) if tier.step_s <= step_s and tier.has_points)
        finest = max(fine_enough, default=0)
        parts: list[PastPoints] = []
        for tier in self._tiers[finest:]:
            if not parts or (parts[0].first_s > since_s and tier.has_points):
                parts.insert(0, tier.since(since_s))
        parts[-1].marks = [mark for mark in self._marks if mark[0] >= 1000 * since_s]
        return parts

    def take_block(self, now_s: int, *, is_last: bool = False) -> dict[str, Any] | None:
        """Return the row of the points since the last one; None when they are less than a minute, unless it is the last."""
        tier = self._tiers[1]
        if is_last:
            # The end is of interest more than anything else: the point that is being gathered is closed early.
            tier.add(now_s + tier.step_s, {})
        columns = tier.since(self._written_s)
        if not columns.length or (columns.length < 60 // BLOCK_STEP_S and not is_last):
            return None
        columns.marks = [mark for mark in self._marks if mark[0] >= 1000 * self._written_s]
        self._written_s = columns.first_s + columns.length * columns.step_s
        return block_of(columns)


def block_of(columns: PastPoints) -> dict[str, Any]:
    """Return points as a row of JSON."""
    packed = msgspec.msgpack.encode([[subject, name, column.tobytes()] for (subject, name), column in columns.series.items()])
    return {
        "first_s": columns.first_s,
        "step_s": columns.step_s,
        "length": columns.length,
        "marks": columns.marks,
        "series": base64.b64encode(zlib.compress(packed)).decode(),
    }


def columns_of(row: Mapping[str, Any]) -> PastPoints:
    """Return the points of a row. Raises FrameError when it is none."""
    try:
        packed = msgspec.msgpack.decode(zlib.decompress(base64.b64decode(row["series"])), type=list[tuple[str, str, bytes]])
        series = {}
        for subject, name, data in packed:
            series[subject, name] = array("f", data)
        marks = [(int(at_ms), str(text)) for at_ms, text in row["marks"]]
        columns = PastPoints(int(row["first_s"]), int(row["step_s"]), int(row["length"]), series, marks)
    except (KeyError, TypeError, ValueError, zlib.error, msgspec.DecodeError) as error:
        raise FrameError(f"a block of history that is none: {error}") from error
    if columns.step_s < 1 or any(len(column) != columns.length for column in series.values()):
        raise FrameError("a block of history whose columns differ in length")
    return columns


def reach_back(parts: Sequence[PastPoints], since_s: int) -> bool:
    """Whether the points of a master, oldest first, begin at a moment or before it: older ones are not needed."""
    return bool(parts) and parts[0].length > 0 and parts[0].first_s <= since_s


def joined(parts: Iterable[PastPoints], since_s: int, until_s: int, step_s: int) -> PastPoints:
    """Return the points of several columns at one distance; later parts take precedence where they overlap.

    A point that is longer than the distance stands for all the moments in it. Shorter ones are taken together, from all parts in
    a row whose points have one distance, as those of the lines on disk have.

    Raises:
        UserError: there would be more than 100,000 points.
    """
    first, length = since_s // step_s, max(0, -(-until_s // step_s) - since_s // step_s)
    if length > 100_000:
        raise UserError(f"{length:,} points of {step_s} s are too many; choose a longer step or a shorter time")
    series: dict[tuple[str, str], array[float]] = {}
    marks: dict[tuple[int, str], None] = {}
    for _, run in groupby(parts, attrgetter("step_s")):
        sums: dict[tuple[str, str], dict[int, tuple[float, int]]] = {}
        for part in run:
            marks |= dict.fromkeys(part.marks)
            for key, column in part.series.items():
                points = series.setdefault(key, array("f", [math.nan]) * length)
                if part.step_s == step_s:
                    for place, value in enumerate(column, part.first_s // step_s - first):
                        if 0 <= place < length and not math.isnan(value):
                            points[place] = value
                else:
                    _gather(sums.setdefault(key, {}), part, column, step_s, key)
        for key, places in sums.items():
            for place, (total, number) in places.items():
                if 0 <= place - first < length:
                    series[key][place - first] = total / number
    shown = sorted(mark for mark in marks if 1000 * since_s <= mark[0] < 1000 * until_s)
    return PastPoints(first * step_s, step_s, length, series, shown)


def _gather(
    sums: dict[int, tuple[float, int]], part: PastPoints, column: array[float], step_s: int, key: tuple[str, str]
) -> None:
    """Add the points of a column to those at another distance: by number, their moment through the distance, sum and count."""
    is_greatest, is_sum = key[1] in GREATEST, key[0].startswith(LATENCY)
    part_of = min(1.0, step_s / part.step_s) if is_sum else 1.0
    for value, begin in zip(column, count(part.first_s, part.step_s), strict=False):
        if math.isnan(value):
            continue
        last = begin if part.step_s < step_s else begin + part.step_s - 1
        for place in range(begin // step_s, last // step_s + 1):
            total, number = sums.get(place, (0.0, 0))
            if is_greatest:
                sums[place] = (max(value, total) if number else value, 1)
            else:
                sums[place] = (total + value * part_of, 1 if is_sum else number + 1)
