"""Positions that are judged as a batch are refused exactly as when each comes alone."""

from __future__ import annotations

from typing import Any

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


def _judge() -> MessageIds:
    return MessageIds("source", Codec(), are_positions=True, are_stored=True, is_open=lambda _one: False)


@given(_IDS, _IDS)
@example([1, 2, 2, 3], [])
@example([1, 3, 2], [])
@example([5, 6], [6, 7])
@example([], [float("nan"), 0])
@example([], [(1, float("nan")), (2, 0)])
def test_a_batch_of_positions_is_refused_as_each_alone(ids: list[Any], more: list[Any]) -> None:
    batches, alone = _judge(), _judge()
    for batch in (ids, more):
        refused = list(batches.refused(batch))
        assert refused == [place for place, one in enumerate(batch) if alone.refused([one])]
