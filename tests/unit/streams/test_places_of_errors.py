"""An error that no line of the user's raises has the place of its operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo import BasicBolt
from topo.streams import KeyedProcess, KeyedValue, StreamBuilder, Tumbling, WindowedStream
from topo.testing import StreamTest, TopologyTest
from topo.user_errors import place_of


def summed(window: WindowedStream[str, int]) -> Any:
    return window.sum(lambda number: None)


def smallest(window: WindowedStream[str, int]) -> Any:
    return window.min(lambda number: number if number == 1 else "two")


def first(window: WindowedStream[str, int]) -> Any:
    return window.top_n(1, by=lambda number: number if number == 1 else "two")  # type: ignore[type-var]


def nothing(window: WindowedStream[str, int]) -> Any:
    return window.process(lambda key, records: None)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("call", [summed, smallest, first, nothing])
def test_what_a_window_cannot_use_of_a_function_has_the_place_of_the_window(call: Callable[[Any], Any]) -> None:
    with StreamTest() as test:
        numbers = test.source(int)
        test.collect(call(numbers.stream.key_by(str).map(abs).key_by(lambda number: "all").window(Tumbling("1s"))).values())
        numbers.send(1, at=0)
        numbers.send(2, at=1)
        numbers.watermark(5_000)
        errors = test.errors()
        assert errors and {(error.file, error.line) for error in errors} == {(__file__, call.__code__.co_firstlineno + 1)}


class Keeps(KeyedProcess[str, str, str]):
    kept = KeyedValue(int)

    def process(self, record: str, context: Any, out: Any) -> None:
        self.kept.set(object())  # type: ignore[arg-type]


def keeps() -> StreamBuilder:
    flow = StreamBuilder("program")
    flow.from_iterable(["a"]).key_by(str).process(Keeps()).to(print)
    return flow


def test_state_that_cannot_be_stored_has_the_place_of_its_operator() -> None:
    test = TopologyTest(keeps)
    with pytest.raises(AssertionError, match="no checkpoint can be taken"):
        test.advance("5s")
    error = next(one for one in test.errors() if one.kind == "UnsupportedStateError")
    assert (error.file, error.line) == (__file__, keeps.__code__.co_firstlineno + 2)


class Reads(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def unrouted(where: str) -> StreamBuilder:
    flow = StreamBuilder("program")
    words = flow.from_iterable(["a"])
    made: Any = words
    if where == "fold":
        made = words.key_by(str).fold({}, lambda _so_far, word: {word: word}, name="fold")
    else:
        made = words.map(lambda word: {word: word})
    flow.topology_builder.set_bolt("reads", Reads(), parallelism=2).fields_grouping(made.id, "value")
    return flow


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize(("where", "line"), [("items", 2), ("fold", 5)])
def test_a_dead_letter_of_a_row_that_no_grouping_can_route_has_the_place_of_its_operator(
    where: str, line: int, delivery: str
) -> None:
    test = TopologyTest(lambda: unrouted(where), delivery=delivery, attempts=1)
    test.run()
    (given_up,) = test.dead_letters()
    assert "a fields grouping cannot use the key" in given_up.why
    assert f"test_places_of_errors.py:{unrouted.__code__.co_firstlineno + line}, component {where!r}" in given_up.why


def test_steps_behind_a_source_have_its_place() -> None:
    flow = StreamBuilder("program")
    flow.from_iterable(["a"]).to(print)
    specs = flow.build().components
    places = {getattr(spec.component, "declared_at", None) for spec in specs}
    assert places == {(__file__, test_steps_behind_a_source_have_its_place.__code__.co_firstlineno + 2)}


def test_a_missing_file_has_the_place_of_its_source() -> None:
    def program() -> StreamBuilder:
        flow = StreamBuilder("program")
        flow.from_files("missing.txt").to(print)
        return flow

    test = TopologyTest(program)
    with pytest.raises(AssertionError):
        test.run()
    error = next(one for one in test.errors() if one.kind == "NotFoundError")
    assert (error.file, error.line) == (__file__, program.__code__.co_firstlineno + 2)


def test_the_place_of_a_component_comes_before_that_of_a_library() -> None:
    with pytest.raises(ValueError) as raised:
        int("no number")
    assert place_of(raised.value.with_traceback(None), ("a.py", 3)) == ("a.py", 3)
    assert place_of(raised.value.with_traceback(None)) == ("", 0)
