from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topo.tracking.positions import PositionTracker


def start(*positions: object, committed: object = None) -> tuple[PositionTracker[object], dict[object, None]]:
    """Return a tracker of a source that has emitted positions, and the table of the open ones."""
    still_open: dict[object, None] = dict.fromkeys(positions)
    tracker = PositionTracker[object](still_open, committed)
    tracker.emitted(positions)
    return tracker, still_open


def done(tracker: PositionTracker[object], still_open: dict[object, None], *positions: object) -> object:
    for position in positions:
        still_open.pop(position, None)
    tracker.advance()
    tracker.validate()
    return tracker.committed


def test_nothing_is_committed_at_first() -> None:
    tracker, _ = start(1)
    tracker.advance()
    assert tracker.committed is None


def test_the_commit_stops_before_the_first_open_position() -> None:
    tracker, still_open = start(1, 2, 3, 4)
    assert done(tracker, still_open, 4, 1, 3) == 1
    assert len(tracker) == 3
    assert done(tracker, still_open, 2) == 4
    assert len(tracker) == 0


def test_the_commit_waits_for_a_position_emitted_again_while_uncommitted() -> None:
    tracker, still_open = start(1, 2, 3)
    assert done(tracker, still_open, 2) is None
    still_open[2] = None
    tracker.emitted([2])
    assert done(tracker, still_open, 1) == 1
    assert done(tracker, still_open, 2) == 2
    assert done(tracker, still_open, 3) == 2


def test_the_commit_follows_the_order_of_emission() -> None:
    tracker, still_open = start(1, 3, 2)
    assert done(tracker, still_open, 2, 1) == 1
    assert done(tracker, still_open, 3) == 2


def test_positions_may_be_tuples_or_text() -> None:
    tracker, still_open = start(("part-0", 1), "z")
    assert done(tracker, still_open, ("part-0", 1)) == ("part-0", 1)


@given(st.permutations(range(30)), st.integers(1, 7))
def test_the_commit_is_the_end_of_the_done_prefix_whatever_the_order_of_acks(acks: list[int], batch: int) -> None:
    tracker, still_open = start(*range(30), committed=-1)
    for at in range(0, 30, batch):
        done(tracker, still_open, *acks[at : at + batch])
        assert tracker.committed == next(position for position in range(31) if position in still_open or position == 30) - 1
