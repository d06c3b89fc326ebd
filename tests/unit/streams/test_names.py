"""State of operators without a name: known by what they do, so that none takes over that of another."""

from __future__ import annotations

import os
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Any, Optional, Union

import msgspec
import pytest

from topo import TopologyError
from topo.checkpoint.assignment import manifest_of, shapes_of
from topo.checkpoint.manifest import decode_manifest, encode_manifest, misfits
from topo.plan.outline import first_difference, outline
from topo.plan.physical import PhysicalPlan, physical_plan
from topo.streams import (
    AT_END,
    EACH,
    KeyedList,
    KeyedMap,
    KeyedProcess,
    KeyedStream,
    KeyedValue,
    Rows,
    Session,
    Sliding,
    Stream,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Tumbling,
    every,
)
from topo.streams.results import EmitWhen


class Click(msgspec.Struct):
    user: str
    url: str


PROGRAM = """
from topo.streams import StreamBuilder
flow = StreamBuilder("words")
flow.from_iterable(["a"]).key_by(lambda word: word in {"a", "b", "c", "d"}).count().to(print)
print(flow.build().component("count").identity)
"""
Draw = Callable[[Stream[Click]], KeyedStream[Any, Any]]


def plan(draw: Draw) -> PhysicalPlan:
    flow = StreamBuilder("clicks")
    draw(flow.from_iterable([Click("a", "/")])).to(print)
    return physical_plan(flow.build())


def problems(before: Draw, after: Draw) -> list[str]:
    """Return why a program does not continue from a savepoint of another; the savepoint is written and read in between."""
    stored = decode_manifest(encode_manifest(manifest_of(plan(before), 1, {}, 0.0)), "manifest")
    return misfits(stored, "clicks", shapes_of(plan(after)))


def by_user(clicks: Stream[Click]) -> KeyedStream[str, int]:
    return clicks.key_by(lambda click: click.user).count()


def by_url(clicks: Stream[Click]) -> KeyedStream[str, int]:
    return clicks.key_by(lambda click: click.url).count()


def named(clicks: Stream[Click]) -> KeyedStream[str, int]:
    return clicks.key_by(lambda click: click.url).count(name="count")


def with_steps(clicks: Stream[Click]) -> KeyedStream[str, int]:
    """The same operator on another line, with operators of one record at a time around it."""
    wanted = clicks.filter(lambda click: click.url in {"/", "/a"}).key_by(lambda click: click.user)
    return wanted.count().map(lambda number: number + 1)


def beside_another(clicks: Stream[Click]) -> KeyedStream[str, int]:
    """The name of the stored state goes to another operator, and its own one has the next id."""
    clicks.key_by(lambda click: click.url).count(name="count").to(print)
    return clicks.key_by(lambda click: click.user).count()


def test_an_unnamed_operator_takes_its_own_state_back() -> None:
    assert problems(by_user, with_steps) == []


def test_another_unnamed_operator_does_not_take_the_state_over_and_both_places_are_shown() -> None:
    (problem,) = problems(by_user, by_url)
    before, after = (draw.__code__.co_firstlineno + 1 for draw in (by_user, by_url))
    assert problem == (
        f"the state of 'count' is that of count at test_names.py:{before}, which had no name, and count at test_names.py:{after} "
        "is another operator; to let it take the state over, give it name='count', else begin with nothing (--drop-state count)"
    )


def test_an_operator_that_is_given_the_name_takes_the_state_over() -> None:
    assert problems(by_user, named) == []


def test_the_name_does_not_move_state_away_from_its_own_operator() -> None:
    (problem,) = problems(by_user, beside_another)
    assert problem.startswith("the state of 'count' is that of count at test_names.py:")


def test_state_that_no_operator_takes_is_shown_with_its_place() -> None:
    (problem,) = problems(by_user, lambda clicks: clicks.key_by(lambda click: click.user).count(name="users"))
    assert problem.startswith("no task takes the state of 'count' (count at test_names.py:")


def test_a_misfit_of_a_named_operator_is_shown_with_both_places() -> None:
    def grouped(clicks: Stream[Click]) -> KeyedStream[str, int]:
        return clicks.rebalance(parallelism=2, name="spread").key_by(lambda click: click.url).count(name="count")

    problem = next(one for one in problems(named, grouped) if "its inputs are grouped by" in one)
    assert "(count 'count' at test_names.py:" in problem and "in the checkpoint, count 'count' at test_names.py:" in problem


def test_the_facts_do_not_depend_on_the_order_of_a_set() -> None:
    seen = {
        subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True).stdout
        for seed in "12"
    }
    assert len(seen) == 1 and b"by lambda([" in seen.pop()


def test_a_program_that_was_built_otherwise_has_another_digest() -> None:
    def spelled(clicks: Stream[Click]) -> KeyedStream[str, int]:
        return clicks.key_by(lambda click: click.user).map(lambda click: len(click.url))

    def filtered(clicks: Stream[Click]) -> KeyedStream[str, Click]:
        return clicks.key_by(lambda click: click.user).filter(lambda click: click.url)

    one, other = plan(spelled), plan(filtered)
    assert one.digest() != other.digest()
    mapped, kept = (draw.__code__.co_firstlineno + 1 for draw in (spelled, filtered))
    assert first_difference(outline(one), outline(other)) == (
        f"key_by at test_names.py:{mapped}",
        f"key_by at test_names.py:{kept}",
    )


def test_state_of_another_type_is_refused_with_both_types() -> None:
    class Before(KeyedProcess[str, Click, str]):
        total = KeyedValue(int)
        last = KeyedValue(Click)
        names = KeyedMap(str, list[int])

        def process(self, record: Click, context: StreamContext[str], out: StreamOutput[str]) -> None:
            out.emit(record.user)

    class Renamed(Click):
        pass

    class After(Before):
        total = KeyedList(int)  # type: ignore[assignment]
        last = KeyedValue(Renamed)  # its fields are stored, so the name of its class does not matter
        names = KeyedMap(str, int)  # type: ignore[assignment]
        new = KeyedValue(str)

    def of(process: type[Before]) -> Draw:
        return lambda clicks: clicks.key_by(lambda click: click.user).process(process(), name="users")

    found = problems(of(Before), of(After))
    assert [problem.partition(";")[0] for problem in found] == [
        "the state 'total' of 'users' is a value of int in the checkpoint, and a list of int now",
        "the state 'names' of 'users' is a map of str to list[int] in the checkpoint, and a map of str to int now",
    ]
    assert all("(process 'users' at test_names.py:" in problem for problem in found)
    assert problems(of(Before), of(Before)) == []


class Turned(msgspec.Struct):
    url: str
    user: str


JOINS: dict[str, tuple[Callable[[Any, Any], Any], list[str]]] = {
    "table": (lambda left, right: left.join_table(right.latest(), pair, name="j"), ["rows"]),
    "as of": (lambda left, right: left.join_table(right.latest(), pair, as_of=True, name="j"), ["right records"]),
    "changes": (lambda _left, right: right.latest().changes(name="j"), ["rows"]),
    "interval": (lambda left, right: left.interval_join(right, pair, after="1s", name="j"), ["right records"]),
    "window": (lambda left, right: left.join(right, pair, window=Tumbling("1s"), name="j"), ["right records"]),
    "process": (lambda _left, right: right.window(Tumbling("1s")).process(lambda _key, _window: [1], name="j"), ["records"]),
    "count": (lambda _left, right: right.window(Tumbling("1s")).count(name="j"), []),
    "batch": (lambda _left, right: right.values().batch(10, name="j").key_by(len), ["records"]),
}


def pair(_left: Any, _right: Any) -> int:
    return 1


@pytest.mark.parametrize("how", JOINS)
def test_records_in_state_by_position_do_not_fit_other_fields(how: str) -> None:
    draw, expected = JOINS[how]

    def of(record: type) -> Draw:
        def program(clicks: Stream[Click]) -> KeyedStream[Any, Any]:
            left = clicks.with_event_time(lambda _click: 1).key_by(lambda click: click.user)
            right = clicks.map(lambda click: record(user=click.user, url=click.url), of=record)
            joined = draw(left, right.with_event_time(lambda _click: 1).key_by(lambda click: click.user))
            left.to(print)
            return joined

        return program

    assert problems(of(Click), of(Click)) == []
    assert [problem.partition(";")[0] for problem in problems(of(Click), of(Turned))] == [
        f"the state {one!r} of 'j' is a list of records by position (user, url) in the checkpoint, and a list of records by "
        "position (url, user) now"
        for one in expected
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Optional[int], int | None),  # noqa: UP045
        (Union[str, int], int | str),  # noqa: UP007
        (list[Optional[int]], list[None | int]),  # noqa: UP045, RUF036
        (typing.List[int], list[int]),  # noqa: UP006
        (typing.Dict[str, typing.Tuple[int, ...]], dict[str, tuple[int, ...]]),  # noqa: UP006
    ],
)
def test_state_of_an_equal_type_in_another_spelling_fits(one: Any, other: Any) -> None:
    def of(kept: Any) -> Draw:
        class Process(KeyedProcess[str, Click, str]):
            last = KeyedValue(kept)

            def process(self, record: Click, context: StreamContext[str], out: StreamOutput[str]) -> None:
                out.emit(record.user)

        return lambda clicks: clicks.key_by(lambda click: click.user).process(Process(), name="users")

    assert problems(of(one), of(other)) == []
    assert len(problems(of(one), of(list[bytes]))) == 1


def test_operators_that_savepoints_know_by_name_need_one_where_names_are_required() -> None:
    def program(*names: str | None) -> StreamBuilder:
        flow = StreamBuilder("named", require_names=True)
        source, count = names
        words = flow.from_iterable(["a"], name=source).map(str.lower)
        words.key_by(lambda word: word).count(name=count).to(print)
        return flow

    program("words", "counts").build()
    for none in (None, ""):
        with pytest.raises(TopologyError) as raised:
            program(none, none).build()
        shown = str(raised.value)
        assert shown.count("has no name, and require_names is set") == 2
    assert "from_iterable at test_names.py:" in shown and "count at test_names.py:" in shown


def in_windows(window: Any, result: str = "count") -> Draw:
    def draw(clicks: Stream[Click]) -> KeyedStream[str, Any]:
        timed = clicks.with_event_time(lambda click: 0).key_by(lambda click: click.user).window(window)
        return timed.count(name="op") if result == "count" else timed.max(lambda click: len(click.url), name="op")

    return draw


def near(after: str) -> Draw:
    def draw(clicks: Stream[Click]) -> KeyedStream[str, Any]:
        keyed = clicks.with_event_time(lambda click: 0).key_by(lambda click: click.user)
        return keyed.left_interval_join(keyed, lambda one, other: one.url, after=after, of=str, name="op")

    return draw


def current(*, as_of: bool) -> Draw:
    def draw(clicks: Stream[Click]) -> KeyedStream[str, Any]:
        keyed = clicks.with_event_time(lambda click: 0).key_by(lambda click: click.user)
        return keyed.join_table(keyed.latest(), lambda one, other: one.url, as_of=as_of, of=str, name="op")

    return draw


def keyed(of: Callable[[Click], Any]) -> Draw:
    return lambda clicks: clicks.key_by(of).count(name="op")


def length(click: Click) -> int:
    return len(click.url)


def share(click: Click) -> float:
    return len(click.url) / 2


def user_or_length(click: Click) -> str | int:
    return click.user or len(click.url)


def counted(when: EmitWhen) -> Draw:
    return lambda clicks: clicks.key_by(lambda click: click.user).count(emit=when, name="op")


@pytest.mark.parametrize(
    ("before", "after", "was", "is_now"),
    [
        (in_windows(Tumbling("1m")), in_windows(Session("1m")), "window of event time", "session of event time"),
        (in_windows(Tumbling("1m")), in_windows(Tumbling("1m", clock="processing")), "event time", "window of the clock"),
        (in_windows(Rows(5)), in_windows(Rows(2)), "window of 5 rows", "window of 2 rows"),
        (in_windows(Rows(5, 1)), in_windows(Rows(5)), "window of 5 rows, each 1", "window of 5 rows now"),
        (in_windows(Rows(5)), in_windows(Tumbling("1m")), "window of 5 rows", "window of event time"),
        (in_windows(Tumbling("1m")), in_windows(Tumbling("1m"), "max"), "window with count", "window with max"),
        (current(as_of=False), current(as_of=True), "join_table", "join_table with as_of"),
        (in_windows(Tumbling("1m")), current(as_of=False), "window with count", "join_table"),
        (counted(AT_END), counted(EACH), "result with emit at_end", "result with emit each"),
        (near("10s"), near("5s"), "0 ms before to 10000 ms after", "to 5000 ms after"),
        (keyed(lambda click: click.user), keyed(length), "'key of records' of 'op' is a key of type str", "key of type number"),
        (lambda clicks: clicks.gather().count(name="op"), keyed(lambda click: click.user), "type NoneType", "type str"),
    ],
)
def test_operators_that_would_not_take_over_the_state_are_refused(before: Draw, after: Draw, was: str, is_now: str) -> None:
    found = problems(before, after)
    assert any(f"{was} in the checkpoint" in one and is_now in one and "--drop-state op" in one for one in found)


def test_keys_that_may_be_equal_find_their_state() -> None:
    assert problems(keyed(length), keyed(share)) == []
    assert problems(keyed(length), keyed(user_or_length)) == problems(keyed(user_or_length), keyed(length)) == []
    assert problems(keyed(lambda click: click.user), keyed(lambda click: click.user.lower())) == []


@pytest.mark.parametrize("window", [Tumbling("2m"), Sliding("2m", "1m")])
def test_windows_of_another_size_take_over_those_that_are_open(window: Any) -> None:
    assert problems(in_windows(Tumbling("1m")), in_windows(window)) == []
    assert problems(near("60s"), near("1m")) == []
    assert problems(counted(every("60s")), counted(every("1s"))) == []
