from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from topo.ids import TaskId
from topo.task.flow_control import Arrival, EdgeStatus, InEdge, OutEdge


def out_edge(window: int = 2) -> OutEdge:
    return OutEdge(TaskId(2), window, local=False)


def offer(edge: OutEdge, count: int, now: float = 0.0) -> list[bool]:
    return [edge.offer(b"%d" % edge.next_number, now) for _ in range(count)]


def test_a_window_of_frames_leaves_at_once_and_the_rest_waits() -> None:
    edge = out_edge(window=2)
    assert offer(edge, 4) == [True, True, False, False]
    assert list(edge.waiting) == [b"2", b"3"]
    edge.validate()


def test_a_confirmation_releases_as_many_frames_as_it_confirms() -> None:
    edge = out_edge(window=2)
    offer(edge, 5)
    assert edge.confirm(0, 1.0) == [b"2"]
    assert edge.confirm(2, 2.0) == [b"3", b"4"]
    assert edge.confirm(4, 3.0) == []
    assert edge.is_confirmed
    edge.validate()


def test_a_frame_never_overtakes_one_that_waits() -> None:
    edge = out_edge(window=1)
    offer(edge, 3)
    assert edge.confirm(0, 1.0) == [b"1"]
    assert offer(edge, 1) == [False]
    assert edge.confirm(1, 1.0) == [b"2"]
    assert edge.confirm(2, 1.0) == [b"3"]


def test_an_old_or_repeated_confirmation_releases_nothing() -> None:
    edge = out_edge(window=1)
    offer(edge, 4)
    edge.confirm(0, 1.0)
    edge.confirm(1, 1.0)
    assert edge.confirm(1, 1.0) == edge.confirm(0, 1.0) == []
    edge.validate()


def test_a_confirmation_beyond_what_was_sent_counts_as_far_as_that() -> None:
    edge = out_edge(window=1)
    offer(edge, 3)
    assert edge.confirm(99, 1.0) == [b"1"]
    assert edge.confirmed == 0
    edge.validate()


def test_the_silence_of_a_receiver_begins_with_the_first_frame_that_it_has_not_confirmed() -> None:
    edge = out_edge(window=2)
    assert edge.unconfirmed_since is None
    offer(edge, 1, now=5.0)
    offer(edge, 3, now=6.0)
    assert edge.unconfirmed_since == 5.0
    edge.confirm(0, 7.0)
    assert edge.unconfirmed_since == 7.0
    edge.confirm(1, 8.0)
    edge.confirm(3, 9.0)
    assert edge.unconfirmed_since is None


def test_a_keep_alive_confirms_nothing_new_and_still_ends_the_silence() -> None:
    edge = out_edge(window=2)
    offer(edge, 3, now=5.0)
    edge.confirm(0, 6.0)
    assert edge.confirm(0, 20.0) == []
    assert edge.unconfirmed_since == 20.0


def test_a_late_confirmation_of_all_there_is_starts_no_silence() -> None:
    edge = out_edge()
    offer(edge, 1, now=5.0)
    edge.confirm(0, 6.0)
    edge.confirm(0, 7.0)
    assert edge.unconfirmed_since is None


def test_frames_are_accepted_in_the_order_of_their_numbers() -> None:
    edge = InEdge(TaskId(1))
    assert [edge.accept(number) for number in (0, 1, 1, 0, 2)] == [
        Arrival.NEXT,
        Arrival.NEXT,
        Arrival.DUPLICATE,
        Arrival.DUPLICATE,
        Arrival.NEXT,
    ]


def test_after_a_gap_nothing_more_is_accepted() -> None:
    edge = InEdge(TaskId(1))
    edge.accept(0)
    assert edge.accept(2) is Arrival.GAP
    assert edge.status is EdgeStatus.DEAD
    assert [edge.accept(1), edge.accept(0), edge.accept(3)] == [Arrival.DEAD] * 3
    edge.validate()


@given(window=st.integers(1, 5), moves=st.lists(st.integers(-1, 8), max_size=60))
def test_whatever_is_offered_and_confirmed_frames_leave_in_order_within_the_window(window: int, moves: list[int]) -> None:
    edge, left, confirmed = out_edge(window), [], -1
    for move in moves:
        if move < 0:
            frame = b"%d" % edge.next_number
            if edge.offer(frame, 0.0):
                left.append(frame)
        else:
            confirmed = max(confirmed, min(move, len(left) - 1))
            left += edge.confirm(move, 0.0)
        edge.validate()
        assert left == [b"%d" % number for number in range(len(left))]
        assert len(left) - 1 - confirmed <= window
        assert len(left) == edge.next_number or len(left) - 1 - confirmed == window, "a frame waits although there is room"
