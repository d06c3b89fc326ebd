"""Coroutines and generators that a lambda returns where nothing would run them: their records would count as processed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from topo.streams import Stream, StreamBuilder
from topo.testing import TopologyTest


async def later(word: str) -> str:
    return word


def pieces(word: str) -> Iterator[str]:
    yield word


COROUTINE = "returned a coroutine, which nothing awaits; give an async function to async_map, also ahead of a filter or a sink"
GENERATOR = "returned a generator, which nothing runs; give it to flat_map"

CASES: dict[str, tuple[Callable[[Stream[str]], object], str]] = {
    "map": (lambda words: words.map(lambda word: later(word)).to(print), f"the function of map {COROUTINE}"),
    "map_keyed": (
        lambda words: words.key_by(str).map_keyed(lambda _key, word: later(word)).to(print),
        f"the function of map_keyed {COROUTINE}",
    ),
    "filter": (lambda words: words.filter(lambda word: later(word)).to(print), f"the function of filter {COROUTINE}"),
    "tap": (lambda words: words.tap(lambda word: later(word)).to(print), f"the function of tap {COROUTINE}"),
    "to": (lambda words: words.to(lambda word: later(word)), f"the function of to {COROUTINE}"),
    "a filter's generator": (
        lambda words: words.filter(lambda word: pieces(word)).to(print),
        f"the function of filter {GENERATOR}",
    ),
    "a generator in to": (lambda words: words.to(lambda word: pieces(word)), f"the function of to {GENERATOR}"),
}


@pytest.mark.parametrize("case", CASES)
def test_each_record_fails_at_the_line_of_the_operator(case: str) -> None:
    draw, message = CASES[case]

    def program() -> StreamBuilder:
        flow = StreamBuilder("program")
        draw(flow.from_iterable(["a", "b"]))
        return flow

    test = TopologyTest(program, attempts=1)
    test.run()
    assert {(error.message, error.file) for error in test.errors()} == {(message, __file__)}
    assert test.status()["dead_letters"] == 2


def test_a_generator_may_pass_from_map_to_flat_map(capsys: pytest.CaptureFixture[str]) -> None:
    def program() -> StreamBuilder:
        flow = StreamBuilder("program")
        flow.from_iterable(["a", "b"]).map(lambda word: pieces(word)).flat_map(lambda given: given).to(print)
        return flow

    TopologyTest(program).run()
    assert capsys.readouterr().out.split() == ["a", "b"]
