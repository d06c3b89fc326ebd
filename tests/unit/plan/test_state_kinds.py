"""Which kind of state a component has, by its class and its key."""

from __future__ import annotations

from typing import Any

import pytest

from topo import (
    AsyncBolt,
    BasicBolt,
    IterableSpout,
    JsonLinesSink,
    ProcessBolt,
    Spout,
    StatefulBolt,
    WindowBolt,
    aggregates,
)
from topo.api.topology import ComponentKind, ComponentSpec
from topo.api.windows import EventTimeSessionWindows
from topo.plan.state_kinds import state_kind


class Plain(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


class Whole(StatefulBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...

    def snapshot(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


class Keyed(Whole):
    key = "word"


class Process(ProcessBolt):
    def process(self, tup: Any, context: Any, collector: Any) -> None: ...


class Async(AsyncBolt):
    async def call(self, tup: Any) -> Any: ...


class Source(Spout):
    def next_tuple(self) -> None: ...


def windows(key: str | None) -> WindowBolt:
    return WindowBolt(key=key, window=EventTimeSessionWindows.with_gap("1s"), aggregate=aggregates.Count())


@pytest.mark.parametrize(
    ("component", "state"),
    [
        (Plain(), "nothing"),
        (Whole(), "state without a key"),
        (Whole, "state without a key"),
        (Keyed(), "state by key"),
        (Keyed, "state by key"),
        (windows(None), "windows without a key"),
        (windows("word"), "windows by key"),
        (Process("word"), "state and timers by key"),
        (Process, ""),
        (Async(), "calls"),
        (JsonLinesSink("out"), "staged output"),
        (Source(), "message ids"),
        (IterableSpout([1]), "a position"),
    ],
)
def test_the_kind_of_state_goes_by_the_class_and_whether_it_has_a_key(component: Any, state: str) -> None:
    assert state_kind(ComponentSpec("it", ComponentKind.BOLT, component)) == state
