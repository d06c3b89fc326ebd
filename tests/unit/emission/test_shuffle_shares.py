"""Shares of a shuffle by load: whether they come to rest, and where, with workers of which each has other work, too."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from topo.emission.shuffle_shares import BUSY, INTERVAL_S, LEAST, ShuffleShares


class Workers:
    """Workers with one task of a bolt each, and a source that is as fast as the busiest of them lets it be.

    Args:
        others: by worker, its other work for each row of the source, in seconds.
        each: by worker, the seconds of its task for each row that it gets.
        rows: a second, that the source emits at most.
    """

    def __init__(self, others: Sequence[float], each: Sequence[float], rows: float = 1e9) -> None:
        self.others, self.each, self.rows = others, each, rows
        self.shares = ShuffleShares(range(len(others)))
        self.now = 0.0

    @property
    def of(self) -> list[float]:
        """The shares as parts of 1."""
        shares = self.shares.shares or [1.0] * len(self.others)
        return [share / len(self.others) for share in shares]

    @property
    def rate(self) -> float:
        """Rows a second."""
        return min(self.rows, 1.0 / max(self._work()))

    def _work(self) -> list[float]:
        return [other + share * each for other, share, each in zip(self.others, self.of, self.each, strict=True)]

    def loads(self) -> list[int]:
        return [round(100 * min(1.0, work * self.rate)) for work in self._work()]

    def run(self, seconds: float) -> None:
        """Evaluate loads that are one interval old."""
        before = self.loads()
        for _ in range(round(seconds / INTERVAL_S)):
            self.now += INTERVAL_S
            assert self.shares.is_due(self.now)
            loads = self.loads()
            self.shares.evaluate(before, self.now)
            before = loads


def test_rows_move_from_the_worker_that_limits_the_rate_to_the_one_that_rests() -> None:
    workers = Workers(others=[310e-9, 90e-9], each=[400e-9, 400e-9])
    even = workers.rate
    workers.run(3.0)
    assert min(workers.loads()) >= 80
    assert workers.rate > 1.15 * even


def test_a_machine_that_is_slower_gets_fewer_rows() -> None:
    workers = Workers(others=[0.0, 0.0, 0.0], each=[100e-9, 100e-9, 300e-9])
    workers.run(4.0)
    fast, also_fast, slow = workers.of
    assert fast == also_fast and 0.1 < slow < 0.2


def test_shares_stay_even_where_no_worker_limits_the_rate() -> None:
    workers = Workers(others=[310e-9, 90e-9], each=[400e-9, 400e-9], rows=1e6)
    assert max(workers.loads()) < BUSY
    workers.run(3.0)
    assert workers.shares.shares is None


def test_shares_become_even_again_when_the_load_is_gone() -> None:
    workers = Workers(others=[310e-9, 90e-9], each=[400e-9, 400e-9])
    workers.run(3.0)
    assert workers.shares.shares is not None
    workers.rows = 1e5
    workers.run(30.0)
    assert workers.shares.shares is None


def test_a_task_keeps_a_small_share_however_busy_its_worker() -> None:
    workers = Workers(others=[1e-6, 0.0], each=[100e-9, 100e-9])
    workers.run(60.0)
    assert 0.4 * LEAST < workers.of[0] < LEAST


def learned(*loads: int | None, workers: Sequence[int] = (1, 2), evaluations: int = 10) -> ShuffleShares:
    shares = ShuffleShares(workers)
    for _ in range(evaluations):
        shares.evaluate(loads, 0.0)
    return shares


def test_a_worker_whose_load_is_not_known_is_not_taken_for_an_idle_one() -> None:
    assert learned(100, None).shares is None
    shares = learned(100, 60)
    assert shares.shares is not None
    # A new epoch has begun, perhaps with other workers.
    shares.evaluate([None, 60], 0.0)
    assert shares.shares is None
    shares.evaluate([100, 97], 0.0)
    assert shares.shares is None


def test_shares_become_even_again_where_all_workers_are_equally_busy() -> None:
    shares = learned(100, 60)
    for _ in range(600):
        shares.evaluate([100, 100], 0.0)
    assert shares.shares is None


def test_tasks_of_one_worker_have_equal_shares() -> None:
    shares = learned(100, 50, 96, None, workers=[1, 2, 1, 2]).shares
    assert shares is not None
    assert shares[0] == shares[2] < 1.0 < shares[1] == shares[3]


def test_tasks_of_a_single_worker_need_no_evaluation() -> None:
    assert not ShuffleShares([7, 7, 7]).is_due(1e9)


def test_nothing_is_evaluated_before_its_time() -> None:
    shares = ShuffleShares([1, 2])
    shares.evaluate([100, 0], 5.0)
    assert not shares.is_due(5.0 + INTERVAL_S / 2)
    assert shares.is_due(5.0 + INTERVAL_S)


@given(
    others=st.lists(st.integers(0, 300), min_size=2, max_size=8),
    each=st.data(),
)
def test_the_rate_is_never_worse_than_with_even_shares(others: list[int], each: st.DataObject) -> None:
    costs = each.draw(st.lists(st.integers(50, 800), min_size=len(others), max_size=len(others)))
    workers = Workers([1e-9 * other for other in others], [1e-9 * cost for cost in costs])
    even = workers.rate
    workers.run(10.0)
    for _ in range(20):
        workers.run(INTERVAL_S)
        assert workers.rate > 0.98 * even
        assert abs(sum(workers.of) - 1.0) < 1e-9
