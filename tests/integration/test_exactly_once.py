"""Checkpoints over real processes: whatever is killed, each input has changed the state once, and each row is published once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.support import Scene, acked, counter, kill, pid_of
from tests.integration.test_operator_bolts import EVENTS, expected_windows, rows_of
from topo.launch.running import RunningTopology

pytestmark = pytest.mark.integration

QUICK = {"checkpoint_interval": "200ms", "checkpoint_pause": "50ms"}
PACKED = {**QUICK, "workers": 2}
"""Where it does not matter which task dies with which: fewer processes have to start."""

WINDOWS = (
    EVENTS
    + """
def topology(count=4000, pace=0.0005):
    builder = TopologyBuilder("flow")
    builder.set_spout("events", Events(int(count), float(pace)), watermarks=BOUND)
    builder.set_bolt("windows", WindowBolt(key="key", window=TumblingEventTimeWindows.of("1s"), process=Numbers(),
                                           outputs=("key", "start", "numbers"), late_stream="late"), parallelism=2) \\
           .fields_grouping("events", "key")
    builder.set_bolt("out", sink("out")).shuffle_grouping("windows")
    builder.set_bolt("late", sink("late")).shuffle_grouping("windows", stream="late")
    return builder.build()
"""
)

COUNTING = """
class Numbers(RetryingSpout):
    outputs = ("number",)

    def open(self, context, collector):
        self.collector = collector
        done = context.committed_position
        self.next = 0 if done is None else done + 1

    def next_tuple(self):
        if self.next == COUNT:
            self.collector.end_of_input()
            return
        take_time(0.0004)
        self.collector.emit((self.next,), self.next)
        self.next += 1

class Spread(BasicBolt):
    outputs = ("key",)

    def execute(self, tup, collector):
        number = tup["number"]
        if number in POISON:
            raise ValueError(f"no {number}")
        for key in range(3):
            collector.emit((f"k{(number + key * 5) % 17}",))

class Count(StatefulBolt):
    outputs = ("key", "count")
    key = "key"

    def prepare(self, context):
        self.counts = {}

    def execute(self, tup, collector):
        self.counts[tup["key"]] = self.counts.get(tup["key"], 0) + 1

    def end_of_input(self, collector):
        for entry in sorted(self.counts.items()):
            collector.emit(entry)

    def snapshot(self):
        return self.counts

    def restore(self, state):
        self.counts = dict(state or {})

def topology():
    builder = TopologyBuilder("flow").config(backoff=("10ms",))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("spread", Spread(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("spread", "key")
    builder.set_bolt("out", JsonLinesSink(HERE / "out.jsonl")).global_grouping("count")
    return builder.build()
"""


def counting(count: int, poison: tuple[int, ...] = ()) -> str:
    return f"COUNT, POISON = {count}, {set(poison)!r}\n" + COUNTING


def expected_counts(count: int, poison: tuple[int, ...] = ()) -> dict[str, int]:
    found: Counter[str] = Counter()
    for number in range(count):
        if number not in poison:
            found.update(f"k{(number + key * 5) % 17}" for key in range(3))
    return dict(found)


def counts(scene: Scene) -> dict[str, int]:
    rows = rows_of(scene.folder, "out")
    found = {row["key"]: row["count"] for row in rows}
    assert len(found) == len(rows), "a row was published twice"
    return found


def complete(status: dict[str, Any]) -> int:
    return int(status["checkpoints"]["complete"])


def after_checkpoints(number: int) -> Callable[[dict[str, Any]], bool]:
    return lambda status: complete(status) >= number


def ended_well(scene: Scene, running: RunningTopology) -> None:
    """Nothing is to happen to the topology any more: have it end soon, and well."""
    scene.hurry()
    outcome = running.wait(timeout_s=90)
    assert (outcome.exit_code, outcome.reason) == (0, "every message was processed")


def test_without_a_fault_everything_is_there_once(scene: Scene) -> None:
    """Promise of the README: exactly_once (the default with windows, process functions or a StatefulBolt): state, and rows of
    sinks that publish with checkpoints.
    """
    run = scene.run(scene.file(WINDOWS.replace("pace=0.0005", "pace=0.0")), **PACKED)
    assert run.outcome.exit_code == 0 and run.totals["acked"] == 4000
    rows = rows_of(scene.folder, "out")
    assert {(row["key"], row["start"]): row["numbers"] for row in rows} == expected_windows(4000)
    assert len(rows) == len(expected_windows(4000)) and rows_of(scene.folder, "late") == []


def test_windows_are_as_without_a_kill(scene: Scene) -> None:
    """A worker of each kind is killed, one after the other."""
    running = scene.submit(scene.file(WINDOWS.replace("count=4000", "count=12000")), **QUICK)
    for killed, component in enumerate(("windows", "events", "out", "__acker")):
        is_on = lambda status, killed=killed: status["epoch"] > killed and complete(status) >= 2 * killed + 2  # noqa: E731
        kill(pid_of(running.wait_until(is_on), component))
    ended_well(scene, running)
    rows = rows_of(scene.folder, "out")
    assert {(row["key"], row["start"]): row["numbers"] for row in rows} == expected_windows(12_000)
    assert len(rows) == len(expected_windows(12_000)) and rows_of(scene.folder, "late") == []
    assert running.summary()["restarts"] == running.summary()["checkpoints"]["restores"] == 4


def test_a_kill_before_the_first_checkpoint_begins_at_the_beginning(scene: Scene) -> None:
    running = scene.submit(scene.file(counting(4000)), checkpoint_interval="10m")
    kill(pid_of(running.wait_until(lambda status: counter(status, "count", "executed") > 100), "count"))
    ended_well(scene, running)
    assert counts(scene) == expected_counts(4000)


def test_a_killed_master_is_resumed_from_the_last_checkpoint(scene: Scene) -> None:
    running = scene.submit_background(scene.file(counting(8000)), "flow", **PACKED)
    status = running.wait_until(after_checkpoints(2))
    kill(status["master"]["pid"])
    ended_well(scene, scene.resume("flow"))
    assert counts(scene) == expected_counts(8000)


def test_what_always_fails_is_one_dead_letter_and_all_else_counts_once(scene: Scene) -> None:
    poison = (100, 3000)
    running = scene.submit(scene.file(counting(6000, poison)), **QUICK)
    kill(pid_of(running.wait_until(after_checkpoints(2)), "spread"))
    scene.hurry()
    outcome = running.wait(timeout_s=90)
    assert outcome.exit_code == 1 and "2 messages were given up" in outcome.reason
    assert counts(scene) == expected_counts(6000, poison)
    dead_letters = running.dead_letters()
    assert sorted(dead_letter["values"][0] for dead_letter in dead_letters) == list(poison)
    assert all("no " in dead_letter["errors"][0] and dead_letter["attempts"] == 3 for dead_letter in dead_letters)


QUEUE = """
class Queue(Spout):
    '''Delivers again whatever was not acked, also to another process; it ends when all is acked.'''
    outputs = ("number",)

    def open(self, context, collector):
        self.collector = collector
        self.waiting = [number for number in range(COUNT) if not (HERE / f"acked-{number}").exists()]
        self.open_messages = set(self.waiting)

    def next_tuple(self):
        if self.waiting:
            number = self.waiting.pop(0)
            self.collector.emit((number,), number)
        elif not self.open_messages:
            self.collector.end_of_input()

    def ack(self, number):
        (HERE / f"acked-{number}").touch()
        self.open_messages.discard(number)

    def fail(self, number):
        self.waiting.append(number)
"""


def test_a_source_without_positions_is_acked_by_checkpoints_and_counts_once(scene: Scene) -> None:
    text = counting(1500).replace('set_spout("numbers", Numbers())', 'set_spout("numbers", Queue(), max_spout_pending=200)')
    running = scene.submit(scene.file(QUEUE + text), **QUICK)
    kill(pid_of(running.wait_until(lambda status: acked(status) > 100), "numbers"))
    kill(pid_of(running.wait_until(lambda status: acked(status) > 600), "count"))
    ended_well(scene, running)
    assert counts(scene) == expected_counts(1500)


def test_calls_under_way_are_made_again_and_their_results_published_once(scene: Scene) -> None:
    text = (
        counting(2000)
        + """
import asyncio

class Ask(AsyncBolt):
    outputs = ("number", "answer")

    async def call(self, tup):
        await asyncio.sleep(0.05)
        return (tup["number"], tup["number"] * 2)

def topology():
    builder = TopologyBuilder("flow").config(delivery="exactly_once")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("ask", Ask(capacity=20)).shuffle_grouping("numbers")
    builder.set_bolt("out", JsonLinesSink(HERE / "out.jsonl")).global_grouping("ask")
    return builder.build()
"""
    )
    running = scene.submit(scene.file(text), **QUICK)
    kill(pid_of(running.wait_until(after_checkpoints(2)), "ask"))
    ended_well(scene, running)
    assert sorted(row["number"] for row in rows_of(scene.folder, "out")) == list(range(2000))
