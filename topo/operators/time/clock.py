"""Processing time: the clock, and calls at a moment of it.

A timer is one-shot, and its callback gets the timestamp that was *registered*, whatever the clock shows by then. A timer for `t`
runs when the clock has passed `t`, as a watermark `t` means that `t` is over; so it is due at t + 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from topo.errors import UserError

MIN_TIMESTAMP: Final = -(2**63)
"""Before everything: the watermark of an input without one, and the timestamp of a record without one."""

MAX_TIMESTAMP: Final = 2**63 - 1
"""After everything: the watermark of an input that has ended."""

TimerCallback = Callable[[int], None]
"""Called with the registered timestamp, in milliseconds."""

_SLACK = 64


class ClockTimer:
    """A registration that can be taken back."""

    __slots__ = ("_callback", "_service", "timestamp_ms")

    def __init__(self, timestamp_ms: int, callback: TimerCallback | None, service: ProcessingTimeService) -> None:
        self.timestamp_ms = timestamp_ms
        self._callback = callback
        self._service: ProcessingTimeService | None = service

    @property
    def is_done(self) -> bool:
        return self._callback is None

    def cancel(self) -> None:
        """Keep the callback from running, also when it is due already and only waits in the mailbox. Harmless when it has run."""
        if self._callback is not None:
            self._callback = None
            if self._service is not None:
                self._service._forget_cancelled()

    def taken_out(self) -> ClockTimer:
        """Return itself, no longer in the service's heap. For the service."""
        self._service = None
        return self

    def run(self) -> None:
        """Call back, unless cancelled. For the service."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(self.timestamp_ms)


class ProcessingTimeService(ABC):
    """The clock of one task. Owner thread only.

    At first timers are taken and run. After `quiesce` none becomes due any more (one whose mail waits still runs) and registering
    gives a timer that never will. After `shutdown` registering is an error.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, ClockTimer]] = []
        self._drawn = 0
        self._cancelled = 0
        self._quiesced = False
        self._shut_down = False

    @abstractmethod
    def now_ms(self) -> int:
        """Return the clock: milliseconds since the epoch."""

    def register(self, timestamp_ms: int, callback: TimerCallback) -> ClockTimer:
        """Have `callback(timestamp_ms)` called once the clock has passed it; at the next opportunity if it already has.

        Raises:
            UserError: the service was shut down.
        """
        if self._shut_down:
            raise UserError("the clock of this task was shut down; no timer can be registered any more")
        timer = ClockTimer(timestamp_ms, callback, self)
        if not self._quiesced:
            # The running number keeps timers of one moment in order and the heap from comparing timers.
            self._drawn += 1
            heappush(self._heap, (timestamp_ms, self._drawn, timer))
        return timer

    @property
    def pending(self) -> int:
        """How many timers wait."""
        return len(self._heap) - self._cancelled

    @property
    def next_due_ms(self) -> int | None:
        """When the earliest timer is due: one millisecond after its timestamp; None when none waits."""
        head = self._head()
        return None if head is None else head + 1

    def quiesce(self) -> None:
        """Let no further timer become due."""
        self._quiesced = True
        self._heap.clear()
        self._cancelled = 0

    def shutdown(self) -> None:
        """Take no timer from now on."""
        self.quiesce()
        self._shut_down = True

    def _forget_cancelled(self) -> None:
        # Timeouts are registered by the million and nearly all are cancelled: without this they would fill the heap.
        if self._quiesced:
            return
        self._cancelled += 1
        if self._cancelled * 2 > len(self._heap) + _SLACK:
            self._heap = [entry for entry in self._heap if not entry[2].is_done]
            heapify(self._heap)
            self._cancelled = 0

    def _head(self) -> int | None:
        while self._heap and self._heap[0][2].is_done:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def _pop_due(self, now_ms: int) -> ClockTimer | None:
        """Take out the earliest timer, if it lies before `now_ms`."""
        head = self._head()
        return heappop(self._heap)[2].taken_out() if head is not None and head < now_ms else None


class ManualProcessingTime(ProcessingTimeService):
    """The clock of tests: it stands until it is set, and timers run inside `advance_to`."""

    def __init__(self, now_ms: int = 0) -> None:
        super().__init__()
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance_to(self, now_ms: int) -> None:
        """Set the clock, then run every timer that lies before `now_ms` in order, those registered meanwhile included."""
        self._now_ms = now_ms
        while (timer := self._pop_due(now_ms)) is not None:
            timer.run()

    def advance(self, by_ms: int) -> None:
        self.advance_to(self._now_ms + by_ms)


class TaskProcessingTime(ProcessingTimeService):
    """The clock of a running task. Its timers become mails, so that they run on the task's thread between batches.

    Args:
        read: gives the processing time in milliseconds.
        execute: posts an action, with a description, to the task's mailbox.
    """

    def __init__(self, read: Callable[[], int], execute: Callable[[Callable[[], None], str], object]) -> None:
        super().__init__()
        self._read = read
        self._execute = execute

    def now_ms(self) -> int:
        return self._read()

    def fire(self, now_ms: int) -> int:
        """Post a mail for every timer that lies before `now_ms`, in order; return how many."""
        posted = 0
        while (timer := self._pop_due(now_ms)) is not None:
            self._execute(timer.run, "processing-time timer")
            posted += 1
        return posted


class PausableClock:
    """A clock that can stand still: idleness is not to be counted while a source is kept from emitting.

    Args:
        read: gives the time in milliseconds.
    """

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._paused_at: int | None = None
        self._lost_ms = 0

    def now_ms(self) -> int:
        """Return the time less all pauses."""
        return (self._read() if self._paused_at is None else self._paused_at) - self._lost_ms

    def pause(self) -> None:
        """Stand still. Harmless when it does already."""
        if self._paused_at is None:
            self._paused_at = self._read()

    def resume(self) -> None:
        """Start again from where it stood. Harmless when it runs."""
        if self._paused_at is not None:
            self._lost_ms += self._read() - self._paused_at
            self._paused_at = None
