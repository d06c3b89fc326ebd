"""Standard streams of a worker whose lines are log records, also for the processes that user code starts."""

from __future__ import annotations

import codecs
import io
import logging
import os
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LONGEST_LINE = 16 * 1024
"""Characters of a captured line; text without newlines must not grow without bound."""
_DRAIN_S = 0.5
"""How long `close_pipes` waits for unread output of child processes."""


class _Tasks(Protocol):
    """The task that the calling thread works for."""

    @property
    def task(self) -> int | None: ...

    def enter(self, task: int | None) -> None: ...


class CapturedStream(io.TextIOBase):
    """A standard stream whose lines are log records. Each thread has a separate line, so that lines never mix.

    It offers what user code and libraries use of `sys.stdout`: `write`, `buffer` for bytes, `fileno` for child processes, and
    `reconfigure`. `encoding` and `errors` say how bytes become text; the log itself is always UTF-8.
    """

    encoding = "utf-8"
    errors = "backslashreplace"
    line_buffering = True
    write_through = False

    def __init__(self, name: str, tasks: _Tasks, handler: logging.Handler) -> None:
        self.name = f"<{name}>"
        self.buffer = _Bytes(self)
        self._logger = name
        self._handler = handler
        self._tasks = tasks
        self._begun = threading.local()
        self._pipes: dict[int | None, _Pipe] = {}
        self._opening = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        begun = getattr(self._begun, "line", "") + text
        *lines, rest = begun.split("\n")
        if len(rest) > LONGEST_LINE:
            lines.append(rest)
            rest = ""
        self._begun.line = rest
        for line in lines:
            self._log(line)
        return len(text)

    def flush(self) -> None:
        rest: str = getattr(self._begun, "line", "")
        if rest:
            self._begun.line = ""
            self._log(rest)

    def reconfigure(
        self,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        line_buffering: bool | None = None,
        write_through: bool | None = None,
    ) -> None:
        """Change how bytes written to `buffer` or by child processes become text. The other options have no effect."""
        self.flush()
        if encoding is not None:
            codecs.lookup(encoding)
            self.encoding, self.errors = encoding, errors or "strict"
        if errors is not None:
            self.errors = errors

    def fileno(self) -> int:
        """Return a descriptor for child processes: what they write becomes lines of the task that calls this."""
        task = self._tasks.task
        with self._opening:
            if task not in self._pipes:
                self._pipes[task] = _Pipe(self, self._tasks, task)
            return self._pipes[task].descriptor

    def close_pipes(self) -> None:
        """Read what child processes have written, and close the descriptors that `fileno` has returned."""
        with self._opening:
            for pipe in self._pipes.values():
                pipe.close()
            self._pipes.clear()

    def _log(self, line: str) -> None:
        # Past the loggers: user code may disable them, or give them a handler that writes to this stream.
        for start in range(0, len(line), LONGEST_LINE):
            part = line[start : start + LONGEST_LINE]
            self._handler.handle(logging.LogRecord(self._logger, logging.INFO, "", 0, part, (), None))


class _Bytes(io.BufferedIOBase):
    """The `buffer` of a captured stream. A character may be split over several writes of a thread."""

    def __init__(self, stream: CapturedStream) -> None:
        self._stream = stream
        self._decoders = threading.local()

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        how = (self._stream.encoding, self._stream.errors)
        if getattr(self._decoders, "how", None) != how:
            self._decoders.how, self._decoders.decode = how, codecs.getincrementaldecoder(how[0])(how[1]).decode
        data = bytes(data)
        self._stream.write(self._decoders.decode(data))
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def fileno(self) -> int:
        return self._stream.fileno()


class _Pipe:
    """Reads what child processes write, in a thread that logs it as lines of one task."""

    def __init__(self, stream: CapturedStream, tasks: _Tasks, task: int | None) -> None:
        reading, self.descriptor = os.pipe()

        def read() -> None:
            tasks.enter(task)
            with open(reading, "rb", buffering=0) as pipe:
                while data := pipe.read(LONGEST_LINE):
                    stream.buffer.write(data)
            stream.flush()

        self._thread = threading.Thread(target=read, name="topo-child-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self.descriptor)
        # A child that outlives the worker holds the other end.
        self._thread.join(_DRAIN_S)
