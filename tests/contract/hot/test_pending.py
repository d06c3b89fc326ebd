from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import Pending


@pytest.fixture
def pending(hot: ModuleType) -> Iterator[Pending[str]]:
    pending = hot.Pending(30.0, now=0.0)
    yield pending
    pending.validate()


def let_pass(pending: Pending[str], until: float) -> list[str]:
    """Call `expire` at every deadline up to a moment, as an owner does; return what timed out."""
    expired: list[str] = []
    while pending.next_deadline is not None and pending.next_deadline <= until:
        expired += pending.expire(pending.next_deadline).values()
    return expired


def test_a_verdict_takes_its_messages_in_the_order_of_its_roots(pending: Pending[str]) -> None:
    pending.add([1, 2, 3], ["a", "b", "c"])
    assert pending.take([3, 1]) == ["c", "a"]
    assert len(pending) == 1
    assert list(pending.items()) == [(2, "b")]


def test_an_ack_after_the_timeout_finds_no_entry_and_is_counted_as_late(pending: Pending[str]) -> None:
    pending.add([1, 2], ["a", "b"])
    assert let_pass(pending, 33.0) == ["a", "b"]
    pending.expire(34.0)
    pending.add([3], ["c"])
    assert pending.take([1, 3]) == ["c"]
    assert pending.late_acks == 1


def test_an_answer_for_a_root_of_an_earlier_life_is_ignored(pending: Pending[str]) -> None:
    assert pending.take([0xDEAD]) == []
    assert pending.late_acks == 1


def test_a_root_named_twice_in_a_verdict_is_taken_once(pending: Pending[str]) -> None:
    pending.add([1], ["a"])
    assert pending.take([1, 1]) == ["a"]
    assert pending.late_acks == 1
    assert len(pending) == 0


def test_records_may_be_none(hot: ModuleType) -> None:
    pending = hot.Pending(30.0, now=0.0)
    pending.add([1], [None])
    assert pending.take([1]) == [None]
    assert pending.late_acks == 0


def test_a_root_that_is_pending_already_is_to_be_drawn_again(pending: Pending[str]) -> None:
    pending.add([1, 2], ["a", "b"])
    pending.expire(9.0)
    assert pending.collides([5, 2])
    assert pending.collides([5, 6, 5])
    assert not pending.collides([5, 6])
    pending.take([2])
    assert not pending.collides([5, 2])


@given(added_at=st.floats(0.0, 100.0), timeout_s=st.sampled_from([1.0, 7.0, 30.0]))
def test_a_message_times_out_between_t_and_a_tenth_more(hot: ModuleType, added_at: float, timeout_s: float) -> None:
    pending = hot.Pending(timeout_s, now=0.0)
    pending.expire(added_at)
    pending.add([1], ["a"])
    expired: list[str] = []
    now = added_at
    while not expired:
        assert pending.next_deadline is not None
        now = pending.next_deadline
        expired += pending.expire(now).values()
    assert timeout_s - 1e-9 <= now - added_at <= 1.1 * timeout_s + 1e-9


def test_the_time_in_which_the_owner_stood_still_does_not_age_its_messages(pending: Pending[str]) -> None:
    pending.add([1], ["a"])
    assert pending.expire(3600.0) == {}, "its verdict may be about to come in"
    assert let_pass(pending, 3626.0) == []
    assert let_pass(pending, 3630.0) == ["a"]


def test_messages_time_out_in_order_of_emission(pending: Pending[str]) -> None:
    pending.add([9, 4], ["a", "b"])
    pending.expire(3.0)
    pending.add([7], ["c"])
    assert let_pass(pending, 36.0) == ["a", "b", "c"]


def test_a_reset_gives_a_message_its_whole_timeout_again(pending: Pending[str]) -> None:
    pending.add([1, 2], ["a", "b"])
    let_pass(pending, 29.0)
    assert pending.touch(1)
    assert let_pass(pending, 33.0) == ["b"]
    assert let_pass(pending, 59.0) == []
    assert let_pass(pending, 60.0) == ["a"]


def test_a_message_can_be_touched_for_as_long_as_it_takes(pending: Pending[str]) -> None:
    pending.add([1], ["a"])
    for tenth in range(1, 100):
        pending.touch(1)
        assert pending.expire(3.0 * tenth) == {}
        pending.validate()
    assert pending.take([1]) == ["a"]


def test_a_touched_message_keeps_its_place_in_the_order(pending: Pending[str]) -> None:
    pending.add([1, 2, 3], ["a", "b", "c"])
    pending.expire(3.0)
    pending.add([4], ["d"])
    let_pass(pending, 27.0)
    pending.touch(2)
    pending.touch(1)
    assert [record for _, record in pending.items()] == ["a", "b", "c", "d"]
    assert let_pass(pending, 33.0) == ["c"]
    pending.add([5], ["e"])
    assert list(pending.drain().values()) == ["a", "b", "d", "e"]


def test_a_touch_of_an_unknown_root_is_late(pending: Pending[str]) -> None:
    assert not pending.touch(1)
    assert pending.late_acks == 1


def test_draining_hands_back_everything_in_order_of_emission(pending: Pending[str]) -> None:
    pending.add([9, 4], ["a", "b"])
    pending.expire(3.0)
    pending.add([1], ["c"])
    pending.take([4])
    pending.touch(9)
    assert list(pending.drain().values()) == ["a", "c"]
    assert len(pending) == 0
    assert pending.expire(400.0) == {}


def test_without_a_timeout_nothing_expires(hot: ModuleType) -> None:
    pending = hot.Pending(None, now=0.0)
    pending.add([1], ["a"])
    assert pending.next_deadline is None
    assert pending.expire(1e9) == {}
    assert pending.take([1]) == ["a"]


def test_roots_and_records_of_unequal_length_are_refused(pending: Pending[str]) -> None:
    with pytest.raises(ValueError):
        pending.add([1, 2], ["a"])
