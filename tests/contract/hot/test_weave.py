"""`weave` against a model without random ids: each row has one edge, all differ, and each input owes the XOR of its edges."""

from __future__ import annotations

from functools import reduce
from itertools import accumulate
from operator import xor
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import pack_words, unpack_words

words = st.integers(1, 2**64 - 1)
seeds = st.binary(min_size=1, max_size=4)


@given(inputs=st.lists(st.tuples(words, words, st.integers(0, 4)), min_size=1, max_size=30), seed=seeds)
def test_each_input_owes_its_value_and_the_edges_of_its_rows(hot: ModuleType, inputs: list, seed: bytes) -> None:
    owed = bytearray(pack_words([value for _, value, _ in inputs]))
    ends = list(accumulate(count for _, _, count in inputs))
    roots, edges = hot.Ids(seed).weave(pack_words([root for root, _, _ in inputs]), ends, owed)
    assert unpack_words(roots) == [root for root, _, count in inputs for _ in range(count)]
    drawn = unpack_words(edges)
    assert len(set(drawn)) == len(drawn) == ends[-1] and 0 not in drawn
    starts = [0, *ends]
    expected = [
        reduce(xor, drawn[starts[at] : end], value) for at, ((_, value, _), end) in enumerate(zip(inputs, ends, strict=True))
    ]
    assert unpack_words(owed) == expected


@given(inputs=st.lists(st.tuples(words, words), min_size=1, max_size=30), seed=seeds)
def test_without_ends_each_input_has_one_row(hot: ModuleType, inputs: list, seed: bytes) -> None:
    packed = pack_words([root for root, _ in inputs])
    before = [value for _, value in inputs]
    owed, again = bytearray(pack_words(before)), bytearray(pack_words(before))
    roots, edges = hot.Ids(seed).weave(packed, None, owed)
    assert bytes(roots) == packed
    assert unpack_words(owed) == [value ^ edge for value, edge in zip(before, unpack_words(edges), strict=True)]
    assert hot.Ids(seed).weave(packed, list(range(1, len(inputs) + 1)), again) == (packed, edges) and again == owed


def test_the_same_seed_gives_the_same_ids(hot: ModuleType) -> None:
    one, other = hot.Ids(b"seed"), hot.Ids(b"seed")
    for _ in range(3):
        owed = bytearray(24)
        assert one.weave(bytes(24), [2, 2, 5], owed)[1] == other.telescoped(5)[1]
        assert one.unmarked_roots(3) == other.unmarked_roots(3) and one.column(2) == other.column(2)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_roots_may_be_any_column(hot: ModuleType, kind: type) -> None:
    owed = bytearray(16)
    assert unpack_words(hot.Ids(b"x").weave(kind(pack_words([5, 6])), [0, 2], owed)[0]) == [6, 6]
    assert unpack_words(owed)[0] == 0


@given(pairs=st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))))
def test_columns_are_combined_word_by_word(hot: ModuleType, pairs: list) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    assert hot.xor_words(pack_words(one), bytearray(pack_words(other))) == pack_words([a ^ b for a, b in pairs])
