"""Records in the state of a `KeyedProcess` and of windows: kept under the names of their fields, and given back as they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from typing import Any, NamedTuple, NewType, TypeGuard, TypeVar, cast

import msgspec
import pytest

from topo import Topology, TopologyError, UserError
from topo.streams import (
    Aggregate,
    KeyedList,
    KeyedMap,
    KeyedProcess,
    KeyedValue,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Tumbling,
    agg,
)
from topo.streams.records import layout_of
from topo.testing import CRASH, END, PAUSE, StreamTest, TopologyTest


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


T = TypeVar("T")
Tags = NewType("Tags", list[int])


def same(record: T) -> T:
    return record


def tagged(record: list[int]) -> Tags:
    return Tags(record)


def by_name(record: list[int]) -> Mapping[str, list[int]]:
    return {"a": record}


def points(_record: list[int]) -> Sequence[Point]:
    return [Point(1, ["a"])]


def pair(record: T) -> tuple[T, int]:
    return record, 1


def by_number(record: T) -> dict[int, T | None]:
    return {1: record}


FUNCTIONS = [
    (same, [1]), (tagged, [1]), (by_name, {"a": [1]}), (points, [Point(1, ["a"])]), (pair, ([1], 1)), (by_number, {1: [1]})
]  # fmt: skip


@pytest.mark.parametrize(("function", "given"), FUNCTIONS)
def test_a_record_arrives_as_its_declared_type_however_that_is_spelled(function: Any, given: Any) -> None:
    arrived: list[Any] = []
    with StreamTest() as test:
        source = test.source(int)
        source.stream.map(lambda number: [number], of=list[int]).map(function).rebalance(parallelism=1).to(arrived.append)
        source.send(1)
    assert arrived == [given]


def key_of(key: T, _record: object) -> T:
    return key


def test_the_type_of_a_key_is_not_that_of_its_record() -> None:
    arrived: list[Any] = []
    with StreamTest() as test:
        source = test.source(Point)
        source.stream.key_by(lambda point: "a").map_keyed(key_of).rebalance(parallelism=1).to(arrived.append)
        source.send(Point(1, []))
    assert arrived == ["a"]


class Latest(Aggregate[Point, Point]):
    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, record: Point) -> Any:
        return record.x

    def result(self, accumulator: Any) -> Point:
        return Point(accumulator, ["latest"])

    def merge(self, first: Any, second: Any) -> Any:
        return second


@pytest.mark.parametrize(
    ("parts", "expected"), [((Latest(),), Point(2, ["latest"])), ((agg.count(), Latest()), (2, Point(2, ["latest"])))]
)
def test_a_result_of_an_aggregate_of_ones_own_arrives_as_its_declared_type(parts: Any, expected: Any) -> None:
    arrived: list[Any] = []
    with StreamTest() as test:
        source = test.source(Point)
        results = source.stream.key_by(lambda _point: "a").window(Tumbling("1s", clock="processing")).aggregate(*parts)
        results.values().rebalance(parallelism=1).to(lambda window: arrived.append(window.value))
        source.send(Point(1, []), Point(2, []))
        source.end()
        test.advance("2s")
    assert arrived == [expected]


def is_point(record: object) -> TypeGuard[Point]:
    return isinstance(record, Point)


def test_a_type_guard_declares_the_type_of_the_records_that_it_keeps() -> None:
    arrived: list[Any] = []
    with StreamTest() as test:
        source = test.source(int)
        pairs = source.stream.flat_map(lambda number: [number, Point(number, [])], of=object)
        pairs.only(is_point).rebalance(parallelism=1).to(arrived.append)
        source.send(1)
    assert arrived == [Point(1, [])]


def test_a_record_of_a_type_that_no_parameter_tells_is_checked() -> None:
    held: list[Any] = [[1]]

    def first(_number: int) -> T:
        return held[0]  # type: ignore[no-any-return]

    with StreamTest(attempts=1) as test:
        source = test.source(int)
        source.stream.map(first).rebalance(parallelism=1).to(print)
        source.send(1)
        (error,) = test.errors()
    assert "gives a list, and its type is not known here" in error.message


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


class Defaults(KeyedProcess[int, int, tuple[Any, ...]]):
    given = KeyedMap(str, int | None)  # type: ignore[arg-type]
    points = KeyedMap(str, Point)

    def process(self, record: int, context: StreamContext[int], out: StreamOutput[tuple[Any, ...]]) -> None:
        self.given.put("none", None)
        self.points.put("here", Point(1, []))
        out.emit((self.given.get("none", 5), self.given.get("other", 5), self.points.get("here", None) is not None))


def test_the_default_of_a_map_is_for_keys_that_are_not_in_it() -> None:
    with StreamTest() as test:
        source = test.source(int)
        seen = test.collect(source.stream.key_by(lambda number: number).process(Defaults()).values())
        source.send(1)
        assert seen.all == [(None, 5, True)]


class Level(IntEnum):
    LOW = 1


class Place(NamedTuple):
    level: Level
    x: int


@dataclass(frozen=True)
class Spot:
    x: int


@pytest.mark.parametrize("key", [Level.LOW, Place(Level.LOW, 1), Spot(1), (Level.LOW, "a"), date(2020, 1, 1)], ids=repr)
def test_keys_of_a_map_have_their_type_after_a_crash(key: Any) -> None:
    class Counts(KeyedProcess[str, str, str]):
        seen = KeyedMap(tuple[Level, str] if type(key) is tuple else type(key), int)

        def process(self, record: str, context: StreamContext[str], out: StreamOutput[str]) -> None:
            self.seen.put(key, self.seen.get(key, 0) + 1)
            out.emit(repr(self.seen.items()))

    with StreamTest() as test:
        source = test.source(str)
        results = test.collect(source.stream.key_by(lambda word: word).process(Counts(), of=str, name="counts").values())
        source.send("a")
        assert results.take() == [repr({key: 1})]
        test.crash("counts")
        source.send("a")
        assert results.take() == [repr({key: 2})]


class Frozen(msgspec.Struct, frozen=True):
    x: int


def test_a_struct_as_key_of_a_map_is_refused() -> None:
    class Keeps(KeyedProcess[int, int, int]):
        kept = KeyedMap(Frozen, int)

        def process(self, record: int, context: StreamContext[int], out: StreamOutput[int]) -> None: ...

    flow = StreamBuilder("program")
    flow.from_iterable([1]).key_by(lambda number: number).process(Keeps(), of=int).to(print)
    with pytest.raises(TopologyError, match="a Frozen as key cannot be stored; make it a NamedTuple or a frozen dataclass"):
        flow.build()


@dataclass
class Visits:
    count: int
    by_shop: dict[str, int]


class ChangesInPlace(KeyedProcess[int, str, Any]):
    plain = KeyedValue(dict)
    record = KeyedValue(Visits)
    rows = KeyedList(dict)
    entries = KeyedMap(str, int)

    def process(self, record: str, context: StreamContext[int], out: StreamOutput[Any]) -> None:
        plain, visits = self.plain.get(), self.record.get()
        if plain is None or visits is None:
            self.plain.set({"n": 0})
            self.record.set(Visits(0, {"a": 0}))
            self.rows.add({"n": 0})
            self.entries.put("n", 0)
            return
        plain["n"] += 1
        visits.count += 1
        visits.by_shop["a"] += 1
        cast("list[Any]", self.rows.get()).append({"n": 1})
        cast("dict[str, int]", self.entries.items())["n"] += 1
        if record == "set":
            self.record.set(visits)
        kept = self.record.get()
        assert kept is not None
        out.emit((plain["n"], kept.count, kept.by_shop["a"], len(self.rows.get()), self.entries.get("n")))


def test_a_change_without_set_is_kept_of_a_dict_alone() -> None:
    seen: list[Any] = []

    def build() -> Topology:
        flow = StreamBuilder("changes")
        words = flow.from_iterable([""], name="words").key_by(lambda word: 0)
        words.process(ChangesInPlace(), name="changes").values().to(seen.append, name="out")
        return flow.build()

    script = ["first", "changed", "set", PAUSE("1s"), CRASH("changes"), "changed", END]
    test = TopologyTest(build, sources={"words": script}, checkpoint_interval="10ms")
    test.run()
    assert [error.kind for error in test.errors()] == ["WorkerLost"]
    assert seen == [(1, 0, 1, 1, 0), (2, 1, 2, 1, 0), (3, 1, 3, 1, 0)]


class EscapesTheCheck(KeyedProcess[int, str, str]):
    plain = KeyedValue(dict)

    def process(self, record: str, context: StreamContext[int], out: StreamOutput[str]) -> None:
        plain = self.plain.get()
        if plain is None:
            self.plain.set({"words": ()})
        elif record == "list":
            plain["words"] = ["a"]
        else:
            out.emit(type(plain["words"]).__name__)


def test_a_list_that_was_put_into_a_dict_without_set_is_a_tuple_after_a_crash() -> None:
    seen: list[str] = []

    def build() -> Topology:
        flow = StreamBuilder("escapes")
        words = flow.from_iterable([""], name="words").key_by(lambda word: 0)
        words.process(EscapesTheCheck(), name="escapes").values().to(seen.append, name="out")
        return flow.build()

    script = ["first", "list", "look", PAUSE("1s"), CRASH("escapes"), "look", END]
    TopologyTest(build, sources={"words": script}, checkpoint_interval="10ms").run()
    assert seen == ["list", "tuple"]
