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


def test_a_confirmation_beyond_the_last_frame_counts_up_to_that() -> None:
    edge = out_edge(window=1)
    offer(edge, 3)
    assert edge.confirm(99, 1.0) == [b"1"]
    assert edge.confirmed == 0
    edge.validate()


def test_the_silence_of_a_receiver_begins_with_its_first_unconfirmed_frame() -> None:
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


def test_an_allowance_lets_a_frame_go_while_fewer_tuples_are_out() -> None:
    edge = out_edge(window=16)
    edge.offer(b"0", 0.0)
    edge.confirm(0, 0.0, allowance=4)
    assert [edge.offer(b"1", 0.0, 3), edge.offer(b"2", 0.0, 3), edge.offer(b"3", 0.0, 3)] == [True, True, False]
    assert (edge.held, edge.out, edge.spare) == (9, 6, -1)
    assert edge.confirm(1, 1.0, allowance=4) == [b"3"]
    assert edge.confirm(2, 2.0, allowance=1) == []
    assert (edge.held, edge.out) == (3, 3)
    edge.validate()


def test_one_frame_may_go_whatever_is_granted() -> None:
    edge = out_edge(window=16)
    edge.allowance = 1
    assert edge.offer(b"0", 0.0, 1000)
    edge.validate()


def test_a_keep_alive_with_a_larger_allowance_releases_frames() -> None:
    edge = out_edge(window=16)
    edge.confirm(-1, 0.0, allowance=1)
    assert [edge.offer(b"%d" % number, 0.0, 1) for number in range(3)] == [True, False, False]
    assert edge.confirm(-1, 1.0, allowance=8) == [b"1", b"2"]
    edge.validate()


def test_a_frame_is_a_quarter_of_the_allowance_and_at_least_a_tuple() -> None:
    edge = out_edge()
    sizes = []
    for allowance in (0, 1, 3, 8, 1000, 1 << 20):
        edge.allowance = allowance
        sizes.append(edge.piece(1024))
    assert sizes == [1024, 1, 1, 2, 250, 1024]


def test_an_edge_lists_the_roots_of_rows_that_wait_for_long() -> None:
    edge = out_edge(window=2)
    for number in range(4):
        edge.offer(b"", float(number), 1, b"root%d" % number)
    edge.confirm(0, 9.0)
    assert edge.roots_since(2.5) == [b"root1", b"root2"]


@given(
    window=st.integers(1, 5),
    moves=st.lists(st.one_of(st.integers(0, 9), st.tuples(st.integers(0, 8), st.integers(0, 12))), max_size=60),
)
def test_whatever_is_granted_frames_leave_in_order_and_never_wait_for_nothing(
    window: int, moves: list[int | tuple[int, int]]
) -> None:
    edge, left = out_edge(window), []
    for move in moves:
        if isinstance(move, int):
            frame = b"%d" % edge.next_number
            if edge.offer(frame, 0.0, move):
                left.append(frame)
        else:
            left += edge.confirm(move[0], 0.0, move[1])
        edge.validate()
        assert left == [b"%d" % number for number in range(len(left))]
        assert not edge.waiting or left, "with nothing out, the first frame may always leave"
    while edge.waiting:
        left += edge.confirm(len(left) - 1, 0.0, 1)
    assert len(left) == edge.next_number
