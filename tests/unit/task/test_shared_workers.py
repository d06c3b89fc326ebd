"""A bolt that waits for the other tasks of its worker is not slow: what its senders are granted depends on its own work."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.components import Plain, Scripted, Sink, chain
from tests.tasks.solo import Solo
from tests.unit.task.operators import between
from tests.unit.task.test_batch_task import Batches
from topo import ColumnBatch, ColumnBolt
from topo.api.operator_bolts import ProcessBolt
from topo.wire.frames import watermark_frame

ROUND_S = 0.05
"""Seconds from one turn of a task to its next, in a worker with many."""
TARGET_S = 0.5
"""How long tuples may wait before a bolt: `queue_time`, as it is by default."""


class PassedOn(ColumnBolt):
    outputs = ("value",)

    def execute_batch(self, batch: Any, collector: Any) -> None:
        collector.emit_batch(batch)


def rounds(task: Solo, count: int, values: int) -> int:
    """Let a bolt have a few tuples in each round of its worker; return the allowance after them."""
    for _ in range(count):
        task.feed(*range(values))
        task.clock.now += ROUND_S
        task.run()
        task.confirm_all()
    return int(task.task.inbound.allowance.size)


def test_few_tuples_in_each_round_of_a_busy_worker_leave_the_allowance_large() -> None:
    size = rounds(Solo(chain(Scripted(), Plain(), Sink()), "b"), 2_000, values=3)
    assert size > 1_000, f"{size} tuples; 3 in each round would be {3 * TARGET_S / ROUND_S:.0f} in {TARGET_S} s"


@pytest.mark.parametrize("each_s", [0.001, 0.01])
def test_the_work_of_the_bolt_itself_counts_in_full(each_s: float) -> None:
    def slow(_tup: object, _collector: object) -> None:
        task.clock.now += each_s

    task = Solo(chain(Scripted(), Plain(slow), Sink()), "b")
    # Five tuples of 1 ms fill a slice, which is `flush_interval`, and so do fewer that are slower.
    expected = TARGET_S / (each_s + ROUND_S / 5)
    assert rounds(task, 1_000, values=5) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("turn_s", [0.0, 0.001])
def test_a_wait_for_bolts_behind_it_counts_in_full(turn_s: float) -> None:
    task = Solo(chain(Scripted(), Plain(), Sink()), "b")
    before = rounds(task, 2_000, values=3)
    task.confirm(3, allowance=1)
    for _ in range(400):
        task.feed(1, 2, 3)
        task.run()
        task.feed(4)
        assert task.task.runner.is_blocked
        task.clock.now += turn_s
        task.turn()
        task.clock.now += ROUND_S - turn_s
        task.turn()
        task.confirm(3, allowance=1)
        task.run()
        task.confirm(3, allowance=1)
    assert task.task.counters.blocked_s == pytest.approx(400 * ROUND_S)
    assert before > 1_000 and task.task.inbound.allowance.size <= TARGET_S / (ROUND_S / 4)


def fed(task: Solo, turns: int, wait_s: float = 0.001) -> int:
    """Keep four frames of ten tuples before a bolt, a watermark behind each; return its allowance."""
    source, inbound, at = task.sources()[0], task.task.inbound, 0
    for _ in range(turns):
        while len(inbound.queue) < 8:
            at += 10
            task.feed(*[(at + value, value) for value in range(10)], sender=source, stamps=[at] * 10)
            task.deliver(watermark_frame(task.stamp(source), task.id, task.next_number(source), at))
        task.turn()
        task.clock.now += wait_s
        task.confirm_all()
    return int(inbound.allowance.size)


def test_calls_for_batches_count_in_full() -> None:
    def slow(_tuples: object, _collector: object) -> None:
        task.clock.now += 0.2

    task = Solo(chain(Scripted(), Batches(10, slow), Sink()), "b")
    assert fed(task, 500) <= 2 * TARGET_S / (0.2 / 10)


@pytest.mark.parametrize("event_time", [True, False])
def test_timers_count_in_full(event_time: bool) -> None:
    class Slow(ProcessBolt):
        outputs = ("key",)

        def process(self, tup: Any, context: Any, collector: Any) -> None:
            if event_time:
                context.register_event_time_timer(context.timestamp)
            else:
                context.register_processing_time_timer(context.current_processing_time)

        def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
            task.clock.now += 0.02

    task = between(Slow("key"))
    assert fed(task, 500) <= 2 * TARGET_S / 0.02


def test_a_batching_bolt_makes_one_call_in_a_round_however_many_tuples_wait() -> None:
    task = Solo(chain(Scripted(), Batches(10, lambda _tuples, _collector: None), Sink()), "b")
    assert fed(task, 500, ROUND_S) <= 2 * TARGET_S / (2 * ROUND_S / 10), "each call takes a turn, and so do its tuples"


def test_batches_count_by_their_rows_for_a_bolt_that_takes_tuples() -> None:
    def slow(_tup: object, _collector: object) -> None:
        task.clock.now += 0.000_001

    task = Solo(chain(Scripted(), PassedOn(), Plain(slow)), "c")
    columns, inbound = ColumnBatch.of({"value": list(range(5000))}), task.task.inbound
    for turn in range(300):
        while len(inbound.queue) < 8:
            task.feed((columns,), sender=task.sources()[0])
        task.turn()
        task.clock.now += ROUND_S
        task.confirm_all()
        if turn == 200:
            before = inbound.received
    assert inbound.allowance.size <= 2 * (inbound.received - before) * TARGET_S / (99 * ROUND_S)
