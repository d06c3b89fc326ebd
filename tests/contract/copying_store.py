"""A store on the local disk, for fsspec: files show as a whole, and there is no rename: a move is a copy and a removal."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

STORE = "copying"


class _Upload(io.BytesIO):
    """Shows its file when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        try:
            if not self.closed:
                _put(self._path, self.getvalue())
        finally:
            super().close()


def _put(path: str, data: bytes) -> None:
    # Above the sink's folder, where it is not listed.
    waiting = f"{path.partition('/out/')[0]}/{Path(path).name}.upload"
    file = os.open(waiting, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(file, data)
    os.close(file)
    os.rename(waiting, path)


class CopyingFiles(LocalFileSystem):
    protocol = STORE
    mv = AbstractFileSystem.mv

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(os.fspath(path).removeprefix(f"{STORE}://"))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        return _Upload(path) if mode == "wb" else super()._open(path, mode, **options)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        _put(path2, Path(path1).read_bytes())

    def rm(self, path: str, *_: Any, **__: Any) -> None:
        os.unlink(path)

    rm_file = rm


fsspec.register_implementation(STORE, CopyingFiles, clobber=True)
