"""Has a spout do something at an interval, also while the engine does not call `next_tuple`."""

from __future__ import annotations

import threading
from collections.abc import Callable

from topo.api.context import Executor
from topo.errors import TopoError


class Ticker:
    """Runs an action on the task's thread every `interval_s` seconds, from `start` until `stop` or the end of the task.

    The next one is posted only when the last one was run, so that a task that is held up has one at most waiting.
    """

    def __init__(self, executor: Executor, action: Callable[[], object], interval_s: float, name: str) -> None:
        self._executor, self._action = executor, action
        self._interval_s, self._name = interval_s, name
        self._is_stopped = threading.Event()
        self._is_posted = False

    def start(self) -> None:
        """Start the thread, which is a daemon."""
        threading.Thread(target=self._loop, name=f"topo-{self._name}", daemon=True).start()

    def stop(self) -> None:
        """Run the action no more. On the task's thread."""
        self._is_stopped.set()

    def _loop(self) -> None:
        while not self._is_stopped.wait(self._interval_s):
            if self._is_posted:
                continue
            self._is_posted = True
            try:
                self._executor.execute(self._run, self._name)
            except TopoError:
                # The task has ended.
                return

    def _run(self) -> None:
        self._is_posted = False
        if not self._is_stopped.is_set():
            self._action()
