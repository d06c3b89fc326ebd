"""The figures of one task, as heartbeats bring them, and what those of several lives or tasks are together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from topo.api.metrics import HistogramSnapshot, MetricsSnapshot
from topo.wire.statistics import NO_EDGE_FIGURES, EdgeFigures

N = TypeVar("N", int, float, int | float)

WAIT = "queue_s"
"""The level of how long tuples wait before a bolt."""
UNCONFIRMED = "unconfirmed"
"""The level of tuples that a task has processed, but not confirmed to their senders yet: they are not in front of it any more."""
EVENT_TIME = ("watermark_ms", "watermark_lag_s", "held_back_by")
"""Levels of event time: the watermark, how far it is behind the clock, and the task that its next step waits for."""
NOT_SHOWN = (UNCONFIRMED, *EVENT_TIME)
"""Levels that are parts of other figures."""


class UserFigures(msgspec.Struct, frozen=True):
    """What user code counts in a task."""

    metrics: MetricsSnapshot = MetricsSnapshot()


class TaskFigures(msgspec.Struct, frozen=True):
    """What one life of a task has counted: `topo.wire.statistics.TaskStatistics` as it arrives."""

    counters: dict[str, int | float] = {}
    levels: dict[str, float] = {}
    latencies: dict[str, HistogramSnapshot] = {}
    user: UserFigures = UserFigures()
    edges: dict[str, EdgeFigures] = {}
    watermarks: dict[str, int] = {}

    def after(self, earlier: TaskFigures) -> TaskFigures:
        """Return the figures of an earlier life and this one together; levels are this one's, a gauge the last one set.

        Watermarks of inputs are in the figures of a life alone."""
        mine, theirs = self.user.metrics, earlier.user.metrics
        metrics = MetricsSnapshot(
            _added(theirs.counters, mine.counters), {**theirs.gauges, **mine.gauges}, _merged(theirs.histograms, mine.histograms)
        )
        latencies = _merged(earlier.latencies, self.latencies)
        # Tuples that were on their way from a process that has ended are in front of nothing any more.
        before = {target: figures._replace(in_front=0) for target, figures in earlier.edges.items()}
        edges = _edges(before, self.edges)
        return TaskFigures(_added(earlier.counters, self.counters), self.levels, latencies, UserFigures(metrics), edges)

    def beside(self, other: TaskFigures) -> TaskFigures:
        """Return the figures of two tasks together; levels and gauges add up, too, but for those of event time."""
        metrics = self.user.metrics
        joined = self.after(other)
        gauges = _added(metrics.gauges, other.user.metrics.gauges)
        user = MetricsSnapshot(joined.user.metrics.counters, gauges, joined.user.metrics.histograms)
        levels = joined_levels(other.levels, self.levels)
        return TaskFigures(joined.counters, levels, joined.latencies, UserFigures(user), _edges(other.edges, self.edges))


NO_FIGURES = TaskFigures()


def joined_levels(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    """Levels add up; event time is that of the task that is behind, the wait before a bolt that of the task with the longest."""
    joined = _added(first, second)
    if WAIT in joined:
        joined[WAIT] = max(levels.get(WAIT, 0.0) for levels in (first, second))
    both = [levels for levels in (first, second) if EVENT_TIME[0] in levels]
    if both:
        behind = min(both, key=lambda levels: levels[EVENT_TIME[0]])
        for name in EVENT_TIME:
            joined.pop(name, None)
            if name in behind:
                joined[name] = behind[name]
    return joined


def known_gauges(gauges: Mapping[str, float]) -> dict[str, float]:
    """Return the gauges whose value is known: NaN stands for an unknown one."""
    return {name: value for name, value in gauges.items() if not math.isnan(value)}


def _added(first: Mapping[str, N], second: Mapping[str, N]) -> dict[str, N]:
    return {name: second[name] if name not in first else first[name] + second.get(name, 0) for name in {**first, **second}}


def _merged(first: Mapping[str, HistogramSnapshot], second: Mapping[str, HistogramSnapshot]) -> dict[str, HistogramSnapshot]:
    empty = HistogramSnapshot()
    return {name: first.get(name, empty).merged(second.get(name, empty)) for name in {**first, **second}}


def _edges(first: Mapping[str, EdgeFigures], second: Mapping[str, EdgeFigures]) -> dict[str, EdgeFigures]:
    return {
        target: first.get(target, NO_EDGE_FIGURES).plus(second.get(target, NO_EDGE_FIGURES)) for target in {**first, **second}
    }
