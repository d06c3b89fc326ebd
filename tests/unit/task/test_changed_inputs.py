"""Inputs whose values a call changes in place before it raises: the repeated call gets them as they arrived."""

from __future__ import annotations

from typing import Any

import pytest

from topo import (
    AsyncBolt,
    BasicBolt,
    BatchBolt,
    Bolt,
    FixedDelayRetry,
    IterableSpout,
    ProcessBolt,
    TopologyBuilder,
    WindowBolt,
    windows,
)
from topo.testing import TopologyTest


class Records(BasicBolt):
    """Emits records."""

    outputs = ("key", "record")

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit(("a", {"n": tup[0]}))


def count_up(bolt: Any, tup: Any) -> int:
    """Change the record in place, and raise at each first call for it."""
    record = tup["record"]
    record["n"] += 100
    seen = bolt.__dict__.setdefault("seen", set())
    if tup["record"]["n"] % 100 not in seen:
        seen.add(tup["record"]["n"] % 100)
        raise ConnectionError("try again")
    return int(record["n"])


class Basic(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit((count_up(self, tup),))


class Acking(Bolt):
    outputs = ("n",)

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Any) -> None:
        self.collector.emit((count_up(self, tup),), tup)
        self.collector.ack(tup)


class Process(ProcessBolt):
    outputs = ("n",)

    def __init__(self) -> None:
        super().__init__(key="key")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        collector.emit((count_up(self, tup),))


class Batching(BatchBolt):
    outputs = ("n",)

    def __init__(self) -> None:
        super().__init__(size=3, wait="1s")

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        for tup in tuples:
            collector.emit((count_up(self, tup),), tup)


class Asking(AsyncBolt):
    outputs = ("n",)

    def __init__(self) -> None:
        super().__init__(timeout="1h", retry=FixedDelayRetry(5, "1ms", if_error=lambda error: True))

    async def call(self, tup: Any) -> Any:
        return (count_up(self, tup),)


@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("bolt", [Basic, Acking, Process, Batching, Asking])
def test_a_repeated_call_gets_the_values_as_they_arrived(bolt: Any, delivery: str) -> None:
    builder = TopologyBuilder("records").config(delivery=delivery, back_off="1ms")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("records", Records()).shuffle_grouping("numbers")
    builder.set_bolt("bolt", bolt()).fields_grouping("records", "key")
    test = TopologyTest(builder.build())
    test.run()
    assert sorted(test.emitted("bolt")) == [(101,), (102,), (103,)]


class Fails(windows.ProcessWindowFunction):
    def process(self, key: Any, elements: Any, context: Any, collector: Any) -> None:
        for _, record in elements:
            record["n"] += 100
        raise ConnectionError("never")


class AlwaysFails:
    """Raises behind each change."""

    def __contains__(self, number: int) -> bool:
        return False

    def add(self, number: int) -> None:
        pass


@pytest.mark.parametrize("bolt", [Basic, Acking, Process, Batching, Asking])
def test_the_dead_letter_of_a_tuple_has_the_values_as_they_arrived(bolt: Any) -> None:
    failing = bolt()
    failing.seen = AlwaysFails()
    assert letters_of(failing) == [("a", {"n": 1}), ("a", {"n": 2}), ("a", {"n": 3})]


def test_the_dead_letter_of_a_window_has_its_elements_as_they_arrived() -> None:
    elements = (("a", {"n": 1}), ("a", {"n": 2}), ("a", {"n": 3}))
    window = WindowBolt(key="key", window=windows.TumblingProcessingTimeWindows.of("1h"), process=Fails(), outputs=("n",))
    assert [letter[3] for letter in letters_of(window)] == [elements]


def letters_of(bolt: Any) -> list[Any]:
    builder = TopologyBuilder("records").config(delivery="exactly_once", back_off="1ms")
    builder.set_spout("numbers", IterableSpout([1, 2, 3]))
    builder.set_bolt("records", Records()).shuffle_grouping("numbers")
    builder.set_bolt("bolt", bolt).fields_grouping("records", "key")
    test = TopologyTest(builder.build())
    test.run()
    return [letter.values for letter in test.dead_letters()]
