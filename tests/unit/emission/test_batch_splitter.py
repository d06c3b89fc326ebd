"""Fields grouping of batches: each row goes where its key goes as a row, in its order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo import ColumnBatch, EmitError
from topo.emission.batch_splitter import BatchSplitter, SplitSubscription
from topo.emission.groupers import FieldsGrouper
from topo.hot import pack_words, unpack_words
from topo.ids import TaskId

TARGETS = 3
ROWS = st.lists(
    st.tuples(st.one_of(st.none(), st.sampled_from("abcdefgh")), st.integers(-3, 3), st.integers(0, 99)), min_size=1, max_size=40
)


def grouper(*indexes: int) -> FieldsGrouper:
    return FieldsGrouper(indexes, TARGETS, 128)


@given(ROWS, st.sampled_from([("a",), ("b",), ("a", "b"), ("b", "a", "c")]), st.booleans())
def test_each_row_goes_to_the_task_that_it_would_go_to_alone(rows: list[Any], fields: tuple[str, ...], is_arrow: bool) -> None:
    stamps = list(range(len(rows)))
    batch = ColumnBatch.of(dict(zip("abc", zip(*rows, strict=True), strict=True)), stamps).in_form(
        "arrow" if is_arrow else "lists"
    )
    indexes = tuple("abc".index(field) for field in fields)
    expected = {position: [(rows[i], i) for i in places] for position, places in grouper(*indexes).split(rows)}  # type: ignore[index, union-attr]
    parts = BatchSplitter(fields, grouper(*indexes)).split(batch)
    assert {position: list(zip(part.rows(), part.stamp_list(), strict=True)) for position, part in parts} == expected
    assert all(part.is_arrow is is_arrow for _, part in parts)


def test_dictionaries_are_split_by_their_values() -> None:
    batch = ColumnBatch.of({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    parts = BatchSplitter(("a",), grouper(0)).split(batch)
    assert sorted(row for _, part in parts for row in part.rows()) == [("x",), ("x",), ("y",)]


def test_a_batch_with_a_column_whose_rows_arrow_cannot_pick_is_refused() -> None:
    batch = ColumnBatch.of({"a": pa.array([*"abcd"]), "b": pa.array([*"abcd"], pa.string_view())})
    with pytest.raises(EmitError, match=r"string_view.*; cast the column"):
        BatchSplitter(("a",), grouper(0)).split(batch)


def test_each_part_has_the_words_of_the_batch_and_bad_keys_are_rejected() -> None:
    rejected: list[int] = []
    subscription = SplitSubscription(BatchSplitter(("a",), grouper(0)), [TaskId(n) for n in range(TARGETS)])
    rows = [(ColumnBatch.of({"a": list(range(50))}),), (ColumnBatch.of({"a": [float("nan")]}),), (ColumnBatch.of({"a": [1, 2]}),)]
    shares = subscription.share(rows, lambda row, error: rejected.append(row), pack_words([7, 8, 9]))
    assert rejected == [1]
    for _, places, parts, (words,) in shares:
        assert unpack_words(words) == [(7, 8, 9)[place] for place in places]  # type: ignore[union-attr]
        assert len(parts) == len(places)  # type: ignore[arg-type]
    assert sorted(n for _, _, parts, _ in shares for (part,) in parts for (n,) in part.rows()) == sorted([*range(50), 1, 2])


@pytest.mark.parametrize(
    ("column", "more"),
    [
        (pa.array([[1], [2]]), False),
        (pa.array([{"x": 1}, {"x": 2}]), True),
        (pa.array([1, 2], pa.timestamp("ns")), False),
    ],
)
def test_arrow_columns_that_are_no_keys_are_rejected(column: Any, more: bool) -> None:
    """Lists, structs, and nanoseconds, of which Python has no value."""
    batch = ColumnBatch.of({"a": column, "b": pa.array([1, 2])})
    fields, indexes = (("a", "b"), (0, 1)) if more else (("a",), (0,))
    with pytest.raises(EmitError, match=r"'a'.* as a key"):
        BatchSplitter(fields, grouper(*indexes)).split(batch)


@pytest.mark.parametrize("kind", [pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("ns", "UTC"), pa.timestamp("s", "+05:00")])
def test_a_moment_goes_where_it_goes_as_a_key_of_tuples_whatever_its_zone(kind: Any) -> None:
    moments = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(24)]
    expected = {position: [(moments[i],) for i in places] for position, places in grouper(0).split([(m,) for m in moments])}  # type: ignore[index, union-attr]
    parts = BatchSplitter(("a",), grouper(0)).split(ColumnBatch.of({"a": pa.array(moments).cast(kind)}))
    assert {position: part.rows() for position, part in parts} == expected
