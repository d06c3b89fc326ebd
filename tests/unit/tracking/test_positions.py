from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topo.tracking.positions import PositionTracker


def test_nothing_is_committed_at_first() -> None:
    assert PositionTracker[int]().committed is None


def test_a_tracker_starts_from_the_stored_position() -> None:
    tracker = PositionTracker(committed=41)
    tracker.emitted([42, 43])
    tracker.done([43])
    assert tracker.committed == 41
    tracker.done([42])
    assert tracker.committed == 43


def test_the_commit_stops_before_the_first_open_position() -> None:
    tracker = PositionTracker[int]()
    tracker.emitted([1, 2, 3, 4])
    tracker.done([4, 1, 3])
    assert tracker.committed == 1
    assert tracker.open_positions() == [2]
    assert len(tracker) == 3
    tracker.done([2])
    assert tracker.committed == 4
    assert len(tracker) == 0
    tracker.validate()


def test_a_position_emitted_again_while_open_keeps_its_place() -> None:
    tracker = PositionTracker[int]()
    tracker.emitted([1, 2])
    tracker.emitted([1, 3])
    tracker.done([2, 3])
    assert tracker.committed is None
    tracker.done([1])
    assert tracker.committed == 3


def test_a_position_emitted_again_while_done_and_uncommitted_stays_done() -> None:
    tracker = PositionTracker[int]()
    tracker.emitted([1, 2])
    tracker.done([2])
    tracker.emitted([2])
    tracker.done([1])
    assert tracker.committed == 2
    assert tracker.open_positions() == []


def test_done_positions_that_are_unknown_are_ignored() -> None:
    tracker = PositionTracker[int]()
    tracker.emitted([1])
    tracker.done([5, 1])
    tracker.done([1])
    tracker.emitted([5])
    assert tracker.committed == 1
    assert tracker.open_positions() == [5]


def test_the_commit_follows_the_order_of_emission() -> None:
    tracker = PositionTracker[int]()
    tracker.emitted([1, 3, 2])
    tracker.done([2, 1])
    assert tracker.committed == 1
    tracker.done([3])
    assert tracker.committed == 2


def test_positions_may_be_tuples_or_text() -> None:
    tracker = PositionTracker[tuple[str, int] | str]()
    tracker.emitted([("part-0", 1), "z"])
    tracker.done([("part-0", 1)])
    assert tracker.committed == ("part-0", 1)


@given(st.permutations(range(30)), st.integers(1, 7))
def test_the_commit_is_the_end_of_the_done_prefix_whatever_the_order_of_acks(acks: list[int], batch: int) -> None:
    tracker = PositionTracker(committed=-1)
    tracker.emitted(range(30))
    done: set[int] = set()
    for start in range(0, 30, batch):
        tracker.done(acks[start : start + batch])
        done.update(acks[start : start + batch])
        assert tracker.committed == next(position for position in range(31) if position not in done) - 1
        assert tracker.open_positions() == [position for position in range(30) if position not in done]
        tracker.validate()
