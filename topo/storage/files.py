"""Where checkpoints are kept: a folder of this machine, or any file system that fsspec reaches.

A name is relative to the root, with slashes. A written file exists as a whole or not at all, also after a crash.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from topo.errors import EnvironmentFault
from topo.extras import EXTRAS, pip_install
from topo.storage.state_folder import sync_folder


class PartFiles(Protocol):
    """What a worker needs of a tree of files. Every method but `read` of a missing file raises EnvironmentFault on a failure."""

    url: str
    """How the root is named to other processes."""

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write a file, durably and as a whole; folders are made as needed."""

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Return bytes of a file, fewer where it ends. Raises FileNotFoundError when it is not there."""


class Files(PartFiles, Protocol):
    """A tree of files."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names in a folder, unsorted; none when it is not there."""

    def remove(self, name: str) -> None:
        """Remove a file, durably; a missing one is no error."""

    def remove_folder(self, name: str) -> None:
        """Remove a folder and its content; a missing one is no error."""


_BUFFER_BYTES = 1 << 20
"""Few writes for many small sections: after each one a thread waits for the interpreter while another computes."""


class NewFile:
    """A file of this machine while it is written, under a temporary name. Methods raise OSError.

    Attributes:
        length: bytes written so far.
    """

    def __init__(self, path: Path) -> None:
        self.length = 0
        self._path = path
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.new")
        _make_folder(path.parent)
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._file = os.fdopen(descriptor, "wb", buffering=_BUFFER_BYTES)

    def write(self, data: bytes) -> None:
        """Append."""
        self.length += self._file.write(data)

    def keep(self) -> None:
        """Give it its name, once it is durable as a whole."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self._path)
        sync_folder(self._path.parent)

    def discard(self) -> None:
        """Leave nothing of it. Raises nothing."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._temporary.unlink()


class LocalFiles:
    """A folder of this machine, local or mounted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.url = str(root)

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._root / name
        try:
            file = NewFile(path)
            try:
                for chunk in chunks:
                    file.write(chunk)
                file.keep()
            except BaseException:
                file.discard()
                raise
        except OSError as error:
            raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from error

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            with open(self._root / name, "rb") as file:
                file.seek(start)
                return file.read() if length is None else file.read(length)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise EnvironmentFault(f"cannot read {self._root / name}: {error.strerror}") from error

    def names(self, folder: str = "") -> list[str]:
        try:
            return os.listdir(self._root / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise EnvironmentFault(f"cannot list {self._root / folder}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        path = self._root / name
        try:
            path.unlink()
            sync_folder(path.parent)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise EnvironmentFault(f"cannot remove {path}: {error.strerror}") from error

    def remove_folder(self, name: str) -> None:
        try:
            shutil.rmtree(self._root / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise EnvironmentFault(f"cannot remove {self._root / name}: {error.strerror}") from error


class RemoteFiles:
    """A file system that fsspec knows, such as s3, gs, abfs, hdfs.

    A file is uploaded under a temporary name and renamed, so that one which is half there is never taken for the whole.
    """

    def __init__(self, url: str) -> None:
        """Reach the root. Raises EnvironmentFault when fsspec, or its package for this kind of URL, is not installed."""
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise EnvironmentFault(f"checkpoints in {url} need fsspec: {pip_install(EXTRAS['remote'])}") from error
        self.url = url
        try:
            self._system: Any
            self._system, root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise EnvironmentFault(f"cannot use {url}: {error}") from error
        self._root = root.rstrip("/")

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._path(name)
        temporary = f"{path}.{os.urandom(4).hex()}.new"
        try:
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._system.pipe_file(temporary, b"".join(chunks))
            self._system.mv(temporary, path)
        except Exception as error:  # each file system has its own errors
            raise EnvironmentFault(f"cannot write {self.url}/{name}: {error}") from error

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        try:
            data: bytes = self._system.cat_file(self._path(name), start=start, end=None if length is None else start + length)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise EnvironmentFault(f"cannot read {self.url}/{name}: {error}") from error
        return data

    def names(self, folder: str = "") -> list[str]:
        path = self._path(folder).rstrip("/")
        self._system.invalidate_cache()
        try:
            return [found.rstrip("/").rpartition("/")[2] for found in self._system.ls(path, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:
            raise EnvironmentFault(f"cannot list {self.url}/{folder}: {error}") from error

    def remove(self, name: str) -> None:
        try:
            self._system.rm_file(self._path(name))
        except FileNotFoundError:
            pass
        except Exception as error:
            raise EnvironmentFault(f"cannot remove {self.url}/{name}: {error}") from error

    def remove_folder(self, name: str) -> None:
        try:
            self._system.rm(self._path(name), recursive=True)
        except FileNotFoundError:
            pass
        except Exception as error:
            raise EnvironmentFault(f"cannot remove {self.url}/{name}: {error}") from error

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def open_files(url: str) -> Files:
    """Return the files at a path or URL. Raises EnvironmentFault when something needed for it is not installed."""
    if "://" not in url:
        return LocalFiles(Path(url).expanduser().absolute())
    if url.startswith("file://"):
        return LocalFiles(Path(url.removeprefix("file://")))
    return RemoteFiles(url.rstrip("/"))


def _make_folder(folder: Path) -> None:
    """Make a folder and its parents, durably."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)
