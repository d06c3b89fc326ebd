"""What a component has counted in the last ten seconds, minute and ten minutes: differences of its sums.

Samples of the sums are kept, fewer the older they are: 1 s apart for 15 s, 5 s apart for a minute, 30 s apart for ten.
Latencies are counted in buckets, so the difference of two samples is the distribution of what lies between them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from topo.api.metrics import HistogramSnapshot
from topo.master.sums import ComponentSums
from topo.wire.statistics import NO_EDGE_FIGURES, EdgeFigures

WINDOWS: Mapping[str, float | None] = {"1s": 1.0, "10s": 10.0, "1m": 60.0, "10m": 600.0, "all": None}
"""The windows that can be asked for, in seconds; None: since the topology's master has begun."""

_TIERS = ((0.9, 17), (4.9, 15), (29.9, 23))
"""Distance of two samples in seconds, a little less than above since heartbeats are not exact; how many are kept."""


class Sample(NamedTuple):
    """The sums at a moment."""

    at: float
    counters: Mapping[str, int | float]
    latencies: Mapping[str, HistogramSnapshot]
    edges: Mapping[str, EdgeFigures]


def sample_of(sums: ComponentSums, at: float) -> Sample:
    latencies = {name: histogram.snapshot() for name, histogram in sums.latencies.items()}
    return Sample(at, dict(sums.counters), latencies, dict(sums.edges))


class Span:
    """The counts between two samples.

    Attributes:
        seconds: between them; 0 when there is only one.
    """

    def __init__(self, first: Sample, last: Sample, until: float) -> None:
        self.seconds = max(0.0, until - first.at)
        self._first, self._last = first, last

    def count(self, counter: str) -> int | float:
        return self._last.counters.get(counter, 0) - self._first.counters.get(counter, 0)

    def rate(self, counter: str) -> float:
        """Return how much a counter has grown each second; 0 before there are two samples."""
        return self.count(counter) / self.seconds if self.seconds > 0 else 0.0

    def edge(self, target: str) -> EdgeFigures:
        """Return the tuples sent to a component, and the seconds in which an edge to it was full."""
        last, first = (sample.edges.get(target, NO_EDGE_FIGURES) for sample in (self._last, self._first))
        return EdgeFigures(last.sent - first.sent, 0, last.full_s - first.full_s)

    def latency(self, name: str) -> HistogramSnapshot:
        """Return the distribution of a latency; its extremes are those since the start, within the buckets that have grown."""
        last = self._last.latencies.get(name)
        if last is None:
            return HistogramSnapshot()
        first = self._first.latencies.get(name, HistogramSnapshot())
        counts = {bucket: grown for bucket, count in last.counts.items() if (grown := count - first.counts.get(bucket, 0)) > 0}
        return HistogramSnapshot(counts, max(0.0, last.total - first.total), last.lowest, last.highest)


class SampleRing:
    """The samples of one component, oldest first in each of three tiers."""

    def __init__(self) -> None:
        self._tiers = [deque[Sample](maxlen=kept) for _, kept in _TIERS]

    def is_due(self, now: float) -> bool:
        """Whether the last sample is old enough for another."""
        newest = self._tiers[0]
        return not newest or now - newest[-1].at >= _TIERS[0][0]

    def add(self, sample: Sample) -> None:
        for tier, (distance_s, _) in zip(self._tiers, _TIERS, strict=True):
            if not tier or sample.at - tier[-1].at >= distance_s:
                tier.append(sample)

    def before(self, moment: float) -> Sample | None:
        """Return the last sample that is not later than a moment; the oldest if all are; None while there is none."""
        oldest: Sample | None = None
        for tier in self._tiers:
            for sample in reversed(tier):
                if sample.at <= moment + 0.05:
                    return sample
                oldest = sample if oldest is None or sample.at < oldest.at else oldest
        return oldest
