"""Batching bolts in the test kit: alone, and in whole topologies in both modes of delivery, with crashes."""

from __future__ import annotations

from typing import Any

import pytest

from topo import BatchBolt, Bolt, IterableSpout, StatefulBolt, Topology, TopologyBuilder
from topo.testing import ADVANCE, CRASH, END, TICK, TopologyTest, run_bolt, tuple_of


class Insert(BatchBolt):
    """Writes batches to a table that outlives it, and acks each row."""

    outputs = ("id",)

    def __init__(self, table: list[list[int]], size: int = 3, bad: tuple[int, ...] = (), **more: Any) -> None:
        super().__init__(size, **more)
        self.table, self.bad = table, bad

    def execute_batch(self, tuples: Any, collector: Any) -> None:
        for tup in tuples:
            collector.emit((tup["id"],), tup)
        if any(tup["id"] in self.bad for tup in tuples):
            raise ValueError("the database refuses a row")
        self.table.append([tup["id"] for tup in tuples])


class Seen(Bolt):
    """Takes rows."""

    def prepare(self, context: Any, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Any) -> None:
        self.collector.ack(tup)


def topology(bolt: BatchBolt, **settings: Any) -> Topology:
    builder = TopologyBuilder("batches").config(**settings)
    builder.set_spout("ids", IterableSpout([(0,)], fields=("id",)))
    builder.set_bolt("insert", bolt).shuffle_grouping("ids")
    builder.set_bolt("seen", Seen()).shuffle_grouping("insert")
    return builder.build()


MODES = pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])


def test_run_bolt_calls_for_full_batches_at_a_tick_and_at_the_end() -> None:
    table: list[list[int]] = []
    run = run_bolt(Insert(table, 2), [*({"id": n} for n in range(3)), TICK, {"id": 3}])
    run.assert_all_acked()
    assert table == [[0, 1], [2], [3]]
    assert [emitted.inputs for emitted in run.emitted["default"]] == [(0,), (1,), (2,), (3,)]


def test_run_bolt_takes_a_batch_that_raises_apart() -> None:
    table: list[list[int]] = []
    run = run_bolt(Insert(table, 4, bad=(2,)), [{"id": n} for n in range(4)])
    assert run.acked == [0, 1, 3] and run.failed == [2]
    assert table == [[0, 1], [3]]
    assert run.values() == [(0,), (1,), (3,)]
    assert {str(error.exception) for error in run.errors} == {"the database refuses a row"}


def test_run_bolt_has_batches_by_key_and_says_why_a_tuple_was_failed() -> None:
    class Refuse(Insert):
        def execute_batch(self, tuples: Any, collector: Any) -> None:
            super().execute_batch(tuples, collector)
            collector.fail(tuples[0], KeyError("a duplicate"))

    table: list[list[int]] = []
    tuples = [tuple_of(id=n, user=user) for n, user in enumerate("abab")]
    run = run_bolt(Refuse(table, 2, key="user"), tuples)
    assert table == [[0, 2], [1, 3]]
    assert run.failed == [0, 1] and run.acked == [2, 3]
    assert [str(error.exception) for error in run.errors] == ["'a duplicate'"] * 2


@MODES
def test_every_message_is_acked_and_an_open_batch_waits_for_its_time_only(delivery: str) -> None:
    table: list[list[int]] = []
    bolt = Insert(table, 3, wait="200ms")
    test = TopologyTest(topology(bolt, delivery=delivery), sources={"ids": [1, 2, 3, 4, ADVANCE("1s"), 5, END]})
    test.run()
    test.assert_all_acked()
    assert table == [[1, 2, 3], [4], [5]]
    test.assert_emitted("insert", [1, 2, 3, 4, 5])


@MODES
def test_a_batch_larger_than_what_may_be_in_flight_goes_when_its_time_is_over(delivery: str) -> None:
    table: list[list[int]] = []
    bolt = Insert(table, 1000, wait="50ms")
    built = topology(bolt, delivery=delivery, max_spout_pending=10)
    test = TopologyTest(built, sources={"ids": [*range(100), END]})
    test.run()
    test.assert_all_acked()
    assert sorted(id for batch in table for id in batch) == list(range(100))


@MODES
def test_one_bad_row_is_a_dead_letter_and_its_batch_is_written(delivery: str) -> None:
    table: list[list[int]] = []
    built = topology(Insert(table, 4, bad=(6,)), delivery=delivery)
    test = TopologyTest(built, sources={"ids": [*range(8), END]})
    test.run()
    (dead_letter,) = test.dead_letters()
    assert dead_letter.values == (6,) and "the database refuses a row" in dead_letter.why
    assert sorted(id for batch in table for id in batch) == [0, 1, 2, 3, 4, 5, 7]
    test.assert_emitted("insert", [0, 1, 2, 3, 4, 5, 7])


@MODES
def test_a_row_that_the_call_fails_is_a_dead_letter_that_says_why(delivery: str) -> None:
    class Refuse(Insert):
        def execute_batch(self, tuples: Any, collector: Any) -> None:
            for tup in tuples:
                if tup["id"] == 2:
                    collector.fail(tup, KeyError("a duplicate"))
                else:
                    collector.emit((tup["id"],), tup)

    test = TopologyTest(topology(Refuse([], 4), delivery=delivery), sources={"ids": [*range(4), END]})
    test.run()
    (dead_letter,) = test.dead_letters()
    assert dead_letter.values == (2,) and "KeyError" in dead_letter.why and "a duplicate" in dead_letter.why
    test.assert_emitted("insert", [0, 1, 3])


@MODES
@pytest.mark.parametrize("seed", range(5))
def test_a_crash_with_an_open_batch_loses_no_row(delivery: str, seed: int) -> None:
    """In front of the crash some batches are done, some are open, and some are in a checkpoint that is complete."""
    table: list[list[int]] = []

    def build() -> Topology:
        return topology(Insert(table, 7, wait="700ms"), delivery=delivery, checkpoint_interval="300ms")

    script = [*range(20), ADVANCE("1s"), *range(20, 33), CRASH("insert"), *range(33, 60), END]
    test = TopologyTest(build, sources={"ids": script}, seed=seed)
    test.run()
    test.assert_all_acked()
    assert {id for batch in table for id in batch} == set(range(60))


def test_with_exactly_once_each_row_is_emitted_once_in_spite_of_crashes() -> None:
    """Rows that reach the next bolt: each changes its state once, whatever the batches were when a checkpoint was taken."""

    class Count(StatefulBolt):
        outputs = ("counts",)

        def prepare(self, context: Any) -> None:
            self.counts: dict[int, int] = {}

        def execute(self, tup: Any, collector: Any) -> None:
            self.counts[tup["id"]] = self.counts.get(tup["id"], 0) + 1

        def snapshot(self) -> Any:
            return self.counts

        def restore(self, state: Any) -> None:
            self.counts = dict(state or {})

        def end_of_input(self, collector: Any) -> None:
            collector.emit((sorted(self.counts.items()),))

    def build() -> Topology:
        builder = TopologyBuilder("batches").config(delivery="exactly_once", checkpoint_interval="200ms")
        builder.set_spout("ids", IterableSpout([(0,)], fields=("id",)))
        builder.set_bolt("insert", Insert([], 7, wait="150ms")).shuffle_grouping("ids")
        builder.set_bolt("count", Count()).shuffle_grouping("insert")
        return builder.build()

    steps: list[Any] = []
    for number in range(60):
        steps += [number, ADVANCE("37ms")]
        if number in (23, 41):
            steps.append(CRASH("insert"))
    test = TopologyTest(build, sources={"ids": [*steps, END]})
    test.run()
    ((counts,),) = set(test.emitted("count"))
    assert counts == tuple((number, 1) for number in range(60))


def test_a_bolt_that_does_not_call_init_has_the_default_settings() -> None:
    class Plain(BatchBolt):
        def __init__(self) -> None:
            self.sizes: list[int] = []

        def execute_batch(self, tuples: Any, collector: Any) -> None:
            self.sizes.append(len(tuples))

    assert run_bolt(Plain(), [{"id": n} for n in range(130)]).bolt.sizes == [100, 30]  # type: ignore[union-attr]
