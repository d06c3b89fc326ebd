"""Faults planted into how files are made durable, one at a time. Undone by `monkeypatch`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from topo.errors import TopoEnvironmentError
from topo.storage import files
from topo.storage.checkpoint_store import CheckpointStore
from topo.storage.files import FileSystem, LocalFiles, NewFile

Plant = Callable[[pytest.MonkeyPatch], None]


def content_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A part or a manifest gets its name before its content is durable."""

    def keep(self: NewFile) -> None:
        self._file.close()
        self._system.rename(self._temporary, self._path)
        self._system.sync_folder(self._path.parent)

    patch.setattr(NewFile, "keep", keep)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The name of a part or a manifest is not durable when it is reported."""

    def keep(self: NewFile) -> None:
        self._system.sync(self._file)
        self._file.close()
        self._system.rename(self._temporary, self._path)

    patch.setattr(NewFile, "keep", keep)


def folders_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The folder of a checkpoint is made, and its name is not durable."""

    def make_one(folder: Path, system: FileSystem) -> None:
        system.make_folder(folder)

    patch.setattr(files, "_make_one", make_one)


def removals_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """A manifest that is removed comes back with the next power cut."""

    def remove(self: LocalFiles, name: str) -> None:
        try:
            self._system.remove(self._root / name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise TopoEnvironmentError(f"cannot remove {name}") from error

    patch.setattr(LocalFiles, "remove", remove)


def a_root_that_was_not_synced_stays_so(patch: pytest.MonkeyPatch) -> None:
    """The folder of all checkpoints, whose sync has failed, is taken to be durable by the next write."""
    keep = LocalFiles._keep_root

    def keep_root(self: LocalFiles) -> None:
        if not self._system.is_folder(self._root):
            keep(self)

    patch.setattr(LocalFiles, "_keep_root", keep_root)


def a_failed_commit_is_not_discarded(patch: pytest.MonkeyPatch) -> None:
    """A manifest whose write has failed is left where it may be."""

    def discard(self: CheckpointStore, checkpoint: int) -> None:
        with suppress(TopoEnvironmentError):
            self._files.remove_folder(f"{checkpoint:010d}/none")

    patch.setattr(CheckpointStore, "discard", discard)


def restored_manifests_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A master restores a manifest that its predecessor may not have synced, and does not sync it either."""
    patch.setattr(CheckpointStore, "keep", lambda _self, _checkpoint: None)


PLANTS: dict[Plant, tuple[set[int], tuple[int, ...]]] = {
    content_is_not_synced: ({3}, (0,)),
    names_are_not_synced: ({3}, (0,)),
    folders_are_not_synced: ({3}, (0,)),
    removals_are_not_synced: ({3}, (96,)),
    a_root_that_was_not_synced_stays_so: ({3}, (1,)),
    a_failed_commit_is_not_discarded: ({3}, (96,)),
}
"""Each planted fault with the oracles that may catch it, and seeds that have: they are tried first, then all the others."""
