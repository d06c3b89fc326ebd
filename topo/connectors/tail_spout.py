"""A spout that follows files that others append to and rotate, as `tail -F` does."""

from __future__ import annotations

import fnmatch
import glob
import math
import os
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal

from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, SpoutCollector
from topo.config import parse_duration
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.compressed_files import check_is_text
from topo.connectors.followed_file import FollowedFile
from topo.connectors.line_reader import LineReader
from topo.errors import ConfigError

_LOOK_LINES = 1000
"""Lines between two looks at the lag."""
_PAUSE_S = 0.1
"""Between two calls: the file may be another one then."""


class TailSpout(RetryingSpout):
    """Emits the lines of a file, and then each line that is appended. It never ends.

        builder.set_spout("log", TailSpout("/var/log/nginx/access.log"))
        builder.set_spout("logs", TailSpout(["/var/log/a.log", "/var/log/b.log"]), 2)

    Rotation is followed, by rename (`access.log` becomes `access.log.1` or `access.log-20260101`) and by copy and truncate. The
    rest of the old file is read before the new one; also when the rotation, or several, happened while the topology was down, as
    long as the old files are there under names that `rotated` matches and are not compressed. Where a file that was not read to
    its end is gone, an error is reported (`topo errors`) and the spout continues with the files that are left.

    The gauge `lag_bytes` shows how many bytes it has still to read, as of a look every thousand lines and whenever there is none.

    A line is emitted when its newline is written. Waits for a file that does not exist yet. Each task follows one file, so the
    parallelism is the number of paths.
    """

    outputs = ("line",)
    is_endless = True

    @checks_arguments
    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        start: Literal["beginning", "end"] = "beginning",
        rotated: str | None = None,
        rotate_wait: str | timedelta = "5s",
        encoding: str = "utf-8",
        errors: str = "replace",
        max_line: str | int = "1MiB",
    ) -> None:
        """Keep what to read; nothing is opened yet.

        Args:
            path: the file, or several, one for each task. No pattern: files are known by name before they are there.
            start: where to begin a file that exists when the topology first starts: at its beginning, or behind its last whole
                line, for lines appended from then on. Only until the first line was processed: then the position counts.
                A file that comes later is read from its beginning.
            rotated: pattern of the names that it is given when it is rotated, in the same folder; by default its own name
                followed by "." or "-" and anything.
            rotate_wait: how long a file that was renamed must be unchanged before the spout leaves it: programs write on into
                the file that they have open.
            encoding: one in which a newline is the one byte 10, as in UTF-8 and all single-byte encodings.
            errors: what to do with bytes that are no text, as in `open`.
            max_line: a longer line is emitted in pieces of this size.

        Raises:
            ConfigError: an argument cannot be used.
        """
        given = [path] if isinstance(path, str) or not isinstance(path, Iterable) else list(path)
        self._paths = [Path(one) for one in given]
        if not given or len(set(self._paths)) < len(given):
            raise ConfigError(f"TailSpout follows one file in each task; give paths, each once, not {given!r}")
        for one in self._paths:
            check_is_text("TailSpout", one)
            if any(mark in one.name for mark in "*?[") and not one.exists():
                raise ConfigError(
                    f"TailSpout follows files by their names, and {os.fspath(one)!r} is a pattern; list them, such as "
                    f"TailSpout(sorted(glob.glob({os.fspath(one)!r})))"
                )
        self.tasks_needed = len(given)
        """Any other parallelism is refused at build."""
        self._start = start
        self._rotated = rotated
        self._wait_s = parse_duration(rotate_wait)
        self._reader = LineReader("TailSpout", encoding, errors, max_line)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """Find the file of the committed position and go there, or to the start.

        Raises:
            ConfigError: the path is a folder.
        """
        path = self._paths[context.task_index]
        if path.is_dir():
            where = f"TailSpout {context.component!r}"
            raise ConfigError(f"{where} follows one file, but {path} is a folder; give the path of a file")
        self._collector = collector
        self._lag, self._lines = context.metrics.gauge("lag_bytes"), 0
        pattern = f"{glob.escape(path.name)}[.-]*" if self._rotated is None else self._rotated
        rotated = re.compile(fnmatch.translate(pattern))
        self._file = FollowedFile(path, self._reader, rotated, self._wait_s, collector.report_error, "TailSpout")
        if context.committed_position is not None:
            self._file.go_to(context.committed_position)
        elif self._start == "end":
            self._file.skip_to_end()
        self._clock, self._called_at = context.clock, -math.inf

    def next_tuple(self) -> None:
        """Emit the next line, if there is one."""
        now = self._clock()
        if now - self._called_at > _PAUSE_S:
            # As when it is not called for lack of room.
            self._file.paused()
        self._called_at = now
        line = self._file.next_line()
        if line is not None:
            self._collector.emit((line,), self._file.position)
            self._lines += 1
        if line is None or self._lines % _LOOK_LINES == 1:
            self._lag.set(self._file.unread())

    def close(self) -> None:
        """Close the file."""
        self._reader.close()
