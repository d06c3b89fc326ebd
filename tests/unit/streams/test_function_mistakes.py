"""Mistakes in the functions of a program of streams: found at build, with file and line and the fix."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.unit.streams.wrong_programs import Pass, problems, windowed, words
from topo.streams import StreamBuilder, agg


async def later(word: str) -> str:
    return word


def loop_variable(flow: StreamBuilder) -> None:
    for wanted in ("a", "b"):
        words(flow, wanted).filter(lambda word: word == wanted).to(print)  # noqa: B023


async def nothing() -> str:
    return ""


def generated(word: str) -> Any:
    yield word


async def ticks() -> Any:
    yield "tick"


def spelled(word: str) -> str:
    return word


class Pair(NamedTuple):
    left: str
    right: str


def pair(word: str) -> Pair:
    return Pair(word, word)


def as_dict(word: str) -> dict[str, str]:
    return {"word": word}


def encoded(word: str) -> bytes:
    return word.encode()


def as_list(word: str) -> list:
    return [word]


class Opened:
    async def open(self, context: Any) -> None: ...

    def __call__(self, *given: Any) -> Any:
        return given[-1]


class AsyncPass(Pass):
    async def open(self) -> None: ...  # type: ignore[override]


CASES: dict[str, tuple[Callable[[StreamBuilder], object], list[str]]] = {
    "loop": (loop_variable, ["its function uses 'wanted', which has another value by now", "lambda record, wanted=wanted: ..."]),
    "async": (lambda flow: words(flow).map(later).to(print), ["map was given an async function", "async_map"]),
    "generator": (lambda flow: words(flow).map(generated).to(print), ["give it to flat_map"]),
    "text": (lambda flow: words(flow).flat_map(spelled).to(print), ["would become its characters; return a list"]),
    **{
        f"flat_map with {function.__name__}": (
            partial(lambda function, flow: words(flow).flat_map(function).to(print), function),
            [f"flat_map was given a function that returns {shown}, which would become its {parts}; return a list of records"],
        )
        for function, shown, parts in (
            (pair, "Pair", "fields"),
            (Pair, "Pair", "fields"),
            (as_dict, "dict", "keys"),
            (encoded, "bytes", "numbers"),
        )
    },
    "async guard": (lambda flow: words(flow).only(later).to(print), ["only was given an async function"]),
    "parameters of a guard": (
        lambda flow: words(flow).only(lambda: True).to(print),
        ["only calls its function with 1 (record), but it takes ()"],
    ),
    "parameters": (
        lambda flow: words(flow).key_by(str).reduce(lambda word: word).to(print),
        ["reduce calls its function with 2 (so_far, record), but it takes (word)"],
    ),
    "no function": (lambda flow: words(flow).map("upper").to(print), ["map takes a function of record; got 'upper' (str)"]),
    "key": (lambda flow: words(flow).key_by(as_list).count().to(print), ["returns list, which cannot be a key; return a tuple"]),
    "into": (lambda flow: windowed(flow).aggregate(agg.count(), into=pow).to(print), ["into calls its function with 1"]),
    "no function of a sum": (
        lambda flow: windowed(flow).sum(None).to(print),
        ["window at", "takes a function of record; got None"],
    ),
    "parameters of an aggregate": (
        lambda flow: windowed(flow).aggregate(agg.count(), agg.max_of(lambda: 1)).to(print),
        ["window at", "an aggregate calls its function with 1 (record), but it takes ()"],
    ),
    "parameters of a call": (
        lambda flow: words(flow).async_map(nothing).to(print),
        ["async_map at", "async_map calls its function with 1 (record), but it takes ()"],
    ),
    "only with parameters": (
        lambda flow: words(flow).only(list[int]).to(print),
        ["only takes a class or a type guard; got list[int]"],
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
    "async open of a join": (
        lambda flow: words(flow).key_by(str).join_table(words(flow, "m").key_by(str).latest(), Opened()).to(print),
        ["join_table at", "Opened.open is an async def"],
    ),
    "only": (lambda flow: words(flow).only(3).to(print), ["only takes a class or a type guard"]),
    "iterator": (
        lambda flow: flow.from_iterable(itertools.count()).to(print),
        ["from_iterable was given count(0) (count), an iterator", "give a list, or the function that makes it"],
    ),
    "no iterable": (lambda flow: flow.from_iterable(5).to(print), ["given 5 (int); give an iterable, or a function"]),
    "source with parameters": (
        lambda flow: flow.from_iterable(generated, of=str).to(print),
        ["from_iterable calls its function without arguments, but it takes (word: 'str')"],
    ),
    "async generator": (lambda flow: flow.from_iterable(ticks, of=str).to(print), ["was given an async function"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_in_a_function_is_found_at_build_with_its_place_and_the_fix(case: str) -> None:
    draw, expected = CASES[case]
    (found,) = problems(draw)
    assert [part for part in expected if part not in found] == [], found
    assert "test_function_mistakes.py:" in found
