"""MergingWindowSet: windows in flight, and where their contents are."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.api.windows import TimeWindow, merge_time_windows
from topo.errors import TopoInternalError
from topo.operators.state.keyed_state import KeyContext, KeyedState
from topo.operators.windows.merging import Merge, MergingWindowSet, restored_pairs

W = TimeWindow


def in_flight(mapping: dict[W, W] | None = None, merge: Merge | None = None) -> MergingWindowSet:
    """Return the set of one key with these windows in flight and their state windows."""
    state = KeyedState(KeyContext(), lambda: 0).sorted("windows")
    state.splice(0, 0, sorted((mapping or {}).items()))
    return MergingWindowSet(state, merge)


class Merges:
    """Records the callbacks."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, result: W, members: list[W], state_window: W, merged_state_windows: list[W]) -> None:
        self.calls.append((result, members, state_window, merged_state_windows))


def test_a_window_that_meets_no_other_holds_its_own_contents() -> None:
    windows, merges = in_flight(), Merges()
    assert windows.add(W(0, 4), merges)[0] == W(0, 4)
    assert windows.add(W(6, 9), merges)[0] == W(6, 9)
    assert windows.state_window(W(0, 4)) == W(0, 4)
    assert windows.state_window(W(6, 9)) == W(6, 9)
    assert merges.calls == []
    windows.validate()


def test_a_grown_window_keeps_the_state_window_of_its_member() -> None:
    #  0   2   4   6
    #  |-------|       in flight
    #      |-------|   new
    windows, merges = in_flight({W(0, 4): W(0, 4)}), Merges()
    assert windows.add(W(2, 6), merges)[0] == W(0, 6)
    assert windows.state_window(W(0, 6)) == W(0, 4)
    assert windows.state_window(W(0, 4)) is None
    assert merges.calls == [(W(0, 6), [W(0, 4)], W(0, 4), [])]


def test_windows_that_only_touch_merge() -> None:
    windows, merges = in_flight({W(0, 4): W(0, 4)}), Merges()
    assert windows.add(W(4, 8), merges)[0] == W(0, 8)
    assert len(merges.calls) == 1


def test_a_new_window_that_is_swallowed_without_growth_calls_nothing_back() -> None:
    windows, merges = in_flight({W(0, 8): W(0, 4)}), Merges()
    assert windows.add(W(2, 6), merges)[0] == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(0, 4)
    assert merges.calls == []
    assert list(windows.in_flight) == [(W(0, 8), W(0, 4))]


def test_a_new_window_that_covers_an_old_one_takes_over_its_state_window() -> None:
    windows, merges = in_flight({W(2, 6): W(2, 6)}), Merges()
    assert windows.add(W(0, 8), merges)[0] == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(2, 6)
    assert merges.calls == [(W(0, 8), [W(2, 6)], W(2, 6), [])]


def test_a_bridge_merges_several_and_names_the_state_windows_to_be_merged() -> None:
    #  0   2   4   6   8  10
    #  |---|   .   |---|       in flight, each with its state window
    #      |-------|           new
    windows, merges = in_flight({W(6, 8): W(7, 8), W(0, 2): W(0, 1)}), Merges()
    assert windows.add(W(2, 6), merges)[0] == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(0, 1)
    assert merges.calls == [(W(0, 8), [W(0, 2), W(6, 8)], W(0, 1), [W(7, 8)])]
    windows.validate()


def test_a_window_equal_to_an_existing_merged_one_keeps_the_link_to_its_contents() -> None:
    windows, merges = in_flight({W(0, 8): W(0, 4)}), Merges()
    assert windows.add(W(0, 8), merges)[0] == W(0, 8)
    assert windows.state_window(W(0, 8)) == W(0, 4)
    assert merges.calls == []


def earliest_with_two_more(given: Sequence[W]) -> list[tuple[W, list[W]]]:
    """Merges the earliest window with those that begin within it, but only when they are two at least."""
    first = min(given)
    within = [window for window in given if first.start < window.start < first.end]
    return [(W(first.start, first.end + 1), [*within, first])] if len(within) > 1 else []


def test_an_assigners_own_merge_decides_and_windows_that_overlap_may_stay() -> None:
    windows, merges = in_flight(merge=earliest_with_two_more), Merges()
    for added in (W(0, 3), W(1, 4), W(10, 12)):
        assert windows.add(added, merges) == (added, added)
        assert windows.state_window(added) == added
    assert merges.calls == []
    windows.validate()
    assert windows.add(W(2, 5), merges)[0] == W(0, 4)
    assert merges.calls == [(W(0, 4), [W(1, 4), W(0, 3)], W(1, 4), [W(0, 3)])]
    assert dict(windows.in_flight) == {W(0, 4): W(1, 4), W(10, 12): W(10, 12)}


def test_a_merge_that_leaves_the_new_window_out_leaves_it_to_itself() -> None:
    windows = in_flight({W(0, 2): W(0, 2), W(2, 4): W(2, 4)}, lambda given: [(W(0, 4), [W(0, 2), W(2, 4)])])
    merges = Merges()
    assert windows.add(W(9, 12), merges)[0] == W(9, 12)
    assert dict(windows.in_flight) == {W(0, 4): W(0, 2), W(9, 12): W(9, 12)}
    assert merges.calls == [(W(0, 4), [W(0, 2), W(2, 4)], W(0, 2), [W(2, 4)])]


@pytest.mark.parametrize("turn", [1, -1])
def test_all_merges_are_made_wherever_that_of_the_new_window_is_among_them(turn: int) -> None:
    old, new = (W(0, 4), [W(0, 2), W(2, 4)]), (W(9, 14), [W(9, 12), W(11, 14)])
    windows = in_flight({window: window for window in (W(0, 2), W(2, 4), W(9, 12))}, lambda given: [old, new][::turn])
    merges = Merges()
    assert windows.add(W(11, 14), merges)[0] == W(9, 14)
    assert dict(windows.in_flight) == {W(0, 4): W(0, 2), W(9, 14): W(9, 12)}
    assert sorted(call[0] for call in merges.calls) == [W(0, 4), W(9, 14)]  # type: ignore[type-var]


def test_a_merge_may_give_the_new_window_alone_another_shape() -> None:
    windows, merges = in_flight(merge=lambda given: [(W(0, 9), [given[-1]])]), Merges()
    assert windows.add(W(2, 4), merges)[0] == W(0, 9)
    assert dict(windows.in_flight) == {W(0, 9): W(0, 9)}
    # The result is in flight and not named among what becomes it: its contents are kept all the same.
    assert windows.add(W(3, 4), merges)[0] == W(0, 9)
    assert dict(windows.in_flight) == {W(0, 9): W(0, 9)}
    assert merges.calls == []


def test_a_window_that_is_in_flight_already_is_a_member_when_it_is_merged() -> None:
    windows = in_flight({W(0, 2): W(1, 2), W(4, 6): W(4, 6)}, lambda given: [(W(0, 6), list(dict.fromkeys(given)))])
    merges = Merges()
    assert windows.add(W(0, 2), merges)[0] == W(0, 6)
    assert dict(windows.in_flight) == {W(0, 6): W(1, 2)}
    assert merges.calls == [(W(0, 6), [W(0, 2), W(4, 6)], W(1, 2), [W(4, 6)])]


def test_a_retired_window_is_forgotten_and_an_unknown_one_is_an_error() -> None:
    windows = in_flight({W(0, 4): W(0, 4)})
    windows.retire(W(0, 4))
    assert windows.state_window(W(0, 4)) is None
    with pytest.raises(TopoInternalError, match="not in flight"):
        windows.retire(W(0, 4))


def test_a_merge_whose_callback_raises_does_not_happen() -> None:
    def refuse(*_: object) -> None:
        raise ValueError

    for merge in (None, merge_time_windows):
        windows = in_flight({W(0, 4): W(0, 1), W(6, 8): W(6, 8)}, merge)
        with pytest.raises(ValueError):
            windows.add(W(3, 7), refuse)
        assert dict(windows.in_flight) == {W(0, 4): W(0, 1), W(6, 8): W(6, 8)}


def test_pairs_come_back_from_plain_sequences_in_order() -> None:
    pairs = restored_pairs([[[6, 9], [7, 8]], ((0, 4), (0, 2))])
    assert pairs == [(W(0, 4), W(0, 2)), (W(6, 9), W(7, 8))]
    assert all(isinstance(window, TimeWindow) for pair in pairs for window in pair)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=40))
def test_the_search_by_start_merges_what_the_rule_over_all_windows_merges(spans: list[tuple[int, int]]) -> None:
    fast, whole = in_flight(), in_flight(merge=merge_time_windows)
    found, expected = Merges(), Merges()
    for start, length in spans:
        added = W(start, start + length)
        assert fast.add(added, found) == whole.add(added, expected)
        assert list(fast.in_flight) == list(whole.in_flight)
        fast.validate()
    assert found.calls == expected.calls


def test_the_invariants_are_checked() -> None:
    with pytest.raises(AssertionError, match="touch"):
        in_flight({W(0, 4): W(0, 4), W(4, 5): W(4, 5)}).validate()
    with pytest.raises(AssertionError, match="shared"):
        in_flight({W(0, 4): W(0, 4), W(6, 9): W(0, 4)}).validate()
