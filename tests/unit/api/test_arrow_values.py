"""What Arrow's columns are as values of tuples, also where they are slices, and have nulls everywhere."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from topo.api.arrow_values import NotRepresentable, milliseconds_of, rows_of, values_of  # noqa: E402
from topo.wire.codec import Codec  # noqa: E402

CASES: list[tuple[Any, list[Any]]] = [
    (pa.bool_(), [True, False]),
    (pa.int8(), [-128, 127]),
    (pa.int64(), [-(2**63), 2**63 - 1]),
    (pa.float32(), [0.5, -1.0]),
    (pa.float64(), [1e308, float("inf")]),
    (pa.string(), ["", "Zürich", "\U0001f6eb"]),
    (pa.large_string(), ["a"]),
    (pa.binary(), [b"", b"\x00\xff"]),
    (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), Decimal("-0.000000000000000001")]),
    (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)]),
    (pa.time64("us"), [time(0), time(23, 59, 59, 999_999)]),
    (pa.duration("us"), [timedelta(microseconds=-1), timedelta(days=100_000, microseconds=7)]),
    (pa.timestamp("us"), [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(9999, 12, 31, 23)]),
    (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(2013, 7, 1, 12, 30, 0, 5, tzinfo=UTC)]),
    (pa.list_(pa.int32()), [(), (1, None, 3)]),
    (pa.list_(pa.list_(pa.string())), [((), None, ("a", "b"))]),
    (pa.list_(pa.int16(), 2), [(1, None), (3, 4)]),
    (pa.map_(pa.string(), pa.int64()), [{}, {"a": 1, "b": None}]),
    (pa.map_(pa.date32(), pa.list_(pa.int64())), [{date(2013, 1, 1): (1, 2)}]),
    (pa.struct([("a", pa.int64()), ("b", pa.list_(pa.date32()))]), [{"a": None, "b": (date(2013, 1, 1), None)}]),
    (pa.struct([("s", pa.struct([("at", pa.date32())]))]), [{"s": {"at": date(2013, 1, 1)}}, {"s": None}]),
]  # fmt: skip


def arrow_of(values: list[Any], kind: Any) -> Any:
    """Arrow takes maps as lists of pairs."""
    return pa.array([list(one.items()) if pa.types.is_map(kind) and one is not None else one for one in values], kind)


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_values_come_back_with_nulls_between_them_and_from_a_slice(kind: Any, values: list[Any]) -> None:
    wanted = [None, *values, None, *values]
    column = arrow_of(wanted, kind)
    assert values_of(column) == wanted
    for start in range(len(wanted)):
        assert values_of(column.slice(start)) == wanted[start:]
        assert values_of(column.slice(start, 1)) == wanted[start : start + 1]


@pytest.mark.parametrize(("kind", "values"), CASES, ids=[str(kind) for kind, _ in CASES])
def test_values_are_the_same_behind_the_wire(kind: Any, values: list[Any]) -> None:
    rows = [(value,) for value in values_of(arrow_of([None, *values], kind))]
    codec = Codec()
    assert codec.unpack_rows(codec.pack_rows(rows), len(rows)) == rows


def test_a_moment_is_told_in_utc_whatever_zone_the_file_names() -> None:
    moments = pa.array([datetime(2013, 7, 1, 12, tzinfo=UTC)]).cast(pa.timestamp("us", "America/New_York"))
    assert values_of(moments) == [datetime(2013, 7, 1, 12, tzinfo=UTC)]
    assert values_of(moments)[0].tzinfo is UTC


def test_a_dictionary_gives_its_values() -> None:
    assert values_of(pa.array(["a", None, "a", "b"]).dictionary_encode()) == ["a", None, "a", "b"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([2**62]).cast(pa.timestamp("us")), "Python cannot hold"),
        (pa.array([1]).cast(pa.timestamp("ns")), "would lose data"),
        (pa.array([1]).cast(pa.time64("ns")), "would lose data"),
        (pa.array([10**7], pa.int32()).cast(pa.date32()), "years 1 to 9999"),
        (pa.array([[({"a": 1}, 1)]], pa.map_(pa.struct([("a", pa.int64())]), pa.int64())), "a map whose keys are"),
        (pa.array([None], pa.month_day_nano_interval()), "cast the column"),
    ],
)  # fmt: skip
def test_a_value_that_python_does_not_have_is_refused_with_its_column(column: Any, message: str) -> None:
    with pytest.raises(NotRepresentable, match=f"column 'odd': .*{message}"):
        list(rows_of([column], ["odd"]))


def test_event_time_is_of_timestamps_dates_or_whole_milliseconds() -> None:
    second = pa.array([1, None, -1], pa.int64())

    def read(column: Any) -> list[int | None]:
        found = milliseconds_of(column)
        assert found.type == pa.int64()
        values: list[int | None] = found.to_pylist()
        return values

    assert read(second.cast(pa.timestamp("s"))) == [1000, None, -1000]
    assert read(pa.array([1999, None, -1]).cast(pa.timestamp("us", "Asia/Tokyo"))) == [1, None, -1]
    assert read(pa.array([-1_000_001, -1]).cast(pa.timestamp("ns"))) == [-2, -1]
    assert read(pa.array([date(1970, 1, 2), None])) == [86_400_000, None]
    assert read(pa.array([1, None], pa.int8())) == [1, None]
    with pytest.raises(NotRepresentable, match="not from string"):
        milliseconds_of(pa.array(["2013-01-01"]))
    for large in (pa.array([2**63], pa.uint64()), pa.array([2**62]).cast(pa.timestamp("s"))):
        with pytest.raises(NotRepresentable, match="does not fit 64 bits"):
            milliseconds_of(large)
