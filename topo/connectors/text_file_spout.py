"""A spout that emits the lines of text files."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from topo.api.arguments import check_count
from topo.api.context import TaskContext
from topo.api.spout import RetryingSpout, SpoutCollector
from topo.connectors.argument_checks import checks_arguments
from topo.connectors.compressed_files import check_is_text
from topo.connectors.line_reader import LineReader
from topo.errors import NotFoundError, TopoEnvironmentError


class TextFileSpout(RetryingSpout):
    """Emits the lines of a file, or of all files in a folder and its subfolders in the order of their names, then ends.

    A line's position is (number of the file, byte offset of the line's end), so it continues exactly after the last line that is
    done. Several tasks share each file by byte ranges: a line belongs to the task in whose range its first byte lies. The files
    must not change while the topology runs.
    """

    outputs = ("line",)

    declared_at: tuple[str, int] | None = None
    """File and line where it is added to a topology, for errors in which nothing else is the user's, such as a missing file."""

    @checks_arguments
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        pattern: str = "*",
        exclude: Sequence[str] = (),
        encoding: str = "utf-8",
        errors: str = "replace",
        repeat: int = 1,
        max_line: str | int = "1MiB",
    ) -> None:
        """Keep what to read; nothing is opened yet.

        Args:
            path: a file or a folder.
            pattern: which files of a folder, such as "*.log".
            exclude: names of subfolders to leave out, wherever they are.
            encoding: one in which a newline is the one byte 10, as in UTF-8 and all single-byte encodings.
            errors: what to do with bytes that are no text, as in `open`. With "strict" the spout stops at them with an error.
            repeat: how often to emit everything.
            max_line: a longer line is emitted in pieces of this size.

        Raises:
            ConfigError: an argument cannot be used.
        """
        check_count("repeat", repeat)
        check_is_text("TextFileSpout", pattern)
        if not Path(path).is_dir():
            check_is_text("TextFileSpout", path)
        self._path = Path(path)
        self._pattern = pattern
        self._exclude = frozenset(exclude)
        self._repeat = repeat
        self._reader = LineReader("TextFileSpout", encoding, errors, max_line)

    def open(self, context: TaskContext, collector: SpoutCollector) -> None:
        """List the files and go to the committed position.

        Raises:
            NotFoundError: the path does not exist, or the folder has no file that matches.
            TopoEnvironmentError: a subfolder cannot be listed; or the text before the committed position has gone, so the text
                behind it is unknown.
        """
        self._collector = collector
        self._index, self._tasks = context.task_index, context.parallelism
        self._files = self._list_files(context)
        self._number = -1
        self._end: float = 0
        if context.committed_position is not None:
            number, offset = context.committed_position
            self._check(number, offset)
            self._go_to(number, offset)

    def _check(self, number: int, offset: int) -> None:
        """Refuse a position that the files do not have: it must not be taken for the end."""
        gone = f"TextFileSpout: {str(self._path)!r} no longer has position ({number}, {offset})"
        files = len(self._files)
        if number >= files * self._repeat:
            raise TopoEnvironmentError(f"{gone}: it is {files} file{'s' * (files != 1)}, read {self._repeat} times")
        file = self._files[number % files]
        if offset > (size := file.stat().st_size):
            raise TopoEnvironmentError(f"{gone}: {file} has {size} bytes")

    def _list_files(self, context: TaskContext) -> list[Path]:
        if not self._path.exists():
            name = self._path.name
            hint = f"; for several files give their folder, and pattern={name!r}" if set(name) & set("*?[") else ""
            raise NotFoundError(f"TextFileSpout: there is no file or folder {str(self._path.absolute())!r}{hint}.")
        if not self._path.is_dir():
            return [self._path]
        found: list[Path] = []
        for folder, subfolders, names in os.walk(self._path, onerror=_cannot_list):
            # A large tree on a slow file system is no call that is stuck.
            context.progress(f"listing {folder}")
            subfolders[:] = [name for name in subfolders if name not in self._exclude]
            found += [Path(folder, name) for name in names if Path(name).match(self._pattern) and Path(folder, name).is_file()]
        if not found:
            raise NotFoundError(f"TextFileSpout: folder {str(self._path)!r} has no file that matches {self._pattern!r}.")
        return sorted(found)

    def _go_to(self, number: int, offset: int | None) -> None:
        """Open a file at an offset after which a line is done, or (None) at this task's share."""
        path = self._files[number % len(self._files)]
        size = path.stat().st_size
        # One task reads to wherever the file ends; several must agree on the size beforehand.
        end = math.inf if self._tasks == 1 else size * (self._index + 1) // self._tasks
        self._reader.open(path, size * self._index // self._tasks if offset is None else offset)
        if offset is None:
            self._reader.skip_line()
        self._number, self._end = number, end

    def next_tuple(self) -> None:
        """Emit the next line, of this file or of one after it."""
        reader = self._reader
        while True:
            if reader.file is not None:
                # A line that was begun is finished, even beyond this task's range.
                if (reader.offset < self._end or reader.is_inside_line) and (piece := reader.file.readline(reader.max_line)):
                    line = reader.take(piece)
                    if line is not None:
                        self._collector.emit((line,), (self._number, reader.offset))
                        return
                    continue
                reader.close()
            if self._number + 1 >= len(self._files) * self._repeat:
                self._collector.end_of_input()
                return
            self._go_to(self._number + 1, None)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


def _cannot_list(error: OSError) -> None:
    raise TopoEnvironmentError(
        f"TextFileSpout: folder {error.filename!r} cannot be listed: {error.strerror}; make it readable, or name it in exclude="
    ) from error
