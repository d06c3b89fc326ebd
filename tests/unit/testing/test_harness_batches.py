"""`OperatorHarness` runs a `BatchBolt` as a task does: batches by size, time and key, acks by element, watermarks behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from topo import BatchBolt, BatchCollector, ProcessBolt, TaskContext, Tuple, UserError
from topo.testing import OperatorHarness


class Upper(BatchBolt):
    """Emits each word in capitals, fails the empty one, and cannot take "bad"."""

    outputs = ("word", "batch")

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"size": 3, "wait": "100ms", **settings})
        self.calls: list[list[str]] = []
        self.life: list[str] = []

    def prepare(self, context: TaskContext) -> None:
        self.life.append("prepare")

    def execute_batch(self, tuples: Sequence[Tuple], collector: BatchCollector) -> None:
        words = [tup["word"] for tup in tuples]
        self.calls.append(words)
        for tup in tuples:
            if tup["word"]:
                collector.emit((tup["word"].upper(), len(tuples)), tup)
            else:
                collector.fail(tup, ValueError("no word"))
        if "bad" in words:
            raise LookupError("bad")

    def end_of_input(self, collector: BatchCollector) -> None:
        collector.emit(("END", 0), None)

    def cleanup(self) -> None:
        self.life.append("cleanup")


def harness_of(bolt: Upper) -> OperatorHarness:
    return OperatorHarness(bolt, fields=("word",))


def test_a_batch_is_called_for_when_it_is_full() -> None:
    harness = harness_of(Upper())
    harness.process_batch([(("a",), 1), (("b",), 2), (("c",), 3), (("d",), 4)])

    assert harness.outputs == [(("A", 3), 1), (("B", 3), 2), (("C", 3), 3)]
    assert harness.acked == [("a",), ("b",), ("c",)]
    assert harness.in_flight == 1


def test_a_batch_is_called_for_when_its_first_tuple_has_waited() -> None:
    harness = harness_of(Upper())
    harness.process(("a",))
    harness.advance_clock("61ms")
    harness.process(("b",))
    harness.advance_clock("39ms")
    assert harness.values == []

    harness.advance_clock("1ms")

    assert harness.values == [("A", 2), ("B", 2)]


def test_keys_have_batches_of_their_own() -> None:
    bolt = Upper(size=2, key="word")
    harness = harness_of(bolt)
    for word in "abab":
        harness.process((word,))

    assert bolt.calls == [["a", "a"], ["b", "b"]]


def test_tuples_fail_one_by_one_with_their_errors() -> None:
    bolt = Upper(size=4)
    harness = harness_of(bolt)
    harness.process_batch([(("a",), None), (("",), None), (("bad",), None), (("d",), None)])

    assert bolt.calls == [["a", "", "bad", "d"], ["a", ""], ["bad", "d"], ["bad"], ["d"]]
    assert harness.values == [("A", 2), ("D", 1)]
    assert harness.acked == [("a",), ("d",)]
    assert [(values, type(error), str(error)) for values, error in harness.failed] == [
        (("",), ValueError, "no word"),
        (("bad",), LookupError, "bad"),
    ]


def test_a_watermark_waits_for_the_tuples_in_front_of_it() -> None:
    harness = harness_of(Upper(size=2))
    harness.process(("a",), 5)
    harness.watermark(10)
    assert harness.watermarks == []

    harness.process(("b",), 12)

    assert harness.events[-1] == (10,) and len(harness.events) == 3


def test_the_end_of_the_input_calls_for_what_is_open_and_then_for_the_end() -> None:
    bolt = Upper()
    with harness_of(bolt) as harness:
        harness.process(("a",))
        harness.end_of_input()
        assert harness.values == [("A", 1), ("END", 0)]

    assert bolt.life == ["prepare", "cleanup"]


def test_a_snapshot_has_no_open_batch() -> None:
    harness = harness_of(Upper())
    harness.process(("a",))
    restored = harness.restore(harness.snapshot())

    assert harness.values == [("A", 1)]
    assert restored.in_flight == 0 and restored.values == []


def test_other_operators_have_no_acks() -> None:
    class Nothing(ProcessBolt):
        def process(self, tup: Any, context: Any) -> None:
            pass

    with pytest.raises(UserError, match="only a batching bolt acks its inputs one by one"):
        _ = OperatorHarness(Nothing(key="word"), fields=("word",)).acked
