from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.task.slice_size import AdaptiveSliceSize


def test_short_slices_double_up_to_the_most() -> None:
    pace = AdaptiveSliceSize(0.005, 100)
    sizes = []
    for _ in range(6):
        sizes.append(pace.size)
        pace.note(pace.size, 0.0001)
    assert sizes == [8, 16, 32, 64, 100, 100]


def test_a_long_slice_halves_the_next_one_down_to_a_single_tuple() -> None:
    pace = AdaptiveSliceSize(0.005, 100)
    sizes = []
    for _ in range(5):
        sizes.append(pace.size)
        pace.note(pace.size, 0.1)
    assert sizes == [8, 4, 2, 1, 1]


@pytest.mark.parametrize(("tuples", "seconds", "size"), [(2, 0.1, 1), (3, 0.0001, 8), (8, 0.004, 8)])
def test_a_long_slice_lowers_the_size_below_its_own_and_one_not_full_or_near_its_target_leaves_it_alone(
    tuples: int, seconds: float, size: int
) -> None:
    pace = AdaptiveSliceSize(0.005, 100)
    pace.note(tuples, seconds)
    assert pace.size == size


def test_a_size_of_one_grows_again() -> None:
    pace = AdaptiveSliceSize(0.005, 1)
    assert pace.size == 1
    pace = AdaptiveSliceSize(0.005, 100)
    for _ in range(5):
        pace.note(1, 1.0)
    pace.note(1, 0.001)
    assert pace.size == 2


@given(cost=st.floats(0.000_001, 0.1))
def test_the_size_settles_where_a_slice_lasts_no_longer_than_it_should(cost: float) -> None:
    pace = AdaptiveSliceSize(0.005, 512)
    for _ in range(30):
        pace.note(pace.size, pace.size * cost)
    longest = max(pace.size * cost for _ in range(4) if not pace.note(pace.size, pace.size * cost))
    assert longest <= max(0.01, cost)
    assert pace.size == 512 or pace.size * 4 * cost > 0.005 or pace.size == 1


def test_a_turn_fills_a_slice_by_its_tuples_or_by_its_time() -> None:
    pace = AdaptiveSliceSize(0.005, 100)
    parts = [pace.filled(*turn) for turn in ((25, 0.0), (1, 0.001), (100, 0.0), (1, 0.005), (300, 1.0))]
    assert parts == [0.25, 0.2, 1.0, 1.0, 1.0]
    assert AdaptiveSliceSize(0.0, 100).filled(1, 0.0) == 1.0, "without an interval each slice is one"
