"""Process bolts as tasks: keyed state, timers by both clocks, and what becomes of a timer that raises."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.tasks.components import CHECKPOINTED, TRACKED
from tests.unit.task.operators import between, put, time
from topo.api.operator_bolts import ProcessBolt
from topo.wire.control import ComponentError
from topo.wire.frames import FrameKind


class Timeout(ProcessBolt):
    """Emits a key that was not seen for 100 ms, by either clock."""

    outputs = ("key", "seen")

    def __init__(self, *, event_time: bool) -> None:
        super().__init__("key")
        self.event_time = event_time

    def open(self, context: Any) -> None:
        self.last = context.state.value("last")
        self.seen = context.state.value("seen")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        if tup["value"] == "raise":
            collector.emit(("never", 0))
            raise ValueError("as ordered")
        register, delete, now = (
            (context.register_event_time_timer, context.delete_event_time_timer, context.timestamp)
            if self.event_time
            else (
                context.register_processing_time_timer,
                context.delete_processing_time_timer,
                context.current_processing_time,
            )
        )
        if self.last.get() is not None:
            delete(self.last.get())
        self.last.set(now + 100)
        self.seen.set((self.seen.get() or 0) + 1)
        register(now + 100)
        if tup["value"] == "echo":
            collector.emit((context.key, -1))

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        collector.emit((context.key, self.seen.get()))
        if context.key == "bad":
            raise ValueError("bad")


def test_a_process_bolt_keeps_state_by_key_and_acks_an_input_ahead_of_its_timers() -> None:
    solo = between(Timeout(event_time=True))
    ids = put(solo, [("a", 0), ("b", 0), ("a", 0)], [0, 10, 50])
    assert solo.owed(ids.pairs) == {}, "an input is done when process returns"
    levels = solo.task.statistics().levels
    assert (levels["timers"], levels["state_entries"]) == (2.0, 4.0)
    time(solo, 120)
    assert solo.rows() == [("b", 1)]
    time(solo, 150)
    assert solo.rows() == [("b", 1), ("a", 2)]
    assert [frame.timestamp_list() for frame in solo.frames(FrameKind.DATA)] == [[110], [150]]


def test_a_timer_of_the_clock_emits_without_a_timestamp() -> None:
    solo = between(Timeout(event_time=False))
    put(solo, [("a", 0)], [5])
    solo.wait(0.05)
    put(solo, [("a", 0)], [6])
    solo.wait(0.09)
    assert solo.rows() == []
    solo.wait(0.02)
    assert solo.rows() == [("a", 2)]
    (frame,) = solo.frames(FrameKind.DATA)
    assert not frame.timestamps


class Flaky(ProcessBolt):
    """Emits and keeps a row for each unit of the value, and raises at times behind the first."""

    outputs = {"default": ("key", "number"), "side": ("key",)}

    def __init__(self) -> None:
        super().__init__("key")
        self.raises = {"once": 1, "always": 99}

    def open(self, context: Any) -> None:
        self.kept = context.state.list("kept")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        for number in range(tup["value"]):
            self.kept.add(number)
            collector.emit((tup["key"], len(self.kept.get())))
            collector.emit((tup["key"],), "side")
            if self.raises.get(tup["key"]):
                self.raises[tup["key"]] -= 1
                raise ValueError("as ordered")


@pytest.mark.parametrize("delivery", [TRACKED, CHECKPOINTED])
def test_a_call_that_raises_takes_back_its_effects_and_those_of_no_other_call(delivery: str) -> None:
    solo = between(Flaky(), delivery=delivery, attempts=2)
    given = [("a", 2), ("quiet", 0), ("once", 2), ("quiet", 0), ("always", 1), ("b", 1), ("a", 1)]
    ids = put(solo, given, [1] * len(given))
    kept = [("a", 1), ("a", 2), ("once", 1), ("once", 2), ("b", 1), ("a", 3)]
    assert solo.rows() == (kept if delivery == CHECKPOINTED else [row for row in kept if row[0] != "once"])
    if delivery == CHECKPOINTED:
        assert [values[0] for values in solo.given_up()] == ["always"]
    else:
        assert solo.roots(FrameKind.FAIL) == [ids.roots[2], ids.roots[4]]
    counters = solo.task.counters
    assert (counters.acked, counters.failed) == ((6, 1) if delivery == CHECKPOINTED else (5, 2))


@pytest.mark.parametrize("delivery", [TRACKED, CHECKPOINTED])
@pytest.mark.parametrize("event_time", [True, False])
def test_a_timer_that_raises_is_reported_and_the_other_timers_run(event_time: bool, delivery: str) -> None:
    """With checkpoints it is a dead letter of its key and timestamp."""
    solo = between(Timeout(event_time=event_time), delivery=delivery)
    put(solo, [("a", 0), ("bad", 0), ("c", 0)], [0, 1, 2])
    time(solo, 500)
    solo.wait(0.3)
    assert sorted(solo.values()) == ["a", "c"]
    assert solo.errors() == ["ValueError: bad"]
    if delivery == CHECKPOINTED:
        ((key, timestamp),) = solo.given_up()
        assert key == "bad" and (timestamp == 101 or not event_time) and solo.task.counters.failed == 1


def test_due_timers_run_between_slices_of_a_full_input() -> None:
    solo = between(Timeout(event_time=False))
    put(solo, [("a", 0)], [0])
    solo.clock.now += 0.2
    for _ in range(50):
        solo.feed(("b", "echo"), sender=solo.sources()[0])
    solo.turn()
    assert solo.task.inbound.queue, "there is more to do"
    solo.run()
    assert solo.rows()[0] == ("a", 1), "the timer did not wait for the end of the queue"


class Flood(ProcessBolt):
    """Emits from a timer the number of rows that its input names."""

    outputs = ("key",)

    def __init__(self) -> None:
        super().__init__(key="key")

    def open(self, context: Any) -> None:
        self.count = context.state.value("count")

    def process(self, tup: Any, context: Any, collector: Any) -> None:
        self.count.set(tup["value"])
        context.register_event_time_timer(5)

    def on_timer(self, timestamp: int, context: Any, collector: Any) -> None:
        for _ in range(self.count.get()):
            collector.emit((context.key,))


@pytest.mark.parametrize("delivery", [TRACKED, CHECKPOINTED])
def test_a_timer_that_emits_more_than_a_call_may_fails_and_the_others_run(delivery: str) -> None:
    solo = between(Flood(), delivery=delivery, max_task_emit=5)
    put(solo, [("a", 1), ("b", 6), ("c", 5)], [1, 1, 1])
    time(solo, 20)
    assert Counter(solo.values()) == {"a": 1, "c": 5}
    if delivery == CHECKPOINTED:
        assert solo.given_up() == [("b", 5)]
    (error,) = solo.messages(ComponentError)
    assert "at most 5 are allowed" in error.message
