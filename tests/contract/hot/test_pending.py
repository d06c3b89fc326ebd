from __future__ import annotations

import random
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import Pending, pack_words


@pytest.fixture
def pending(hot: ModuleType) -> Iterator[Pending[str]]:
    pending = hot.Pending(30.0, now=0.0)
    yield pending
    pending.validate()


def add(pending: Pending[Any], roots: list[int], records: Sequence[str | None], now: float = 0.0) -> bool:
    return pending.add(pack_words(roots), list(records), now)


def complete(pending: Pending[Any], *roots: int) -> list[Any]:
    return pending.complete(pack_words(roots))[0]


def let_pass(pending: Pending[str], until: float) -> list[str]:
    """Call `expire` at every deadline up to a moment, as an owner does; return what timed out."""
    expired: list[str] = []
    while pending.next_deadline is not None and pending.next_deadline <= until:
        expired += pending.expire(pending.next_deadline).values()
    return expired


def test_a_verdict_takes_its_messages_in_the_order_of_its_roots(pending: Pending[str]) -> None:
    add(pending, [1, 2, 3], ["a", "b", "c"])
    assert complete(pending, 3, 1) == ["c", "a"]
    assert len(pending) == 1
    assert list(pending.items()) == [(2, "b")]


def test_a_verdict_tells_when_its_messages_were_added(pending: Pending[str]) -> None:
    add(pending, [1, 2, 3], "abc", now=0.25)
    add(pending, [4, 5], "de", now=0.5)
    add(pending, [6], "f", now=0.75)
    add(pending, [7, 8], "gh", now=0.75)
    records, moments = pending.complete(pack_words([8, 5, 1, 9, 6, 3]))
    assert records == ["h", "e", "a", "f", "c"] and moments == [(0.25, 2), (0.5, 1), (0.75, 2)]
    assert pending.complete(pack_words([2])) == (["b"], [(0.25, 1)])
    assert pending.complete(b"") == ([], [])


def test_an_ack_after_the_timeout_finds_no_entry_and_is_counted_as_late(pending: Pending[str]) -> None:
    add(pending, [1, 2], ["a", "b"])
    assert let_pass(pending, 33.0) == ["a", "b"]
    pending.expire(34.0)
    add(pending, [3], ["c"])
    assert complete(pending, 1, 3) == ["c"]
    assert pending.late_acks == 1


def test_an_answer_for_a_root_of_an_earlier_life_is_ignored(pending: Pending[str]) -> None:
    assert complete(pending, 0xDEAD) == []
    assert pending.late_acks == 1


def test_a_root_named_twice_in_a_verdict_is_taken_once(pending: Pending[str]) -> None:
    add(pending, [1], ["a"])
    assert complete(pending, 1, 1) == ["a"]
    assert pending.late_acks == 1
    assert len(pending) == 0


def test_records_may_be_none(hot: ModuleType) -> None:
    pending = hot.Pending(30.0, now=0.0)
    add(pending, [1], [None])
    assert complete(pending, 1) == [None]
    assert pending.late_acks == 0


def test_a_root_that_is_pending_already_is_to_be_drawn_again(pending: Pending[str]) -> None:
    add(pending, [1, 2], ["a", "b"])
    pending.expire(9.0)
    assert not add(pending, [5, 2], ["c", "d"])
    assert not add(pending, [5, 6, 5], ["c", "d", "e"])
    assert list(pending.items()) == [(1, "a"), (2, "b")]
    complete(pending, 2)
    assert add(pending, [5, 2], ["c", "d"])
    assert list(pending.items()) == [(1, "a"), (5, "c"), (2, "d")]


@given(added_at=st.floats(0.0, 100.0), timeout_s=st.sampled_from([1.0, 7.0, 30.0]))
def test_a_message_times_out_between_t_and_a_tenth_more(hot: ModuleType, added_at: float, timeout_s: float) -> None:
    pending = hot.Pending(timeout_s, now=0.0)
    pending.expire(added_at)
    add(pending, [1], ["a"])
    expired: list[str] = []
    now = added_at
    while not expired:
        assert pending.next_deadline is not None
        now = pending.next_deadline
        expired += pending.expire(now).values()
    assert timeout_s - 1e-9 <= now - added_at <= 1.1 * timeout_s + 1e-9


def test_the_time_in_which_the_owner_stood_still_does_not_age_its_messages(pending: Pending[str]) -> None:
    add(pending, [1], ["a"])
    assert pending.expire(3600.0) == {}, "its verdict may be about to come in"
    assert let_pass(pending, 3626.0) == []
    assert let_pass(pending, 3630.0) == ["a"]


def test_messages_time_out_in_order_of_emission(pending: Pending[str]) -> None:
    add(pending, [9, 4], ["a", "b"])
    pending.expire(3.0)
    add(pending, [7], ["c"])
    assert let_pass(pending, 36.0) == ["a", "b", "c"]


def test_a_reset_gives_a_message_its_whole_timeout_again(pending: Pending[str]) -> None:
    add(pending, [1, 2], ["a", "b"])
    let_pass(pending, 29.0)
    assert pending.touch(1)
    assert let_pass(pending, 33.0) == ["b"]
    assert let_pass(pending, 59.0) == []
    assert let_pass(pending, 60.0) == ["a"]


def test_a_message_can_be_touched_for_as_long_as_it_takes(pending: Pending[str]) -> None:
    add(pending, [1], ["a"])
    for tenth in range(1, 100):
        pending.touch(1)
        assert pending.expire(3.0 * tenth) == {}
        pending.validate()
    assert complete(pending, 1) == ["a"]


def test_a_touched_message_keeps_its_place_in_the_order(pending: Pending[str]) -> None:
    add(pending, [1, 2, 3], ["a", "b", "c"])
    pending.expire(3.0)
    add(pending, [4], ["d"])
    let_pass(pending, 27.0)
    pending.touch(2)
    pending.touch(1)
    assert [record for _, record in pending.items()] == ["a", "b", "c", "d"]
    assert let_pass(pending, 33.0) == ["c"]
    add(pending, [5], ["e"])
    assert list(pending.drain().values()) == ["a", "b", "d", "e"]


def test_a_touch_of_an_unknown_root_is_late(pending: Pending[str]) -> None:
    assert not pending.touch(1)
    assert pending.late_acks == 1


def test_draining_hands_back_everything_in_order_of_emission(pending: Pending[str]) -> None:
    add(pending, [9, 4], ["a", "b"])
    pending.expire(3.0)
    add(pending, [1], ["c"])
    complete(pending, 4)
    pending.touch(9)
    assert list(pending.drain().values()) == ["a", "c"]
    assert len(pending) == 0
    assert pending.expire(400.0) == {}


def test_without_a_timeout_nothing_expires(hot: ModuleType) -> None:
    pending = hot.Pending(None, now=0.0)
    add(pending, [1], ["a"])
    assert pending.next_deadline is None
    assert pending.expire(1e9) == {}
    assert complete(pending, 1) == ["a"]


def test_roots_and_records_of_unequal_length_are_refused(pending: Pending[str]) -> None:
    with pytest.raises(ValueError):
        add(pending, [1, 2], ["a"])


class Step(NamedTuple):
    call: str
    roots: list[int]


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["add", "complete", "touch", "keep", "find", "expire", "drain"]),
        st.lists(st.integers(1, 40), max_size=12, unique=True),
    ),
    max_size=60,
)


@given(steps)
def test_it_does_what_a_dict_with_ages_does(hot: ModuleType, steps: list[Step]) -> None:
    """A naive model: a message expires in the rotation in which it has lived, and not been touched, for three."""
    pending, rotations = hot.Pending(2.0, 0.0, buckets=3), 0
    model: dict[int, tuple[str, float]] = {}
    since: dict[int, int] = {}
    for number, (call, roots) in enumerate(steps):
        known = [root for root in roots if root in model]
        if call == "add":
            records = [f"{number}.{root}" for root in roots]
            assert pending.add(pack_words(roots), records, float(number)) == (not known)
            if not known:
                model.update(zip(roots, ((record, float(number)) for record in records), strict=True))
                since.update(dict.fromkeys(roots, rotations))
        elif call == "complete":
            late = pending.late_acks
            records, moments = pending.complete(pack_words(roots))
            taken = [model.pop(root) for root in known]
            assert records == [record for record, _ in taken] and moments == sorted(
                Counter(moment for _, moment in taken).items()
            )
            assert pending.late_acks - late == len(roots) - len(known)
        elif call == "touch":
            assert [pending.touch(root) for root in roots] == [root in model for root in roots]
            since.update(dict.fromkeys(known, rotations))
        elif call == "keep":
            pending.keep(roots)
            since.update(dict.fromkeys(known, rotations))
        elif call == "find":
            assert pending.find(roots) == [model[root][0] for root in known]
        elif call == "expire":
            rotations += 1
            dead = [root for root in model if since[root] <= rotations - 3]
            assert pending.expire(float(rotations)) == {root: model.pop(root)[0] for root in dead}
        else:
            assert list(pending.drain().items()) == [(root, record) for root, (record, _) in model.items()]
            model.clear()
        pending.validate()
        assert list(pending.items()) == [(root, record) for root, (record, _) in model.items()]
        assert len(pending) == len(model) and all((root in pending) == (root in model) for root in roots)


def test_records_live_as_long_as_their_messages(hot: ModuleType) -> None:
    class Record: ...

    pending = hot.Pending(30.0, now=0.0)
    records = [Record() for _ in range(1000)]
    alive = [weakref.ref(record) for record in records]
    assert pending.add(pack_words(range(1, 1001)), records, 0.0)
    assert not pending.add(pack_words([2000, 1]), records[:2], 0.0)
    with pytest.raises(ValueError):
        pending.add(pack_words([2000, 2001]), records[:1], 0.0)
    del records
    assert all(record() is not None for record in alive)
    pending.complete(pack_words(range(500, 0, -1)))
    assert [record() is None for record in alive] == [True] * 500 + [False] * 500
    del pending
    assert all(record() is None for record in alive)


def test_many_messages_of_many_moments(hot: ModuleType) -> None:
    pending, roots = hot.Pending(30.0, now=0.0), list(range(1, 3001))
    for at in range(0, 3000, 3):
        assert add(pending, roots[at : at + 3], "abc", now=float(at))
        if at >= 300:
            assert complete(pending, *roots[at - 300 : at - 297]) == ["a", "b", "c"]
        pending.validate()
    random.Random(1).shuffle(roots)
    _, moments = pending.complete(pack_words(roots))
    assert dict(moments) == {float(at): 3 for at in range(2700, 3000, 3)} and pending.late_acks == 2700
