"""Metrics that user code keeps: counters, gauges and histograms, by name.

They are plain Python numbers of one thread; the engine reads a snapshot now and then. A histogram counts in fixed buckets that
grow by a constant factor, so that those of many tasks add up and percentiles of the sum are right to within that factor.
"""

from __future__ import annotations

import math
from operator import index
from typing import TypeVar

from msgspec import Struct, field

from topo.errors import ConfigError

BUCKETS_PER_DOUBLING = 4
GREATEST_COUNT = 1 << 53
"""Counters are shown up to here, so that the sum of those of many tasks still fits 64 bits."""
_LOWEST_EXPONENT = -30  # 2**-30, about one nanosecond when the unit is seconds
_HIGHEST_EXPONENT = 40
BUCKET_COUNT = (_HIGHEST_EXPONENT - _LOWEST_EXPONENT) * BUCKETS_PER_DOUBLING + 2


def bucket_of(value: float) -> int:
    """Return the bucket a value falls in: 0 for zero and below, the last for all that is too large or not a number."""
    if value <= 2.0**_LOWEST_EXPONENT:
        return 0
    if not value < 2.0**_HIGHEST_EXPONENT:
        return BUCKET_COUNT - 1
    return 1 + int((math.log2(value) - _LOWEST_EXPONENT) * BUCKETS_PER_DOUBLING)


def upper_bound(bucket: int) -> float:
    """Return the upper bound of a bucket; infinity for the last."""
    if bucket >= BUCKET_COUNT - 1:
        return math.inf
    return float(2.0 ** (_LOWEST_EXPONENT + bucket / BUCKETS_PER_DOUBLING))


def exponent_of(bucket: int) -> int:
    """Return the power of two that is the upper bound of a bucket, or of the next ones with which it fills a doubling."""
    return _LOWEST_EXPONENT - (-bucket // BUCKETS_PER_DOUBLING)


class HistogramSnapshot(Struct, frozen=True):
    """The values of a histogram: `counts` by bucket number, the sum and the extremes of the values."""

    counts: dict[int, int] = field(default_factory=dict)
    total: float = 0.0
    lowest: float = math.inf
    highest: float = -math.inf

    @property
    def count(self) -> int:
        """The number of recorded values."""
        return sum(self.counts.values())

    def merged(self, other: HistogramSnapshot) -> HistogramSnapshot:
        """Return the histogram of both, as if one had recorded all values."""
        counts = dict(self.counts)
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        return HistogramSnapshot(
            counts, self.total + other.total, min(self.lowest, other.lowest), max(self.highest, other.highest)
        )

    def percentile(self, percent: float) -> float | None:
        """Return an upper bound of that percentile, at most a bucket (19 %) too high; None when nothing was recorded."""
        remaining = self.count * percent / 100
        for bucket in sorted(self.counts):
            remaining -= self.counts[bucket]
            if remaining <= 1e-9:
                return max(self.lowest, min(upper_bound(bucket), self.highest))
        return None if not self.counts else self.highest


def _bounded(count: int) -> int:
    return max(-GREATEST_COUNT, min(count, GREATEST_COUNT))


class Counter:
    """A number that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Count `amount` more. Raises TypeError for a value other than an integer."""
        self.value += index(amount)


class Gauge:
    """A number that goes up and down: the last one set is the one shown."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        """Replace the number by `float(value)`, and raise what that raises."""
        self.value = float(value)


class Histogram:
    """A distribution: durations in seconds, sizes, whatever has percentiles."""

    __slots__ = ("_counts", "_highest", "_lowest", "_total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0.0
        self._lowest = math.inf
        self._highest = -math.inf

    def record(self, value: float, times: int = 1) -> None:
        """Count `float(value)`, `times` times.

        Raises what `float` raises, ValueError for NaN and infinities, and TypeError when `times` is no integer.
        """
        value, times = float(value), index(times)
        if not math.isfinite(value):
            raise ValueError(f"a histogram records finite numbers; got {value}, which its mean would show for ever; leave it out")
        bucket = bucket_of(value)
        self._counts[bucket] = self._counts.get(bucket, 0) + times
        self._total += value * times
        if value < self._lowest:
            self._lowest = value
        if value > self._highest:
            self._highest = value

    def snapshot(self) -> HistogramSnapshot:
        """Return the recorded values so far."""
        return HistogramSnapshot(dict(self._counts), self._total, self._lowest, self._highest)


class MetricsSnapshot(Struct, frozen=True):
    """All user metrics of one task at a moment."""

    counters: dict[str, int] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    histograms: dict[str, HistogramSnapshot] = field(default_factory=dict)


M = TypeVar("M", Counter, Gauge, Histogram)


class Metrics:
    """The metrics of one task, made on first use: `context.metrics.counter("skipped").add()`.

    Ask for a metric once, in `open` or `prepare`, and keep it. Names are for things there are few of: never put a key, an id
    or a value of the data into one. A name that is empty or not printable, or stands for a metric of another kind, raises a
    ConfigError.
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter of that name."""
        return self._metric(name, Counter)

    def gauge(self, name: str) -> Gauge:
        """Return the gauge of that name."""
        return self._metric(name, Gauge)

    def histogram(self, name: str) -> Histogram:
        """Return the histogram of that name."""
        return self._metric(name, Histogram)

    def _metric(self, name: str, kind: type[M]) -> M:
        metric = self._metrics.get(name)
        if metric is None:
            if not isinstance(name, str):
                raise ConfigError(f"the name of a metric is a str; got {name!r} ({type(name).__name__})")
            if not name or not name.isprintable():
                raise ConfigError(
                    f"the name of a metric is printed in tables: {name!r} is empty or has characters that cannot be"
                )
            metric = self._metrics[name] = kind()
        if not isinstance(metric, kind):
            raise ConfigError(f"metric {name!r} is a {type(metric).__name__.lower()} already; choose another name")
        return metric

    def snapshot(self) -> MetricsSnapshot:
        """Return all metrics as they are now."""
        found = self._metrics.items()
        return MetricsSnapshot(
            {name: _bounded(metric.value) for name, metric in found if isinstance(metric, Counter)},
            {name: metric.value for name, metric in found if isinstance(metric, Gauge)},
            {name: metric.snapshot() for name, metric in found if isinstance(metric, Histogram)},
        )
