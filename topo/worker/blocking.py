"""Runs a `BlockingSpout`: its `run` loops in a separate thread, and hands over to the task through a bounded queue.

To the task it is a spout like any other, whose `next_tuple` takes the thread's calls from the queue, as far as the
pending limit allows. A mail wakes the task: the thread enters it through its mailbox alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from topo.api.context import Executor, TaskContext
from topo.api.spout import BlockingSpout, Spout, SpoutCollector
from topo.api.streams import DEFAULT_STREAM
from topo.errors import TopoInternalError
from topo.operators.mailbox.mailbox import RejectedExecution
from topo.operators.state.deep_copy import independent

_MOST_WAITING = 1024
_PAUSE_AFTER_ERROR_S = 1.0


class _Stopped(BaseException):
    """Leaves `run` when the worker closes while it waits for room."""


def _look_again() -> None:
    """Do nothing: after a mail the task asks its spout, which reads the queue."""


def _as_emitted(values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a row as they are now: `run` may change them before the task's thread takes the row."""
    try:
        return independent(values)  # type: ignore[no-any-return]
    except Exception:
        # It cannot be copied, nor carried; the task reports why.
        return values


class _ThreadCollector:
    """The collector of `run`. A call that finds the queue full waits."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._condition = threading.Condition()
        self._calls: deque[tuple[bool, Callable[[SpoutCollector], None]]] = deque()
        """With whether each emits a row."""
        self._is_paused = True
        self._is_stopped = False

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        """Emit one tuple; waits while there is no room or the topology is paused."""
        values = _as_emitted(values)
        self._put(lambda collector: collector.emit(values, message_id, stream, timestamp), is_row=True)

    def emit_direct(
        self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM, timestamp: int | None = None
    ) -> None:
        values = _as_emitted(values)
        self._put(lambda collector: collector.emit_direct(task, values, message_id, stream, timestamp), is_row=True)

    def emit_watermark(self, timestamp: int) -> None:
        self._put(lambda collector: collector.emit_watermark(timestamp))

    def mark_idle(self) -> None:
        self._put(lambda collector: collector.mark_idle())

    def nothing_before(self, seconds: float) -> None:
        """Do nothing: `run` waits for its source, and nothing polls it."""

    def end_of_input(self) -> None:
        self._put(lambda collector: collector.end_of_input())

    def report_error(self, error: BaseException) -> None:
        self._put(lambda collector: collector.report_error(error))

    def _put(self, call: Callable[[SpoutCollector], None], *, is_row: bool = False) -> None:
        with self._condition:
            while (len(self._calls) >= _MOST_WAITING or self._is_paused) and not self._is_stopped:
                self._condition.wait()
            if self._is_stopped:
                raise _Stopped
            was_empty = not self._calls
            self._calls.append((is_row, call))
        if was_empty:
            try:
                self._executor.execute(_look_again, "a blocking spout has emitted")
            except RejectedExecution:
                raise _Stopped from None

    def take(self, *, is_first: bool) -> Callable[[SpoutCollector], None] | None:
        """Return the next call to be made on the task's thread; behind the first one none that emits a row."""
        with self._condition:
            if not self._calls or (self._calls[0][0] and not is_first):
                return None
            self._condition.notify()
            return self._calls.popleft()[1]

    def put_back(self, call: Callable[[SpoutCollector], None]) -> None:
        """Have a call made once more, before all others."""
        with self._condition:
            self._calls.appendleft((False, call))

    def set_paused(self, paused: bool) -> None:
        """Let `run` emit, or hold it in its next emit."""
        with self._condition:
            self._is_paused = paused
            self._condition.notify_all()

    def stop(self) -> None:
        """Make `run` leave its next emit."""
        with self._condition:
            self._is_stopped = True
            self._condition.notify_all()


class BlockingSpoutRunner(Spout):
    """A `BlockingSpout` as the task sees it.

    Args:
        pause_s: between a `run` that raises and the next one.
    """

    def __init__(self, spout: BlockingSpout, pause_s: float = _PAUSE_AFTER_ERROR_S) -> None:
        self._pause_s = pause_s
        self._spout = spout
        self._thread_collector: _ThreadCollector
        self._collector: SpoutCollector
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.outputs = spout.outputs
        self.wants_values = spout.wants_values  # type: ignore[misc]

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Open the user's spout with a collector that its thread may use."""
        if context.executor is None:
            raise TopoInternalError("a task without a mailbox")
        self._collector = collector
        self._thread_collector = _ThreadCollector(context.executor)
        self._spout.open(context, self._thread_collector)

    def next_tuple(self) -> None:
        """Make a call of the thread, and those behind it that emit no row: after one of these alone the task would pause."""
        for place in range(_MOST_WAITING):
            call = self._thread_collector.take(is_first=place == 0)
            if call is None:
                return
            try:
                call(self._collector)
            except Exception:
                if place == 0:
                    raise
                # The row before it would be discarded, too.
                self._thread_collector.put_back(call)
                return

    def ack(self, message_id: Any, values: Sequence[Any] = ()) -> None:
        if self.wants_values:
            self._spout.ack(message_id, values)  # type: ignore[call-arg]
        else:
            self._spout.ack(message_id)

    def fail(self, message_id: Any, values: Sequence[Any] = ()) -> None:
        if self.wants_values:
            self._spout.fail(message_id, values)  # type: ignore[call-arg]
        else:
            self._spout.fail(message_id)

    def activate(self) -> None:
        """Let the thread emit; the first time, start it."""
        self._spout.activate()
        self._thread_collector.set_paused(False)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="topo-blocking-spout", daemon=True)
            self._thread.start()

    def deactivate(self) -> None:
        """Hold the thread in its next emit."""
        self._thread_collector.set_paused(True)
        self._spout.deactivate()

    def close(self) -> None:
        """End the thread, then close the user's spout."""
        self._closing.set()
        self._thread_collector.stop()
        self._spout.cancel()
        if self._thread is not None:
            self._thread.join(timeout=5.0)
        self._spout.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._spout.run()
            except _Stopped:
                return
            except BaseException as error:
                # Also a SystemExit: it would end this thread alone, and the topology would wait for its source for ever.
                try:
                    self._thread_collector.report_error(error)
                except _Stopped:
                    return
                self._closing.wait(self._pause_s)
            else:
                with contextlib.suppress(_Stopped):
                    self._thread_collector.end_of_input()
                return
