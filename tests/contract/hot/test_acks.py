"""The values owed for each root, against a dict."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import pack_words, unpack_words

roots = st.one_of(st.integers(1, 4), st.integers(1, 2**64 - 1))
values = st.integers(0, 2**64 - 1)
columns = st.lists(st.tuples(roots, values), max_size=20)
calls = st.lists(st.tuples(st.sampled_from(["fold", "add", "merge", "take", "clear"]), columns, values), max_size=8)


def packed(pairs: Sequence[tuple[int, int]]) -> tuple[bytes, bytes]:
    return pack_words([root for root, _ in pairs]), pack_words([value for _, value in pairs])


def taken(columns: tuple[bytes, bytes]) -> list[tuple[int, int]]:
    roots, values = map(unpack_words, columns)
    return list(zip(roots, values, strict=True))


@given(calls=calls)
def test_each_root_owes_the_xor_of_its_values_in_the_order_of_arrival(hot: ModuleType, calls: list) -> None:
    acks, model = hot.Acks(), dict[int, int]()
    for call, pairs, out in calls:
        if call == "take":
            assert taken(acks.take()) == list(model.items())
            model = {}
        elif call == "clear":
            acks.clear()
            model = {}
        else:
            if call == "fold":
                acks.fold(*packed(pairs))
                out = 0
            elif call == "add":
                acks.add([root for root, _ in pairs], [value for _, value in pairs], out)
            else:
                other = hot.Acks()
                other.fold(*packed(pairs))
                acks.merge(other)
                out = 0
                assert len(other) == 0 and taken(other.take()) == []
            for root, value in pairs:
                model[root] = model.get(root, 0) ^ value ^ out
        assert len(acks) == len(model) and bool(acks) == bool(model)
    assert taken(acks.take()) == list(model.items())


def test_a_merged_one_can_be_used_again(hot: ModuleType) -> None:
    acks, other = hot.Acks(), hot.Acks()
    other.add((1,), (5,))
    acks.merge(other)
    other.add((1,), (6,))
    other.add((2,), (7,))
    acks.merge(other)
    assert taken(acks.take()) == [(1, 3), (2, 7)]


def test_columns_may_be_slices_of_a_frame(hot: ModuleType) -> None:
    acks = hot.Acks()
    frame = memoryview(b"xyz" + pack_words([1, 2, 8, 9]))
    acks.fold(frame[3:19], frame[19:])
    assert taken(acks.take()) == [(1, 8), (2, 9)]


def test_room_for_a_burst_is_given_back(hot: ModuleType) -> None:
    acks = hot.Acks()
    for count in (100_000, 1):
        acks.fold(*packed([(root, root) for root in range(1, count + 1)]))
        assert len(taken(acks.take())) == count
    assert sys.getsizeof(acks) < 10_000
    acks.fold(*packed([(1, 2), (3, 4)]))
    assert taken(acks.take()) == [(1, 2), (3, 4)]


def test_columns_of_wrong_lengths_are_refused(hot: ModuleType) -> None:
    for column in (bytes(9), b"123"):
        with pytest.raises(TypeError):
            hot.Acks().fold(column, column)
        with pytest.raises(TypeError):
            hot.Trees().ack(column, column)
    with pytest.raises(ValueError):
        hot.Acks().fold(bytes(8), bytes(16))
