"""The event loop that asynchronous bolts' calls run on: a thread beside the one that owns the tasks, started when first needed.

A call that blocks holds up all others. A watch on the loop notices, and names the line that it was in.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

_LOG = logging.getLogger("topo.async")

BLOCKED_S = 0.25
"""How long the loop may fail to turn before that is said."""

Done = Callable[[Any, BaseException | None], None]


class AsyncRunner:
    """Runs coroutines for the tasks of one worker.

    Attributes:
        blocked: how often the loop was held up for longer than BLOCKED_S.
    """

    def __init__(self, blocked_s: float = BLOCKED_S) -> None:
        self.blocked = 0
        self._blocked_s = blocked_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._running: set[asyncio.Task[Any]] = set()

    def run(self, call: Coroutine[Any, Any, Any], done: Done) -> None:
        """Run a coroutine; `done` is called with its result or its error, on the loop's thread."""
        loop = self._loop if self._loop is not None else self._start()
        loop.call_soon_threadsafe(self._begin, call, done)

    def close(self) -> None:
        """Cancel what runs, and end the thread."""
        self._closing.set()
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._cancel_all)
            self._thread.join(timeout=5.0)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, args=(loop,), name="topo-async", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, args=(loop,), name="topo-async-watch", daemon=True).start()
        return loop

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _begin(self, call: Coroutine[Any, Any, Any], done: Done) -> None:
        assert self._loop is not None
        task = self._loop.create_task(call)
        self._running.add(task)
        task.add_done_callback(lambda finished: self._finish(finished, done))

    def _finish(self, task: asyncio.Task[Any], done: Done) -> None:
        self._running.discard(task)
        if task.cancelled():
            done(None, asyncio.CancelledError("the worker ends"))
        elif (error := task.exception()) is not None:
            done(None, error)
        else:
            done(task.result(), None)

    def _cancel_all(self) -> None:
        assert self._loop is not None
        for task in list(self._running):
            task.cancel()
        self._loop.call_soon(self._loop.stop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        turned = threading.Event()
        while not self._closing.wait(self._blocked_s):
            turned.clear()
            try:
                loop.call_soon_threadsafe(turned.set)
            except RuntimeError:
                return
            if turned.wait(self._blocked_s) or self._closing.is_set():
                continue
            self.blocked += 1
            _LOG.warning("a call of an async bolt blocks the event loop:\n%s", self._stack())
            while not turned.wait(self._blocked_s) and not self._closing.is_set():
                pass

    def _stack(self) -> str:
        assert self._thread is not None
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame)[-6:])
