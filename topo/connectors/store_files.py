"""The store of a table, through the client of the table itself, as much of a file system as staged files need."""

from __future__ import annotations

from typing import Any

from pyarrow.fs import FileSelector, FileSystem, FileType

_BUFFER = 16 << 20
"""Above the size of a write: only a buffered stream gives the client the bytes that it takes."""


class StoreFiles:
    """The files of a store, by their paths there; the methods are those of fsspec that `RemotePlace` calls."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def invalidate_cache(self) -> None:
        """Do nothing: nothing is kept."""

    def makedirs(self, path: str, *, exist_ok: bool) -> None:
        """Do nothing: a store has no empty folders."""

    def open(self, path: str, mode: str) -> Any:
        """Open a file. Raises FileNotFoundError."""
        if mode == "wb":
            return self._files.open_output_stream(path, buffer_size=_BUFFER)
        if not self.exists(path):
            raise FileNotFoundError(path)
        return self._files.open_input_stream(path)

    def exists(self, path: str) -> bool:
        """Whether there is a file."""
        return bool(self._files.get_file_info(path).type == FileType.File)

    def ls(self, path: str, *, detail: bool) -> list[str]:
        """Return the paths of the files of a folder."""
        assert not detail
        return [found.path for found in self._files.get_file_info(FileSelector(path, allow_not_found=True))]

    def mv(self, source: str, target: str) -> None:
        """Rename a file. Raises FileNotFoundError."""
        # A store copies and removes; the copy of a missing file has an error that depends on the store.
        if not self.exists(source):
            raise FileNotFoundError(source)
        self._files.move(source, target)

    def rm_file(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        if self.exists(path):
            self._files.delete_file(path)
