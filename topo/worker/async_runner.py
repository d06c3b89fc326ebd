"""The event loop that asynchronous bolts' calls run on: a thread beside that of the tasks, started when first needed.

A call that blocks holds up all others. A watch on the loop notices, finds the call by the loop's current task, and reports
it to its owner: the error has the blocking frame as its traceback.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, TracebackType
from typing import Any

from topo.errors import BlockingCallError

_LOG = logging.getLogger("topo.async")

MIN_THREADS, MAX_THREADS = 32, 1_000
BLOCKED_S = 0.25
"""How long the loop may fail to turn before that is reported."""

Done = Callable[[Any, BaseException | None], None]
OnBlocked = Callable[[Exception], None]


class AsyncRunner:
    """Runs coroutines for the tasks of one worker.

    Args:
        threads: how many calls may be under way: `asyncio.to_thread` has a thread for each, but not fewer than MIN_THREADS nor
            more than MAX_THREADS. They are started as they are needed.

    Attributes:
        blocked: how often the loop was held up for longer.
    """

    def __init__(self, threads: int = 0) -> None:
        self._threads = threads
        self.blocked = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._running: dict[asyncio.Task[Any], OnBlocked] = {}

    def run(self, call: Coroutine[Any, Any, Any], done: Done, on_blocked: OnBlocked) -> None:
        """Run a coroutine on the loop's thread.

        Args:
            done: called there with its result or its error.
            on_blocked: called on another thread when this call holds up the loop.
        """
        loop = self._loop if self._loop is not None else self._start()
        loop.call_soon_threadsafe(self._begin, call, done, on_blocked)

    def close(self, linger_s: float = 1.0) -> None:
        """Give what runs `linger_s` seconds to end, cancel the rest, and end the thread."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(linger_s), self._loop)
        self._thread.join(timeout=linger_s + 2.0)
        self._closing.set()

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()
        threads = min(max(self._threads, MIN_THREADS), MAX_THREADS)
        loop.set_default_executor(ThreadPoolExecutor(threads, thread_name_prefix="topo-async-call"))
        self._thread = threading.Thread(target=self._turn, args=(loop,), name="topo-async", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, args=(loop,), name="topo-async-watch", daemon=True).start()
        return loop

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            while self._is_interrupted(loop):
                pass
        finally:
            loop.close()

    def _is_interrupted(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Turn the loop until it is stopped. Returns whether a SystemExit of user code has stopped it: all calls would wait."""
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            # The call that has raised it has it as its error, too.
            _LOG.error("%r in the loop of asynchronous calls; it ends no process there", error)
            return True
        return False

    def _begin(self, call: Coroutine[Any, Any, Any], done: Done, on_blocked: OnBlocked) -> None:
        assert self._loop is not None
        task = self._loop.create_task(call)
        self._running[task] = on_blocked
        task.add_done_callback(lambda finished: self._finish(finished, done))

    def _finish(self, task: asyncio.Task[Any], done: Done) -> None:
        del self._running[task]
        if task.cancelled():
            done(None, asyncio.CancelledError("the call was cancelled"))
        elif (error := task.exception()) is not None:
            done(None, error)
        else:
            done(task.result(), None)

    async def _end(self, linger_s: float) -> None:
        if self._running:
            _, late = await asyncio.wait(list(self._running), timeout=linger_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=1.0)
        asyncio.get_running_loop().call_soon(asyncio.get_running_loop().stop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        turned = threading.Event()
        while not self._closing.wait(BLOCKED_S):
            turned.clear()
            try:
                loop.call_soon_threadsafe(turned.set)
            except RuntimeError:
                return
            if turned.wait(BLOCKED_S) or self._closing.is_set():
                continue
            self.blocked += 1
            self._tell_blocked(loop)
            while not turned.wait(BLOCKED_S) and not self._closing.is_set():
                pass

    def _tell_blocked(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._thread is not None
        culprit = asyncio.current_task(loop)
        frame = sys._current_frames().get(self._thread.ident or 0)
        error = BlockingCallError(
            f"an asynchronous call has held up all others for more than {BLOCKED_S:g} s; "
            "await what takes time, and give what blocks to asyncio.to_thread"
        ).with_traceback(_traceback_of(frame))
        _LOG.warning("%s", error, exc_info=error)
        on_blocked = None if culprit is None else self._running.get(culprit)
        if on_blocked is not None:
            on_blocked(error)


def _traceback_of(frame: FrameType | None) -> TracebackType | None:
    """Return the stack of a frame as the traceback of an error that was raised in it."""
    trace: TracebackType | None = None
    while frame is not None:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back
    return trace
