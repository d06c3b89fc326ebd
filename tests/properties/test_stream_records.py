"""Records of every kind arrive equal and of the same types, as rows through the codec and as values of state."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.errors import UserError
from topo.streams import Windowed
from topo.streams.records import check_unknown, layout_of
from topo.wire.codec import Codec


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Inner(msgspec.Struct):
    name: str
    level: Level


class Point(NamedTuple):
    x: int
    names: list[str]


class Everything(msgspec.Struct):
    key: str
    at: datetime
    day: date
    wait: timedelta
    price: Decimal
    id: UUID
    raw: bytes
    color: Color
    tags: list[str]
    kinds: set[int]
    inner: Inner
    by_name: dict[str, list[int]]
    pair: tuple[int, str] | None
    point: Point


class ByName(msgspec.Struct, kw_only=True):
    b: int
    a: list[int]


@dataclass
class Plain:
    user: str
    score: float
    parts: list[Inner] = field(default_factory=list)


@dataclass(kw_only=True)
class Keyword:
    x: int
    y: Level


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
INNER = st.builds(Inner, TEXT, st.sampled_from(Level))
POINT = st.builds(Point, st.integers(-(2**63), 2**63 - 1), st.lists(TEXT, max_size=3))
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
RECORDS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (
        Everything,
        st.builds(
            Everything,
            key=TEXT,
            at=MOMENTS,
            wait=st.timedeltas(timedelta(0), timedelta(9)),
            price=st.decimals(-9, 9, places=2),
            raw=st.binary(max_size=4),
            tags=st.lists(TEXT, max_size=3),
            kinds=st.sets(st.integers(0, 9)),
            inner=INNER,
            by_name=st.dictionaries(TEXT, st.lists(st.integers(0, 9))),
            pair=st.none() | st.tuples(st.integers(0, 9), TEXT),
            point=POINT,
        ),
    ),
    (ByName, st.builds(ByName, b=st.integers(0, 9), a=st.lists(st.integers(0, 9)))),
    (Plain, st.builds(Plain, TEXT, st.floats(allow_nan=False), st.lists(INNER, max_size=2))),
    (Keyword, st.builds(Keyword, x=st.integers(0, 9), y=st.sampled_from(Level))),
    (Point, POINT),
    (Windowed[list[Inner]], st.builds(Windowed, st.integers(0, 9), st.integers(0, 9), st.lists(INNER, max_size=2))),
    (tuple[str, Point], st.tuples(TEXT, POINT)),
    (list[Inner], st.lists(INNER, max_size=2)),
    (Color, st.sampled_from(Color)),
    (Inner | None, st.none() | INNER),
    (str, TEXT),
    (dict[str, int], st.dictionaries(TEXT, st.integers(0, 9))),
]


def carried(value: Any) -> Any:
    codec = Codec()
    return codec.unpack_rows(codec.pack_rows([(value,)]), 1)[0][0]


@pytest.mark.parametrize(("kind", "records"), RECORDS, ids=lambda one: getattr(one, "__name__", None))
@given(data=st.data())
def test_a_record_arrives_as_it_left(kind: Any, records: st.SearchStrategy[Any], data: st.DataObject) -> None:
    record = data.draw(records)
    layout = layout_of(kind)

    arrived = layout.unpacker()(carried(layout.packer("here")(record)))

    assert arrived == record
    assert type(arrived) is type(record)
    # repr shows the types of everything inside; the order of a set is free.
    shown = [repr(one).replace("set()", "{}") for one in (arrived, record)]
    assert sorted(shown[0]) == sorted(shown[1])


@pytest.mark.parametrize("record", [Point(1, []), Level.LOW, [1], Inner("a", Level.LOW), ("a", Point(1, [])), bytearray(b"x")])
def test_a_record_of_unknown_type_that_would_change_is_refused(record: Any) -> None:
    with pytest.raises(UserError, match="its type is not known here"):
        check_unknown("map at a.py:1")(record)


@pytest.mark.parametrize("record", ["a", 1, 1.5, None, True, b"x", ("a", (1,)), {"a": 1}, {1}, date(2026, 1, 1), Decimal("1.5")])
def test_a_record_of_unknown_type_that_arrives_as_it_left_passes(record: Any) -> None:
    assert check_unknown("map at a.py:1")(record) is record
    assert carried(record) == record
