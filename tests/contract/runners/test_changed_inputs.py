"""A call changes its inputs in place before it raises: its repetition and its dead letter have the values as they arrived."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.contract.runners.kinds import KINDS, Run, WindowFunction
from tests.tasks.components import CHECKPOINTED, TRACKED, Plain
from topo import AsyncBolt, FixedDelayRetry, IterableSpout, TopologyBuilder, WindowBolt
from topo.api.windows import TumblingProcessingTimeWindows
from topo.testing import TopologyTest


class Asking(AsyncBolt):
    """Repeats a call that raised."""

    outputs = ("value",)

    def __init__(self, run: Run) -> None:
        super().__init__(timeout="1h", retry=FixedDelayRetry(5, "1ms", if_error=lambda error: True))
        self.run = run

    async def call(self, tup: Any) -> Any:
        return [(value,) for value in self.run(tup[0])]


class CountUp:
    """Adds 100 to the number of a record, in place, and raises at the first calls for it."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls: dict[int, int] = {}

    def __call__(self, record: Any) -> Iterable[int]:
        record["n"] += 100
        number = record["n"] % 100
        self.calls[number] = self.calls.get(number, 0) + 1
        if self.calls[number] <= self.failures:
            raise ConnectionError("try again")
        return [record["n"]]


def run(bolt: Any, delivery: str) -> TopologyTest:
    """Send the bolt three records, each with the same key."""
    builder = TopologyBuilder("records").config(delivery=delivery, backoff="1ms")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    records = Plain(lambda tup, collector: collector.emit(({"n": tup[0]}, "key")), ("record", "value"))
    builder.set_bolt("records", records).shuffle_grouping("numbers")
    builder.set_bolt("bolt", bolt).fields_grouping("records", "value")
    test = TopologyTest(builder.build())
    test.run()
    return test


IN_PLACE = [(make, CHECKPOINTED) for kind, make in KINDS.items() if kind != "async"]
IN_PLACE += [(Asking, CHECKPOINTED), (Asking, TRACKED), (KINDS["batch"], TRACKED), (KINDS["window"], TRACKED)]


@pytest.mark.parametrize(("make", "delivery"), IN_PLACE)
def test_a_call_that_is_repeated_in_place_gets_the_values_as_they_arrived(make: Any, delivery: str) -> None:
    test = run(make(CountUp(1)), delivery)
    assert sorted(test.emitted("bolt")) == [(101,), (102,), (103,)]


ROWS = [({"n": number}, "key") for number in (1, 2, 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_dead_letter_has_the_values_as_they_arrived(kind: str) -> None:
    test = run(KINDS[kind](CountUp(99)), CHECKPOINTED)
    assert sorted((dead.values for dead in test.dead_letters()), key=str) == ROWS


def test_the_dead_letter_of_a_window_has_its_elements_as_they_arrived() -> None:
    window = TumblingProcessingTimeWindows.of("1h")
    bolt = WindowBolt(key="value", window=window, process=WindowFunction(CountUp(99)), outputs=("value",))
    (dead,) = run(bolt, CHECKPOINTED).dead_letters()
    assert dead.values[3] == tuple(ROWS)
