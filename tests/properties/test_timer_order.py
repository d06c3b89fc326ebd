"""The timer queue and the timer service against a plain sorted list of timers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topo.operators.state.keyed_state import KeyContext
from topo.operators.time.clock import ManualProcessingTime
from topo.operators.time.timer_queue import TimerQueue
from topo.operators.time.timers import TimerServices

KEYS = st.sampled_from(["a", "b", 1, 2])
NAMESPACES = st.sampled_from([None, (0, 10), (0, 20)])
TIMES = st.integers(-5, 15)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("register"), KEYS, NAMESPACES, TIMES),
        st.tuples(st.just("register"), KEYS, NAMESPACES, TIMES),
        st.tuples(st.just("delete"), KEYS, NAMESPACES, TIMES),
        st.tuples(st.just("advance"), st.integers(-5, 15)),
        st.tuples(st.just("restore")),
    ),
    max_size=60,
)


class Model:
    """Timers as a set; due ones are found by looking at all."""

    def __init__(self) -> None:
        self.timers: set[tuple[int, Any, Any]] = set()

    def head(self) -> int | None:
        return min((timestamp for timestamp, _, _ in self.timers), default=None)

    def advance(self, until: int) -> list[tuple[int, Any, Any]]:
        due = sorted((timer for timer in self.timers if timer[0] <= until), key=repr)
        self.timers -= set(due)
        return due


@given(STEPS)
@settings(max_examples=300)
def test_the_queue_is_a_set_ordered_by_timestamp_whose_head_changes_are_told(steps: list[tuple[Any, ...]]) -> None:
    queue, model = TimerQueue(), Model()
    for step in steps:
        head = model.head()
        if step[0] == "register":
            _, key, namespace, timestamp = step
            model.timers.add((timestamp, key, namespace))
            assert queue.add(timestamp, key, namespace) == (model.head() != head)
        elif step[0] == "delete":
            _, key, namespace, timestamp = step
            model.timers.discard((timestamp, key, namespace))
            assert queue.remove(timestamp, key, namespace) == (model.head() != head)
        elif step[0] == "advance":
            taken = []
            while (timer := queue.take(step[1])) is not None:
                taken.append(timer)
            assert [timestamp for timestamp, _, _ in taken] == sorted(timestamp for timestamp, _, _ in taken)
            assert sorted(taken, key=repr) == model.advance(step[1])
        assert queue.head == model.head()
        assert len(queue) == len(model.timers)
        assert set(queue) == model.timers


class Service:
    """One timer service whose firings are collected; it may be replaced by one restored from its snapshot."""

    def __init__(self, now_ms: int = -10, snapshot: dict[int, Any] | None = None) -> None:
        self.keys = KeyContext()
        self.clock = ManualProcessingTime(now_ms)
        self.services = TimerServices(self.keys, self.clock)
        if snapshot is not None:
            self.services.restore(snapshot)
        self.timers = self.services.get("timers", self)
        self.fired: list[tuple[int, Any, Any]] = []

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        self.fired.append((timestamp, key, namespace))

    on_processing_time = on_event_time

    def take_fired(self) -> list[tuple[int, Any, Any]]:
        fired, self.fired = self.fired, []
        assert [timestamp for timestamp, _, _ in fired] == sorted(timestamp for timestamp, _, _ in fired)
        return sorted(fired, key=repr)


@pytest.mark.parametrize("kind", ["event", "processing"])
@given(steps=STEPS)
@settings(max_examples=300)
def test_timers_fire_as_a_sorted_list_says_also_across_snapshots(kind: str, steps: list[tuple[Any, ...]]) -> None:
    service, model = Service(), Model()
    for step in steps:
        match step:
            case "register", key, namespace, timestamp:
                service.keys.key = key
                getattr(service.timers, f"register_{kind}_timer")(namespace, timestamp)
                model.timers.add((timestamp, key, namespace))
            case "delete", key, namespace, timestamp:
                service.keys.key = key
                getattr(service.timers, f"delete_{kind}_timer")(namespace, timestamp)
                model.timers.discard((timestamp, key, namespace))
            case "advance", until:
                if kind == "event":
                    service.timers.advance_watermark(until)
                else:
                    service.clock.advance_to(until + 1)
                assert service.take_fired() == model.advance(until)
            case _:
                service = Service(service.clock.now_ms(), service.services.snapshot())
        if kind == "event":
            assert service.timers.event_timers == len(model.timers)
        else:
            assert service.clock.pending <= 1, "one timer of the clock at most"
            assert service.clock.pending == 1 or not model.timers


@given(
    st.lists(st.tuples(KEYS, TIMES), min_size=1, max_size=20),
    st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=30),
    st.integers(-5, 15),
)
@settings(max_examples=300)
def test_callbacks_that_register_and_delete_are_seen_by_the_same_advance(
    initial: list[tuple[Any, int]], reactions: list[tuple[bool, int]], until: int
) -> None:
    """Each firing takes the next reaction: register or delete a timer of the same key near its own timestamp."""
    service = Service()
    pending: set[tuple[int, Any, Any]] = set()
    script = iter(reactions)

    def react(key: Any, namespace: Any, timestamp: int) -> None:
        assert (timestamp, key, namespace) in pending, "it was deleted, or fired before"
        assert timestamp == min(each for each, _, _ in pending), "an earlier one was left out"
        pending.remove((timestamp, key, namespace))
        registers, distance = next(script, (False, 0))
        if registers:
            service.timers.register_event_timer(None, timestamp + distance)
            pending.add((timestamp + distance, key, None))
        else:
            service.timers.delete_event_timer(None, timestamp + distance)
            pending.discard((timestamp + distance, key, None))

    service.timers._handler = type("Reacting", (), {"on_event_time": staticmethod(react)})()
    for key, timestamp in initial:
        service.keys.key = key
        service.timers.register_event_timer(None, timestamp)
        pending.add((timestamp, key, None))
    service.timers.advance_watermark(until)
    assert all(timestamp > until for timestamp, _, _ in pending)
    assert service.timers.event_timers == len(pending)
