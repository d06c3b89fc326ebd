from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo import BasicBolt, BasicCollector, IterableSpout, TaskContext, TopologyBuilder, Tuple
from topo.api.metrics import (
    BUCKET_COUNT,
    GREATEST_COUNT,
    Histogram,
    HistogramSnapshot,
    Metrics,
    bucket_of,
    exponent_of,
    upper_bound,
)
from topo.errors import ConfigError
from topo.testing import END, TopologyTest

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


@pytest.mark.parametrize("name", ["", "two\nlines", "\x1b[2J"])
def test_a_name_that_breaks_a_table_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="empty or has characters that cannot be"):
        Metrics().counter(name)


def test_a_snapshot_does_not_change_afterwards() -> None:
    histogram = Histogram()
    histogram.record(1)
    before = histogram.snapshot()
    histogram.record(1)
    assert (before.count, histogram.snapshot().count) == (1, 2)


@given(st.floats(1e-8, 1e8))
def test_a_value_lies_in_the_doubling_of_its_bucket(value: float) -> None:
    assert 2.0 ** (exponent_of(bucket_of(value)) - 1) <= value * (1 + 1e-9) and value <= 2.0 ** exponent_of(bucket_of(value))


@pytest.mark.parametrize("power", [-29, -7, 0, 40])
def test_the_bound_of_a_doubling_is_that_of_its_last_bucket(power: int) -> None:
    last = next(bucket for bucket in range(BUCKET_COUNT) if upper_bound(bucket) == 2.0**power)
    assert [exponent_of(bucket) - power for bucket in range(last - 4, last + 2)] == [-1, 0, 0, 0, 0, 1]


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


@pytest.mark.parametrize(
    "use",
    [
        lambda metrics: metrics.gauge("g").set(1j),
        lambda metrics: metrics.gauge("g").set(None),
        lambda metrics: metrics.gauge("g").set(object()),
        lambda metrics: metrics.counter("c").add(1.5),
        lambda metrics: metrics.counter("c").add("1"),
        lambda metrics: metrics.histogram("h").record(None),
        lambda metrics: metrics.histogram("h").record(1, 0.5),
    ],
)
def test_what_is_no_number_is_refused_where_it_is_given(use: Callable[[Any], None]) -> None:
    with pytest.raises(TypeError):
        use(Metrics())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", Decimal("Infinity")])
def test_a_histogram_refuses_what_would_spoil_its_mean(value: Any) -> None:
    histogram = Histogram()
    histogram.record(1)
    with pytest.raises(ValueError, match=r"a histogram records finite numbers; got (nan|-?inf)"):
        histogram.record(value)
    assert histogram.snapshot() == recorded([1])


class RecordsRatios(BasicBolt):
    def prepare(self, context: TaskContext) -> None:
        self.ratios = context.metrics.histogram("ratio")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.ratios.record(tup["ratio"])


def test_a_tuple_whose_value_a_histogram_refuses_fails_with_the_line() -> None:
    builder = TopologyBuilder("ratios")
    builder.set_spout("items", IterableSpout([], fields=("ratio",)))
    builder.set_bolt("ratios", RecordsRatios()).shuffle_grouping("items")
    test = TopologyTest(builder.build, sources={"items": [(1.0,), (math.nan,), END]}, attempts=1)
    test.run()
    (error,) = test.errors()
    assert "a histogram records finite numbers" in error.message
    assert (error.file or "").endswith("test_metrics.py")


def test_numbers_of_other_types_are_plain_numbers_to_whoever_looks() -> None:
    metrics = Metrics()
    metrics.gauge("share").set(Fraction(1, 2))  # type: ignore[arg-type]
    metrics.histogram("price").record(Decimal(3))  # type: ignore[arg-type]
    metrics.counter("seen").add(True)
    snapshot = metrics.snapshot()
    assert [type(value) for value in (*snapshot.gauges.values(), *snapshot.counters.values())] == [float, int]
    assert type(snapshot.histograms["price"].total) is float


def test_a_counter_is_shown_up_to_what_still_adds_up_on_the_wire() -> None:
    metrics = Metrics()
    metrics.counter("c").add(2**70)
    metrics.counter("d").add(-(2**70))
    assert metrics.snapshot().counters == {"c": GREATEST_COUNT, "d": -GREATEST_COUNT}


def test_the_name_of_a_metric_is_a_str() -> None:
    with pytest.raises(ConfigError, match=r"got 5 \(int\)"):
        Metrics().counter(5)  # type: ignore[arg-type]
