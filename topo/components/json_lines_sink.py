"""A sink that writes tuples as lines of JSON, and acks them when they are on the disk."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import msgspec

from topo.api.bolt import Bolt, Collector
from topo.api.context import TaskContext
from topo.api.tuples import Tuple
from topo.errors import ConfigError

_TAIL_BYTES = 1 << 16


class JsonLinesSink(Bolt):
    """Appends one line of JSON for each tuple, an object of its fields, and acks the tuple after `fsync`.

    Nothing that was acked is lost, whatever is killed; after a recovery lines may repeat (at least once). One task writes to
    `path`; of several, task n writes to `path.n`.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_batch: int = 1000, flush_interval: str | timedelta | float = "100ms"
    ) -> None:
        """Keep where to write.

        Args:
            path: the file; its folder is made if need be.
            max_batch: tuples that are written and synced together.
            flush_interval: the longest that a tuple waits for others. Must be well below `message_timeout`.
        """
        if max_batch < 1:
            raise ConfigError(f"max_batch={max_batch!r} must be at least 1")
        self.component_settings = {"tick_interval": flush_interval}
        self._path = Path(path)
        self._max_batch = max_batch
        self._encode = msgspec.json.Encoder(decimal_format="string").encode

    def prepare(self, context: TaskContext, collector: Collector) -> None:
        """Open the file; take away a line that a killed process has left half written."""
        self._collector = collector
        path = self._path
        if context.parallelism > 1:
            path = path.with_name(f"{path.name}.{context.task_index}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._size = _mend(self._file)
        _sync_folder(path.parent)
        self._lines: list[bytes] = []
        self._held: list[Tuple] = []
        self._has_ended = False

    def execute(self, tup: Tuple) -> None:
        """Hold the tuple back until its batch is full, or a tick comes."""
        if not tup.is_tick:
            self._lines.append(self._encode(tup.as_dict()))
            self._held.append(tup)
            if len(self._held) < self._max_batch and not self._has_ended:
                return
        self._flush()

    def end_of_input(self) -> None:
        """Write what is held back; replays after the end are written at once."""
        self._has_ended = True
        self._flush()

    def on_reset(self) -> None:
        """Forget what is held back: it comes again."""
        self._lines.clear()
        self._held.clear()
        self._has_ended = False

    def cleanup(self) -> None:
        """Close the file. What is held back has not been acked."""
        os.close(self._file)

    def _flush(self) -> None:
        if not self._held:
            return
        batch = b"\n".join(self._lines) + b"\n"
        held = self._held
        self._lines, self._held = [], []
        try:
            _write_all(self._file, batch)
            os.fsync(self._file)
        except OSError:
            # Half a batch must not stay before the lines of the next one.
            os.ftruncate(self._file, self._size)
            for tup in held:
                self._collector.fail(tup)
            raise
        self._size += len(batch)
        for tup in held:
            self._collector.ack(tup)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _mend(file: int) -> int:
    """Make the file end with a whole line, and return its size."""
    size = os.fstat(file).st_size
    start = size
    tail = b""
    while start > 0 and b"\n" not in tail:
        step = min(_TAIL_BYTES, start)
        start -= step
        tail = os.pread(file, step, start) + tail
    torn = tail[tail.rfind(b"\n") + 1 :]
    if not torn:
        return size
    try:
        json.loads(torn)
    except ValueError:
        os.ftruncate(file, size - len(torn))
        return size - len(torn)
    _write_all(file, b"\n")
    return size + 1


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
