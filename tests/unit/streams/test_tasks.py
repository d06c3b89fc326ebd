"""Programs of streams over several tasks: each has its own objects of the user's; and event time behind state."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from topo import TopologyError
from topo.streams import (
    KeyedProcess,
    KeyedStream,
    KeyedValue,
    SideOutput,
    Stream,
    StreamBuilder,
    StreamContext,
    StreamOutput,
    Tumbling,
    Windowed,
)
from topo.streams.components import SameTask
from topo.testing import END, PAUSE, TopologyTest

WORDS = [f"word{n % 9}" for n in range(90)]
ASIDE = SideOutput("aside", int)


class Counting(KeyedProcess[str, str, str]):
    seen = KeyedValue(int)

    def process(self, record: str, context: StreamContext[str], out: StreamOutput[str]) -> None:
        self.seen.set((self.seen.get() or 0) + 1)
        out.emit(f"{record}:{self.seen.get()}")


class Numbers(KeyedProcess[int, int, int]):
    """Emits each number, to its results and to a side output."""

    def process(self, record: int, context: StreamContext[int], out: StreamOutput[int]) -> None:
        out.emit(record)
        out.side(ASIDE, record)


class Tagged:
    """A function with an `open`, which must not have been called for another task."""

    def __init__(self) -> None:
        self.opened: list[int] = []

    def open(self, context: Any) -> None:
        self.opened.append(1)

    def __call__(self, *given: Any) -> Any:
        assert self.opened == [1], self.opened
        return given[-1]


def run(flow: Callable[[], StreamBuilder], **scripts: list[Any]) -> None:
    test = TopologyTest(lambda: flow().build(), sources={name: [*items, END] for name, items in scripts.items()}, attempts=1)
    test.run()
    assert test.errors() == []


def test_each_task_has_its_own_instance_of_a_process() -> None:
    """The instance is made outside of the function that builds, so all tasks find the same one."""
    shared, found = Counting(), []

    def build() -> StreamBuilder:
        flow = StreamBuilder("program")
        flow.from_iterable([""]).key_by(str, parallelism=3).process(shared, of=str).to(lambda pair: found.append(pair[1]))
        return flow

    run(build, items=WORDS)
    assert Counter(found) == Counter(f"word{word}:{n}" for word in range(9) for n in range(1, 11))


class Kept(Tagged):
    def __call__(self, *given: Any) -> bool:
        return super().__call__(*given) is None


async def never(record: str) -> str:
    await asyncio.sleep(3600)
    return record


HOW = ["map", "reduce", "fold", "window reduce", "window process", "top_n", "deleted", "deleted of broadcast", "on_timeout"]


@pytest.mark.parametrize("how", HOW)
def test_each_task_opens_its_own_copy_of_a_function_once(how: str) -> None:
    shared, found = Kept() if how.startswith("deleted") else Tagged(), []

    def build() -> StreamBuilder:
        flow = StreamBuilder("program")
        words = flow.from_iterable([""]).with_event_time(len)
        keyed = words.key_by(str, parallelism=3)
        window = keyed.window(Tumbling("1s"))
        results: dict[str, Callable[[], KeyedStream[Any, Any]]] = {
            "map": lambda: keyed.count().map(shared),
            "reduce": lambda: keyed.reduce(shared),
            "fold": lambda: keyed.fold("", shared),
            "window reduce": lambda: window.reduce(shared),
            "window process": lambda: window.process(_Listed(shared)),
            "top_n": lambda: window.top_n(1, shared),
            "deleted": lambda: keyed.latest(deleted=shared).changes(),
            "deleted of broadcast": lambda: keyed.enrich(words.broadcast(str, deleted=shared), lambda record, _table: record),
            "on_timeout": lambda: words.async_map(never, timeout="1ms", on_timeout=shared, parallelism=3).key_by(str),
        }
        results[how]().to(lambda pair: found.append(pair[0]))
        keyed.to(lambda _pair: None)
        return flow

    run(build, items=WORDS)
    assert set(found) == set(WORDS)
    assert shared.opened == []


def test_a_process_that_cannot_be_copied_is_refused_with_its_place() -> None:
    shared = Counting()
    vars(shared)["lock"] = threading.Lock()
    flow = StreamBuilder("program")
    flow.from_iterable([""]).key_by(str).process(shared, of=str).to(print)
    with pytest.raises(TopologyError, match=r"process at test_tasks.py:\d+: Counting cannot be copied .* parts in open\(\)"):
        flow.build()


BEHIND: dict[str, Callable[[KeyedStream[int, int]], Stream[int]]] = {
    "count": lambda keyed: keyed.count().map_keyed(lambda key, _count: key, of=int),
    "reduce": lambda keyed: keyed.reduce(lambda _old, new: new).values(),
    "fold": lambda keyed: keyed.fold(0, lambda _old, new: new).values(),
    "process": lambda keyed: keyed.process(Numbers(), of=int).values(),
    "side output": lambda keyed: keyed.process(Numbers(), of=int).side(ASIDE),
    "window": lambda keyed: keyed.window(Tumbling("1ms")).top_n(1, int).map_keyed(lambda key, _window: key, of=int),
}


@pytest.mark.parametrize("body", BEHIND)
def test_event_time_given_behind_state_has_its_own_watermarks(body: str) -> None:
    """The new time runs far behind the old one: with the old watermarks all windows would be late."""
    late: list[Any] = []
    found: list[Windowed[int]] = []
    numbers = list(range(1_000_000, 1_000_050))

    def build() -> StreamBuilder:
        flow = StreamBuilder("program")
        keyed = flow.from_iterable([0]).with_event_time(lambda n: n).key_by(lambda n: n)
        again = BEHIND[body](keyed).with_event_time(lambda n: n - 1_000_000, disorder="1ms")
        tag = SideOutput("late", int)
        windowed = again.key_by(lambda _n: "all").window(Tumbling("10ms"), late=tag)
        counts = windowed.count(name="windows")
        counts.to(lambda pair: found.append(pair[1]))
        counts.side(tag).to(late.append)
        return flow

    # At each pause watermarks are emitted.
    run(build, items=[part for number in numbers for part in (number, PAUSE("1s"))])
    assert late == []
    assert [(one.start, one.value) for one in found] == [(start, 10) for start in range(0, 50, 10)]


def test_a_row_goes_to_a_task_that_exists_after_a_rebalance() -> None:
    class Context:
        task_index = 3

    grouping = SameTask()
    grouping.prepare(Context(), "default", [7, 8])  # type: ignore[arg-type]
    assert grouping.choose(("row",)) == (1,)


class _Listed:
    def __init__(self, function: Tagged) -> None:
        self._function = function

    def open(self, context: Any) -> None:
        self._function.open(context)

    def __call__(self, key: Any, window: Any) -> list[Any]:
        return [self._function(key)]
