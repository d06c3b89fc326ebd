"""A power cut for the files of a process: it takes what `os.fsync` has not made durable.

Content is durable when the file was synced, and names are when their folder was. Either may have reached the disk without that.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

Tree = dict[str, "Tree | bytes"]


class Loss(Enum):
    """Which of the unsynced changes a power cut takes."""

    ALL = "names and content"
    NAMES = "names alone"
    CONTENT = "content alone"


@dataclass
class PowerCut:
    """Notes the syncs of the process below a folder, and can remove everything else.

    Args:
        folder: all that it has at first is durable.
    """

    folder: Path
    loss: Loss
    _contents: dict[int, bytes] = field(default_factory=dict)
    _names: dict[int, dict[str, int]] = field(default_factory=dict)
    _files: dict[int, int] = field(default_factory=dict)
    """By inode a descriptor: it keeps the number from being used again."""

    def install(self) -> None:
        """Note what this process syncs from now on; it cannot be undone."""
        for path in (self.folder, *self.folder.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self._sync(descriptor)
            os.close(descriptor)
        plain = os.fsync

        def noted_sync(file: Any) -> None:
            plain(file)
            self._sync(file if isinstance(file, int) else file.fileno())

        os.fsync = noted_sync

    def cut(self) -> None:
        """Replace the content of the folder by the durable one; databases of SQLite sync by calls that are not seen here."""
        left = self._folder_left(self._keep(self.folder))
        left |= {path.name: path.read_bytes() for path in self.folder.glob("*.db*")}
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        _make(self.folder, left)

    def _sync(self, descriptor: int) -> None:
        inode = os.fstat(descriptor).st_ino
        own = Path(f"/proc/self/fd/{descriptor}")
        if not own.readlink().is_relative_to(self.folder):
            # A folder above, in which others make and remove files meanwhile.
            return
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._names[inode] = self._names_now(own)
        else:
            self._keep(own)
            self._contents[inode] = own.read_bytes()

    def _names_now(self, folder: Path) -> dict[str, int]:
        return {name: self._keep(folder / name) for name in os.listdir(folder)}

    def _keep(self, path: Path) -> int:
        descriptor = os.open(path, os.O_PATH)
        inode = os.fstat(descriptor).st_ino
        if self._files.setdefault(inode, descriptor) != descriptor:
            os.close(descriptor)
        return inode

    def _folder_left(self, inode: int) -> Tree:
        names = self._names.get(inode, {})
        if self.loss is Loss.CONTENT and self._is_linked(inode):
            names = self._names_now(self._path(inode))
        return {name: self._left(child) for name, child in names.items()}

    def _left(self, inode: int) -> Tree | bytes:
        if stat.S_ISDIR(os.fstat(self._files[inode]).st_mode):
            return self._folder_left(inode)
        if self.loss is Loss.NAMES:
            # The file may be gone, so it is read by its descriptor.
            return self._path(inode).read_bytes()
        return self._contents.get(inode, b"")

    def _is_linked(self, inode: int) -> bool:
        return os.fstat(self._files[inode]).st_nlink > 0

    def _path(self, inode: int) -> Path:
        return Path(f"/proc/self/fd/{self._files[inode]}")


def _make(folder: Path, tree: Tree) -> None:
    for name, content in tree.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).mkdir()
            _make(folder / name, content)
