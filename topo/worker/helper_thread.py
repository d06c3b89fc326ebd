"""Runs actions of user code that may block, such as listing the partitions of a source, beside the task's thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from topo.operators.mailbox.mailbox import RejectedExecution

_LOG = logging.getLogger("topo.worker")


class HelperThread:
    """The helper thread of one task: runs actions one after the other. The first one starts it; it ends with the process."""

    def __init__(self) -> None:
        self._actions: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, action: Callable[[], object]) -> None:
        """Run an action soon. An exception is logged; an action hands over its result, or its error, itself."""
        self._actions.put(action)
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="topo-helper", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while True:
            action = self._actions.get()
            try:
                action()
            except RejectedExecution:
                # The task has ended.
                return
            except BaseException:
                # Also a SystemExit of user code: it would end this thread alone, and the actions behind it would wait for ever.
                _LOG.exception("an action beside a task has raised")
