"""A file system in memory that forgets at a power cut all that is not synced: content until `sync`, names until `sync_folder`.

It is the `FileSystem` of `topo.storage.files`, so the real `LocalFiles` works on it. Steps can be made to fail.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from typing import BinaryIO


class WriteEnding(Enum):
    """How a write or a removal fails."""

    NOTHING = "nothing was written"
    TORN = "a part was written"
    WHOLE = "everything was written, and reported as failed"


@dataclass(slots=True)
class File:
    """A file.

    Attributes:
        content: what a reader finds.
        synced: the content after a power cut.
    """

    content: bytes = b""
    synced: bytes = b""


@dataclass(slots=True)
class Folder:
    """A folder.

    Attributes:
        entries: files and folders by name.
        synced: the names that are left after a power cut.
        gone: names that were removed since, and may have reached the disk by themselves before that.
    """

    entries: dict[str, File | Folder] = field(default_factory=dict)
    synced: dict[str, File | Folder] = field(default_factory=dict)
    gone: dict[str, File | Folder] = field(default_factory=dict)

    def lose_power(self, draw: Callable[[], bool]) -> None:
        """Forget all that is not synced; `draw` decides for each file and folder whether it has reached the disk nevertheless."""
        if not draw():
            self.entries = dict(self.synced)
        for entry in self.entries.values():
            if isinstance(entry, Folder):
                entry.lose_power(draw)
            elif not draw():
                entry.content = entry.synced
        self.sync()

    def sync(self) -> None:
        """Make the names durable."""
        self.synced, self.gone = dict(self.entries), {}

    def remove(self, name: str) -> File | Folder:
        """Take a name away."""
        entry = self.gone[name] = self.entries.pop(name)
        return entry

    def after_power_cut(self) -> Folder:
        """Return a copy as after a power cut, with synced content and names alone."""
        left: dict[str, File | Folder] = {
            name: entry.after_power_cut() if isinstance(entry, Folder) else File(entry.synced)
            for name, entry in self.synced.items()
        }
        return Folder(left)


class _Writing(io.BytesIO):
    """An open file; readers see its content at once."""

    def __init__(self, file: File, is_torn: bool) -> None:
        super().__init__()
        self.file = file
        self._is_torn = is_torn

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self._is_torn:
            self.file.content += data[: len(data) // 2]
            raise _failed("a write")
        self.file.content += data
        return len(data)


def _failed(what: str) -> OSError:
    return OSError(errno.EIO, f"Input/output error in {what}")


class MemoryFileSystem:
    """Files in memory.

    Attributes:
        ending: how the next steps fail; None: they do not.
        is_dying: the process that works on them dies where they fail, so that it cannot remove a temporary file.
    """

    def __init__(self, root: Folder | None = None) -> None:
        self.root = root or Folder()
        self.ending: WriteEnding | None = None
        self.is_dying = False

    def lose_power(self, random: Random) -> None:
        """Forget all that is not synced, but for some of it that has reached the disk by chance."""
        chance = random.choice((0.0, 0.0, 0.5))
        self.root.lose_power(lambda: random.random() < chance)

    def after_power_cut(self) -> MemoryFileSystem:
        """Return what would certainly be left of it after a power cut."""
        return MemoryFileSystem(self.root.after_power_cut())

    def may_be_left(self, path: Path) -> bool:
        """Whether a power cut may leave a file or folder: also by undoing its removal."""
        found: list[File | Folder] = [self.root]
        for name in path.parts:
            folders = [folder for folder in found if isinstance(folder, Folder)]
            ways = [way for folder in folders for way in (folder.entries, folder.synced, folder.gone)]
            found = [way[name] for way in ways if name in way]
        return bool(found)

    def find(self, path: Path) -> File | Folder:
        """Return a file or a folder. Raises FileNotFoundError."""
        found: File | Folder = self.root
        for name in path.parts:
            if not isinstance(found, Folder) or name not in found.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            found = found.entries[name]
        return found

    # -- FileSystem --------------------------------------------------------------------------------------------------------

    def create(self, path: Path) -> _Writing:
        if self.ending is WriteEnding.NOTHING:
            raise _failed("creating a file")
        file = self._folder(path.parent).entries[path.name] = File()
        return _Writing(file, self.ending is WriteEnding.TORN)

    def sync(self, file: BinaryIO) -> None:
        assert isinstance(file, _Writing)
        file.file.synced = file.file.content

    def rename(self, path: Path, name: Path) -> None:
        self._folder(name.parent).entries[name.name] = self._folder(path.parent).remove(path.name)

    def sync_folder(self, path: Path) -> None:
        if self.ending is not None:
            raise _failed("syncing a folder")
        self._folder(path).sync()

    def is_folder(self, path: Path) -> bool:
        try:
            return isinstance(self.find(path), Folder)
        except FileNotFoundError:
            return False

    def make_folder(self, path: Path) -> None:
        self._folder(path.parent).entries.setdefault(path.name, Folder())

    def read(self, path: Path, start: int, length: int | None) -> bytes:
        file = self.find(path)
        assert isinstance(file, File)
        return file.content[start : None if length is None else start + length]

    def names(self, path: Path) -> list[str]:
        return list(self._folder(path).entries)

    def remove(self, path: Path) -> None:
        self.find(path)
        if self.is_dying or self.ending is WriteEnding.NOTHING:
            raise _failed("removing a file")
        self._folder(path.parent).remove(path.name)

    def remove_folder(self, path: Path) -> None:
        self.find(path)
        if self.ending is not None:
            raise _failed("removing a folder")
        self._folder(path.parent).remove(path.name)

    def _folder(self, path: Path) -> Folder:
        folder = self.find(path)
        assert isinstance(folder, Folder)
        return folder
