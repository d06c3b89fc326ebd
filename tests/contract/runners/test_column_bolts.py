"""The promises of a column bolt, and of a bolt that is given the rows of batches, under each guarantee."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import CHECKPOINTED, MODES, TRACKED, Plain, Scripted, Sink
from tests.tasks.solo import Solo
from topo import ColumnBatch, ColumnBolt, ColumnSpout
from topo.builder import TopologyBuilder
from topo.wire.frames import FrameKind

GUARANTEES = pytest.mark.parametrize("guarantee", MODES)


class Batches(ColumnSpout):
    outputs = ("value",)

    def next_batch(self) -> None:
        raise AssertionError("the test plays the spout")


class Doubled(ColumnBolt):
    """Emits twice each value; refuses a batch with the value "bad", after an emit."""

    outputs = ("value",)

    def execute_batch(self, batch: Any, collector: Any) -> None:
        collector.emit_batch({"value": [2 * value for value in batch["value"]]})
        if "bad" in batch["value"]:
            raise ValueError("no such value")


def batch(*values: Any) -> tuple[ColumnBatch]:
    return (ColumnBatch.of({"value": list(values)}),)


def task(guarantee: str, bolt: Any, source: Any = Batches, **settings: Any) -> Solo:
    builder = TopologyBuilder("contract").config(delivery=guarantee, **settings)
    builder.set_spout("a", source())
    builder.set_bolt("b", bolt).shuffle_grouping("a")
    builder.set_bolt("sink", Sink()).global_grouping("b")
    solo = Solo(builder.build(), "b")
    solo.run()
    return solo


def owed(solo: Solo) -> dict[int, int]:
    """By root, the XOR of its edge, of those that the bolt has sent under it, and of the values that it has sent to the acker."""
    sums: dict[int, int] = {}
    for frame in solo.frames(FrameKind.ACK, FrameKind.DATA):
        for root, word in zip(frame.root_list(), frame.edge_list(), strict=True):
            sums[root] = sums.get(root, 0) ^ word
    return sums


@GUARANTEES
def test_a_batch_is_one_input_and_one_row(guarantee: str) -> None:
    solo = task(guarantee, Doubled())
    ids = solo.feed(batch("a", "b"), batch("c"), tracked=guarantee == TRACKED)
    solo.run()
    assert [row[0].rows() for row in solo.rows()] == [[("aa",), ("bb",)], [("cc",)]]
    counters = solo.task.counters
    assert (counters.executed, counters.acked, counters.emitted, counters.batch_rows_in, counters.batch_rows_out) == (
        2,
        2,
        2,
        3,
        3,
    )
    assert [frame.count for frame in solo.frames(FrameKind.DATA)] == [1, 1]
    assert owed(solo) == dict(zip(ids.roots, ids.edges, strict=True))


@GUARANTEES
def test_a_batch_whose_call_raises_fails_alone_and_nothing_of_it_is_sent(guarantee: str) -> None:
    solo = task(guarantee, Doubled(), attempts=2)
    ids = solo.feed(batch("a", "bad"), batch("c"), tracked=guarantee == TRACKED)
    solo.run()
    assert [row[0].rows() for row in solo.rows()] == [[("cc",)]]
    assert (solo.task.counters.acked, solo.task.counters.failed) == (1, 1)
    assert solo.roots(FrameKind.FAIL) == (ids.roots[:1] if guarantee == TRACKED else [])


@GUARANTEES
def test_tuples_become_one_batch_that_descends_from_all_of_them(guarantee: str) -> None:
    solo = task(guarantee, Doubled(), Scripted)
    ids = solo.feed("a", "b", "c", tracked=guarantee == TRACKED)
    solo.wait(1)
    assert [row[0].rows() for row in solo.rows()] == [[("aa",), ("bb",), ("cc",)]]
    assert (solo.task.counters.executed, solo.task.counters.acked) == (3, 3)
    assert owed(solo) == dict(zip(ids.roots, ids.edges, strict=True))


@GUARANTEES
def test_a_tuple_that_no_batch_can_have_fails_alone(guarantee: str) -> None:
    solo = task(guarantee, Doubled(), Scripted, attempts=2)
    ids = solo.feed("a", "bad", "c", "d", tracked=guarantee == TRACKED)
    solo.wait(1)
    assert sorted(value for row in solo.rows() for (value,) in row[0].rows()) == ["aa", "cc", "dd"]
    assert (solo.task.counters.acked, solo.task.counters.failed) == (3, 1)
    assert solo.roots(FrameKind.FAIL) == (ids.roots[1:2] if guarantee == TRACKED else [])


@GUARANTEES
def test_the_rows_of_a_batch_owe_what_the_batch_owes(guarantee: str) -> None:
    def execute(tup: Any, collector: Any) -> None:
        collector.emit((tup["value"],))

    solo = task(guarantee, Plain(execute))
    ids = solo.feed(batch("a", "b", "c"), batch("d"), tracked=guarantee == TRACKED)
    solo.run()
    assert solo.values() == ["a", "b", "c", "d"]
    assert (solo.task.counters.executed, solo.task.counters.acked, solo.task.counters.batch_rows_in) == (4, 4, 4)
    assert owed(solo) == dict(zip(ids.roots, ids.edges, strict=True))


@GUARANTEES
def test_a_row_that_raises_keeps_its_batch_from_completing(guarantee: str) -> None:
    def execute(tup: Any, collector: Any) -> None:
        if tup["value"] == "bad":
            raise ValueError("no such value")
        collector.emit((tup["value"],))

    solo = task(guarantee, Plain(execute), attempts=2)
    ids = solo.feed(batch("a", "bad", "c"), tracked=guarantee == TRACKED)
    solo.run()
    assert solo.values() == ["a", "c"]
    if guarantee == TRACKED:
        assert solo.roots(FrameKind.FAIL) == ids.roots
        assert owed(solo)[ids.roots[0]] != ids.edges[0]


@pytest.mark.parametrize("source", [Batches, Scripted])
def test_a_barrier_waits_for_no_tuple_and_passes_behind_the_batches(source: Any) -> None:
    solo = task(CHECKPOINTED, Doubled(), source)
    solo.feed(*([batch("a")] if source is Batches else ["a"]), tracked=False)
    solo.barrier(1)
    solo.run()
    kinds = [frame.kind for frame in solo.frames(FrameKind.DATA, FrameKind.BARRIER, to=solo.plan.tasks_of("sink")[0])]
    assert kinds == [FrameKind.DATA, FrameKind.BARRIER]
