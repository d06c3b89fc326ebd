"""A thread that speaks for the worker's loop while user code holds it up.

A loop that turns sends its own heartbeats. When it has not turned for a while, this thread has the task at work return to the
loop after the current tuple, since many short calls do not mean that one does not return. It reports to the master that the
process lives, and in which component it is, or the component's own report; after `progress_timeout` without progress it reports
that the process is stuck, with the stack. Whether to end such a worker is the master's decision. The thread cannot run in a
process whose user code holds the interpreter's lock.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from itertools import islice
from types import FrameType

from topo.config import TopologyConfig
from topo.ids import TaskId
from topo.transport.base import Transport
from topo.user_errors import place_in
from topo.wire import control
from topo.worker.core import InFlightTracker
from topo.worker.loop import LINK, Loop
from topo.worker.progress import Progress

_LONGEST_STACK = 16_384
_MOST_FRAMES = 200
"""Of an endless recursion, the innermost: to walk millions of frames takes longer than the master waits for a sign of life."""


class Watchdog:
    """Watches one loop, run by the thread that makes this object.

    Args:
        connect: opens a transport of the thread's own with a link to the master; called only when it is needed.
        progress: what user code reports of long calls.
    """

    def __init__(
        self,
        loop: Loop,
        tracker: InFlightTracker,
        config: TopologyConfig,
        connect: Callable[[], tuple[Transport, int]],
        progress: Progress,
    ) -> None:
        self._loop = loop
        self._tracker = tracker
        self._config = config
        self._connect = connect
        self._progress = progress
        self._watched = threading.get_ident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topo-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        transport: Transport | None = None
        outlet = 0
        told_at: float | None = None
        passed_at = self._loop.now()
        while not self._done.wait(self._config.heartbeat_s):
            now = self._loop.now()
            if now - passed_at < self._config.worker_timeout_s:
                self._loop.alive_at = now
            passed_at = now
            turned_at = self._loop.turned_at
            held_s = now - turned_at
            if held_s >= self._config.heartbeat_s:
                self._loop.worker.cut_short()
            if held_s < 2 * self._config.heartbeat_s:
                continue
            if transport is None:
                transport, outlet = self._connect()
            worker, task = self._loop.worker, self._tracker.task
            component = worker.tasks[task].component_id if task is not None else ""
            doing = self._progress.shown() or component
            beat = control.Heartbeat(worker.id, worker.incarnation, worker.term, worker.epoch, doing)
            self._send(transport, outlet, control.encode(beat))
            limit_s = self._config.progress_timeout_s
            progressed_at = max(turned_at, self._progress.at)
            if limit_s is not None and now - progressed_at > limit_s and told_at != progressed_at:
                told_at = progressed_at
                stack, place = described(sys._current_frames().get(self._watched))
                stuck = control.Stuck(worker.id, task or TaskId(0), component, now - progressed_at, stack, *place)
                self._send(transport, outlet, control.encode(stuck))
        if transport is not None:
            transport.close()

    def _send(self, transport: Transport, outlet: int, message: bytes) -> None:
        transport.wait(0.0)
        transport.receive(LINK, 1)
        transport.send(outlet, message)  # type: ignore[arg-type]


def described(frame: FrameType | None) -> tuple[str, tuple[str, int]]:
    """Return the innermost part of the stack that ends in a frame as a text, and the user's file and line in it; "", 0: none."""
    # Without a frame, as of a thread that has ended, `walk_stack` would walk that of its caller.
    stack = [] if frame is None else [*islice(traceback.walk_stack(frame), _MOST_FRAMES)][::-1]
    return "".join(traceback.StackSummary.extract(iter(stack)).format())[-_LONGEST_STACK:], place_in(stack)
