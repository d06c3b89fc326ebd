"""Lists of ints as columns of words."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topo.hot import plain

anything = st.one_of(
    st.integers(-(2**64), 2**65),
    st.sampled_from([2**63 - 1, -(2**63), 2**64 - 1]),
    st.none(),
    st.booleans(),
    st.floats(),
    st.text(),
)
lists = st.one_of(st.lists(st.integers(0, 2**64 - 1)), st.lists(anything, max_size=4))


def outcome(pack: Any, words: Any) -> Any:
    try:
        return pack(words)
    except (TypeError, ValueError, OverflowError) as error:
        return type(error), str(error)


@given(words=lists, is_list=st.booleans())
@example(words=[2**64], is_list=True)
@example(words=[-1], is_list=True)
def test_words_are_packed_or_refused_as_by_an_array(hot: ModuleType, words: list[Any], is_list: bool) -> None:
    given = words if is_list else tuple(words)
    assert outcome(hot.pack_words, given) == outcome(lambda items: array("Q", items).tobytes(), given)


@given(words=st.lists(st.sampled_from([0, 1, 7, 2**64 - 1])), kind=st.sampled_from([bytes, bytearray, memoryview]))
def test_words_are_found_once_in_the_order_of_their_first_places(hot: ModuleType, words: list[int], kind: Any) -> None:
    assert hot.distinct_words(kind(array("Q", words).tobytes())) == list(dict.fromkeys(words))


def test_no_words_are_found_in_a_column_that_is_cut(hot: ModuleType) -> None:
    with pytest.raises(TypeError):
        hot.distinct_words(bytes(12))


@given(stamps=lists, is_list=st.booleans())
@example(stamps=[None, -1, 2**63 - 1, -(2**63)], is_list=True)
@example(stamps=[None, 2**63], is_list=True)
def test_timestamps_are_packed_or_refused_alike(hot: ModuleType, stamps: list[Any], is_list: bool) -> None:
    given = stamps if is_list else tuple(stamps)
    assert outcome(hot.pack_timestamps, given) == outcome(plain.pack_timestamps, given)
    if all(type(stamp) is int and abs(stamp) < 2**63 for stamp in stamps):
        assert hot.pack_timestamps(given) == array("q", given).tobytes()
