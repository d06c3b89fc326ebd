"""The files of a local table, as pyiceberg writes them, but synced: a catalog must not name metadata that a power cut empties."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from topo.durable import make_folder, sync_folder


def folder_at(location: str) -> Path | None:
    """Return the path of a local location as pyiceberg takes it; None for a place that is not local."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        return None
    return Path(parts.netloc + parts.path if parts.scheme else location).absolute()


class _SyncedStream:
    """A stream whose file is durable when it is closed."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream, self._path = stream, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _SyncedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and sync it and its folder."""
        self._stream.close()
        file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)
        sync_folder(self._path.parent)


class _SyncedFile(PyArrowFile):  # type: ignore[misc]
    def create(self, overwrite: bool = False) -> Any:
        path = folder_at(self.location)
        if path is None:
            return super().create(overwrite)
        make_folder(path.parent)
        return _SyncedStream(super().create(overwrite), path)


class DurableFileIO(PyArrowFileIO):  # type: ignore[misc]
    """pyiceberg's files through pyarrow; those of a local disk are synced."""

    def new_output(self, location: str) -> OutputFile:
        """Return a file to be written."""
        file = super().new_output(location)
        return _SyncedFile(file.location, file._path, file._filesystem, file._buffer_size)
