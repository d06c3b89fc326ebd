"""Folders whose names survive a power cut."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from topo.durable import local_path, make_folder, make_folder_of_store, sync_folder

PROC = Path("/proc")


@pytest.mark.skipif(not (PROC / "self").exists(), reason="needs a file system without sync")
def test_the_parent_of_a_folder_may_be_on_a_file_system_without_sync() -> None:
    with pytest.raises(OSError):
        sync_folder(PROC)
    make_folder(PROC / "self")


def test_a_path_is_the_same_as_a_url(tmp_path: Path) -> None:
    for name in ("a b", "ä%", "%20", "100%", "a#b?c"):
        assert local_path((tmp_path / name).as_uri()) == local_path(tmp_path / name) == tmp_path / name
    assert local_path(f"file://{tmp_path}/a b") == tmp_path / "a b" and local_path("a%20b") == Path("a%20b")


def test_a_folder_whose_name_was_a_url_with_percent_signs_stays(tmp_path: Path) -> None:
    (tmp_path / "a%20b").mkdir()
    assert local_path(f"file://{tmp_path}/a%20b") == tmp_path / "a%20b"


def test_a_folder_of_a_store_that_was_removed_is_made_again(tmp_path: Path) -> None:
    files, folder = fsspec.filesystem("file"), tmp_path / "a" / "b"
    for _ in range(2):
        make_folder_of_store(files, str(folder))
        assert folder.is_dir()
        folder.rmdir()


def test_a_folder_that_may_not_be_made_is_refused_where_there_are_folders(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        make_folder_of_store(fsspec.filesystem("file"), str(tmp_path / "file" / "a"))
