"""Where a sink stages files under hidden names and publishes them under their own: a local folder, or a URL that fsspec reaches.

    ROOT/.staged/NAME       durable; readers leave out hidden names
    ROOT/FOLDER/NAME        published

A rename publishes a local file, a copy and a removal that of a store. Each step may be the last one of a process: a
repetition, by any process, finds the staged name and completes it, or the published one and has nothing to do.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from io import BytesIO
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Protocol

from topo.api.context import TaskContext
from topo.connectors.file_folders import file_system_at, is_remote, move_file
from topo.connectors.line_files import write_at
from topo.durable import local_path, make_folder, make_folder_of_store, sync_folder
from topo.errors import SinkBlockedError

STAGED = ".staged"
_IN_MEMORY = 8 << 20
"""Bytes of a file for a store that wait in memory; the rest waits on the local disk."""
_NAME = re.compile(r"(?P<writer>.+)-(?P<task>\d+)-[0-9a-f]{12}-\d+(\..+)?")


class StagedNames:
    """Names for the files of one task: none is drawn twice, whatever has happened to the processes before.

    Args:
        context: of the task. A name carries topology, component, task, process and number.
    """

    def __init__(self, context: TaskContext) -> None:
        self._writer = f"{context.topology}.{context.component}"
        self._task, self._tasks = context.task_index, context.parallelism
        # A replacement must never name a file as its predecessor did, which may be alive still.
        self._prefix = f"{self._writer}-{self._task}-{os.urandom(6).hex()}-"
        self._number = 0

    def draw(self, suffix: str) -> str:
        """Return a new name that ends with `suffix`."""
        self._number += 1
        return f"{self._prefix}{self._number:06}{suffix}"

    def is_drawn(self, name: str) -> bool:
        """Whether this process has drawn a name."""
        return name.startswith(self._prefix)

    def is_left(self, name: str) -> bool:
        """Whether this task is the one to remove a staged file: its own, or that of a task which no longer exists."""
        found = _NAME.fullmatch(name)
        return found is not None and found["writer"] == self._writer and int(found["task"]) % self._tasks == self._task


class StagedFile(Protocol):
    """A file that is being written under its hidden name.

    Attributes:
        size: bytes written so far.
    """

    size: int

    def append(self, data: bytes) -> None:
        """Write at the end. After an OSError the end is where it was: repeat it with the same data."""

    def seal(self) -> None:
        """Make the content durable and close the file. It may be repeated.

        Raises:
            SinkBlockedError: the disk may have dropped content, which a second sync would not report.
        """

    def discard(self) -> None:
        """Leave nothing of it."""


class StagingPlace(Protocol):
    """A folder with staged and published files."""

    def make(self) -> bool:
        """Make the folder of staged files. Returns whether it was missing, so that no process has staged anything here."""

    def create(self, name: str) -> StagedFile:
        """Return a new file; it is made when the first data is appended."""

    def keep_names(self) -> None:
        """Make the names of sealed files durable."""

    def publish(self, name: str, folder: str) -> bool:
        """Give a sealed file its own name in a folder, durably. Returns False when it has neither name."""

    def open(self, name: str) -> BinaryIO:
        """Open a staged file to read it. Raises FileNotFoundError."""

    def staged(self) -> list[str]:
        """Return the names of the staged files."""

    def remove(self, name: str) -> None:
        """Remove a staged file; a missing one is no error."""


class _LocalStagedFile:
    def __init__(self, path: Path) -> None:
        self.size = 0
        self._path = path
        self._file: int | None = None
        self._fault: OSError | None = None

    def append(self, data: bytes) -> None:
        if self._file is None:
            try:
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"folder {str(self._path.parent)!r} was there and is gone; put it back, or mount its disk again"
                ) from error
        write_at(self._file, data, self.size)
        self.size += len(data)

    def seal(self) -> None:
        if self._file is not None and self._fault is None:
            try:
                os.fsync(self._file)
            except OSError as error:
                self._fault = error
        if self._fault is not None:
            raise SinkBlockedError(
                f"cannot sync {self._path}: {self._fault}; its rows are read again from the last checkpoint, or replayed"
            ) from self._fault
        self._close()

    def discard(self) -> None:
        self._close()
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


class LocalPlace:
    """A folder of this machine, local or mounted, which all workers of the sink share."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._staged = self._root / STAGED
        self._durable: set[Path] = {self._root}
        """Folders below the root whose names this process has synced."""

    def make(self) -> bool:
        is_new = not self._staged.is_dir()
        # Both: a process that has made one may have died before its parent was synced.
        make_folder(self._root)
        make_folder(self._staged)
        return is_new

    def create(self, name: str) -> StagedFile:
        return _LocalStagedFile(self._staged / name)

    def keep_names(self) -> None:
        sync_folder(self._staged)

    def publish(self, name: str, folder: str) -> bool:
        target = self._root / folder
        self._make(target)
        is_published = True
        try:
            os.rename(self._staged / name, target / name)
        except FileNotFoundError:
            is_published = (target / name).exists()
        # Also when it was renamed before: that process may have died before it could sync.
        sync_folder(target)
        return is_published

    def _make(self, folder: Path) -> None:
        if folder in self._durable and folder.is_dir():
            return
        if folder != self._root:
            self._make(folder.parent)
        make_folder(folder)
        self._durable.add(folder)

    def open(self, name: str) -> BinaryIO:
        return (self._staged / name).open("rb")

    def staged(self) -> list[str]:
        with suppress(FileNotFoundError):
            return os.listdir(self._staged)
        return []

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._staged / name)


class _RemoteStagedFile:
    """Content waits on this machine and is uploaded as a whole, so that an upload that fails can be repeated."""

    def __init__(self, files: Any, path: str) -> None:
        self.size = 0
        self._files = files
        self._path = path
        self._content: Any = BytesIO()

    def append(self, data: bytes) -> None:
        if isinstance(self._content, BytesIO) and self.size + len(data) > _IN_MEMORY:
            self._content = _on_disk(self._content.getvalue())
        if isinstance(self._content, BytesIO):
            # An upload that has failed has moved the position.
            self._content.seek(self.size)
            self._content.write(data)
        else:
            write_at(self._content.fileno(), data, self.size)
        self.size += len(data)

    def seal(self) -> None:
        if self._content.closed:
            return
        # A write that has failed may have left some bytes behind the end.
        self._content.truncate(self.size)
        self._content.seek(0)
        with self._files.open(self._path, "wb") as target:
            copyfileobj(self._content, target, _IN_MEMORY)
        self._content.close()

    def discard(self) -> None:
        self._content.close()
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path)


def _on_disk(data: bytes) -> Any:
    """Return a file of this machine with some content, which goes away when it is closed."""
    with ExitStack() as stack:
        file = stack.enter_context(TemporaryFile(buffering=0))
        write_at(file.fileno(), data, 0)
        stack.pop_all()
    return file


class RemotePlace:
    """A folder of a store.

    Args:
        files: the store, as a file system of fsspec's.
        root: the path of the folder there; "" for all of the store.
    """

    def __init__(self, files: Any, root: str) -> None:
        self._files, self._root = files, root
        self._made: set[str] = set()

    def make(self) -> bool:
        self._make(STAGED)
        # A store has no empty folders: without staged files it is as if never used.
        return False

    def _make(self, folder: str) -> None:
        if folder not in self._made:
            make_folder_of_store(self._files, self._path(folder))
            self._made.add(folder)

    def create(self, name: str) -> StagedFile:
        return _RemoteStagedFile(self._files, self._path(STAGED, name))

    def keep_names(self) -> None:
        """Do nothing: a name that others see is durable there."""

    def publish(self, name: str, folder: str) -> bool:
        self._make(folder)
        source, target = self._path(STAGED, name), self._path(folder, name)
        self._files.invalidate_cache()
        try:
            move_file(self._files, source, target)
        except FileNotFoundError:
            return bool(self._files.exists(target))
        return True

    def open(self, name: str) -> BinaryIO:
        self._files.invalidate_cache()
        opened: BinaryIO = self._files.open(self._path(STAGED, name), "rb")
        return opened

    def staged(self) -> list[str]:
        self._files.invalidate_cache()
        with suppress(FileNotFoundError):
            return [path.rpartition("/")[2] for path in self._files.ls(self._path(STAGED), detail=False)]
        return []

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(STAGED, name))

    def _path(self, *parts: str) -> str:
        return "/".join(filter(None, [self._root, *parts]))


def place_at(url: str | os.PathLike[str], options: Mapping[str, Any], user: str) -> StagingPlace:
    """Return the place at a path or URL, for a class that stages files there.

    Args:
        url: the path, or a URL such as "s3://bucket/folder".
        options: for fsspec.
        user: the class, for errors.

    Raises:
        ConfigError: fsspec is not installed, or does not know the protocol.
    """
    text = os.fspath(url)
    return RemotePlace(*file_system_at(text, options, user)) if is_remote(text) else LocalPlace(local_path(url))
