"""Values that can never change, and those that may."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

FIXED = [
    1,
    1.5,
    "a",
    b"b",
    True,
    None,
    date(2020, 1, 1),
    datetime(2020, 1, 1, tzinfo=UTC),
    time(1),
    timedelta(1),
    Decimal(1),
    UUID(int=1),
]
CHANGES: list[Any] = [[], {}, set(), frozenset(), bytearray(), object(), range(3)]


def _type(value: Any) -> str:
    # An address in the name of a test would differ between processes.
    return type(value).__name__


class Word(str):
    """May have attributes."""


class Pair(NamedTuple):
    first: int
    second: int


@pytest.mark.parametrize("value", [*FIXED, (), tuple(FIXED), (1, (2, (3, ("a", *FIXED))))], ids=_type)
def test_a_value_that_cannot_change_stays(hot: ModuleType, value: Any) -> None:
    assert hot.stays(value) is True


@pytest.mark.parametrize("value", [*CHANGES, Word("a"), Pair(1, 2)], ids=_type)
def test_a_value_that_may_change_does_not_stay_however_deep_it_lies(hot: ModuleType, value: Any) -> None:
    for _ in range(4):
        assert hot.stays(value) is False
        value = ("a", value, 1)


nested = st.recursive(
    st.sampled_from([*FIXED, [], Word("a")]), lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=20
)


@given(value=nested)
def test_all_implementations_agree(hot: ModuleType, value: Any) -> None:
    from topo.hot.plain import values

    assert hot.stays(value) is values.stays(value)


def test_tuples_without_an_end_raise_and_break_nothing(hot: ModuleType) -> None:
    value: Any = ()
    for _ in range(500):
        value = (value,)
    assert hot.stays(value) is True
    for _ in range(200_000):
        value = (value,)
    with pytest.raises(RecursionError):
        hot.stays(value)
