"""The timer service: calls for a key and a namespace when event time or processing time reaches a timestamp.

A timer is (key, namespace, timestamp) in one of the two time domains; registering it twice is registering it once. Each service
keeps one queue for each domain and has at most one timer of the clock armed, for the head of its processing-time queue.

Among timers of equal timestamp no order is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Protocol

from topo.errors import UserError
from topo.operators.state.keyed_state import KeyContext
from topo.operators.state.undo_log import UndoLog
from topo.operators.time.clock import MAX_TIMESTAMP, MIN_TIMESTAMP, ClockTimer, ProcessingTimeService
from topo.operators.time.timer_queue import TimerQueue


class Brake:
    """Has timers that are due fire later; any thread may pull it. A watermark can make a thousand slow calls due at once.

    Attributes:
        is_on: whether no further timer is to fire now.
    """

    __slots__ = ("is_on",)

    def __init__(self) -> None:
        self.is_on = False


MOST_AFTER_END = 10_000
"""Timers that one key may register while the timers of the end of the input fire. All of them are due: event time goes no
further, so a timer that registers the next one each time would never end."""


_ABSENT = object()


class TimerHandler(Protocol):
    """Called for each timer that is due, with the key set as the current one."""

    def on_event_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """The watermark has reached `timestamp`."""

    def on_processing_time(self, key: Any, namespace: Any, timestamp: int) -> None:
        """The clock has reached `timestamp`."""


class TimerService:
    """The timers of one operator under one name. Made by `TimerServices.get`.

    Registering and deleting go by the current key; the timer of another key cannot be deleted.

    Attributes:
        current_watermark: the last one given to `advance_watermark`; MIN_TIMESTAMP before the first.
        takes_clock_timers: whether processing-time timers are registered; `end_clock` ends that.
    """

    def __init__(
        self,
        keys: KeyContext,
        clock: ProcessingTimeService,
        handler: TimerHandler,
        undo_log: UndoLog | None = None,
        brake: Brake | None = None,
    ) -> None:
        self.current_watermark = MIN_TIMESTAMP
        self._brake = brake or Brake()
        self._keys = keys
        self._clock = clock
        self._handler = handler
        self._event = TimerQueue()
        self._processing = TimerQueue()
        self._armed: ClockTimer | None = None
        self._undo_log = undo_log
        self.takes_clock_timers = True
        self._after_end: dict[Hashable, int] | None = None
        """By key: how many timers it has registered since those of the end of the input fire; None before."""

    @property
    def current_processing_time(self) -> int:
        return self._clock.now_ms()

    @property
    def event_timers(self) -> int:
        """How many event-time timers are registered."""
        return len(self._event)

    @property
    def processing_timers(self) -> int:
        """How many processing-time timers are registered."""
        return len(self._processing)

    def has(self, namespace: Hashable, timestamp: int, is_event_time: bool) -> bool:
        """Whether the current key has registered a timer."""
        return (self._event if is_event_time else self._processing).has(timestamp, self._keys.key, namespace)

    def register_event_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Have `on_event_time` called when the watermark reaches `timestamp`; at the *next* watermark if it has been reached.

        Raises:
            UserError: the input has ended, and the current key registers without end.
        """
        if self._after_end is not None:
            self._count_after_end(self._after_end)
        if self._undo_log is not None:
            self._note_added(self._undo_log, self._event, timestamp, namespace)
        self._event.add(timestamp, self._keys.key, namespace)

    def _count_after_end(self, registered: dict[Hashable, int]) -> None:
        key = self._keys.key
        registered[key] = registered.get(key, 0) + 1
        if registered[key] > MOST_AFTER_END:
            raise UserError(
                f"key {key!r} has registered {MOST_AFTER_END:,} event-time timers since the input ended, each of which fires at "
                f"once; register none when current_watermark is {MAX_TIMESTAMP} (the end of the input)"
            )

    def delete_event_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Undo a registration of the current key; nothing happens when there is none."""
        if self._undo_log is not None:
            self._note_removed(self._undo_log, self._event, timestamp, namespace)
        event = self._event
        bucket = event.buckets.get(timestamp)
        # One of many of a moment, as windows have them, needs no further call.
        if type(bucket) is dict and len(bucket) > 1:
            if bucket.pop((self._keys.key, namespace), _ABSENT) is not _ABSENT:
                event.more -= 1
        else:
            event.remove(timestamp, self._keys.key, namespace)

    def register_processing_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Have `on_processing_time` called when the clock reaches `timestamp`; nothing happens after `end_clock`."""
        if not self.takes_clock_timers:
            return
        if self._undo_log is not None:
            self._note_added(self._undo_log, self._processing, timestamp, namespace)
        if self._processing.add(timestamp, self._keys.key, namespace):
            self._arm(timestamp)

    def delete_processing_timer(self, namespace: Hashable, timestamp: int) -> None:
        """Undo a registration of the current key. The armed clock timer stays: it will find nothing due and arm the next."""
        if self._undo_log is not None:
            self._note_removed(self._undo_log, self._processing, timestamp, namespace)
        self._processing.remove(timestamp, self._keys.key, namespace)

    def _note_added(self, log: UndoLog, queue: TimerQueue, timestamp: int, namespace: Hashable) -> None:
        """Note the opposite of a registration, before it is made, unless the timer is registered."""
        key = self._keys.key
        if timestamp not in queue.buckets or not queue.has(timestamp, key, namespace):
            log.note(queue.remove, timestamp, key, namespace)

    def _note_removed(self, log: UndoLog, queue: TimerQueue, timestamp: int, namespace: Hashable) -> None:
        """Note the opposite of a deletion, before it is made, if the timer is registered."""
        key = self._keys.key
        if not queue.has(timestamp, key, namespace):
            return
        if queue is self._event:
            log.note(queue.add, timestamp, key, namespace)
        else:
            log.note(self.load, [], [(key, namespace, timestamp)])

    def advance_watermark(self, timestamp: int) -> bool:
        """Set the watermark, then fire every event-time timer with a timestamp <= it, earliest first.

        A callback may register timers, which fire in the same advance if they are due, and delete timers, which then do not.
        That watermarks never fall is up to the caller.

        Returns:
            Whether all have fired; False when the brake was pulled before: to be called again with the same timestamp.
        """
        self.current_watermark = timestamp
        if timestamp < MAX_TIMESTAMP:
            self._after_end = None
        elif self._after_end is None:
            self._after_end = {}
        take, keys, on_event_time, brake = self._event.take, self._keys, self._handler.on_event_time, self._brake
        while not brake.is_on and (timer := take(timestamp)) is not None:
            due, keys.key, namespace = timer
            on_event_time(keys.key, namespace, due)
        head = self._event.head
        return head is None or head > timestamp

    def end_clock(self) -> bool:
        """Fire every processing-time timer now, earliest first, because no further element could change its result.

        What callbacks register from now on is dropped, so that periodic ones end. After an exception call it again.

        Returns:
            Whether all have fired; False when the brake was pulled before: to be called again.
        """
        self.takes_clock_timers = False
        self._fire_clock(MAX_TIMESTAMP)
        return self._processing.head is None

    def for_each_event_timer(self, visit: Callable[[Any, int], None]) -> None:
        """Call `visit(namespace, timestamp)` for every event-time timer, its key being the current one; in no order."""
        self._visit(self._event, visit)

    def for_each_processing_timer(self, visit: Callable[[Any, int], None]) -> None:
        """Call `visit(namespace, timestamp)` for every processing-time timer, its key being the current one; in no order."""
        self._visit(self._processing, visit)

    def _visit(self, queue: TimerQueue, visit: Callable[[Any, int], None]) -> None:
        for timestamp, self._keys.key, namespace in list(queue):
            visit(namespace, timestamp)

    def _on_clock(self, timestamp: int) -> None:
        # Forget the armed timer first: a callback that registers a new head then arms one for it.
        self._armed = None
        try:
            self._fire_clock(timestamp)
        finally:
            # After a callback that has raised, and after a pulled brake, too: the other timers are still wanted.
            head = self._processing.head
            if head is not None and self._armed is None:
                self._arm(head)

    def _fire_clock(self, timestamp: int) -> None:
        take, keys, on_processing_time = self._processing.take, self._keys, self._handler.on_processing_time
        brake = self._brake
        while not brake.is_on and (timer := take(timestamp)) is not None:
            due, keys.key, namespace = timer
            on_processing_time(keys.key, namespace, due)

    def _arm(self, timestamp: int) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed = self._clock.register(timestamp, self._on_clock)

    def forget_event_timers(self) -> TimerQueue:
        """Drop all timers of event time; return them."""
        forgotten, self._event = self._event, TimerQueue()
        return forgotten

    def queues(self) -> tuple[TimerQueue, TimerQueue]:
        """Return the event-time and the processing-time queue, for snapshots."""
        return self._event, self._processing

    def load(self, event: list[tuple[Any, Any, int]], processing: list[tuple[Any, Any, int]]) -> None:
        """Add timers of a snapshot, as (key, namespace, timestamp), and have the clock timer armed for the new head."""
        for key, namespace, timestamp in event:
            self._event.add(timestamp, key, namespace)
        has_new_head = [self._processing.add(timestamp, key, namespace) for key, namespace, timestamp in processing]
        if any(has_new_head) and (head := self._processing.head) is not None:
            self._arm(head)


_GroupTimers = dict[str, tuple[list[tuple[Any, Any, int]], list[tuple[Any, Any, int]]]]
"""By service name: event-time and processing-time timers as (key, namespace, timestamp)."""


class TimerClocks:
    """What time it is by both clocks of a timer service: the part that all contexts of user code show."""

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers

    @property
    def current_watermark(self) -> int:
        return self._timers.current_watermark

    @property
    def current_processing_time(self) -> int:
        return self._timers.current_processing_time


class TimerServices:
    """All timer services of one operator, by name.

    Args:
        keys: holds the current key.
        undo_log: where changes are noted; None: nowhere.
        brake: has timers fire later; None: nothing does.
    """

    def __init__(
        self, keys: KeyContext, clock: ProcessingTimeService, undo_log: UndoLog | None = None, brake: Brake | None = None
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._undo_log = undo_log
        self._brake = brake
        self._services: dict[str, TimerService] = {}
        self._unclaimed: dict[int, _GroupTimers] = {}

    def get(self, name: str, handler: TimerHandler) -> TimerService:
        """Return the service of that name, made at the first request with that request's handler."""
        service = self._services.get(name)
        if service is None:
            service = self._services[name] = TimerService(self._keys, self._clock, handler, self._undo_log, self._brake)
            for timers in self._unclaimed.values():
                if name in timers:
                    service.load(*timers.pop(name))
        return service

    def advance_watermark(self, timestamp: int) -> bool:
        """Advance every service; return whether all due timers have fired, so that the caller may forward the watermark."""
        done = [service.advance_watermark(timestamp) for service in list(self._services.values())]
        return all(done)

    def queues(self) -> list[tuple[TimerQueue, TimerQueue]]:
        return [service.queues() for service in self._services.values()]

    @property
    def pending(self) -> int:
        """How many timers are registered, over all services and both domains."""
        return sum(service.event_timers + service.processing_timers for service in self._services.values())

    def snapshot(self) -> dict[int, _GroupTimers]:
        """Return all timers by key group. They include restored timers of services that were never requested."""
        return self.freeze()()

    def freeze(self) -> Callable[[], dict[int, _GroupTimers]]:
        """Copy all timers, as fast as that can be done; the returned function makes the snapshot, later and on any thread."""
        groups: dict[int, _GroupTimers] = {group: dict(timers) for group, timers in self._unclaimed.items() if timers}
        group_of = self._keys.group_of
        copied = [(name, [queue.copied() for queue in service.queues()]) for name, service in self._services.items()]

        def sort() -> dict[int, _GroupTimers]:
            for name, domains in copied:
                for domain, buckets in enumerate(domains):
                    found: dict[int, list[tuple[Any, Any, int]]] = {}
                    for timestamp, bucket in buckets.items():
                        for key, namespace in (bucket,) if type(bucket) is tuple else bucket:
                            found.setdefault(group_of[key], []).append((key, namespace, timestamp))
                    for group, timers in found.items():
                        groups.setdefault(group, {}).setdefault(name, ([], []))[domain].extend(timers)
            return groups

        return sort

    def restore(
        self, groups: Mapping[int, Mapping[str, Any]], decode_namespace: Callable[[Any], Any] = lambda encoded: encoded
    ) -> None:
        """Add the timers of a snapshot; those of a service not asked for yet wait until it is."""
        for group, timers in groups.items():
            for name, domains in timers.items():
                event, processing = (
                    [(key, decode_namespace(namespace), timestamp) for key, namespace, timestamp in domain] for domain in domains
                )
                if name in self._services:
                    self._services[name].load(event, processing)
                else:
                    self._unclaimed.setdefault(group, {})[name] = (event, processing)
