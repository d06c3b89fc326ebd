"""Mistakes in programs of streams: found at build, all at once, each with file and line and the fix."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from topo import JsonLinesSink, PrintBolt, TopologyError, UserError
from topo.streams import (
    AT_END,
    KeyedProcess,
    KeyedValue,
    Session,
    SideOutput,
    Stream,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Tumbling,
    WindowedStream,
    agg,
)


class Click(msgspec.Struct):
    user: str
    at: int


class Pass(KeyedProcess[str, str, str]):
    def process(self, record: str, context: StreamContext[str], out: StreamOutput[str]) -> None:
        out.emit(record)


class WithState(Pass):
    def __init__(self) -> None:
        self.value = KeyedValue(int)


class WithTimer(Pass):
    def process(self, record: str, context: StreamContext[str], out: StreamOutput[str]) -> None:
        context.register_event_time_timer(1)


def words(flow: StreamBuilder, name: str | None = None) -> Stream[str]:
    return flow.from_iterable(["a"], name=name)


def problems(draw: Callable[[StreamBuilder], object]) -> list[str]:
    flow = StreamBuilder("program")
    draw(flow)
    with pytest.raises(TopologyError) as caught:
        flow.build()
    return list(caught.value.problems)


def line(function: Callable[..., Any], behind: int) -> int:
    return function.__code__.co_firstlineno + behind


def unread(flow: StreamBuilder) -> None:
    words(flow).filter(bool)


def unread_branch(flow: StreamBuilder) -> None:
    words(flow).branch(bool)[0].to(print)


def same_name(flow: StreamBuilder) -> None:
    keyed = words(flow).key_by(str)
    keyed.count(name="users").to(print)
    keyed.reduce(max, name="users").to(print)


def two_without_names(flow: StreamBuilder) -> None:
    keyed = words(flow).key_by(str)
    keyed.count().to(print)
    keyed.count().to(print)


def two_sources(flow: StreamBuilder) -> None:
    words(flow).to(print)
    words(flow).to(print)


def two_sinks(flow: StreamBuilder) -> None:
    words(flow).to(JsonLinesSink("a"))
    words(flow, "other").to(JsonLinesSink("b"))


def loop_variable(flow: StreamBuilder) -> None:
    for wanted in ("a", "b"):
        words(flow, wanted).filter(lambda word: word == wanted).to(print)  # noqa: B023


async def later(word: str) -> str:
    return word


def generated(word: str) -> Any:
    yield word


def spelled(word: str) -> str:
    return word


def as_list(word: str) -> list:
    return [word]


class Order(msgspec.Struct):
    id: int


class Pair(NamedTuple):
    left: Order | Click


def windowed(flow: StreamBuilder) -> WindowedStream[str, str]:
    return words(flow).with_event_time(len).key_by(str).window(Tumbling("1s"))


def unnamed_side(flow: StreamBuilder) -> None:
    parsed = words(flow).parse_json(Click, bad=SideOutput("", str))
    parsed.side(SideOutput("", str)).to(print)
    parsed.to(print)


class WrongState(Pass):
    number = KeyedValue(5)  # type: ignore[arg-type]


class WrongTtl(Pass):
    number = KeyedValue(int, ttl="soon")


class Opened:
    async def open(self, context: Any) -> None: ...

    def __call__(self, *given: Any) -> Any:
        return given[-1]


class AsyncPass(Pass):
    async def open(self) -> None: ...  # type: ignore[override]


CASES: dict[str, tuple[Callable[[StreamBuilder], object], list[str]]] = {
    "unread": (unread, ["no operator reads the results of filter at test_mistakes.py:{unread}; end them with .to(...)"]),
    "unread branch": (unread_branch, ["no operator reads the second stream of branch at", "use filter"]),
    "unread side": (
        lambda flow: words(flow).parse_json(Click, bad=SideOutput("bad", str)).to(print),
        ["no operator reads the side output 'bad' of parse_json at", ".side(...)"],
    ),
    "no source": (lambda flow: None, ["the program 'program' has no source"]),
    "same name": (
        same_name,
        ["the name 'users' is given to count at test_mistakes.py:{same_name_1} and to reduce", "test_mistakes.py:{same_name_2};"],
    ),
    "no names": (
        two_without_names,
        ["count at test_mistakes.py:{two_without_names_1} and", "test_mistakes.py:{two_without_names_2} have state and no name"],
    ),
    "no names of sources": (two_sources, ["have positions and no name", "give each a name="]),
    "no names of sinks": (two_sinks, ["sink at", "have state and no name"]),
    "key_by": (lambda flow: words(flow).key_by(str, parallelism=0).count().to(print), ["parallelism=0 must be a whole number"]),
    "loop": (loop_variable, ["its function uses 'wanted', which has another value by now", "lambda record, wanted=wanted: ..."]),
    "async": (lambda flow: words(flow).map(later).to(print), ["map was given an async function", "async_map"]),
    "generator": (lambda flow: words(flow).map(generated).to(print), ["give it to flat_map"]),
    "text": (lambda flow: words(flow).flat_map(spelled).to(print), ["would become its characters; return a list"]),
    "parameters": (
        lambda flow: words(flow).key_by(str).reduce(lambda word: word).to(print),
        ["reduce calls its function with 2 (so_far, record), but it takes (word)"],
    ),
    "no function": (lambda flow: words(flow).map("upper").to(print), ["map takes a function of record; got 'upper' (str)"]),
    "bolt class": (lambda flow: words(flow).to(PrintBolt), ["the class PrintBolt was given; give an instance, PrintBolt(...)"]),
    "key": (lambda flow: words(flow).key_by(as_list).count().to(print), ["returns list, which cannot be a key; return a tuple"]),
    "function sink": (lambda flow: words(flow).to(print, parallelism=2), ["parallelism= has no effect"]),
    "parallelism": (lambda flow: words(flow).rebalance(parallelism=0).to(print), ["parallelism=0 must be a whole number"]),
    "emit": (lambda flow: words(flow).key_by(str).count(emit="end").to(print), ["give EACH, AT_END or every('1s')"]),
    "window": (lambda flow: words(flow).key_by(str).window("1s").count().to(print), ["window takes Tumbling"]),
    "event time": (
        lambda flow: words(flow).key_by(str).window(Tumbling("1s")).count().to(print),
        ["window at", "event time, but the records of from_iterable at test_mistakes.py:{words} have none", "with_event_time"],
    ),
    "timers": (
        lambda flow: words(flow).key_by(str).process(WithTimer()).to(print),
        ["process at", "goes by event time", "processing-time timers"],
    ),
    "time at the end": (
        lambda flow: (
            words(flow).with_event_time(len).key_by(str).count(emit=AT_END).window(Session("1s")).count(name="n").to(print)
        ),
        ["the records of count at", "use emit=EACH"],
    ),
    "process class": (lambda flow: words(flow).key_by(str).process(Pass).to(print), ["give an instance, process(Pass())"]),
    "state in init": (lambda flow: words(flow).key_by(str).process(WithState()).to(print), ["declare it on the class WithState"]),
    "record": (
        lambda flow: words(flow).map(lambda word: Pair(1), of=Pair).to(print),
        ["cannot be made again on arrival", "union"],
    ),
    "spout": (lambda flow: flow.from_spout(PrintBolt()).to(print), ["from_spout takes a spout, an instance; got"]),
    "through": (lambda flow: words(flow).through(print).to(print), ["through takes a bolt; got"]),
    "top_n": (lambda flow: windowed(flow).top_n(0, len).to(print), ["window at", "top_n(0) must have a whole number, 1 or more"]),
    "no aggregate": (lambda flow: windowed(flow).aggregate().to(print), ["aggregate takes one to three aggregates"]),
    "aggregate": (lambda flow: windowed(flow).aggregate(agg.count).to(print), ["window at", "call it: agg.count(...)"]),
    "into": (lambda flow: windowed(flow).aggregate(agg.count(), into=pow).to(print), ["into calls its function with 1"]),
    "state": (lambda flow: words(flow).key_by(str).process(WrongState()).to(print), ["the state 'number' takes a type"]),
    "ttl": (lambda flow: words(flow).key_by(str).process(WrongTtl()).to(print), ["the state 'number': ttl='soon'"]),
    "of": (lambda flow: words(flow).map(len, of=5).to(print), ["map at", "of=5 must be a type"]),
    "on_timeout": (lambda flow: words(flow).async_map(later, on_timeout=len).to(print), ["no effect without timeout="]),
    "timeout": (lambda flow: words(flow).async_map(later, timeout="soon").to(print), ["async_map at", "timeout='soon'"]),
    "retry": (lambda flow: words(flow).async_map(later, retry=3).to(print), ["async_map at", "retry=3: give a strategy"]),
    "fields": (lambda flow: words(flow).to(PrintBolt(), fields="url"), ["sink at", "fields='url' must be a tuple of names"]),
    "side name": (
        unnamed_side,
        ["was given the name ''"],
    ),
    "parse_json": (lambda flow: words(flow).parse_json(5).to(print), ["parse_json at", "takes a type, such as Click; got 5"]),
    "derived name": (
        lambda flow: words(flow, "clicks").key_by(str).count(name="clicks-steps").to(print),
        ["count 'clicks-steps' at", "is that of a component behind from_iterable 'clicks' at"],
    ),
    "async open": (lambda flow: words(flow).map(Opened()).to(print), ["Opened.open is an async def, and nothing would await it"]),
    "async open of a reduce": (
        lambda flow: words(flow).key_by(str).reduce(Opened()).to(print),
        ["reduce at", "Opened.open is an async def"],
    ),
    "async open of a process": (
        lambda flow: words(flow).key_by(str).process(AsyncPass()).to(print),
        ["AsyncPass.open is an async def", "make it a def"],
    ),
    "open of a sum": (
        lambda flow: words(flow).with_event_time(len).key_by(str).window(Tumbling("1s")).sum(Opened()).to(print),
        ["window at", "sum does not call the open() of Opened; call it in a map before the window"],
    ),
    "only": (lambda flow: words(flow).only(3).to(print), ["only takes a class or a type guard"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_found_at_build_with_its_place_and_the_fix(case: str) -> None:
    draw, expected = CASES[case]
    found = problems(draw)
    lines = {"unread": line(unread, 1), "words": line(words, 1)}
    for drawn in (same_name, two_without_names):
        lines |= {f"{drawn.__name__}_{place}": line(drawn, place + 1) for place in (1, 2)}
    expected = [re.sub(r"(?<=py:)\{(\w+)\}", lambda found: str(lines[found[1]]), part) for part in expected]
    assert len(found) == 1, found
    assert [part for part in expected if part not in found[0]] == [], found[0]
    assert "test_mistakes.py:" in found[0] or case == "no source"


def test_one_instance_of_a_process_serves_one_operator() -> None:
    shared = Pass()

    def draw(flow: StreamBuilder) -> None:
        words(flow, "one").key_by(str).process(shared, name="a").to(print)
        words(flow).key_by(str).process(shared, name="b").to(print)

    (problem,) = problems(draw)
    assert "share one instance" in problem


def test_all_mistakes_are_reported_at_once() -> None:
    def draw(flow: StreamBuilder) -> None:
        words(flow, "one").map(later).to(print)
        words(flow).filter(bool)

    assert len(problems(draw)) == 2


def test_streams_of_two_builders_do_not_merge() -> None:
    with pytest.raises(UserError, match="streams of 'a' and 'b'; draw them with one StreamBuilder"):
        words(StreamBuilder("a")).merge(words(StreamBuilder("b")))


def test_a_side_output_that_an_operator_lacks_is_refused_with_those_that_it_has() -> None:
    parsed = words(StreamBuilder("a")).parse_json(Click, bad=SideOutput("bad", str))
    with pytest.raises(UserError, match="has no side output 'late'; it has 'bad'"):
        parsed.side(SideOutput("late", str))


def test_an_attribute_is_no_captured_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = StreamBuilder("program")
    monkeypatch.setitem(globals(), "user", "before")
    flow.from_iterable([Click("a", 1)]).map(lambda click: click.user).to(print)
    monkeypatch.setitem(globals(), "user", "after")
    flow.build()


def test_a_bound_loop_variable_is_no_mistake() -> None:
    flow = StreamBuilder("program")
    for wanted in ("a", "b"):
        words(flow, wanted).filter(lambda word, wanted=wanted: word == wanted).to(print)
    assert len(flow.build().components) == 4


@pytest.mark.parametrize("key", [[1], float("nan"), {1}, (1, [2])])
def test_a_value_that_cannot_be_a_key_fails_its_record(key: Any) -> None:
    from topo.testing import TopologyTest

    def build() -> Any:
        flow = StreamBuilder("program")
        words(flow).key_by(lambda _word: key).count().to(print)
        return flow.build()

    test = TopologyTest(build, attempts=1)
    test.run()
    (error,) = test.errors()
    assert error.message.startswith("key_by was given ") and error.file.endswith("test_mistakes.py")
