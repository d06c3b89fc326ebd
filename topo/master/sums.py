"""The counts of a component: those of its tasks, over all their lives, kept up to date by differences.

A sum is never made from all tasks. When the figures of a task arrive, what they have grown by is added; so a question costs by
components, not by tasks. Levels are no counts, and are not here: they are those of the last heartbeats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from topo.api.metrics import HistogramSnapshot
from topo.master.task_figures import TaskFigures
from topo.wire.statistics import NO_EDGE_FIGURES, EdgeFigures


@dataclass(slots=True)
class HistogramSum:
    """A histogram that grows."""

    counts: dict[int, int] = field(default_factory=dict)
    total: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf

    def move(self, before: HistogramSnapshot, after: HistogramSnapshot) -> None:
        _move(self.counts, before.counts, after.counts)
        self.total += after.total - before.total
        self.lowest, self.highest = min(self.lowest, after.lowest), max(self.highest, after.highest)

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot({bucket: count for bucket, count in self.counts.items() if count}, *self._rest)

    @property
    def _rest(self) -> tuple[float, float, float]:
        return self.total, self.lowest, self.highest


@dataclass(slots=True)
class ComponentSums:
    """The sums of one component."""

    counters: dict[str, int | float] = field(default_factory=dict)
    latencies: dict[str, HistogramSum] = field(default_factory=dict)
    user_counters: dict[str, int] = field(default_factory=dict)
    user_histograms: dict[str, HistogramSum] = field(default_factory=dict)
    edges: dict[str, EdgeFigures] = field(default_factory=dict)
    """By target; `in_front` is 0 throughout."""

    def move(self, before: TaskFigures, after: TaskFigures) -> None:
        """Take that the figures of a task were `before` and are `after`."""
        _move(self.counters, before.counters, after.counters)
        _move_histograms(self.latencies, before.latencies, after.latencies)
        earlier, later = before.user.metrics, after.user.metrics
        _move(self.user_counters, earlier.counters, later.counters)
        _move_histograms(self.user_histograms, earlier.histograms, later.histograms)
        for target in {**before.edges, **after.edges}:
            old, new = before.edges.get(target, NO_EDGE_FIGURES), after.edges.get(target, NO_EDGE_FIGURES)
            grown = EdgeFigures(new.sent - old.sent, 0, new.full_s - old.full_s)
            self.edges[target] = self.edges.get(target, NO_EDGE_FIGURES).plus(grown)


_EMPTY = HistogramSnapshot()


def _move(sums: dict[str, int | float] | dict[str, int] | dict[int, int], before: Mapping, after: Mapping) -> None:  # type: ignore[type-arg]
    missing = len(before)
    for name, value in after.items():
        earlier = before.get(name)
        if earlier is None:
            sums[name] = sums.get(name, 0) + value
            continue
        missing -= 1
        if value != earlier:
            sums[name] += value - earlier
    if missing:
        # A heartbeat that was too long has left out metrics of user code.
        for name in before.keys() - after.keys():
            sums[name] -= before[name]


def _move_histograms(
    sums: dict[str, HistogramSum], before: Mapping[str, HistogramSnapshot], after: Mapping[str, HistogramSnapshot]
) -> None:
    for name in {**before, **after}:
        sums.setdefault(name, HistogramSum()).move(before.get(name, _EMPTY), after.get(name, _EMPTY))
