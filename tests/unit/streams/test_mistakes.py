"""Mistakes in programs of streams: found at build, all at once, each with file and line and the fix."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.unit.streams.wrong_programs import Pass, problems, windowed, words
from topo import FilesSpout, JsonLinesSink, PrintBolt, SqliteSink, TailSpout, TextFileSpout
from topo.streams import (
    AT_END,
    KeyedValue,
    Session,
    SideOutput,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Tumbling,
    agg,
)


class Click(msgspec.Struct):
    user: str
    at: int


class WithState(Pass):
    def __init__(self) -> None:
        self.value = KeyedValue(int)


class WithTimer(Pass):
    def process(self, record: str, context: StreamContext[str], out: StreamOutput[str]) -> None:
        context.register_event_time_timer(1)


def line(function: Callable[..., Any], behind: int) -> int:
    return function.__code__.co_firstlineno + behind


LATE_WORDS = SideOutput("late", str)


def unread(flow: StreamBuilder) -> None:
    words(flow).filter(bool)


def one_late_tag(flow: StreamBuilder) -> None:
    left, right = (words(flow, name).with_event_time(len).key_by(str) for name in "ab")
    joined = left.interval_join(right, max, late=(LATE_WORDS,))  # type: ignore[arg-type]
    joined.side(LATE_WORDS).to(print)
    joined.to(print)


def late_dict(flow: StreamBuilder) -> None:
    left, right = (words(flow, name).with_event_time(len).key_by(str) for name in "ab")
    left.interval_join(right, max, late=({}, {})).to(print)  # type: ignore[arg-type]


def late_now(flow: StreamBuilder) -> None:
    joined = words(flow).key_by(str).join_table(words(flow, "m").key_by(str).latest(), max, late=LATE_WORDS)
    joined.side(LATE_WORDS).to(print)
    joined.to(print)


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


async def later(word: str) -> str:
    return word


class Order(msgspec.Struct):
    id: int


class Pair(NamedTuple):
    left: Order | Click


@dataclass
class Left:
    word: str


@dataclass
class Right:
    word: str


def unnamed_side(flow: StreamBuilder) -> None:
    parsed = words(flow).parse_json(Click, bad=SideOutput("", str))
    parsed.side(SideOutput("", str)).to(print)
    parsed.to(print)


class WrongState(Pass):
    number = KeyedValue(5)  # type: ignore[arg-type]


class Computed(NamedTuple):
    words: Counter[str]


class StateOfCounters(Pass):
    number = KeyedValue(Computed)


class WrongTtl(Pass):
    number = KeyedValue(int, ttl="soon")


class Unnamed(Pass):
    """Its state was put on the class when that was made already."""


Unnamed.number = KeyedValue(int)  # type: ignore[attr-defined]


def two_sides(flow: StreamBuilder) -> None:
    left = words(flow, "l").with_event_time(len).key_by(str, parallelism=2)
    left.join(words(flow, "r").with_event_time(len).key_by(str), max, window=Tumbling("1s")).to(print)


def interval(flow: StreamBuilder) -> None:
    timed = words(flow, "timed").with_event_time(len).key_by(str)
    timed.interval_join(words(flow).key_by(str), max, after="1s").to(print)


def as_of(flow: StreamBuilder) -> None:
    timed = words(flow, "timed").with_event_time(len).key_by(str)
    timed.join_table(words(flow).key_by(str).latest(), max, as_of=True).to(print)


def endless(items: Any) -> Callable[[StreamBuilder], object]:
    def draw(flow: StreamBuilder) -> None:
        source = flow.from_spout(items, of=str)
        merged = words(flow, "other").merge(source.map(str))
        merged.rebalance(parallelism=2).key_by(str).reduce(max, emit=AT_END).to(print)

    return draw


CASES: dict[str, tuple[Callable[[StreamBuilder], object], list[str]]] = {
    "unread": (unread, ["no operator reads the results of filter at test_mistakes.py:{unread}; end them with .to(...)"]),
    "unread branch": (unread_branch, ["no operator reads the second stream of branch at", "use filter"]),
    "unread side": (
        lambda flow: words(flow).parse_json(Click, bad=SideOutput("bad", str)).to(print),
        ["no operator reads the side output 'bad' of parse_json at", ".side(...)"],
    ),
    "no source": (lambda flow: None, ["the program 'program' at wrong_programs.py:", "has no source"]),
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
    "bolt class": (lambda flow: words(flow).to(PrintBolt), ["the class PrintBolt was given; give an instance, PrintBolt(...)"]),
    "function sink": (lambda flow: words(flow).to(print, parallelism=2), ["parallelism= has no effect"]),
    "parallelism": (lambda flow: words(flow).rebalance(parallelism=0).to(print), ["parallelism=0 must be a whole number"]),
    "emit": (lambda flow: words(flow).key_by(str).count(emit="end").to(print), ["give EACH, AT_END or every('1s')"]),
    "window": (lambda flow: words(flow).key_by(str).window("1s").count().to(print), ["window takes Tumbling"]),
    "event time": (
        lambda flow: words(flow).key_by(str).window(Tumbling("1s")).count().to(print),
        [
            "window at",
            "event time, but the records of from_iterable at wrong_programs.py:{words} have none",
            "with_event_time(",
            "or use Tumbling(..., clock='processing'), or Sliding or Session with it",
        ],
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
    "columns of records without fields": (
        lambda flow: flow.from_iterable([{"at": 1}], of=dict).to(SqliteSink("out.db", "clicks", ("at",))),
        ["it needs the field 'at'", "there are 'value'; of tuples and dicts .to(sink, fields=(...)) makes columns", "(sink at"],
    ),
    "columns of records without fields behind a key": (
        lambda flow: flow.from_iterable([{"at": 1}], of=dict).key_by(len).to(SqliteSink("out.db", "clicks", ("at",))),
        ["it needs the field 'at'", "there are 'key', 'value'; of tuples and dicts .to(sink, fields=(...)) makes", "(sink at"],
    ),
    "a column of records without fields that is spelled like theirs": (
        lambda flow: flow.from_iterable([{"values": 1}], of=dict).to(SqliteSink("out.db", "clicks", ("values",))),
        ["'values'", "did you mean 'value'?; of tuples and dicts .to(sink, fields=(...)) makes columns", "(sink at"],
    ),
    "windows that messages do not outlast": (
        lambda flow: (
            words(flow.config(delivery="at_least_once")).with_event_time(len).key_by(str).window(Session("1m")).count().to(print)
        ),
        [
            "message_timeout of 'items' is 30s",
            "run with delivery='exactly_once'",
            "give a WindowBolt the longest wait",
            "(window at",
        ],
    ),
    "one of two dataclasses": (
        lambda flow: words(flow).map(lambda word: Left(word), of=Left | Right).to(print),
        ["cannot be made again on arrival", "make each a msgspec.Struct with a tag, as in class Paid(msgspec.Struct, tag=True)"],
    ),
    "spout": (lambda flow: flow.from_spout(PrintBolt()).to(print), ["from_spout takes a spout, an instance; got"]),
    "through": (lambda flow: words(flow).through(print).to(print), ["through takes a bolt; got"]),
    "top_n": (lambda flow: windowed(flow).top_n(0, len).to(print), ["window at", "top_n(0) must have a whole number, 1 or more"]),
    "no aggregate": (lambda flow: windowed(flow).aggregate().to(print), ["aggregate takes one to three aggregates"]),
    "aggregate": (lambda flow: windowed(flow).aggregate(agg.count).to(print), ["window at", "call it: agg.count(...)"]),
    "state": (lambda flow: words(flow).key_by(str).process(WrongState()).to(print), ["the state 'number' takes a type"]),
    "state that could not be restored": (
        lambda flow: words(flow).key_by(str).process(StateOfCounters()).to(print),
        ["process at", "the state 'number': values of collections.Counter[str] cannot", "Counter arrives as dict; make a dict"],
    ),
    "a result that could not be restored": (
        lambda flow: words(flow).key_by(str).fold(Counter(), max, of=Counter).to(print),
        ["fold at", "values of <class 'collections.Counter'> cannot be made again on arrival", "make a dict of it"],
    ),
    "a record that could not be made again": (
        lambda flow: words(flow).map(Counter).rebalance(parallelism=2).to(print),
        ["rebalance at", "values of <class 'collections.Counter'> cannot be made again on arrival"],
    ),
    "disorder": (
        lambda flow: words(flow).with_event_time(len, disorder="soon").to(print),
        ["with_event_time at", "disorder='soon': 'soon' is not a duration"],
    ),
    "no disorder": (
        lambda flow: words(flow).with_event_time(len, disorder=None).to(print),
        ["with_event_time at", "disorder=None: None is not a duration"],
    ),
    "idle": (
        lambda flow: words(flow).with_event_time(len, idle="0s").to(print),
        ["with_event_time at", "idle='0s' must be above zero"],
    ),
    "no lateness": (
        lambda flow: words(flow).with_event_time(len).key_by(str).window(Tumbling("1s"), lateness=None).count().to(print),
        ["window at", "lateness=None: None is not a duration"],
    ),
    "of with two types": (lambda flow: words(flow).map(len, of=(int, str)).to(print), ["map at", "must be a type, such as str"]),
    "of with a record": (lambda flow: words(flow).map(len, of=Order(1)).to(print), ["map at", "of=Order(id=1) must be a type"]),
    "of with a function": (
        lambda flow: words(flow).map(len, of=later).to(print),
        ["map at", "of=<function later", "must be a type"],
    ),
    "of with a tag": (lambda flow: words(flow).map(len, of=LATE_WORDS).to(print), ["map at", "of=SideOutput(", "must be a type"]),
    "parse_json with a tag": (
        lambda flow: words(flow).parse_json(LATE_WORDS).to(print),
        ["takes a type, such as Click; got Side"],
    ),
    "late that is no tag": (
        late_dict,
        ["interval_join at", "a side output is a SideOutput('name', type); got {}"],
    ),
    "parse_json with a record": (
        lambda flow: words(flow).parse_json(Order(1)).to(print),
        ["parse_json at", "takes a type, such as Click; got Order(id=1)"],
    ),
    "parse_json of an unknown type": (
        lambda flow: words(flow).parse_json(object()).to(print),
        ["parse_json at", "cannot be read from JSON"],
    ),
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
    "one tag for two sides": (one_late_tag, ["interval_join at", "late= takes two tags, for this stream and for the other"]),
    "late without as_of": (late_now, ["join_table at", "late= has an effect with as_of=True only"]),
    "state without a name": (
        lambda flow: words(flow).key_by(str).process(Unnamed()).to(print),
        ["process at", "a state has no name; declare it on the class"],
    ),
    "parallelism of two sides": (two_sides, ["its parallelism is 2, of key_by at", "but that of key_by at", "is 1; give both"]),
    "interval join without event time": (
        interval,
        ["interval_join at", "the records of from_iterable at wrong_programs.py:{words} have none", "disorder='5s') behind it"],
    ),
    "as of without event time": (as_of, ["join_table at", "have none; put .with_event_time(", "or leave as_of=True out"]),
    **{
        f"the end of {name}": (
            endless(source),
            ["reduce at", f"emits at the end (AT_END), and {kind} at test_mistakes.py:", "never ends; use emit=every('1s')"],
        )
        for name, kind, source in (
            ("a followed file", "from_spout", TailSpout("app.log")),
            ("a folder", "from_spout", FilesSpout("logs")),
        )
    },
    "key groups": (
        lambda flow: words(flow).key_by(str, parallelism=40_000).count().to(print),
        ["component 'count': parallelism 40000 is more than max_parallelism 32768; lower it (count at test_mistakes.py:"],
    ),
    "component id": (
        lambda flow: words(flow).key_by(str).count(name="a b").to(print),
        ["component id 'a b' is not allowed; use", "(count 'a b' at test_mistakes.py:"],
    ),
    "settings": (
        lambda flow: words(flow.config(wrkers=2)).to(print),
        ["settings of the topology: there is no setting 'wrkers'", "(wrong_programs.py:"],
    ),
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
    assert re.search(r"(test_mistakes|wrong_programs)\.py:\d", found[0])


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


LISTED_ONCE = FilesSpout("logs", discovery_interval=None)


@pytest.mark.parametrize("source", [TextFileSpout("a.txt"), LISTED_ONCE])
def test_a_source_that_may_end_can_give_results_at_the_end(source: Any) -> None:
    flow = StreamBuilder("program")
    endless(source)(flow)
    flow.build()
