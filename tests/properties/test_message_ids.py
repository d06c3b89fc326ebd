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

_NUMBERS = st.integers(-3, 6) | st.sampled_from([-(1 << 63) - 1, -(1 << 63), (1 << 64) - 1, 1 << 64])
_IDS = st.one_of(
    st.lists(_NUMBERS),
    st.lists(st.text("ab\udc80", max_size=2)),
    st.lists(st.tuples(_NUMBERS, _NUMBERS)),
    st.lists(st.tuples(_NUMBERS, st.text("ab\udc80", max_size=2))),
    st.lists(st.one_of(_NUMBERS, st.booleans(), st.floats(), st.none())),
)


_NAN = float("nan")


def _judge(*, are_positions: bool = True) -> MessageIds:
    return MessageIds("source", Codec(), are_positions=are_positions, are_stored=True, is_open=lambda _one: False)


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


def _nested(levels: int) -> Any:
    return (_nested(levels - 1),) if levels else 1


@pytest.mark.parametrize("are_positions", [True, False])
@pytest.mark.parametrize(
    "one", [1 << 64, -(1 << 63) - 1, "report-\udcff.csv", (1, (1 << 64, "a")), (1, "\udcff"), (1, _nested(300))]
)
def test_an_id_that_storage_cannot_hold_is_refused_in_a_batch_and_alone(one: Any, are_positions: bool) -> None:
    fine = (0, "a") if type(one) is tuple else "a" if type(one) is str else 1
    for ids in ([one], sorted([fine, one])):
        refused = _judge(are_positions=are_positions).refused(ids)
        assert list(refused) == [ids.index(one)]
        assert "cannot be stored as it is; use ints of 64 bits, strings that UTF-8 can carry" in str(refused[ids.index(one)])
