"""The files below a folder, on a local disk or at a URL that fsspec reaches."""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatch
from itertools import chain, count
from math import inf
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple, Protocol

from topo.connectors.file_opener import OpenedFile
from topo.durable import local_path
from topo.errors import ConfigError, TopoEnvironmentError
from topo.extras import EXTRAS, pip_install

_WHOLE_BYTES = 2 << 20
"""Files of a store up to this size are fetched whole."""
_THREADS = 16

_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class FoundFile(NamedTuple):
    """A file below a folder: its path there, an identity that changes when it is written again, when it was written, its size.

    `modified` is in seconds since 1970, at most now; infinite where it is not known. `size` is None where it is not known.
    """

    name: str
    identity: str
    modified: float
    size: int | None


class FileFolder(Protocol):
    """The files below one folder.

    Attributes:
        unsettled: names that match and that the last listing has left out, since they were written to just now.
        threads: how many may call `open` at a time, since it waits for requests; 0: it waits for none.
    """

    unsettled: list[str]
    threads: int

    def find(self, pattern: str) -> Iterator[FoundFile]:
        """Yield the files that are complete and whose names match; hidden ones, and those that begin with "_", are left out.

        Raises:
            TopoEnvironmentError: the folder was there and is gone, while its files may be there.
            OSError: it cannot be listed.
        """

    def identity(self, name: str) -> str:
        """Return the present identity of a file. Raises FileNotFoundError."""

    def open(self, name: str) -> OpenedFile:
        """Open a file. Raises FileNotFoundError."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def move(self, name: str, target: str) -> None:
        """Move a file to its path below another folder, under a name with a number where there is one already."""


def _free(path: str, is_there: Callable[[str], object]) -> str:
    """Return a path, or one with a number behind it, under which there is nothing."""
    return next(one for one in chain((path,), (f"{path}.{number}" for number in count(1))) if not is_there(one))


def check_move(url: str | os.PathLike[str], target: str) -> None:
    """Check where files of a folder are to be moved. Raises ConfigError."""
    source, shown = os.fspath(url), shown_url(target)
    if is_remote(source) != is_remote(target) or (is_remote(source) and source.partition("://")[0] != target.partition("://")[0]):
        raise ConfigError(
            f"on_done='move:{shown}' must be in the same store as {shown_url(source)!r}, or on this machine as well"
        )
    root, below = (source, target) if is_remote(source) else map(os.path.realpath, (local_path(source), local_path(target)))
    root, below = root.rstrip("/") + "/", below.rstrip("/") + "/"
    if not target or (below.startswith(root) and is_visible(below.removeprefix(root).rstrip("/"))):
        raise ConfigError(
            f"on_done='move:{shown}': the files would be read again; name a folder outside of {shown_url(source)!r}, or one "
            "whose name begins with '_'"
        )


def is_visible(name: str) -> bool:
    """Whether no part of a path begins with "." or "_", as files that are being written do."""
    return not any(part.startswith((".", "_")) for part in name.split("/"))


class LocalFolder:
    """Files of a local disk.

    Args:
        root: the folder; it may come later.
        settle_s: a file counts when it was not written to for this time; None: each counts.
    """

    threads = 0

    def __init__(self, root: Path, settle_s: float | None) -> None:
        self._root = root
        self._settle_s = settle_s
        self._ahead: dict[str, tuple[int, float]] = {}
        self._settled: dict[str, int] = {}
        """Times of the files of the last listing: they stay settled when the clock is set back, or has come to their times."""
        self._was_there = False
        self.unsettled: list[str] = []

    def find(self, pattern: str) -> Iterator[FoundFile]:
        self.unsettled.clear()
        settle_s, now_ns, now = self._settle_s or 0.0, time.time_ns(), time.monotonic()
        # Of files whose time lies ahead, as after a correction of the clock: since when they have it.
        before, self._ahead, settled = self._ahead, {}, dict[str, int]()

        def is_settled(name: str, modified_ns: int) -> bool:
            if self._settled.get(name) == modified_ns:
                return True
            if settle_s and modified_ns > now_ns:
                known, since = before.get(name, (0, 0.0))
                since = since if known == modified_ns else now
                self._ahead[name] = modified_ns, since
                return now - since >= settle_s
            return not settle_s or modified_ns <= now_ns - int(settle_s * 1e9)

        for folder, below, names in os.walk(self._root, onerror=self._cannot_list):
            self._was_there = True
            # Such as a folder of done files, which grows.
            below[:] = filter(is_visible, below)
            for name in names:
                path = Path(folder, name)
                relative = path.relative_to(self._root).as_posix()
                if fnmatch(name, pattern) and is_visible(relative):
                    try:
                        found = path.stat()
                    except OSError as error:
                        if error.errno not in _NO_FILE:
                            raise
                        # Removed since it was listed, or a link that leads nowhere, such as to itself.
                        continue
                    # To open a pipe would wait for its writer.
                    if not S_ISREG(found.st_mode):
                        continue
                    if is_settled(relative, found.st_mtime_ns):
                        if settle_s:
                            settled[relative] = found.st_mtime_ns
                        yield FoundFile(relative, _identity_of(found), found.st_mtime, found.st_size)
                    else:
                        self.unsettled.append(relative)
        self._settled = settled

    def _cannot_list(self, error: OSError) -> None:
        if isinstance(error, NotADirectoryError) and error.filename == os.fspath(self._root):
            raise _is_file(error.filename) from error
        if not isinstance(error, FileNotFoundError):
            raise error
        if error.filename == os.fspath(self._root) and self._was_there:
            raise _gone(self._root) from error
        # The root has not come yet, or a subfolder was removed since it was listed.

    def identity(self, name: str) -> str:
        return _identity_of((self._root / name).stat())

    def open(self, name: str) -> OpenedFile:
        file = (self._root / name).open("rb")
        return OpenedFile(file, _identity_of(os.fstat(file.fileno())))

    def remove(self, name: str) -> None:
        (self._root / name).unlink()

    def move(self, name: str, target: str) -> None:
        moved = Path(_free(str(local_path(target) / name), os.path.exists))
        moved.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(self._root / name, moved)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # To another disk it is copied, and shows there when it is complete.
            hidden = moved.with_name(f".{moved.name}")
            shutil.copy2(self._root / name, hidden)
            os.rename(hidden, moved)
            os.unlink(self._root / name)


def _gone(root: object) -> TopoEnvironmentError:
    return TopoEnvironmentError(f"folder {str(root)!r} was there and is gone; its files are taken to be there until it is back")


def _is_file(path: str) -> TopoEnvironmentError:
    return TopoEnvironmentError(f"{path!r} is a file; give its folder as the url, and its name as pattern=")


def _identity_of(found: os.stat_result) -> str:
    return f"{found.st_size}:{found.st_mtime_ns}"


def shown_url(url: str | os.PathLike[str]) -> str:
    """Return a path or URL for messages, without a password and without a query, which may have a token."""
    text = os.fspath(url)
    if "://" not in text:
        return text
    # To the last "@": a password that is not escaped may have "/" and "@".
    shown = re.sub(r"(://[^/@:]*):.*@", r"\1:***@", text, flags=re.DOTALL)
    return re.sub(r"\?.*", "?***", shown, flags=re.DOTALL)


def is_remote(url: str) -> bool:
    """Whether it is a URL that needs fsspec, and no path of this machine."""
    return "://" in url and not url.startswith("file://")


def file_system_at(url: str, options: Mapping[str, Any], who: str) -> tuple[Any, str]:
    """Return the file system of a URL, as fsspec has it, and the path there.

    Args:
        who: the class that needs it, for errors.

    Raises:
        ConfigError: fsspec is not installed, or does not know the protocol.
    """
    shown = shown_url(url)
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ConfigError(f"{who} needs fsspec for {shown}: {pip_install(EXTRAS['remote'])}") from error
    try:
        files, root = url_to_fs(url, **options)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"{who} cannot use {shown}: {error}") from error
    return files, root.rstrip("/")


class RemoteFolder:
    """Files at a URL. Stores show an object when it is complete, so each of them counts at once.

    Raises:
        ConfigError: fsspec is not installed, or does not know the protocol.
    """

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._files, self._root = file_system_at(url, options, "FilesSpout")
        # A client that is not asynchronous, such as that of FTP, may be for one thread alone.
        self.threads = _THREADS if self._files.async_impl else 1
        self._was_there = False
        self.unsettled: list[str] = []

    def find(self, pattern: str) -> Iterator[FoundFile]:
        # What another process has written is not in the cache of listings.
        self._files.invalidate_cache()
        try:
            listed = self._files.find(self._root, detail=True)
        except FileNotFoundError as error:
            if self._was_there:
                raise _gone(self._root) from error
            # A missing bucket: for a missing folder of a store nothing is found.
            raise TopoEnvironmentError(f"there is no {self._root!r}, and it is looked for again: {error}") from error
        self._was_there |= bool(listed)
        for path, info in listed.items():
            if path == self._root:
                raise _is_file(path)
            name = path.removeprefix(f"{self._root}/")
            # One whose name ends with "/" marks a folder: consoles of stores make such objects.
            if not path.endswith("/") and fnmatch(name.rpartition("/")[2], pattern) and is_visible(name):
                yield FoundFile(name, _remote_identity(info), _modified(info), info.get("size"))

    def identity(self, name: str) -> str:
        return _remote_identity(self._info(name))

    def open(self, name: str) -> OpenedFile:
        path, info = f"{self._root}/{name}", self._info(name)
        identity, size = _remote_identity(info), info.get("size")
        if size is not None and size <= _WHOLE_BYTES:
            content = self._files.cat_file(path)
            if self.identity(name) == identity:
                return OpenedFile(io.BytesIO(content), identity, is_whole=True)
        return OpenedFile(self._files.open(path, "rb"), identity)

    def _info(self, name: str) -> Mapping[str, Any]:
        # Not as a listing had it before.
        self._files.invalidate_cache()
        info: Mapping[str, Any] = self._files.info(f"{self._root}/{name}")
        return info

    def remove(self, name: str) -> None:
        self._files.rm_file(f"{self._root}/{name}")

    def move(self, name: str, target: str) -> None:
        self._files.invalidate_cache()
        root = self._files._strip_protocol(target).rstrip("/")
        move_file(self._files, f"{self._root}/{name}", _free(f"{root}/{name}", self._files.exists))


def move_file(files: Any, source: str, target: str) -> None:
    """Move a file of a store. Raises FileNotFoundError."""
    from fsspec import AbstractFileSystem

    if getattr(type(files), "mv", None) is AbstractFileSystem.mv:
        # It takes "*", "?" and "[" of a name for a pattern, and would move other files.
        files.cp_file(source, target)
        files.rm_file(source)
    else:
        files.mv(source, target)


def _modified(info: Mapping[str, Any]) -> float:
    value = next((info[key] for key in ("LastModified", "last_modified", "mtime", "created") if info.get(key)), None)
    stamp = value.timestamp() if isinstance(value, datetime) else value
    # A time that lies ahead would make the other files old.
    return min(float(stamp), time.time()) if isinstance(stamp, int | float) else inf


def _remote_identity(info: Mapping[str, Any]) -> str:
    version = next((info[key] for key in ("ETag", "etag", "md5Hash", "LastModified", "mtime", "created") if info.get(key)), "")
    return f"{info.get('size')}:{version}"


def folder_at(url: str | os.PathLike[str], settle_s: float | None, options: Mapping[str, Any]) -> FileFolder:
    """Return the folder at a path or URL."""
    text = os.fspath(url)
    return RemoteFolder(text, options) if is_remote(text) else LocalFolder(local_path(url), settle_s)
