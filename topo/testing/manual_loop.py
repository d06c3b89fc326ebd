"""An event loop on a manual clock: coroutines run in the thread of the test, and sleep until the test moves the clock.

Nothing here waits on its own. `turn` runs all that can run; `next_due_ms` is when more can. Results of another thread or a socket
are waited for with `wait`, in real time.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from math import ceil
from typing import Any

_Done = Callable[[Any, BaseException | None], None]
_END_OF_SLEEP = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]


def _whole_ms(when_s: float) -> int:
    # Rounded up, for a clock of whole milliseconds must not stop short of it; but not for what floats add to a sum.
    return ceil(when_s * 1000 - 1e-6)


class _Selector(selectors.DefaultSelector):
    """Waits no longer than the test allows, whatever the loop asks for."""

    longest_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        return super().select(self.longest_s)


class ManualLoop(asyncio.SelectorEventLoop):
    """The event loop of one harness.

    Args:
        now_ms: the manual clock.

    Attributes:
        scheduled_calls: how many callbacks there were: they stand still while all wait for a thread, a socket or the clock.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now = now_ms
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.scheduled_calls = 0
        self._in_threads = 0
        self._calls: set[asyncio.Task[Any]] = set()
        self._waiting = _Selector()
        super().__init__(self._waiting)

    def time(self) -> float:
        """The manual clock, in seconds."""
        return self._now() / 1000

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """As every loop does; counted, so that `turn` knows whether anything is left to run."""
        self.scheduled_calls += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """As every loop does; remembered, so that `next_due_ms` can say it."""
        handle = super().call_at(when, callback, *args, context=context)
        heappush(self._due, (when, self.scheduled_calls, handle))
        self.scheduled_calls += 1
        return handle

    @property
    def under_way(self) -> int:
        """Calls that have not come to their end."""
        return len(self._calls)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """As every loop does; counted, so that `waits_outside` knows of threads."""
        future: asyncio.Future[Any] = super().run_in_executor(executor, func, *args)
        self._in_threads += 1
        future.add_done_callback(self._thread_done)
        return future

    def _thread_done(self, _future: asyncio.Future[Any]) -> None:
        self._in_threads -= 1

    @property
    def waits_outside(self) -> bool:
        """Whether a thread is waited for, or a call may wait for a socket, which take real time."""
        # One entry is the loop's own, by which threads wake it. Connections stay open without a call.
        return self._in_threads > 0 or (len(self._waiting.get_map()) > 1 and not self._all_sleep)

    @property
    def _all_sleep(self) -> bool:
        """Whether each call is in an `asyncio.sleep`, which ends by the clock alone."""
        due: list[Any] = [handle for _, _, handle in self._due]
        calls: set[Any] = self._calls
        sleeps = [handle._args[0] for handle in due if handle._callback is _END_OF_SLEEP]
        return all(call._fut_waiter in sleeps for call in calls)

    @property
    def next_due_ms(self) -> int | None:
        """When the first sleep ends, in milliseconds of the manual clock; None when nothing sleeps."""
        while self._due and (self._due[0][2].cancelled() or _whole_ms(self._due[0][0]) <= self._now()):
            heappop(self._due)
        return _whole_ms(self._due[0][0]) if self._due else None

    def run(self, call: Coroutine[Any, Any, Any], done: _Done) -> None:
        """Begin a call; `done` gets its result or its error. Nothing of it runs before the next turn."""
        task = self.create_task(call)
        self._calls.add(task)
        task.add_done_callback(lambda finished: self._finish(finished, done))

    def turn(self) -> None:
        """Run everything that can run without the clock being moved."""
        before = -1
        while before != self.scheduled_calls:
            before = self.scheduled_calls
            super().call_soon(self.stop)
            self.run_forever()

    def wait(self, longest_s: float) -> None:
        """Wait for another thread or a socket, then turn."""
        self._waiting.longest_s = longest_s
        try:
            super().call_soon(self.stop)
            self.run_forever()
        finally:
            self._waiting.longest_s = 0.0
        self.turn()

    def end(self) -> None:
        """Cancel running calls, and close the loop. Harmless when it is closed."""
        if self.is_closed():
            return
        for task in asyncio.all_tasks(self):
            task.cancel()
        self.turn()
        self.run_until_complete(self.shutdown_default_executor())
        self.close()

    def _finish(self, task: asyncio.Task[Any], done: _Done) -> None:
        self._calls.discard(task)
        if task.cancelled():
            done(None, asyncio.CancelledError("the call was cancelled"))
        else:
            done(None if task.exception() else task.result(), task.exception())
