"""Arguments in the place of a stream, a table or a tag are refused with its place, before anything of them is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import TopologyError, UserError
from topo.streams import CoProcess, KeyedProcess, SideOutput, StreamBuilder, Tumbling

LATE, OTHER = SideOutput("late", str), SideOutput("other", str)


def sides(flow: StreamBuilder | None = None) -> tuple[Any, Any]:
    flow = flow or StreamBuilder("program")
    left, right = (flow.from_iterable(["a"], name=name).with_event_time(len) for name in ("left", "right"))
    return left.key_by(str), right


class Pass(CoProcess[str, str, str, str]):
    def process_left(self, record: str, context: Any, out: Any) -> None: ...

    def process_right(self, record: str, context: Any, out: Any) -> None: ...


NOT_KEYED: dict[str, Callable[[Any, Any], object]] = {
    "connect": lambda left, right: left.connect(right).process(Pass()),
    "join": lambda left, right: left.join(right, max, window=Tumbling("1s")),
    "interval_join": lambda left, right: left.interval_join(right, max),
}


@pytest.mark.parametrize("call", NOT_KEYED.values(), ids=NOT_KEYED)
@pytest.mark.parametrize("given", ["a stream without a key", "no stream"])
def test_two_streams_meet_by_key_only(call: Callable[[Any, Any], object], given: str) -> None:
    left, right = sides()
    with pytest.raises(UserError, match=r"at test_wrong_streams.py:\d+; got a (Stream|int): put key_by\(...\) behind it"):
        call(left, right if given == "a stream without a key" else 3)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda _left, right: right.count(), r"a Stream has no 'count'; put key_by\(\.\.\.\) before it"),
        (lambda _left, right: right.window(Tumbling("1s")), r"a Stream has no 'window'; put key_by\(\.\.\.\) before it"),
        (lambda left, _right: left.batch(5), r"a KeyedStream has no 'batch'; put values\(\) or entries\(\) before it"),
        (
            lambda left, _right: left.window(Tumbling("1s")).to(print),
            r"a WindowedStream has no 'to'; choose the result of its windows",
        ),
        (
            lambda left, _right: left.connect(left).map(str),
            r"a ConnectedStreams has no 'map'; put process\(CoProcess\(\)\) before it",
        ),
        (
            lambda left, _right: left.latest().to(print),
            r"a Table has no 'to'; give the table to join_table\(\.\.\.\), or put changes",
        ),
        (
            lambda _left, right: right.broadcast(str).to(print),
            r"a BroadcastTable has no 'to'; give the table to enrich\(table, f\)",
        ),
        (lambda left, _right: left.latest().__len__(), "a Table has no '__len__'$"),
        (lambda left, _right: left.mapp(max), "a KeyedStream has no 'mapp'$"),
        (lambda left, _right: left.__len__(), "a KeyedStream has no '__len__'$"),
    ],
)
def test_a_call_that_streams_of_the_other_kind_have_names_what_to_put_before_it(
    call: Callable[[Any, Any], object], problem: str
) -> None:
    with pytest.raises(AttributeError, match=problem):
        call(*sides())


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda left, right: left.join_table(right.key_by(str), max), r"takes a table; got a KeyedStream: .*\.latest\(\)"),
        (lambda left, right: left.enrich(right, max), r"takes a table; got a Stream: make one by broadcast\(key\)"),
        (lambda left, right: right.enrich(left, max), "takes a table; got a KeyedStream"),
        (lambda left, right: right.merge(3), r"merge at test_wrong_streams.py:\d+ takes a stream; got 3 \(int\)"),
        (
            lambda _left, right: right.parse_json(int, bad=OTHER).side(SideOutput("other", bytes)),
            r"has no side output 'other' of <class 'bytes'>; that of the name is of <class 'str'>: give the tag that it has",
        ),
        (lambda left, right: left.side("late"), r"side at test_wrong_streams.py:\d+ takes a tag, a SideOutput; got 'late'"),
    ],
)
def test_an_argument_that_is_no_stream_table_or_tag_is_named(call: Callable[[Any, Any], object], problem: str) -> None:
    with pytest.raises(UserError, match=problem) as raised:
        call(*sides())
    assert "test_wrong_streams.py:" in str(raised.value)


@pytest.mark.parametrize(
    ("late", "problem"),
    [
        ((LATE, OTHER), r"join_table at .*: late= takes one tag, for late records of this stream: late=SideOutput\(name='late'"),
        ([LATE, OTHER], "late= takes one tag, for late records of this stream"),
        ("late", r"join_table at .*: a side output is a SideOutput\('name', type\); got 'late'"),
    ],
)
def test_a_join_as_of_takes_one_tag_for_late_records(late: Any, problem: str) -> None:
    flow = StreamBuilder("program")
    left, right = sides(flow)
    joined = left.join_table(right.key_by(str).latest(), max, as_of=True, late=late)
    joined.to(print)
    for tag in late if isinstance(late, (tuple, list)) else ():
        joined.side(tag).to(print)
    with pytest.raises(TopologyError, match=problem) as raised:
        flow.build()
    assert len(raised.value.problems) == 1


class Asides(KeyedProcess[str, str, str]):
    def process(self, record: str, context: Any, out: Any) -> None: ...


NUMBERS = SideOutput("late", int)
WITH_SIDES: dict[str, Callable[[Any, Any], Any]] = {
    "interval": lambda left, right: left.interval_join(right.key_by(str), max, late=(LATE, NUMBERS)),
    "window": lambda left, right: left.join(right.key_by(str), max, window=Tumbling("1s"), late=(LATE, NUMBERS)),
    "process": lambda left, _right: left.process(Asides()),
}


@pytest.mark.parametrize("call", WITH_SIDES.values(), ids=WITH_SIDES)
def test_two_tags_of_one_name_would_mix_their_records(call: Callable[[Any, Any], Any]) -> None:
    stream = call(*sides())
    with pytest.raises(UserError, match=r"has two side outputs 'late'; give each tag its own name \(test_wrong_streams.py:\d+"):
        [stream.side(tag) for tag in (LATE, LATE, NUMBERS)]


def test_a_window_takes_one_tag_for_late_records() -> None:
    flow = StreamBuilder("program")
    timed = flow.from_iterable(["a"]).with_event_time(len).key_by(str)
    timed.window(Tumbling("1s"), late=(LATE,)).count().to(print)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"a side output is a SideOutput\('name', type\); got \(SideOutput"):
        flow.build()


def test_streams_of_two_builders_do_not_merge() -> None:
    with pytest.raises(UserError, match="streams of 'a' and 'b'; draw them with one StreamBuilder"):
        sides(StreamBuilder("a"))[1].merge(sides(StreamBuilder("b"))[1])


def test_a_side_output_that_an_operator_lacks_is_refused_with_those_that_it_has() -> None:
    parsed = StreamBuilder("a").from_iterable(["a"]).parse_json(int, bad=SideOutput("bad", str))
    with pytest.raises(UserError, match="has no side output 'late'; it has 'bad'"):
        parsed.side(SideOutput("late", str))


@pytest.mark.parametrize("name", [["words"], ("words",), 5])
def test_a_name_that_is_no_text_is_refused_with_its_place(name: Any) -> None:
    flow = StreamBuilder("program")
    flow.from_iterable(["a"], name=name).key_by(str).count(name="count").to(print)
    with pytest.raises(TopologyError, match=r"from_iterable at test_wrong_streams.py:\d+: name=.* must be a text, such as"):
        flow.build()
