"""Consumers that are slower than their producers: back-pressure, flat memory, and no other task held up."""

from __future__ import annotations

import re
import time

import psutil
import pytest

from tests.integration.support import FLOODING, Scene, Status, acked, component_of, flow, pid_of
from topo.master.outcome import OutcomeKind

pytestmark = pytest.mark.integration

SOAK_S = 8.0
WARM_UP_S = 2.0
PATIENCE_S = 55.0


def test_a_consumer_ten_times_too_slow_holds_its_producer_back_and_memory_stays_flat(scene: Scene) -> None:
    """Promise of the README: A slow consumer slows its sources down. Buffers are bounded, and acks cannot deadlock behind
    data.
    """
    parts = """
class Slow(BasicBolt):
    outputs = ("value",)

    def execute(self, tup, collector):
        time.sleep(0.0005)
        collector.emit((tup["value"],))

class End(BasicBolt):
    def execute(self, tup, collector):
        pass

class Fat(RetryingSpout):
    outputs = ("value", "ballast")

    def open(self, context, collector):
        self.collector, self.next = collector, 0

    def next_tuple(self):
        if (HERE / "stop").exists():
            self.collector.end_of_input()
            return
        for _ in range(100):
            self.collector.emit((self.next, "x" * 1000), self.next)
            self.next += 1
"""
    declared = flow(
        'builder.set_spout("numbers", Fat(), max_spout_pending=20_000)',
        'builder.set_bolt("pass", Slow()).shuffle_grouping("numbers")',
        'builder.set_bolt("end", End()).shuffle_grouping("pass")',
    )
    running = scene.submit(scene.file(parts + declared), message_timeout="60s")
    status = running.wait_until(lambda status: acked(status) > 0)
    processes = {name: psutil.Process(pid_of(status, name)) for name in ("numbers", "pass", "end", "__acker")}
    begun = time.monotonic()
    early: dict[str, int] = {}
    late: dict[str, int] = {}
    shares = []
    while (spent := time.monotonic() - begun) < SOAK_S:
        for name, process in processes.items():
            size = process.memory_info().rss
            if spent > WARM_UP_S:
                half = early if spent < (WARM_UP_S + SOAK_S) / 2 else late
                half[name] = max(half.get(name, 0), size)
        status = running.status()
        if spent > WARM_UP_S:
            shares.append((component_of(status, "numbers")["backpressured"], component_of(status, "pass")["busy"]))
        assert status["totals"]["pending"] <= 20_100
        time.sleep(0.1)
    assert all(late[name] - early[name] < 2 << 20 for name in processes), (early, late)
    assert status["totals"]["pending"] < 20_000, "the edge's window is full before the pending limit is reached"
    assert sorted(shares)[len(shares) // 2][0] > 0.5, "the producer's time is mostly back-pressure"
    scene.touch("stop")
    assert running.wait(timeout_s=60).kind is OutcomeKind.DONE
    for worker in range(4):
        log = (running.folder.logs / f"worker-{worker}.log").read_text()
        refused = [int(number) for number in re.findall(r"(\d+) refused at first", log)]
        # Before a connection stands a send is refused; afterwards no high-water mark is ever reached.
        assert refused and max(refused) <= 3, log


def test_one_slow_task_of_eight_does_not_hold_the_others_up(scene: Scene) -> None:
    parts = """
class Uneven(BasicBolt):
    def prepare(self, context):
        self.wait_s = 0.02 if context.task_index == 0 else 0.0002

    def execute(self, tup, collector):
        time.sleep(self.wait_s)
"""
    uneven = 'builder.set_bolt("uneven", Uneven, 8).shuffle_grouping("numbers")'
    declared = flow('builder.set_spout("numbers", Endless())', uneven)
    running = scene.submit(scene.file(FLOODING + parts + declared))
    # Workers start one after another, and the first ones have a lead of thousands: count from when they all run.
    before = executed(running.wait_until(lambda status: acked(status) > 10_000, timeout_s=PATIENCE_S))
    after = executed(running.wait_until(lambda status: acked(status) > 50_000, timeout_s=PATIENCE_S))
    grown = sorted(after[task] - before[task] for task in after)
    # Even shares would let all eight do as little as the slow one.
    assert grown[1] > 3 * grown[0], grown
    assert grown[-1] < 3 * grown[1], grown


def executed(status: Status) -> dict[int, int]:
    """Return how many inputs each task of the bolt has executed."""
    return {task["task"]: task["counters"]["executed"] for task in status["tasks"] if task["component"] == "uneven"}
