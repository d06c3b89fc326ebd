"""Opens the files of a store beside the task's thread, several at a time: each takes requests, for which no task waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import BinaryIO, NamedTuple

from topo.errors import TopoError


class OpenedFile(NamedTuple):
    """An open file, and its identity when it was opened. `is_whole`: its content is in memory, and all of that identity."""

    file: BinaryIO
    identity: str
    is_whole: bool = False


class FileOpener:
    """Opens files, several at a time.

    Args:
        open_file: opens a file by its name; may block.
        threads: how many there are at most; they end with `close`, or with the process. 0: files are opened at once.
        wake: called by a thread when a file is open, or cannot be opened.
    """

    def __init__(self, open_file: Callable[[str], OpenedFile], threads: int, wake: Callable[[], object]) -> None:
        self._open_file = open_file
        self._threads = threads
        self._wake = wake
        self._started = 0
        self._wanted: SimpleQueue[tuple[str, Future[OpenedFile]] | None] = SimpleQueue()

    def open(self, name: str) -> Future[OpenedFile]:
        """Return the file, or its error, as soon as there is one; `cancel` if it is no longer wanted."""
        future: Future[OpenedFile] = Future()
        if self._threads == 0:
            self._fulfil(name, future)
            return future
        self._wanted.put((name, future))
        if self._started < self._threads:
            # Those of an executor would hold up the end of the process while a store does not answer.
            threading.Thread(target=self._loop, name="topo-files", daemon=True).start()
            self._started += 1
        return future

    def close(self) -> None:
        """End the threads, each behind the file that it is opening."""
        for _ in range(self._started):
            self._wanted.put(None)

    def _loop(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            self._fulfil(*wanted)
            try:
                self._wake()
            except TopoError:
                # The task has ended.
                return

    def _fulfil(self, name: str, future: Future[OpenedFile]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(self._open_file(name))
        except BaseException as error:
            # Also a SystemExit of a store's client, which would end this thread alone.
            future.set_exception(error)
