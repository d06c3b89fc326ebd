"""The load of a worker by the time that its loop sleeps, without a clock."""

from __future__ import annotations

import pytest

from topo.worker.load import INTERVAL_S, WorkerLoad


def load_after(*turns: tuple[float, float]) -> int:
    """The load after turns, each given as its seconds of work and of the sleep behind it."""
    load, now = WorkerLoad(0.0), 0.0
    for worked_s, slept_s in turns:
        now += worked_s + slept_s
        load.turned(now, slept_s)
    return load.percent


@pytest.mark.parametrize(
    ("worked_s", "slept_s", "percent"), [(0.001, 0.0, 100), (0.001, 0.001, 50), (0.0, 0.001, 0), (0.003, 0.001, 75)]
)
def test_the_load_is_the_time_without_sleep(worked_s: float, slept_s: float, percent: int) -> None:
    turns = round(2 * INTERVAL_S / (worked_s + slept_s))
    assert load_after(*[(worked_s, slept_s)] * turns) == pytest.approx(percent, abs=1)


def test_the_load_is_that_of_the_last_whole_interval() -> None:
    assert load_after((INTERVAL_S, 0.0), (0.0, INTERVAL_S)) == 0
    assert load_after((0.0, INTERVAL_S), (INTERVAL_S, 0.0)) == 100
    assert load_after((INTERVAL_S, 0.0), (0.0, INTERVAL_S / 2)) == 100


def test_a_sleep_of_many_intervals_counts_once() -> None:
    assert load_after((0.01, 60.0)) == 0
