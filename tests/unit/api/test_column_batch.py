"""Column batches: both forms, and the refusals where a batch is made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy
import pyarrow as pa
import pytest

from topo import ColumnBatch, EmitError, NotFoundError, UnsupportedValueError
from topo.api.column_batch import batch_of, batch_of_rows


def emitted(columns: Any, timestamps: Any = None) -> ColumnBatch:
    return batch_of(columns, ("word", "n"), timestamps, "component 'c', stream 'default':")


@pytest.mark.parametrize(
    "columns",
    [
        {"n": [1, 2], "word": ["a", "b"]},
        {"word": ("a", "b"), "n": (1, 2)},
        {"word": pa.array(["a", "b"]), "n": [1, 2]},
        {"word": pa.chunked_array([["a"], ["b"]]), "n": pa.array([1, 2])},
        pa.record_batch({"n": [1, 2], "word": ["a", "b"]}),
        pa.table({"word": pa.chunked_array([["a"], ["b"]]), "n": [1, 2]}),
        ColumnBatch.of({"word": ["a", "b"], "n": [1, 2]}),
    ],
)
def test_a_batch_can_be_emitted_in_any_of_these_shapes(columns: Any) -> None:
    batch = emitted(columns)
    assert batch.fields == ("word", "n") and len(batch) == batch.num_rows == 2
    assert batch.rows() == [("a", 1), ("b", 2)]
    assert batch.in_form("lists")["word"] == ["a", "b"]
    assert batch.in_form("arrow")["word"].equals(pa.array(["a", "b"]))
    assert batch.to_arrow().equals(pa.record_batch({"word": ["a", "b"], "n": [1, 2]}))


def test_an_array_of_numpy_may_be_filled_anew_when_its_batch_is_emitted() -> None:
    numbers, stamps = numpy.array([1, 2]), numpy.array([5, 6])
    batch = emitted({"word": ["a", "b"], "n": numbers}, stamps)
    numbers[:] = stamps[:] = 9
    assert batch.rows() == [("a", 1), ("b", 2)] and batch.stamp_list() == [5, 6]


def test_numpy_arrays_become_arrow_arrays() -> None:
    batch = emitted({"word": ["a", "b"], "n": numpy.array([1, 2])})
    assert batch.is_arrow and batch["n"].type == pa.int64()


def test_lists_are_taken_as_they_are_at_the_emit_and_a_bolt_gets_its_own() -> None:
    words = ["a", "b"]
    batch = emitted({"word": words, "n": [1, 2]})
    words.append("c")
    given = batch.in_form("lists")
    given["word"].clear()
    assert batch.rows() == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(
    ("columns", "stated"),
    [
        ([("a", 1)], r"\(list\) as a batch; emit a mapping of each field to its column"),
        ({"word": ["a"]}, "a batch without 'n'; its fields are 'word', 'n'"),
        ({"word": ["a"], "n": [1], "m": [2]}, "a batch with 'm'"),
        ({"word": ["a", "b"], "n": [1]}, r"different lengths: \{'word': 2, 'n': 1\}"),
        ({"word": "ab", "n": [1, 2]}, r"column 'word' is 'ab' \(str\); give a list, an Arrow array"),
        ({"word": iter(["a"]), "n": [1]}, "column 'word' is <list_iterator"),
    ],
)
def test_columns_that_are_no_batch_of_the_stream_are_refused(columns: Any, stated: str) -> None:
    with pytest.raises(EmitError, match=f"^component 'c', stream 'default':.*{stated}"):
        emitted(columns)


def test_a_list_of_several_types_is_refused_beside_an_arrow_array() -> None:
    with pytest.raises(UnsupportedValueError, match=r"'default':.*column 'word' cannot be an Arrow array: .*values of one type"):
        emitted({"word": ["a", 1], "n": pa.array([1, 2])})
    with pytest.raises(UnsupportedValueError, match=r"column 'word' cannot be an Arrow array"):
        emitted({"word": ["a", 1], "n": [1, 2]}).in_form("arrow")


def test_an_extension_type_is_refused() -> None:
    uuids = pa.array([bytes(16)], pa.uuid()) if hasattr(pa, "uuid") else pytest.skip("this pyarrow has no ready extension type")
    with pytest.raises(UnsupportedValueError, match=r"column 'word' has extension type .*emit its .storage"):
        emitted({"word": uuids, "n": [1]})


def test_a_column_that_there_is_not_is_named_with_its_neighbours() -> None:
    with pytest.raises(NotFoundError, match="has no column 'words'") as raised:
        emitted({"word": ["a"], "n": [1]})["words"]
    assert raised.value.suggestions == ("word",)


@pytest.mark.parametrize("is_arrow", [False, True])
@pytest.mark.parametrize(
    "stamps",
    [
        [3000, 1000],
        pa.array([3000, 1000], pa.int32()),
        pa.array([datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in (3, 1)]),
    ],
)
def test_timestamps_become_milliseconds_by_row(is_arrow: bool, stamps: Any) -> None:
    columns = pa.record_batch({"word": ["a", "b"], "n": [1, 2]}) if is_arrow else {"word": ["a", "b"], "n": [1, 2]}
    batch = emitted(columns, stamps)
    assert batch.stamp_list() == [3000, 1000] and (batch.earliest, batch.latest) == (1000, 3000)
    for form in ("lists", "arrow"):
        assert batch.in_form(form).stamp_list() == [3000, 1000]
    part = batch.take(pa.array([0])) if is_arrow else batch.take([0])
    assert part.rows() == [("a", 1)] and (part.earliest, part.latest) == (3000, 3000)
    assert batch.slice(1, 2).stamp_list() == [1000]


@pytest.mark.parametrize(
    ("stamps", "stated"),
    [
        ([1], "1 timestamps for 2 rows"),
        ([1, None], r"timestamp None \(NoneType\) of a row"),
        ([1, 2.5], r"timestamp 2.5 \(float\)"),
        ([True, 1], r"timestamp True \(bool\)"),
        (pa.array([1, None]), "1 of 2 rows have no timestamp"),
        (
            pa.array([1.5, 2.5]),
            "timestamps: event time comes from a timestamp, a date or whole milliseconds, and not from double",
        ),
        (numpy.array(["NaT", "2026-01-01"], "datetime64[ns]"), "timestamp None"),
    ],
)
def test_timestamps_that_are_none_are_refused(stamps: Any, stated: str) -> None:
    with pytest.raises(EmitError, match=f"'default':.*{stated}"):
        emitted({"word": ["a", "b"], "n": [1, 2]}, stamps)


def test_rows_have_event_time_when_each_of_them_has_a_timestamp() -> None:
    assert batch_of_rows(("a",), [(1,), (2,)], [5, 6]).stamp_list() == [5, 6]
    assert batch_of_rows(("a",), [(1,), (2,)], [5, None]).stamp_list() is None


def test_a_batch_shows_its_fields_and_first_row() -> None:
    assert repr(emitted({"word": ["a", "b"], "n": [1, 2]})) == "ColumnBatch(2 rows of 'word', 'n', the first: ('a', 1))"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_moments_of_numpy_are_milliseconds_whatever_their_unit(unit: str) -> None:
    """`tolist` of nanoseconds gives nanoseconds."""
    stamps = numpy.array(["2026-01-01", "2026-01-02"], f"datetime64[{unit}]")
    expected = [int(datetime(2026, 1, day, tzinfo=UTC).timestamp() * 1000) for day in (1, 2)]
    assert ColumnBatch.of({"n": [1, 2]}, stamps).stamp_list() == expected


def test_values_of_arrow_arrays_are_those_that_a_tuple_would_carry() -> None:
    """Of moments Arrow has zones of pytz, of nanoseconds and maps it has no value of Python's."""
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    batch = ColumnBatch.of({
        "at": pa.array([moment]).cast(pa.timestamp("ns", "Asia/Tokyo")),
        "list": pa.array([[1, 2]]),
        "map": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
        "kind": pa.array(["x"]).dictionary_encode(),
    })  # fmt: skip
    assert repr(batch.rows()) == repr([(moment, (1, 2), {"a": 1}, "x")])
    assert batch.in_form("lists").rows() == batch.rows()


def test_a_value_that_python_does_not_have_is_refused_with_its_column() -> None:
    batch = ColumnBatch.of({"n": pa.array([1]), "at": pa.array([1], pa.timestamp("ns"))})
    for read in (batch.rows, lambda: batch.in_form("lists")):
        with pytest.raises(UnsupportedValueError, match=r"column 'at': .*would lose data"):
            read()


def test_moments_before_the_epoch_are_of_the_millisecond_that_they_are_in() -> None:
    """A cast cuts towards the epoch."""
    stamps = pa.array([-1, -1000, -1001, 999], pa.timestamp("us", "UTC"))
    for columns in (pa.table({"n": [1, 2, 3, 4]}), {"n": [1, 2, 3, 4]}):
        assert ColumnBatch.of(columns, stamps).stamp_list() == [-1, -1, -2, 0]
