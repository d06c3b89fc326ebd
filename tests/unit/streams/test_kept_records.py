"""Records in the state of a `KeyedProcess` and of windows: kept under the names of their fields, and given back as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from topo import UserError
from topo.streams import KeyedProcess, KeyedValue, StreamContext, StreamOutput
from topo.streams.records import layout_of
from topo.testing import StreamTest


class Point(msgspec.Struct):
    x: int
    tags: list[str]


class Swapped(msgspec.Struct):
    tags: list[str]
    x: int


class Longer(msgspec.Struct):
    tags: list[str]
    x: int
    y: int = 5


class Renamed(msgspec.Struct):
    tags: list[str]
    z: int = 0


@dataclass
class DataPoint:
    tags: list[str]
    x: int


class NamedPoint(NamedTuple):
    tags: list[str]
    x: int


@pytest.mark.parametrize("now", [Point, Swapped, Longer, DataPoint, NamedPoint])
def test_a_record_is_read_by_the_names_of_its_fields(now: Any) -> None:
    pack, _ = layout_of(Point).keeper("the state 'last'")
    _, unpack = layout_of(now).keeper("the state 'last'")
    assert unpack(pack(Point(3, ["a", "b"]))) == now(x=3, tags=["a", "b"])


def test_a_field_that_may_have_a_new_name_is_refused_with_the_place_of_the_state() -> None:
    pack, _ = layout_of(Point).keeper("the state 'last'")
    _, unpack = layout_of(Renamed).keeper("the state 'last'")
    with pytest.raises(UserError, match=r"the state 'last': .*'x' may have become 'z'"):
        unpack(pack(Point(3, [])))


class Keeps(KeyedProcess[int, int, int]):
    kept = KeyedValue(dict)

    def process(self, record: int, context: StreamContext[int], out: StreamOutput[int]) -> None:
        before = self.kept.get() or {"so far": ()}
        out.emit(len(before["so far"]))
        self.kept.set({"so far": (*before["so far"], record)} if record < 10 else {"so far": [record]})


def test_a_dict_in_state_keeps_its_tuples_and_refuses_a_list_that_would_become_one() -> None:
    with StreamTest() as test:
        numbers = test.source(int)
        seen = test.collect(numbers.stream.key_by(lambda number: 0).process(Keeps(), of=int).values())
        numbers.send(1, 2, 3)
        assert seen.take() == [0, 1, 2]
        numbers.send(10)
        assert any("the state 'kept' of Keeps keeps a list" in error.message for error in test.errors())
        assert any("dict[str, list[int]]" in error.message for error in test.errors())
