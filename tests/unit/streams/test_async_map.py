"""Asynchronous calls in programs of streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from topo import FixedDelayRetry, TopologyError
from topo.streams import StreamBuilder
from topo.testing import StreamTest


class Click(msgspec.Struct):
    user: str
    at: int


class Place(msgspec.Struct):
    user: str
    tags: list[str]


async def place(click: Click) -> Place:
    await asyncio.sleep(click.at / 10)
    return Place(click.user, [str(click.at)])


def results(call: Callable[[Any], Any], *clicks: Click, **settings: Any) -> list[Any]:
    with StreamTest() as test:
        given = test.source(Click)
        seen = test.collect(given.stream.async_map(call, **settings))
        given.send(*clicks)
        test.advance("500ms")
        return seen.take()


SLOW, FAST = Click("slow", 3), Click("fast", 1)


def test_results_come_in_the_order_of_the_records_or_as_they_complete() -> None:
    assert results(place, SLOW, FAST) == [Place("slow", ["3"]), Place("fast", ["1"])]
    assert results(place, SLOW, FAST, ordered=False) == [Place("fast", ["1"]), Place("slow", ["3"])]


def test_a_call_that_takes_too_long_gives_the_result_of_on_timeout() -> None:
    found = results(place, SLOW, FAST, timeout="200ms", on_timeout=lambda click: Place(click.user, ["late"]))
    assert found == [Place("slow", ["late"]), Place("fast", ["1"])]


def test_a_call_that_raises_is_made_again() -> None:
    calls = []

    async def twice(click: Click) -> str:
        calls.append(click)
        if len(calls) == 1:
            raise OSError("once")
        return click.user

    assert results(twice, FAST, retry=FixedDelayRetry(3, "10ms")) == ["fast"]
    assert len(calls) == 2


def test_an_async_open_has_run_before_the_first_call() -> None:
    class Client:
        ready = ""

        async def open(self, context: Any) -> None:
            await asyncio.sleep(0)
            self.ready = "ready"

        async def __call__(self, click: Click) -> str:
            return f"{click.user} {self.ready}"

    client = Client()
    assert results(client, FAST) == ["fast ready"]
    assert client.ready == ""  # the task has opened its own copy


@pytest.mark.parametrize(("function", "settings", "problem"), [
    (str, {}, "async_map takes an async def; got <class 'str'>. Give it to map"),
    (max, {}, "call it by asyncio.to_thread"),
    (lambda click: place(click), {}, "Give the async function itself, or one with arguments as functools.partial"),
    (place, {"capacity": 0}, "capacity=0 must be a whole number"),
    (place, {"parallelism": 0}, "parallelism=0 must be a whole number"),
])  # fmt: skip
def test_a_function_that_is_not_async_is_refused(function: Any, settings: dict[str, Any], problem: str) -> None:
    flow = StreamBuilder("program")
    flow.from_iterable([FAST]).async_map(function, **settings).to(print)
    with pytest.raises(TopologyError) as caught:
        flow.build()
    assert len(caught.value.problems) == 1 and problem in caught.value.problems[0]


@pytest.mark.parametrize("of", [Place, None])
def test_the_condition_of_a_retry_gets_the_result_as_the_function_returned_it(of: Any) -> None:
    calls: list[int] = []
    asked: list[Any] = []

    async def call(click: Click) -> Any:
        calls.append(click.at)
        place = Place(click.user, ["ready"] if len(calls) == 3 else [])
        return place if of is Place else len(place.tags)

    def is_missing(found: Any) -> bool:
        asked.append(found[0])
        return not (found[0].tags if of is Place else found[0])

    retry = FixedDelayRetry(5, "10ms", if_result=is_missing)
    assert results(call, Click("ann", 1), retry=retry, of=of) == [Place("ann", ["ready"]) if of is Place else 1]
    assert asked == ([Place("ann", []), Place("ann", []), Place("ann", ["ready"])] if of is Place else [0, 0, 1])
