"""A worker's log: what topo and user code log and print, as JSON lines that say which task it came from.

    {"time": "2026-11-20T10:15:30.123Z", "level": "INFO", "logger": "stdout", "topology": "word-count", "epoch": 2, "worker": 1,
     "task": 3, "component": "count", "message": "..."}              exceptions add "exception", a traceback

Lines of a call for a tuple that is traced add "trace", the roots of its messages.

`print` is captured: what user code writes to standard output or error becomes lines of the log, under the loggers `stdout`
and `stderr`; so does the output of processes that it starts with `stdout=sys.stdout`. Output past Python's streams (C
code, a crash) goes to the file that the launcher gave the process.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from topo.ids import TaskId
from topo.observability.captured import CapturedStream

MAX_LOG_BYTES = 16 * 1024 * 1024
_NEAR_BYTES = 64 * 1024
KEPT_LOGS = 3
"""Older files `NAME.1` to `NAME.3`; a worker's logs are bounded by four times MAX_LOG_BYTES."""


def newer_log(path: Path, descriptor: int) -> tuple[Path | None, bool]:
    """Return the file that was begun after an open one, and whether none between the two is gone.

    Args:
        path: of the newest file of the log.
        descriptor: of the open one.

    Returns:
        None for the file while that is the newest. Raises OSError.
    """
    inode, newer = os.fstat(descriptor).st_ino, None
    for file in (path, *(path.with_name(f"{path.name}.{age}") for age in range(1, KEPT_LOGS + 1))):
        try:
            found = file.stat().st_ino
        except FileNotFoundError:
            break
        if found == inode:
            return newer, True
        newer = file
    return newer, False


def go_to(file: BinaryIO, moment: str) -> None:
    """Go to a row of a log near the first of a moment, and not behind it: by halves, since rows are in the order of time."""
    low, high = 0, file.seek(0, os.SEEK_END)
    while high - low > _NEAR_BYTES:
        file.seek(middle := (low + high) // 2)
        file.readline()
        try:
            # Those of the master's own log have no time of this form, and are not looked for.
            is_before = str(json.loads(file.readline()).get("time", "")) < moment
        except (ValueError, AttributeError):  # torn by a crash
            is_before = False
        low, high = (middle, high) if is_before else (low, middle)
    file.seek(low)
    if low:
        file.readline()


_WITH_PLACES = ("py.warnings", "stderr")
"""Rows that Python writes with names of files of code: warnings, and the tracebacks of threads."""


class TaskLog:
    """The log of one worker.

    `enter` gets the task whose code runs next, once for each batch; lines logged and printed until the next call by the
    same thread are that task's. Threads that never called it, such as those that user code starts, log as `default_task`.

    Attributes:
        epoch: returns the worker's epoch, 0 before the first.
        shown: returns a warning or a traceback with the names of the user's own files in place of those of their copies.
        traced: while there is a trace, returns the roots of the traced messages that a task is at, in its own thread.
    """

    def __init__(self, worker: int, components: dict[int, str], topology: str | None = None) -> None:
        self.worker = worker
        self.topology = topology
        self.epoch: Callable[[], int] = lambda: 0
        self.shown: Callable[[str], str] = str
        self.traced: Callable[[TaskId], list[str]] | None = None
        self.components = components
        self.default_task: int | None = None
        self._current = threading.local()
        self._handler: logging.Handler | None = None
        self._streams = (sys.stdout, sys.stderr)
        self._captured: tuple[CapturedStream, ...] = ()

    def enter(self, task: int | None) -> None:
        """The calling thread runs code of `task` from now on; None: of none."""
        self._current.task = task

    @property
    def task(self) -> int | None:
        task: int | None = getattr(self._current, "task", self.default_task)
        return task

    def roots(self) -> list[str]:
        """Return the roots of the traced messages for which the calling thread runs."""
        task, traced = self.task, self.traced
        # Async calls run in another thread, beside those of other tuples.
        if task is None or traced is None or threading.current_thread() is not threading.main_thread():
            return []
        return traced(TaskId(task))

    def open(self, path: Path, level: int, max_bytes: int, kept: int) -> None:
        """Take over logging and the standard streams of this process."""
        handler = _Handler(path, max_bytes, kept)
        handler.setFormatter(_JsonLines(self))
        root = logging.getLogger()
        root.addHandler(handler)
        root.setLevel(level)
        # User code that gives the root other handlers leaves the rows of topo alone; those of `context.logger` are its own.
        own = logging.getLogger("topo")
        own.addHandler(handler)
        own.propagate = False
        logging.getLogger("topo.user").parent = root
        self._handler = handler
        self._streams = (sys.stdout, sys.stderr)
        self._captured = (CapturedStream("stdout", self, handler), CapturedStream("stderr", self, handler))
        sys.stdout, sys.stderr = self._captured
        logging.captureWarnings(True)

    def close(self) -> None:
        """Write the remaining lines and restore the streams. Idempotent."""
        if self._handler is not None:
            for stream in self._captured:
                stream.flush()
                stream.close_pipes()
            sys.stdout, sys.stderr = self._streams
            logging.captureWarnings(False)
            own = logging.getLogger("topo")
            logging.getLogger("topo.user").parent = own
            own.removeHandler(self._handler)
            own.propagate = True
            logging.getLogger().removeHandler(self._handler)
            self._handler.close()
            self._handler = None


def start_logging(
    path: Path,
    worker: int,
    components: dict[int, str] | None = None,
    level: int = logging.INFO,
    max_bytes: int = MAX_LOG_BYTES,
    kept: int = KEPT_LOGS,
    topology: str | None = None,
) -> TaskLog:
    """Send all logging and printing of this process to `path`, each line with the task it came from.

    Args:
        components: the component of each task; may be filled later, since it is read at each line.
        topology: its name.
    """
    log = TaskLog(worker, components if components is not None else {}, topology=topology)
    log.open(path, level, max_bytes, kept)
    return log


class _JsonLines(logging.Formatter):
    def __init__(self, log: TaskLog) -> None:
        super().__init__()
        self._log = log

    def format(self, record: logging.LogRecord) -> str:
        task = self._log.task
        row: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "topology": self._log.topology,
            "epoch": self._log.epoch(),
            "worker": self._log.worker,
            "task": task,
            "component": self._log.components.get(task) if task is not None else None,
            "message": self._log.shown(_message(record)) if record.name in _WITH_PLACES else _message(record),
        }
        if roots := self._log.roots():
            row["trace"] = roots
        if record.exc_info:
            row["exception"] = self._log.shown(self.formatException(record.exc_info))
        return json.dumps(row)


def _message(record: logging.LogRecord) -> str:
    try:
        message = record.getMessage()
        # Ends with a line of code and its newline.
        return message.rstrip() if record.name == "py.warnings" else message
    except Exception as error:
        return f"{record.msg} ({record.pathname}, line {record.lineno}: {type(error).__name__}: {error})"


class _Handler(logging.FileHandler):
    """Never disturbs the code that logs: a record that cannot be written goes to the standard error of the process.

    A full file becomes `NAME.1`, and older ones move up to `NAME.kept`, as with `logging.handlers.RotatingFileHandler`, which
    would load sockets and their constants into each worker.
    """

    def __init__(self, path: Path, max_bytes: int, kept: int) -> None:
        # Opened by the first line, and again by the next one where that failed.
        super().__init__(path, encoding="utf-8", delay=True)
        self._max_bytes = max_bytes
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + self.terminator
            stream = self.stream or self._open()
            found = os.fstat(stream.fileno())
            if found.st_size and found.st_size + len(line) >= self._max_bytes and stat.S_ISREG(found.st_mode):
                self.stream = None
                stream.close()
                self._move_up()
                stream = self._open()
            self.stream = stream
            stream.write(line)
            stream.flush()
        except Exception:
            self.handleError(record)

    def _move_up(self) -> None:
        newest = Path(self.baseFilename)
        names = [newest, *(newest.with_name(f"{newest.name}.{age}") for age in range(1, self._kept + 1))]
        for older, newer in reversed(list(itertools.pairwise(names))):
            with suppress(FileNotFoundError):
                older.replace(newer)

    def handleError(self, record: logging.LogRecord) -> None:
        if sys.__stderr__ is not None:
            with suppress(OSError, ValueError):
                sys.__stderr__.write(f"cannot log: {sys.exc_info()[1]}\n")
