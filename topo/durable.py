"""Paths of this machine, and folders whose names survive a power cut."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_FILE = "file://"
_UNSYNCABLE = frozenset((errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EROFS))


def local_path(url: str | os.PathLike[str]) -> Path:
    """Return a path of this machine, which may be given as a URL: `file:///data/my%20files`, as `Path.as_uri` has it."""
    text = os.fspath(url)
    path = Path(text.removeprefix(_FILE))
    # A name with such a sign, that versions before have taken as it is, stays.
    return path if "%" not in text or not text.startswith(_FILE) or path.exists() else Path(unquote(text.removeprefix(_FILE)))


def sync_folder(folder: Path) -> None:
    """Make durable which names a folder has: those that were created, changed or removed in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def unless_unsyncable() -> Iterator[None]:
    """Pass over a folder of others that cannot be synced: it cannot be read, or its file system has no sync."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, durably.

    Another process that has made one of them may have died before it could sync that name, or not have come to it yet. So the
    parent is synced in any case, and each name above it once by each process.

    Args:
        mode: permissions of the folder; its parents get the usual ones.
    """
    changed = [folder.parent]
    while not changed[-1].is_dir():
        changed.append(changed[-1].parent)
    folder.mkdir(mode, parents=True, exist_ok=True)
    *made, older = changed
    for parent in made:
        sync_folder(parent)
    with unless_unsyncable():
        sync_folder(older)
    above = older.absolute()
    for name in (above, *above.parents):
        _sync_name(name)


def make_folder_of_store(files: Any, path: str) -> None:
    """Make a folder of a file system of fsspec's, where it is missing.

    The client of S3 asks for the bucket, and would make it. A user with the rights of one prefix may do neither, and write there:
    a store has no folders to make.
    """
    try:
        files.makedirs(path, exist_ok=True)
    except PermissionError as error:
        # That of a place with folders has a number.
        if error.errno is not None:
            raise


@lru_cache(maxsize=4096)
def _sync_name(folder: Path) -> None:
    with unless_unsyncable():
        sync_folder(folder.parent)
