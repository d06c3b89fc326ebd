"""Mistakes in programs of streams that only a record shows: each fails its record at the line of its operator, or warns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from tests.unit.streams.test_programs import run
from topo.errors import TopologyError, UserError
from topo.streams import Stream, StreamBuilder, Tumbling, Windowed, agg
from topo.streams.records import layout_of
from topo.testing import StreamTest


class Click(msgspec.Struct):
    user: str
    at: int


class Total(NamedTuple):
    count: int


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize("key", [[1], float("nan"), {1}, (1, [2])])
def test_a_value_that_cannot_be_a_key_fails_its_record(key: Any) -> None:
    (error,) = run(lambda flow: flow.from_iterable(["a"]).key_by(lambda _word: key).count().to(print), attempts=1).errors()
    assert error.message.startswith("the key function returned ") and error.file.endswith("test_record_mistakes.py")


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        (Color.RED, "of these: give its .value or .name"),
        (Total(1), "of these: give tuple(...) of it"),
        ((1, [2]), "of these: give tuple(...) of it"),
        (Click("ann", 1), "of these: give a tuple of the fields that count"),
        ({1}, "of these"),
    ],
)
def test_the_refusal_of_a_key_names_what_to_give(key: Any, fix: str) -> None:
    (error,) = run(lambda flow: flow.from_iterable(["a"]).key_by(lambda _word: key).count().to(print), attempts=1).errors()
    assert error.message.endswith(fix)


def test_a_record_that_a_source_cannot_send_is_reported_without_a_line_of_generated_code() -> None:
    def draw(flow: StreamBuilder) -> None:
        flow.from_iterable(lambda: [["a"]]).to(print)

    (error,) = run(draw).errors()
    assert "gives a list, and its type is not known here" in error.message
    assert error.message.startswith("from_iterable at test_record_mistakes.py:")
    assert (error.file, error.line) == (__file__, draw.__code__.co_firstlineno + 1)


def test_a_record_of_unknown_type_is_reported_with_the_line_of_the_join_that_made_it() -> None:
    def draw(flow: StreamBuilder) -> None:
        words = flow.from_iterable(["a"]).key_by(lambda word: word)
        table = flow.from_iterable(["b"], name="table").key_by(lambda word: word).latest()
        joined = words.left_join_table(table, lambda word, _row: Click(word, 1), name="joined")
        joined.values().filter(lambda click: click.at > 0).rebalance(parallelism=2).to(print)

    (error,) = run(draw, attempts=1).errors()
    line = draw.__code__.co_firstlineno + 3
    assert error.message.startswith(f"join_table 'joined' at test_record_mistakes.py:{line} gives a Click")
    assert error.line == line


def test_items_that_a_source_cannot_send_are_dead_letters_and_the_others_follow() -> None:
    """The first one was met again and again, and the run never ended."""
    items = [Click("a", 1), "b", Total(3), Click("d", 4)]
    test = run(lambda flow: flow.from_iterable(lambda: items, of=Click).map(lambda c: c.user, name="m").to(print))
    assert test.emitted("items") == [("a", 1), ("d", 4)]
    assert [dead.values for dead in test.dead_letters()] == [("b",), (Total(3),)]
    assert "was given a str, where records are of Click" in test.dead_letters()[0].why


@pytest.mark.parametrize("items", [[["a"]], [Color.RED], ["a", ("b", ["c"])]])
def test_items_of_a_list_that_a_source_cannot_send_are_refused_at_build(items: list[Any]) -> None:
    flow = StreamBuilder("program")
    flow.from_iterable(items).to(print)
    with pytest.raises(
        TopologyError, match=r"^from_iterable at test_record_mistakes\.py:\d+ gives a [\w ]+, and its type is not known here"
    ):
        flow.build()


AT_THE_RECORD: dict[str, tuple[Callable[[Stream[Any]], Stream[Any]], str, str]] = {
    "flat_map of text": (lambda given: given.flat_map(lambda word: word), "UserError", "given the str 'a', which would become"),
    "flat_map of no items": (
        lambda given: given.flat_map(lambda _word: 5),
        "UserError",
        "the int 5, which is no list; return",
    ),
    "flat_map of nothing": (lambda given: given.flat_map(lambda _word: None), "UserError", "given the NoneType None, which is"),
    "flat_map of a NamedTuple": (
        lambda given: given.flat_map(lambda _word: Total(3)),
        "UserError",
        "flat_map was given the Total Total(count=3), which would become its fields; return a list of records",
    ),
    "flat_map of a dict": (lambda given: given.flat_map(lambda word: {"a": word}), "UserError", "which would become its keys"),
    "flat_map of bytes": (lambda given: given.flat_map(str.encode), "UserError", "which would become its numbers"),
    "a key function": (lambda given: given.key_by(lambda word: word.upper(1)).values(), "TypeError", "takes no arguments"),
    "a time": (lambda given: given.with_event_time(lambda _word: 1.5), "UserError", "given 1.5 (float); return whole milli"),
    "a datetime": (
        lambda given: given.with_event_time(lambda _word: datetime(2026, 1, 2)),
        "UserError",
        "(datetime); return whole milliseconds since the epoch, such as int(when.timestamp() * 1000)",
    ),
    "a record of unknown type": (
        lambda given: given.map(lambda word: Click(word, 1)).rebalance(parallelism=1),
        "UserError",
        "gives a Click, and its type is not known here, so it would not arrive as one; declare it: of=Click",
    ),
    "an Enum in a tuple": (
        lambda given: given.map(lambda word: (word, None, [Color.RED], Color.RED)).rebalance(parallelism=1),
        "UserError",
        "gives a tuple with a list, and its type is not known here, so it would not arrive as one; declare it: "
        "of=tuple[str, None, list[...], Color], or annotate",
    ),
    "a record of merged streams": (
        lambda given: given.map(lambda word: Click(word, 1), of=Click).merge(given).filter(bool).rebalance(parallelism=1),
        "UserError",
        "gives a Click, and its type is not known here, so it would not arrive as one; streams of several types are merged: make "
        "one type of them before, as by map(..., of=...)",
    ),
}


def merged(given: Stream[Any]) -> Stream[Any]:
    return given.map(lambda word: Click(word, 1), of=Click).merge(given).filter(lambda record: isinstance(record, Click))


@dataclass
class Visit:
    clicks: list[Any] | None = None


class Page(TypedDict):
    last: Any
    tags: list[str]


@pytest.mark.parametrize("part", [Click("ann", 1), Visit(), Color.RED, [Visit()], (Visit(),)], ids=repr)
@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (list, lambda part: [part]),
        (Visit, lambda part: Visit([part])),
        (list[Visit], lambda part: [Visit([part])]),
        (list[dict[str, Any]], lambda part: [{"a": part}]),
        (tuple[Click, Any], lambda part: (Click("bob", 2), part)),
        (tuple[Any, Windowed[Any]], lambda part: ("key", Windowed(0, 1, part))),
        (Page, lambda part: {"last": part, "tags": []}),
    ],
    ids=["list", "dataclass", "dataclasses", "dicts", "tuple", "window", "typed dict"],
)
def test_a_record_in_a_part_of_any_type_does_not_leave_as_a_dict(kind: Any, made: Callable[[Any], Any], part: Any) -> None:
    pack = layout_of(kind).packer("map")
    with pytest.raises(UserError, match=r"a (Click|Visit|Color) is in a part of any type, so it would not"):
        pack(made(part))
    pack(made({"a": [1, ("b", None)]}))


def test_a_result_of_into_that_no_type_tells_fails_behind_entries_too() -> None:
    with StreamTest() as test:
        source = test.source(int)
        windows = source.stream.with_event_time(lambda at: at).key_by(lambda _at: "a").window(Tumbling("10ms"))
        results = windows.aggregate(agg.count(), into=lambda clicks: Visit([clicks]))
        test.collect(results.entries().rebalance(parallelism=1))
        source.send(1)
        source.end()
        assert "a Visit is in a part of any type" in test.errors()[0].message


@dataclass
class Longer(Visit):
    seconds: int = 0


class Tree(msgspec.Struct):
    below: list[Tree]


class Leaf(Tree):
    size: int = 1


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        (Windowed[Visit], lambda: Windowed(0, 1, Longer())),
        (list[Visit], lambda: [Visit(), Longer()]),
        (dict[str, Visit | None], lambda: {"a": Longer()}),
        (Windowed[Tree], lambda: Windowed(0, 1, Tree([Tree([Tree([Leaf([])])])]))),
    ],
)
def test_a_record_of_a_subclass_in_a_part_does_not_leave_as_one_of_its_base(kind: Any, made: Callable[[], Any]) -> None:
    pack = layout_of(kind).packer("map")
    with pytest.raises(UserError, match=r"a (Longer|Leaf) is in a part that is declared as (Visit|Tree), and would arrive as a"):
        pack(made())


@pytest.mark.parametrize("into", [lambda count: Total(count), lambda count: {"all": [Total(count)]}])
def test_a_named_tuple_that_no_type_tells_does_not_become_a_tuple_on_its_way(into: Callable[[int], Any]) -> None:
    with StreamTest() as test:
        source = test.source(int)
        windows = source.stream.with_event_time(lambda at: at).key_by(lambda _at: "a").window(Tumbling("10ms"))
        results = windows.aggregate(agg.count(), into=into)
        test.collect(results.values().rebalance(parallelism=1))
        source.send(1)
        source.end()
        assert "the result of a window has a Total, and its type is not known here" in test.errors()[0].message


def test_a_result_of_no_known_type_may_be_read_in_its_task_and_may_be_a_tuple() -> None:
    with StreamTest() as test:
        source = test.source(int)
        windows = source.stream.with_event_time(lambda at: at).key_by(lambda _at: "a").window(Tumbling("10ms"))
        read = windows.aggregate(agg.count(), into=lambda count: Total(count), name="read").map(lambda result: result.value.count)
        plain = windows.aggregate(agg.count(), into=lambda count: (count, [count]), name="plain")
        counts, pairs = [test.collect(one.values().rebalance(parallelism=1)) for one in (read, plain)]
        source.send(1)
        source.end()
        assert (counts.all, pairs.all) == ([1], [Windowed(0, 10, (1, (1,)))])


MERGED = "; streams of several types are merged: make one type of them before, as by map(..., of=...)"


@pytest.mark.parametrize(
    "change",
    [
        lambda keyed: keyed.join_table(keyed.map(str, of=str).latest(), lambda _left, _right: 1, of=int),
        lambda keyed: keyed.latest().changes(),
    ],
    ids=["join", "table"],
)
def test_no_record_of_merged_streams_is_advised_to_declare_a_type_that_merge_does_not_take(change: Any) -> None:
    def draw(flow: StreamBuilder) -> None:
        change(merged(flow.from_iterable(["a"])).key_by(lambda _record: 1)).to(print)

    (error,) = run(draw, attempts=1).errors()
    assert error.message.endswith(MERGED)


def test_nor_is_one_that_is_collected() -> None:
    flow = StreamBuilder("program")
    merged(flow.from_iterable(["a"])).collect()
    ((_sink, collected),) = flow._graph.collected
    collected.open(None)
    with pytest.raises(UserError) as caught:
        collected(Click("a", 1))
    assert str(caught.value).endswith(MERGED)


@pytest.mark.parametrize("case", AT_THE_RECORD)
def test_a_mistake_that_a_record_shows_fails_that_record_at_the_line_of_its_operator(case: str) -> None:
    change, kind, message = AT_THE_RECORD[case]

    def draw(flow: StreamBuilder) -> None:
        good, wrong = flow.from_iterable(["a", "b"], name="words").branch(lambda word: word == "b")
        good.to(print)
        change(wrong).to(print)

    test = run(draw, attempts=1)
    (error,) = test.errors()
    assert (error.kind, Path(error.file).name) == (kind, "test_record_mistakes.py") and message in error.message
    assert test.status()["dead_letters"] == 1


@pytest.mark.parametrize(("at", "warned"), [(1_700_000_000, 1), (1_700_000_000_000, 0), (7, 0)])
def test_seconds_in_place_of_milliseconds_are_warned_of_once(at: int, warned: int, caplog: pytest.LogCaptureFixture) -> None:
    with StreamTest() as test, caplog.at_level(logging.WARNING, "topo.streams"):
        source = test.source(str)
        test.collect(source.stream.with_event_time(lambda _word: at))
        source.send("a", "b")
    assert len(caplog.messages) == warned
    assert all("with_event_time at test_record_mistakes.py:" in text and "multiply by 1000" in text for text in caplog.messages)
