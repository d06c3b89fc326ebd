from __future__ import annotations

import os
from typing import Any

import pytest

from topo_cli.measurement import Counts, Processes, percentiles


def status(acked: dict[int, int], silent_s: float = 0.0) -> dict[str, Any]:
    """A status of tasks with these acks, all in worker 0, with its last heartbeat `silent_s` ago."""
    return {
        "workers": [{"worker": 0, "silent_s": silent_s, "pid": os.getpid(), "tasks": list(acked)}],
        "tasks": [{"task": task, "worker": 0, "component": "c", "counters": {"acked": count}} for task, count in acked.items()],
        "master": {"pid": 0},
    }


def test_a_rate_counts_from_heartbeat_to_heartbeat_and_not_from_look_to_look() -> None:
    counts = Counts()
    counts.add(status({1: 0}), 10.0)
    counts.add(status({1: 1000}, silent_s=0.4), 11.5)
    counts.add(status({1: 1000}, silent_s=0.6), 11.7)
    counts.add(status({1: 3000}, silent_s=0.1), 13.2)
    growth = counts.growth([1], "acked", 10.5, 20.0)
    assert growth.amount == pytest.approx(2000)
    assert growth.seconds == pytest.approx(13.1 - 11.1)
    assert growth.per_second == pytest.approx(1000)


def test_a_message_that_is_no_heartbeat_dates_no_sample_before_the_last_look() -> None:
    counts = Counts()
    counts.add(status({1: 0}), 1.0)
    counts.add(status({1: 10}, silent_s=5.0), 2.0)
    counts.add(status({1: 20}, silent_s=0.0), 3.0)
    assert counts.growth([1], "acked", 0.0, 9.0).seconds == pytest.approx(2.0)


def test_rates_of_tasks_add_up_though_their_heartbeats_differ() -> None:
    counts = Counts()
    for now, first, second in ((0.0, 0, 0), (1.0, 100, 0), (1.5, 100, 50), (2.0, 200, 50), (2.5, 200, 150)):
        counts.add(status({1: first, 2: second}), now)
    assert counts.growth([1, 2], "acked", 1.0, 2.5).per_second == pytest.approx(100 + 100)


def test_one_heartbeat_is_no_rate() -> None:
    counts = Counts()
    counts.add(status({1: 7}), 1.0)
    assert counts.growth([1], "acked", 0.0, 2.0).per_second == 0
    assert counts.growth([1, 99], "missing", 0.0, 2.0).amount == 0


def test_the_memory_and_cpu_time_of_a_process_are_those_that_the_kernel_counts() -> None:
    processes = Processes()
    processes.look(status({1: 0}), 1.0)
    before = sum(os.times()[:2])
    while sum(os.times()[:2]) < before + 0.05:
        sum(range(1000))
    processes.look(status({1: 0}), 2.0)
    usage = processes.usage[os.getpid()]
    assert usage.label == "c"
    assert usage.peak_bytes > 5e6
    assert 0.03 <= usage.cpu_growth(0.0, 3.0).amount < 5
    assert usage.cpu_growth(0.0, 3.0).seconds == 1.0


def test_a_process_that_is_gone_is_left_out() -> None:
    processes = Processes()
    gone = status({1: 0})
    gone["workers"][0]["pid"] = 2**22 + 1
    processes.look(gone, 1.0)
    assert processes.usage[2**22 + 1].cpu == []
    assert processes.usage[2**22 + 1].cpu_growth(0.0, 2.0).per_second == 0


def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed() -> None:
    assert percentiles([float(number) for number in range(1, 1001)]) == {"p50": 500.0, "p99": 990.0, "p999": 999.0}
    assert percentiles([3.0]) == {"p50": 3.0, "p99": 3.0, "p999": 3.0}
    assert percentiles([]) == {"p50": None, "p99": None, "p999": None}
