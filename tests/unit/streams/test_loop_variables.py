"""Captured variables: that of a loop is found in every function that an operator takes, and in that of a partial function."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import pytest

from topo import TopologyError, UserError
from topo.streams import Aggregate, KeyedStream, Stream, StreamBuilder, Tumbling, agg
from topo.testing import TopologyTest
from topo.user_code.copy import pickle_topology


async def later(suffix: str, word: str) -> str:
    return word + suffix


def spelled(_mark: str, word: str) -> Any:
    yield from word


def words(flow: StreamBuilder, name: object) -> Stream[str]:
    return flow.from_iterable(["a"], name=f"words-{name}")


def keyed(flow: StreamBuilder, name: object) -> KeyedStream[str, str]:
    return words(flow, name).with_event_time(len).key_by(str)


CASES: dict[str, tuple[Callable[[StreamBuilder], None], str]] = {}


def case(argument: str) -> Callable[[Callable[[StreamBuilder], None]], None]:
    def take(draw: Callable[[StreamBuilder], None]) -> None:
        CASES[draw.__name__] = (draw, argument)

    return take


@case("its function")
def partial_function(flow: StreamBuilder) -> None:
    for one in "ab":
        words(flow, one).map(partial(lambda mark, word: one + mark + word, "-")).to(print)  # noqa: B023


@case("its function")
def source(flow: StreamBuilder) -> None:
    for one in "ab":
        flow.from_iterable(lambda: [one], of=str, name=one).to(print)  # noqa: B023


@case("an aggregate")
def aggregate(flow: StreamBuilder) -> None:
    for one in "ab":
        last: Aggregate[str, str] = agg.max_of(lambda word: word + one)  # noqa: B023
        keyed(flow, one).window(Tumbling("1s")).aggregate(agg.count(), last, name=one).to(print)


@case("deleted=")
def table(flow: StreamBuilder) -> None:
    for one in "ab":
        rows = keyed(flow, f"r{one}").latest(deleted=lambda word: word == one)  # noqa: B023
        keyed(flow, one).join_table(rows, max, name=one).to(print)


@case("deleted=")
def broadcast(flow: StreamBuilder) -> None:
    for one in "ab":
        rows = words(flow, f"r{one}").broadcast(str, deleted=lambda word: word == one)  # noqa: B023
        words(flow, one).enrich(rows, lambda word, _rows: word, name=one).to(print)


@case("on_timeout=")
def on_timeout(flow: StreamBuilder) -> None:
    for one in "ab":
        call = partial(later, "!")
        words(flow, one).async_map(call, timeout="1s", on_timeout=lambda _word: one, name=one).to(print)  # noqa: B023


@pytest.mark.parametrize("name", CASES)
def test_the_variable_of_a_loop_is_found_in_each_argument_that_is_a_function(name: str) -> None:
    draw, argument = CASES[name]
    flow = StreamBuilder("program")
    draw(flow)
    with pytest.raises(TopologyError) as raised:
        flow.build()
    (problem,) = raised.value.problems
    takes = "lambda one=one: ..." if name == "source" else "lambda record, one=one: ..."
    assert f"{argument} uses 'one', which has another value by now" in problem and takes in problem
    assert "test_loop_variables.py:" in problem


class Click(msgspec.Struct):
    user: str


def test_an_attribute_is_no_captured_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = StreamBuilder("program")
    monkeypatch.setitem(globals(), "user", "before")
    flow.from_iterable([Click("a")]).map(lambda click: click.user).to(print)
    monkeypatch.setitem(globals(), "user", "after")
    flow.build()


def test_a_bound_loop_variable_is_no_mistake() -> None:
    flow = StreamBuilder("program")
    for wanted in ("a", "b"):
        words(flow, wanted).filter(lambda word, wanted=wanted: word == wanted).to(print)
    assert len(flow.build().components) == 4


def test_a_captured_value_that_cannot_be_sent_to_workers_is_named_with_its_operator(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    lock, number = Lock(), 1
    flow = StreamBuilder("program")
    words(flow, "").map(lambda word: (lock, number, word)[2]).to(print)
    with pytest.raises(UserError) as raised:
        pickle_topology(flow.build(), tmp_path, flow.held_values())
    place = test_a_captured_value_that_cannot_be_sent_to_workers_is_named_with_its_operator.__code__.co_firstlineno + 4
    assert f"to its workers: map at test_loop_variables.py:{place} captures 'lock', a lock; open such things" in str(raised.value)


@pytest.mark.parametrize(("function", "problem"), [(later, "was given an async function"), (spelled, "give it to flat_map")])
def test_a_partial_of_a_function_that_map_does_not_take_is_refused(function: Any, problem: str) -> None:
    flow = StreamBuilder("program")
    words(flow, "").map(partial(function, "-")).to(print)
    with pytest.raises(TopologyError, match=problem):
        flow.build()


def test_a_partial_of_an_async_function_is_called_by_async_map(capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> StreamBuilder:
        flow = StreamBuilder("program")
        words(flow, "").async_map(partial(later, "!")).to(print)
        return flow

    TopologyTest(program).run()
    assert capsys.readouterr().out == "a!\n"


class Cached:
    """Has a method that remembers its results."""

    @lru_cache  # noqa: B019
    def up(self, word: str) -> str:
        return word.upper()


def test_a_method_that_a_library_has_wrapped_is_taken() -> None:
    flow = StreamBuilder("cached")
    flow.from_iterable(["a"], of=str).map(Cached().up).to(print)
    assert flow.build().components
