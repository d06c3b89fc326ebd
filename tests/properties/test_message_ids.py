"""Positions that are judged as a batch are refused exactly as when each comes alone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topo.tracking.message_ids import MessageIds
from topo.wire.codec import Codec

_NUMBERS = st.integers(-3, 6)
_IDS = st.one_of(
    st.lists(_NUMBERS),
    st.lists(st.text("ab", max_size=2)),
    st.lists(st.tuples(_NUMBERS, _NUMBERS)),
    st.lists(st.one_of(_NUMBERS, st.booleans(), st.floats(), st.none())),
)


_NAN = float("nan")


def _judge() -> MessageIds:
    return MessageIds("source", Codec(), are_positions=True, are_stored=True, is_open=lambda _one: False)


@given(_IDS, _IDS)
@example([1, 2, 2, 3], [])
@example([1, 3, 2], [])
@example([5, 6], [6, 7])
@example([], [_NAN, 0])
@example([], [(1, _NAN), (2, 0)])
@example([], [Decimal("NaN"), Decimal(1)])
def test_a_batch_of_positions_is_refused_as_each_alone(ids: list[Any], more: list[Any]) -> None:
    batches, alone = _judge(), _judge()
    for batch in (ids, more):
        refused = list(batches.refused(batch))
        assert refused == [place for place, one in enumerate(batch) if alone.refused([one])]


@pytest.mark.parametrize(
    "position", [_NAN, (1, _NAN), (1, (2.0, _NAN)), Decimal("NaN"), (Decimal(1), Decimal("NaN")), Decimal("sNaN")]
)
def test_nan_is_no_position(position: Any) -> None:
    judge = _judge()
    assert list(judge.refused([position])) == [0]
    later = [2.0] if type(position) is float else [(2, 0)] if type(position) is tuple else [Decimal(2)]
    assert list(judge.refused([position, *later])) == [0]


def test_arrays_are_no_positions() -> None:
    assert list(_judge().refused([(1.0, numpy.array([1, 2]))])) == [0]
