"""The same seed gives the same ids in every implementation."""

from __future__ import annotations

from itertools import accumulate
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.hot import pack_words, plain

calls = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["column", "roots", "unmarked_roots", "telescoped"]), st.integers(0, 700)),
        st.tuples(st.just("weave"), st.lists(st.integers(0, 5), min_size=1, max_size=20)),
        st.tuples(st.just("weave_each"), st.integers(0, 20)),
    ),
    max_size=6,
)


COMPILED = pytest.mark.parametrize("hot", ["compiled"], indirect=True)
"""The reference beside itself would show nothing."""


def called(ids: Any, name: str, argument: Any) -> Any:
    if name == "weave":
        owed = bytearray(pack_words(range(len(argument))))
        return ids.weave(pack_words(range(5, 5 + len(argument))), list(accumulate(argument)), owed), owed
    if name == "weave_each":
        owed = bytearray(8 * argument)
        return ids.weave(bytes(8 * argument), None, owed), owed
    return getattr(ids, name)(argument)


@COMPILED
@given(seed=st.one_of(st.just(b""), st.binary(max_size=40)), calls=calls)
def test_calls_give_what_the_reference_gives(hot: ModuleType, seed: bytes, calls: list) -> None:
    one, other = hot.Ids(seed), plain.Ids(seed)
    for name, argument in calls:
        assert called(one, name, argument) == called(other, name, argument)


@pytest.mark.parametrize("first", [0, 1, 2, 3])
@pytest.mark.parametrize("call", ["column", "roots", "unmarked_roots"])
def test_eight_zero_bytes_are_drawn_again_at_any_alignment(
    hot: ModuleType, monkeypatch: pytest.MonkeyPatch, first: int, call: str
) -> None:
    class Crafted(Random):
        """Draws two half words of zeros."""

        def __init__(self, seed: Any) -> None:
            super().__init__(seed)
            version, state, gauss = self.getstate()
            words = [*state[:-1], 0]
            words[first : first + 2] = [0, 0]
            self.setstate((version, tuple(words), gauss))

    monkeypatch.setattr(f"{hot.Ids.__module__}.Random", Crafted)
    drawn = getattr(hot.Ids(b"seed"), call)(4)
    words = drawn if isinstance(drawn, list) else [int.from_bytes(drawn[at : at + 8], "little") for at in range(0, 32, 8)]
    source = Crafted(b"seed")
    assert bytes(8) in source.randbytes(32)
    expected = [int.from_bytes(source.randbytes(8), "little") for _ in range(4)]
    assert words == ([word & (1 << 61) - 1 for word in expected] if call == "unmarked_roots" else expected)


def test_without_a_seed_no_two_are_alike(hot: ModuleType) -> None:
    assert hot.Ids().column(4) != hot.Ids().column(4)
