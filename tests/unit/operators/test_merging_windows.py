"""MergingWindowSet: windows in flight, and where their contents are."""

from __future__ import annotations

import pytest

from topo.api.windows import TimeWindow
from topo.errors import FrameworkBug
from topo.operators.merging_windows import MergingWindowSet, restored_mapping

W = TimeWindow


class Merges:
    """Records the callbacks."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, result: W, members: list[W], state_window: W, merged_state_windows: list[W]) -> None:
        self.calls.append((result, members, state_window, merged_state_windows))


def test_a_window_that_meets_no_other_holds_its_own_contents() -> None:
    windows, merges = MergingWindowSet(), Merges()
    assert windows.add(W(0, 4), merges) == W(0, 4)
    assert windows.add(W(6, 9), merges) == W(6, 9)
    assert windows.state_window(W(0, 4)) == W(0, 4)
    assert windows.state_window(W(6, 9)) == W(6, 9)
    assert merges.calls == []
    windows.validate()


def test_a_grown_window_keeps_the_state_window_of_its_member() -> None:
    #  0   2   4   6
    #  |-------|       in flight
    #      |-------|   new
    windows, merges = MergingWindowSet({W(0, 4): W(0, 4)}), Merges()
    assert windows.add(W(2, 6), merges) == W(0, 6)
    assert windows.state_window(W(0, 6)) == W(0, 4)
    assert windows.state_window(W(0, 4)) is None
    assert merges.calls == [(W(0, 6), [W(0, 4)], W(0, 4), [])]


def test_windows_that_only_touch_merge() -> None:
    windows, merges = MergingWindowSet({W(0, 4): W(0, 4)}), Merges()
    assert windows.add(W(4, 8), merges) == W(0, 8)
    assert len(merges.calls) == 1


def test_a_new_window_that_is_swallowed_without_growth_calls_nothing_back() -> None:
    windows, merges = MergingWindowSet({W(0, 8): W(0, 4)}), Merges()
    assert windows.add(W(2, 6), merges) == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(0, 4)
    assert merges.calls == []
    assert not windows.is_changed


def test_a_new_window_that_covers_an_old_one_takes_over_its_state_window() -> None:
    windows, merges = MergingWindowSet({W(2, 6): W(2, 6)}), Merges()
    assert windows.add(W(0, 8), merges) == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(2, 6)
    assert merges.calls == [(W(0, 8), [W(2, 6)], W(2, 6), [])]


def test_a_bridge_merges_several_and_names_the_state_windows_to_be_merged() -> None:
    #  0   2   4   6   8  10
    #  |---|   .   |---|       in flight, each with its state window
    #      |-------|           new
    windows, merges = MergingWindowSet({W(6, 8): W(7, 8), W(0, 2): W(0, 1)}), Merges()
    assert windows.add(W(2, 6), merges) == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(0, 1)
    assert merges.calls == [(W(0, 8), [W(0, 2), W(6, 8)], W(0, 1), [W(7, 8)])]
    windows.validate()


def test_the_result_never_names_the_added_window_as_a_member() -> None:
    windows, merges = MergingWindowSet({W(0, 4): W(0, 4)}), Merges()
    windows.add(W(3, 9), merges)
    (_, members, _, _) = merges.calls[0]
    assert W(3, 9) not in members  # type: ignore[operator]


def test_a_window_equal_to_an_existing_merged_one_keeps_the_link_to_its_contents() -> None:
    windows, merges = MergingWindowSet({W(0, 8): W(0, 4)}), Merges()
    assert windows.add(W(0, 8), merges) == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(0, 4)
    assert merges.calls == []


def test_a_retired_window_is_forgotten_and_an_unknown_one_is_an_error() -> None:
    windows = MergingWindowSet({W(0, 4): W(0, 4)})
    windows.retire(W(0, 4))
    assert windows.state_window(W(0, 4)) is None
    with pytest.raises(FrameworkBug, match="not in flight"):
        windows.retire(W(0, 4))


def test_it_is_written_back_only_when_it_changed() -> None:
    windows = MergingWindowSet({W(0, 4): W(0, 4)})
    assert not windows.is_changed
    windows.add(W(10, 14), Merges())
    assert windows.is_changed
    windows.retire(W(10, 14))
    assert not windows.is_changed


def test_a_mapping_comes_back_from_plain_tuples() -> None:
    mapping = restored_mapping((((0, 8), (0, 4)),))
    assert mapping == {W(0, 8): W(0, 4)}
    assert all(isinstance(window, TimeWindow) for window in (*mapping, *mapping.values()))


def test_the_invariants_are_checked() -> None:
    with pytest.raises(AssertionError, match="touch"):
        MergingWindowSet({W(0, 4): W(0, 4), W(4, 5): W(4, 5)}).validate()
    with pytest.raises(AssertionError, match="shared"):
        MergingWindowSet({W(0, 4): W(0, 4), W(6, 9): W(0, 4)}).validate()
