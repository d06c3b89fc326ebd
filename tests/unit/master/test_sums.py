"""Sums of components, kept up to date by differences, are those of all tasks; windows have the counts within them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from topo.api.metrics import Histogram
from topo.ids import TaskId
from topo.master.statistics import TopologyStatistics
from topo.master.windows import SampleRing, sample_of

ONE, TWO, OTHER = TaskId(1), TaskId(2), TaskId(3)
TASKS = {ONE: "bolt", TWO: "bolt", OTHER: "spout"}


def histogram(*values: float) -> Histogram:
    made = Histogram()
    for value in values:
        made.record(value)
    return made


def figures(executed: int, latency_s: float = 0.01, sent: int = 0, in_front: int = 0, **levels: float) -> dict[str, Any]:
    """Return the figures of a life that has executed tuples of equal length."""
    execute = Histogram()
    if executed:
        execute.record(latency_s, executed)
    return {
        "counters": {"executed": executed, "busy_s": executed * latency_s, "finally_failed": executed % 3},
        "levels": levels,
        "latencies": {"execute": execute.snapshot()},
        "user": {"metrics": {"counters": {"odd": executed // 2}, "gauges": {}, "histograms": {}}},
        "edges": {"sink": (sent, in_front, sent / 100)},
    }


step = some.one_of(
    some.tuples(some.just("beat"), some.sampled_from(sorted(TASKS)), some.integers(0, 50)),
    some.tuples(some.sampled_from(["lost", "ended"]), some.sampled_from(sorted(TASKS)), some.just(0)),
    some.tuples(some.just("shortened"), some.sampled_from(sorted(TASKS)), some.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(some.lists(step, max_size=30))
def test_sums_kept_up_to_date_are_those_of_all_tasks(steps: list[tuple[str, TaskId, int]]) -> None:
    statistics = TopologyStatistics(TASKS)
    counted = dict.fromkeys(TASKS, 0)
    for moment, (kind, task, more) in enumerate(steps):
        if kind in ("lost", "ended"):
            getattr(statistics, kind)([task])
            counted[task] = 0
        else:
            counted[task] += more
            sent = figures(counted[task], sent=counted[task])
            if kind == "shortened":
                del sent["user"]
            statistics.add({task: sent}, float(moment))
        statistics.validate()
        for component in ("bolt", "spout"):
            tasks = [task for task, of in TASKS.items() if of == component]
            whole, sums = statistics.together(tasks), statistics.sums(component)
            assert whole.counters == pytest.approx({name: sums.counters[name] for name in whole.counters})
            user = whole.user.metrics.counters
            assert user == {name: sums.user_counters[name] for name in user}


def test_rates_and_percentiles_of_a_window_are_of_that_window_alone() -> None:
    statistics = TopologyStatistics(TASKS)
    for second in range(1, 701):
        fast, slow = min(second, 600), max(0, second - 600)
        execute = histogram(*[0.001] * fast, *[1.0] * slow)
        sent = figures(fast + 10 * slow) | {"latencies": {"execute": execute.snapshot()}}
        statistics.add({OTHER: sent}, float(second))
    now = 700.4
    last, minute, ten, whole = (statistics.span("spout", now, window) for window in (10.0, 60.0, 600.0, None))
    assert last.rate("executed") == minute.rate("executed") == pytest.approx(10.0)
    assert ten.rate("executed") == pytest.approx((500 + 10 * 100) / 600, rel=0.05)
    assert whole.rate("executed") == pytest.approx(1600 / 699)
    # Samples are 5 s apart after a quarter of a minute, so a minute is up to 5 s longer.
    assert last.latency("execute").count == 10
    assert 60 <= minute.latency("execute").count <= 65
    assert last.latency("execute").percentile(50) == 1.0
    assert ten.latency("execute").percentile(50) == pytest.approx(0.001, rel=0.2)
    assert whole.latency("execute").count == 700


def test_a_component_that_has_fallen_silent_has_a_rate_that_falls() -> None:
    statistics = TopologyStatistics(TASKS)
    for second in range(21):
        statistics.add({ONE: figures(100 * second)}, float(second))
    assert statistics.span("bolt", 20.9).rate("executed") == pytest.approx(100.0)
    assert statistics.span("bolt", 26.0).rate("executed") == pytest.approx(40.0)
    assert statistics.span("bolt", 40.0).rate("executed") == 0.0


def test_capacity_is_that_of_the_present_load() -> None:
    statistics = TopologyStatistics(TASKS)
    for second in range(31):
        slow = max(0, second - 15)
        execute = histogram(*[0.001] * (100 * min(second, 15)), *[0.09] * (10 * slow))
        sent = figures(100 * min(second, 15) + 10 * slow) | {"latencies": {"execute": execute.snapshot()}}
        statistics.add({ONE: sent}, float(second))
    assert statistics.capacity(ONE) == pytest.approx(0.9)


def test_samples_become_fewer_with_their_age_and_are_bounded() -> None:
    ring, statistics = SampleRing(), TopologyStatistics(TASKS)
    for second in range(2000):
        assert ring.is_due(float(second))
        ring.add(sample_of(statistics.sums("bolt"), float(second)))
        assert not ring.is_due(second + 0.5)
    kept = sum(len(tier) for tier in ring._tiers)
    assert kept < 60
    for age, wrong_by in ((10, 0.1), (60, 5), (600, 30)):
        sample = ring.before(1999.0 - age)
        assert sample is not None and 0 <= 1999.0 - age - sample.at <= wrong_by


def test_tuples_in_front_are_those_of_the_last_heartbeats_and_none_of_a_lost_process() -> None:
    statistics = TopologyStatistics(TASKS)
    statistics.add({ONE: figures(1, sent=50, in_front=20), TWO: figures(1, sent=10, in_front=5)}, 1.0)
    assert statistics.in_front("bolt") == {"sink": 25}
    statistics.lost([ONE])
    assert statistics.in_front("bolt") == {"sink": 5}
    assert statistics.sums("bolt").edges["sink"].sent == 60
