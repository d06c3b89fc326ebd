"""The bound on what waits before a bolt, against a simulated queue: senders that never pause, and a server of any speed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.task.allowance import GROWTH, Allowance

TARGET_S = 0.5
MOST = 16 * 1024


class Queue:
    """Senders that keep `allowance.size` tuples out and as many waiting; a server that takes them one after another."""

    def __init__(self, service: Callable[[float], float]) -> None:
        self.allowance = Allowance(TARGET_S, MOST)
        self.service = service
        self.now = 0.0
        self.done = 0
        self.entered: list[float] = []
        self.waits: list[tuple[float, float]] = []

    def run(self, until: float, most: int = 100_000) -> None:
        done = 0
        while self.now < until and done < most:
            self.entered += [self.now] * (2 * self.allowance.size - len(self.entered))
            took = self.service(self.now)
            self.now += took
            self.waits.append((self.now, self.now - self.entered.pop(0)))
            self.allowance.note(1, took)
            done += 1

    def longest_wait(self, since: float) -> float:
        return max(wait for at, wait in self.waits if at >= since)


@pytest.mark.parametrize("service_s", [0.000_01, 0.001, 0.01, 0.1, 1.0, 10.0])
def test_the_wait_is_twice_the_target_or_two_tuples_whatever_the_service_time(service_s: float) -> None:
    queue = Queue(lambda _now: service_s)
    queue.run(until=400 * max(service_s, 0.01))
    assert queue.longest_wait(0.0) <= 2.01 * max(TARGET_S, service_s)
    assert queue.allowance.size == pytest.approx(max(1, min(MOST, int(TARGET_S / service_s))), rel=0.05)


def test_a_first_call_of_a_minute_leaves_a_tuple_waiting_and_no_trace() -> None:
    queue = Queue(lambda now: 60.0 if now == 0.0 else 0.000_01)
    queue.run(until=60.001)
    assert len(queue.entered) <= 2 * queue.allowance.size
    queue.run(until=61.0)
    assert queue.allowance.size == MOST


def test_after_a_jump_of_the_service_time_the_wait_is_bounded_again_soon() -> None:
    queue = Queue(lambda now: 1.0 if 1.0 <= now < 40_000.0 else 0.000_02)
    queue.run(until=3.5)
    assert queue.allowance.size == 1, "the next evaluation is after half a second of work, not after a full allowance"
    queue.run(until=39_000.0)
    assert queue.longest_wait(35_000.0) <= 2.0
    queue.run(until=40_001.0, most=200_000)
    assert queue.allowance.size == MOST


@given(st.lists(st.tuples(st.integers(0, 2000), st.floats(0.0, 100.0)), max_size=200))
def test_the_size_stays_in_its_bounds_and_grows_by_a_factor_at_most(steps: list[tuple[int, float]]) -> None:
    allowance = Allowance(TARGET_S, MOST)
    for done, seconds in steps:
        before = allowance.size
        allowance.note(done, seconds)
        assert 1 <= allowance.size <= min(MOST, GROWTH * before)


@given(st.integers(1, MOST), st.integers(1, 500))
def test_no_edge_is_granted_nothing(size: int, edges: int) -> None:
    allowance = Allowance(TARGET_S, MOST)
    allowance.size = size
    assert 1 <= allowance.share(edges) <= max(1, size // edges)


def test_time_without_tuples_counts_with_the_next_ones() -> None:
    allowance = Allowance(TARGET_S, MOST)
    allowance.size = 1000
    allowance.note(0, 3.0)
    assert allowance.size == 1000, "a window that fires for long is no service time of a tuple"
    allowance.note(60, 0.0)
    assert allowance.size == 10
