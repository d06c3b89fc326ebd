"""Section 5, the timer service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from topo.keys import KeyGroupRange, key_group
from topo.operators.state.keyed_state import KeyContext
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP, ManualProcessingTime
from topo.operators.time.timer_queue import TimerQueue
from topo.operators.time.timers import TimerServices


class Handler:
    """Records what fires, with the current key; `then` reacts to each firing."""

    def __init__(self, keys: KeyContext) -> None:
        self.keys = keys
        self.fired: list[tuple[str, Any, Any, int]] = []
        self.then: Callable[[int], None] = lambda timestamp: None

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        assert self.keys.key == key
        self.fired.append(("event", key, namespace, timestamp))
        self.then(timestamp)

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        assert self.keys.key == key
        self.fired.append(("processing", key, namespace, timestamp))
        self.then(timestamp)


class Timers:
    def __init__(self, clock: ManualProcessingTime | None = None) -> None:
        self.keys = KeyContext()
        self.clock = clock or ManualProcessingTime()
        self.services = TimerServices(self.keys, self.clock)
        self.handler = Handler(self.keys)

    def claim(self, name: str = "timers") -> Timers:
        self.service = self.services.get(name, self.handler)
        return self

    def event(self, key: Any, timestamp: int, namespace: Any = None) -> None:
        self.keys.key = key
        self.service.register_event_timer(namespace, timestamp)

    def processing(self, key: Any, timestamp: int, namespace: Any = None) -> None:
        self.keys.key = key
        self.service.register_processing_timer(namespace, timestamp)

    def fired(self) -> list[tuple[Any, int]]:
        fired = [(key, timestamp) for _, key, _, timestamp in self.handler.fired]
        self.handler.fired.clear()
        return fired


@pytest.fixture
def timers() -> Timers:
    return Timers().claim()


def test_the_same_name_gives_the_same_service(timers: Timers) -> None:
    assert timers.services.get("timers", Handler(timers.keys)) is timers.service
    assert timers.services.get("others", timers.handler) is not timers.service


def test_the_two_time_domains_are_apart(timers: Timers) -> None:
    timers.event("a", 5)
    timers.processing("a", 5)
    assert (timers.service.event_timers, timers.service.processing_timers) == (1, 1)
    timers.service.delete_event_timer(None, 5)
    timers.clock.advance_to(6)
    timers.service.advance_watermark(5)
    assert timers.handler.fired == [("processing", "a", None, 5)]


def test_the_first_watermark_is_the_least_and_it_is_set_before_the_timers_fire(timers: Timers) -> None:
    assert timers.service.current_watermark == MIN_TIMESTAMP
    seen: list[int] = []
    timers.handler.then = lambda timestamp: seen.append(timers.service.current_watermark)
    timers.event("a", 5)
    timers.service.advance_watermark(8)
    assert seen == [8]


def test_timers_that_a_callback_registers_fire_in_the_same_advance(timers: Timers) -> None:
    def then(timestamp: int) -> None:
        if timers.handler.fired[-1][2] is None and timestamp < 7:
            timers.service.register_event_timer(None, timestamp + 1)
            timers.service.register_event_timer("same time", timestamp)
            timers.service.register_event_timer("earlier", timestamp - 3)

    timers.handler.then = then
    timers.event("a", 5)
    timers.service.advance_watermark(6)
    assert {(namespace, timestamp) for _, _, namespace, timestamp in timers.handler.fired} == {
        (None, 5),
        ("same time", 5),
        ("earlier", 2),
        (None, 6),
        ("same time", 6),
        ("earlier", 3),
    }
    assert timers.service.event_timers == 1


def test_a_callback_may_delete_a_timer_of_its_own_timestamp(timers: Timers) -> None:
    def delete_all_others(timestamp: int) -> None:
        fired = timers.handler.fired[-1][2]
        for namespace in range(10):
            if namespace != fired:
                timers.service.delete_event_timer(namespace, 5)

    timers.handler.then = delete_all_others
    for namespace in range(10):
        timers.event("a", 5, namespace)
    timers.service.advance_watermark(5)
    assert len(timers.handler.fired) == 1


def test_the_service_does_not_itself_refuse_a_smaller_watermark(timers: Timers) -> None:
    timers.service.advance_watermark(10)
    timers.service.advance_watermark(5)
    assert timers.service.current_watermark == 5


def test_processing_timers_fire_when_the_clock_is_there_with_one_clock_timer_for_all(timers: Timers) -> None:
    for key, timestamp in [("a", 30), ("b", 10), ("c", 20)]:
        timers.processing(key, timestamp)
        assert timers.clock.pending == 1
    timers.clock.advance_to(11)
    assert timers.fired() == [("b", 10)]
    assert timers.clock.pending == 1, "armed again for the new head"
    timers.clock.advance_to(31)
    assert timers.fired() == [("c", 20), ("a", 30)]
    assert timers.clock.pending == 0


def test_only_an_earlier_head_moves_the_clock_timer(timers: Timers) -> None:
    moments: list[int] = []
    register = timers.clock.register
    timers.clock.register = lambda timestamp, callback: (moments.append(timestamp), register(timestamp, callback))[1]  # type: ignore[method-assign]
    for timestamp in (20, 30, 20, 10, 15):
        timers.processing("a", timestamp)
    assert moments == [20, 10]
    timers.clock.advance_to(12)
    assert moments == [20, 10, 15]


def test_deleting_the_head_leaves_the_clock_timer_which_arms_the_next(timers: Timers) -> None:
    timers.processing("a", 10)
    timers.processing("a", 20)
    timers.service.delete_processing_timer(None, 10)
    assert timers.clock.pending == 1
    timers.clock.advance_to(11)
    assert timers.fired() == []
    assert timers.clock.pending == 1
    timers.clock.advance_to(21)
    assert timers.fired() == [("a", 20)]


def test_a_processing_timer_registered_by_a_callback_is_armed_once(timers: Timers) -> None:
    def again(timestamp: int) -> None:
        if timestamp < 40:
            timers.service.register_processing_timer(None, timestamp + 10)

    timers.handler.then = again
    timers.processing("a", 10)
    timers.processing("b", 35)
    timers.clock.advance_to(10)
    assert timers.clock.pending == 1
    timers.clock.advance_to(50)
    assert timers.fired() == [("a", 10), ("a", 20), ("a", 30), ("b", 35), ("a", 40), ("b", 45)]
    assert timers.clock.pending == 0


def test_a_clock_that_jumps_far_fires_every_timer_with_its_own_timestamp(timers: Timers) -> None:
    for timestamp in (10, 20, 30):
        timers.processing("a", timestamp)
    timers.clock.advance_to(1_000)
    assert timers.fired() == [("a", 10), ("a", 20), ("a", 30)]


def test_visiting_shows_every_timer_with_its_key_as_the_current_one(timers: Timers) -> None:
    timers.event("a", 1, "x")
    timers.event("b", 2, "y")
    timers.event("c", 2, "y")
    timers.processing("d", 3)
    seen: list[tuple[Any, Any, int]] = []
    timers.service.for_each_event_timer(lambda namespace, timestamp: seen.append((timers.keys.key, namespace, timestamp)))
    assert sorted(seen) == [("a", "x", 1), ("b", "y", 2), ("c", "y", 2)]
    seen.clear()
    timers.service.for_each_processing_timer(lambda namespace, timestamp: seen.append((timers.keys.key, namespace, timestamp)))
    assert seen == [("d", None, 3)]


def test_a_visitor_may_delete_what_it_sees(timers: Timers) -> None:
    for key in range(5):
        timers.event(key, 7)
    timers.service.for_each_event_timer(timers.service.delete_event_timer)
    assert timers.service.event_timers == 0


def test_a_snapshot_holds_the_timers_of_both_domains_and_all_services_by_key_group(timers: Timers) -> None:
    timers.event("A", 1, "x")
    timers.event("B", 1, "x")
    timers.claim("others").processing("B", 2)
    assert timers.services.snapshot() == {
        104: {"timers": ([("A", "x", 1)], [])},
        17: {"timers": ([("B", "x", 1)], []), "others": ([], [("B", None, 2)])},
    }


def test_a_restored_service_fires_by_the_clock_and_starts_without_a_watermark(timers: Timers) -> None:
    timers.event("A", 5)
    timers.processing("A", 10)
    timers.processing("B", 20)
    timers.service.advance_watermark(4)
    restored = Timers()
    restored.services.restore(timers.services.snapshot())
    restored.claim()
    assert restored.service.current_watermark == MIN_TIMESTAMP
    assert restored.clock.pending == 1
    restored.clock.advance_to(21)
    assert restored.fired() == [("A", 10), ("B", 20)]
    restored.service.advance_watermark(5)
    assert restored.fired() == [("A", 5)]


def test_restoring_into_a_service_in_use_doubles_no_timer(timers: Timers) -> None:
    timers.event("a", 5)
    timers.processing("a", 9)
    restored = Timers().claim()
    restored.event("a", 5)
    restored.processing("b", 12)
    restored.services.restore(timers.services.snapshot())
    assert (restored.service.event_timers, restored.service.processing_timers) == (1, 2)
    restored.clock.advance_to(10)
    assert restored.fired() == [("a", 9)]


def test_restored_timers_of_a_service_that_nobody_asks_for_stay_in_the_next_snapshot(timers: Timers) -> None:
    timers.event("A", 5)
    restored = Timers()
    restored.services.restore(timers.services.snapshot())
    assert restored.services.snapshot() == timers.services.snapshot()
    restored.claim()
    assert restored.services.snapshot() == timers.services.snapshot()


def test_rescaling_hands_every_timer_to_exactly_one_of_the_ranges(timers: Timers) -> None:
    for key in range(100):
        timers.event(key, key)
        timers.processing(key, key)
    snapshot = timers.services.snapshot()
    found: list[int] = []
    for share in (KeyGroupRange(0, 40), KeyGroupRange(41, 127)):
        part = Timers()
        part.services.restore({group: data for group, data in snapshot.items() if group in share})
        part.claim().service.advance_watermark(1_000)
        keys = [key for key, _ in part.fired()]
        assert all(key_group(key, 128) in share for key in keys)
        assert part.service.processing_timers == len(keys)
        found += keys
    assert sorted(found) == list(range(100))


def test_namespaces_are_decoded_when_restored(timers: Timers) -> None:
    timers.event("a", 5, (1, 2))
    restored = Timers()
    restored.services.restore(timers.services.snapshot(), lambda encoded: ("window", *encoded))
    restored.claim().service.advance_watermark(5)
    assert restored.handler.fired == [("event", "a", ("window", 1, 2), 5)]


def test_all_services_advance_with_one_watermark(timers: Timers) -> None:
    timers.event("a", 5)
    timers.claim("others").event("b", 5)
    assert timers.services.pending == 2
    timers.services.advance_watermark(5)
    assert sorted(timers.fired()) == [("a", 5), ("b", 5)]
    assert timers.services.pending == 0


def test_timers_that_are_moved_again_and_again_do_not_fill_the_heap() -> None:
    queue = TimerQueue()
    queue.add(0, "first", None)
    for timestamp in range(1, 10_000):
        queue.add(timestamp, "session", None)
        queue.remove(timestamp - 1, "session", None)
    assert len(queue) == 2
    assert len(queue._heap) < 200
    assert [queue.take(MAX_TIMESTAMP) for _ in range(3)] == [(0, "first", None), (9_999, "session", None), None]


def test_timers_of_one_timestamp_fire_in_the_order_of_registration(timers: Timers) -> None:
    for key in range(1_000):
        timers.event(key, 5)
    timers.service.advance_watermark(5)
    assert timers.fired() == [(key, 5) for key in range(1_000)]


@pytest.mark.parametrize("timestamp", [MIN_TIMESTAMP, MIN_TIMESTAMP + 1, -1, 0, MAX_TIMESTAMP - 1, MAX_TIMESTAMP])
def test_the_ends_of_time_are_timestamps_like_others(timers: Timers, timestamp: int) -> None:
    timers.event("a", timestamp)
    if timestamp > MIN_TIMESTAMP:
        timers.service.advance_watermark(timestamp - 1)
        assert timers.fired() == []
    timers.service.advance_watermark(timestamp)
    assert timers.fired() == [("a", timestamp)]
