"""The file systems of checkpoints: a folder of this machine, or any file system that fsspec reaches.

A name is relative to the root, with slashes. A written file exists as a whole or not at all, also after a crash.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from glob import has_magic
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from topo.durable import local_path, make_folder_of_store, sync_folder, unless_unsyncable
from topo.errors import TopoEnvironmentError
from topo.extras import EXTRAS, pip_install


class PartFiles(Protocol):
    """A tree of files, as workers use it. Each method raises TopoEnvironmentError on failure, but `read` of a missing file."""

    url: str
    """The name of the root for other processes."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file, durably and as a whole; folders are made as needed."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a file, fewer where it ends. Raises FileNotFoundError when it is not there."""


class Files(PartFiles, Protocol):
    """A tree of files.

    Attributes:
        acts_late: whether a write may take effect after it has failed, or the process that wanted it has died.
    """

    acts_late: bool

    def make_root(self) -> None:
        """Make the root where it is missing, durably."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder, unsorted; none when it is not there."""

    def keep_name(self, name: str) -> None:
        """Make the name of a file durable: the process that wrote the file may have died, or failed, before it had done so."""

    def remove(self, name: str) -> None:
        """Remove a file, durably; a missing one is no error."""

    def remove_folder(self, name: str) -> None:
        """Remove a folder and its content; a missing one is no error."""


_BUFFER_BYTES = 1 << 20
"""Few writes for many small sections: after each one a thread waits for the interpreter while another computes."""


class FileSystem(Protocol):
    """The steps on files that `LocalFiles` is made of, as POSIX has them. Methods raise OSError.

    A power cut may take written content until `sync`, and undo the making, renaming and removing of names until `sync_folder`.
    """

    def create(self, path: Path) -> BinaryIO:
        """Open a new file to be written. Raises FileExistsError."""

    def sync(self, file: BinaryIO) -> None:
        """Make the content of an open file durable."""

    def rename(self, path: Path, name: Path) -> None:
        """Give a file another name, in place of the file that has it."""

    def sync_folder(self, path: Path) -> None:
        """Make durable which names a folder has."""

    def is_folder(self, path: Path) -> bool:
        """Whether there is such a folder."""

    def make_folder(self, path: Path) -> None:
        """Make a folder, unless there is one; its parent must exist."""

    def read(self, path: Path, start: int, length: int | None) -> bytes:
        """Return bytes of a file, fewer where it ends."""

    def names(self, path: Path) -> list[str]:
        """Return the names in a folder, unsorted."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def remove_folder(self, path: Path) -> None:
        """Remove a folder and its content."""


class OperatingSystemFiles:
    """The file systems of this machine."""

    def create(self, path: Path) -> BinaryIO:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES)

    def sync(self, file: BinaryIO) -> None:
        file.flush()
        os.fsync(file.fileno())

    def rename(self, path: Path, name: Path) -> None:
        os.replace(path, name)

    def sync_folder(self, path: Path) -> None:
        sync_folder(path)

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=0o700, exist_ok=True)

    def read(self, path: Path, start: int, length: int | None) -> bytes:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def names(self, path: Path) -> list[str]:
        return os.listdir(path)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        shutil.rmtree(path)


_THIS_MACHINE = OperatingSystemFiles()


class NewFile:
    """A file while it is written, under a temporary name. Methods raise OSError.

    Its folder is made if need be, and no parent of that.

    Attributes:
        length: bytes written so far.
    """

    def __init__(self, path: Path, system: FileSystem = _THIS_MACHINE) -> None:
        self.length = 0
        self._path = path
        self._system = system
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.new")
        if not system.is_folder(path.parent):
            _make_one(path.parent, system)
        self._file = system.create(self._temporary)

    def write(self, data: bytes) -> None:
        self.length += self._file.write(data)

    def keep(self) -> None:
        """Give it its name, once it is durable as a whole."""
        self._system.sync(self._file)
        self._file.close()
        self._system.rename(self._temporary, self._path)
        self._system.sync_folder(self._path.parent)

    def discard(self) -> None:
        """Leave nothing of it. Raises nothing."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._system.remove(self._temporary)


@contextmanager
def _explained(verb: str, path: Path, *passed_on: type[OSError]) -> Iterator[None]:
    """Raise TopoEnvironmentError in place of an OSError, unless it is of a kind that is passed on."""
    try:
        yield
    except passed_on:
        raise
    except OSError as error:
        raise TopoEnvironmentError(f"cannot {verb} {path}: {error.strerror}") from error


def open_private(path: Path, flags: int) -> int:
    """Open a file, made for this user alone if need be, and return its descriptor. Raises TopoEnvironmentError."""
    with _explained("open", path):
        return os.open(path, flags | os.O_CREAT, 0o600)


def state_of(*files: Path) -> list[tuple[int, ...]]:
    """Return what changes when one of the files does; files that are not there have no part in it."""
    found: list[tuple[int, ...]] = []
    for file in files:
        with suppress(OSError):
            one = file.stat()
            found.append((one.st_ino, one.st_size, one.st_mtime_ns))
    return found


_NO_FOLDER = (FileNotFoundError, NotADirectoryError)


class LocalFiles:
    """A folder of this machine, local or mounted.

    The root is made once. When it is removed later, writes fail rather than make it again: it may lie in the folder of another
    run by then.

    Args:
        makes_root: whether the first write makes a missing root; False where another process has made it.
    """

    acts_late = False

    def __init__(self, root: Path, system: FileSystem = _THIS_MACHINE, *, makes_root: bool = True) -> None:
        self._root = root
        self._system = system
        self._has_root = not makes_root
        self.url = str(root)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._root / name
        with _explained("write", path):
            if not self._has_root:
                self._keep_root()
            file = NewFile(path, self._system)
            try:
                for chunk in chunks:
                    file.write(chunk)
                file.keep()
            except BaseException:
                file.discard()
                raise

    def _keep_root(self) -> None:
        _make_folder(self._root, self._system)
        # Each may have been made by a process that could not sync it, or died before.
        for folder in self._root.parents:
            with unless_unsyncable():
                self._system.sync_folder(folder)
        self._has_root = True

    def make_root(self) -> None:
        with _explained("make", self._root):
            self._keep_root()

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with _explained("read", self._root / name, FileNotFoundError):
            return self._system.read(self._root / name, start, length)

    def names(self, folder: str = "") -> list[str]:
        with suppress(*_NO_FOLDER), _explained("list", self._root / folder, *_NO_FOLDER):
            return self._system.names(self._root / folder)
        return []

    def keep_name(self, name: str) -> None:
        # The content was durable before the file got this name.
        with _explained("sync the folder of", self._root / name):
            self._system.sync_folder((self._root / name).parent)

    def remove(self, name: str) -> None:
        path = self._root / name
        with _explained("remove", path):
            with suppress(FileNotFoundError):
                self._system.remove(path)
            # Also when it was removed before: that may not have been synced.
            if self._system.is_folder(path.parent):
                self._system.sync_folder(path.parent)

    def remove_folder(self, name: str) -> None:
        with suppress(FileNotFoundError), _explained("remove", self._root / name, FileNotFoundError):
            self._system.remove_folder(self._root / name)


class RemoteFiles:
    """A file system that fsspec knows, such as s3, gs, abfs, hdfs.

    A file is uploaded under a temporary name and renamed, so that one which is half there is never taken for the whole.
    """

    acts_late = True

    def __init__(self, url: str) -> None:
        """Reach the root. Raises TopoEnvironmentError when it cannot be, or a package for it is not installed."""
        try:
            from fsspec import AbstractFileSystem
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise TopoEnvironmentError(f"checkpoints in {shown(url)} need fsspec: {pip_install(EXTRAS['remote'])}") from error
        self.url = url
        try:
            self._system: Any
            self._system, root = url_to_fs(url)
        except Exception as error:  # some connect at once, and each has its own errors
            raise TopoEnvironmentError(f"cannot use {shown(url)}: {error}") from error
        self._root = root.rstrip("/")
        # Its own `mv` and `rm` take "*", "?" and "[" for patterns, and would move and remove files of other folders.
        self._copies = type(self._system).mv is AbstractFileSystem.mv
        self._is_pattern = has_magic(self._root)

    def make_root(self) -> None:
        """Do nothing: writes make the folders that they need."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._path(name)
        temporary = f"{path}.{os.urandom(4).hex()}.new"
        with self._explained("write", name):
            make_folder_of_store(self._system, path.rpartition("/")[0])
            self._system.pipe_file(temporary, b"".join(chunks))
            if self._copies:
                self._system.cp_file(temporary, path)
                self._system.rm_file(temporary)
            else:
                self._system.mv(temporary, path)

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with self._explained("read", name, FileNotFoundError):
            path = self._path(name)
            if length == 0:
                # Some clients take an end of 0 for none.
                self._system.info(path)
                return b""
            try:
                data: bytes = self._system.cat_file(path, start=start, end=None if length is None else start + length)
            except FileNotFoundError:
                raise
            except Exception:
                # Stores refuse a range behind the end.
                if start < self._system.info(path)["size"]:
                    raise
                return b""
            return data

    def names(self, folder: str = "") -> list[str]:
        path = self._path(folder).rstrip("/")
        self._system.invalidate_cache()
        with suppress(*_NO_FOLDER), self._explained("list", folder, *_NO_FOLDER):
            return [found.rstrip("/").rpartition("/")[2] for found in self._system.ls(path, detail=False)]
        return []

    def keep_name(self, name: str) -> None:
        """Do nothing: a name that others see is durable there."""

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._explained("remove", name, FileNotFoundError):
            self._system.rm_file(self._path(name))

    def remove_folder(self, name: str) -> None:
        with suppress(FileNotFoundError), self._explained("remove", name, FileNotFoundError):
            path = self._path(name)
            if not self._is_pattern:
                self._system.rm(path, recursive=True)
                return
            for found in sorted(self._system.find(path, withdirs=True), reverse=True):
                with suppress(FileNotFoundError):
                    self._system.rm_file(found)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _explained(self, verb: str, name: str, *passed_on: type[Exception]) -> Iterator[None]:
        try:
            yield
        except passed_on:
            raise
        except Exception as error:  # each file system has its own errors
            raise TopoEnvironmentError(f"cannot {verb} {shown(self.url)}/{name}: {error}") from error


def open_files(url: str, *, makes_root: bool = True) -> Files:
    """Return the files at a path or URL. Raises TopoEnvironmentError when it cannot be reached, or a package is missing.

    Args:
        makes_root: as that of `LocalFiles`.
    """
    if "://" not in url:
        return LocalFiles(Path(os.path.expanduser(url)).absolute(), makes_root=makes_root)
    if url.startswith("file://"):
        return LocalFiles(local_path(url), makes_root=makes_root)
    return RemoteFiles(url.rstrip("/"))


def shown(url: str) -> str:
    """Return a path or URL for messages, without a password."""
    return re.sub(r"(://[^/@:]*):.*@", r"\1:***@", url)


def _make_folder(folder: Path, system: FileSystem) -> None:
    if system.is_folder(folder):
        return
    _make_folder(folder.parent, system)
    _make_one(folder, system)


def _make_one(folder: Path, system: FileSystem) -> None:
    system.make_folder(folder)
    system.sync_folder(folder.parent)
