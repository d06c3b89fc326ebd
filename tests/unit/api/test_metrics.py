from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.api.metrics import BUCKET_COUNT, Histogram, HistogramSnapshot, Metrics, bucket_of, upper_bound
from topo.errors import ConfigError

VALUES = st.lists(st.floats(1e-8, 1e8), min_size=1)


def recorded(values: list[float]) -> HistogramSnapshot:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram.snapshot()


def test_a_metric_is_made_once_and_kept() -> None:
    metrics = Metrics()
    metrics.counter("skipped").add()
    metrics.counter("skipped").add(4)
    metrics.gauge("open").set(2.5)
    metrics.histogram("size").record(10)
    snapshot = metrics.snapshot()
    assert snapshot.counters == {"skipped": 5}
    assert snapshot.gauges == {"open": 2.5}
    assert snapshot.histograms["size"].count == 1


def test_a_name_stands_for_one_kind_of_metric() -> None:
    metrics = Metrics()
    metrics.counter("size")
    with pytest.raises(ConfigError, match="'size' is a counter already"):
        metrics.gauge("size")


def test_a_snapshot_does_not_change_afterwards() -> None:
    histogram = Histogram()
    histogram.record(1)
    before = histogram.snapshot()
    histogram.record(1)
    assert (before.count, histogram.snapshot().count) == (1, 2)


@given(st.floats(1e-8, 1e8))
def test_a_value_lies_below_the_upper_bound_of_its_bucket_and_not_far(value: float) -> None:
    bound = upper_bound(bucket_of(value))
    assert value <= bound * (1 + 1e-9)
    assert bound <= value * 2 ** (1 / 4) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("value", "bucket"), [(0, 0), (-5, 0), (math.inf, BUCKET_COUNT - 1), (math.nan, BUCKET_COUNT - 1), (1e300, BUCKET_COUNT - 1)]
)
def test_extreme_values_fall_into_the_first_and_the_last_bucket(value: float, bucket: int) -> None:
    assert bucket_of(value) == bucket


@given(VALUES, st.sampled_from([1, 50, 90, 99, 99.9, 100]))
def test_a_percentile_is_at_most_a_bucket_too_high(values: list[float], percent: float) -> None:
    exact = sorted(values)[max(0, math.ceil(len(values) * percent / 100 - 1e-9) - 1)]
    found = recorded(values).percentile(percent)
    assert found is not None
    assert exact * (1 - 1e-9) <= found <= exact * 2 ** (1 / 4) * (1 + 1e-9)


@given(VALUES, VALUES)
def test_merged_histograms_are_as_one_that_recorded_everything(some: list[float], others: list[float]) -> None:
    merged, whole = recorded(some).merged(recorded(others)), recorded(some + others)
    assert merged.counts == whole.counts
    assert merged.total == pytest.approx(whole.total)
    assert (merged.lowest, merged.highest) == (whole.lowest, whole.highest)


def test_an_empty_histogram_has_no_percentile() -> None:
    assert HistogramSnapshot().percentile(50) is None
