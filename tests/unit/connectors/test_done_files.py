"""Files that a `FilesSpout` deletes or moves when all of them is done."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.unit.connectors.files_harness import harness_of
from topo import FilesSpout
from topo.connectors.file_folders import folder_at
from topo.errors import ConfigError


def test_a_file_is_deleted_when_all_of_it_is_done_and_forgotten_then(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "empty").write_text("")
    harness = harness_of(tmp_path, on_done="delete")
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "nothing of it is committed"
    harness.tasks[0].commit()
    assert list(tmp_path.iterdir()) == []
    harness.discover()
    harness.discover()
    assert harness.tasks[0].stored() == {} and harness.errors == []
    (tmp_path / "a").write_text("3\n")
    harness.discover()
    assert harness.read == {"a": ["1", "2", "3"]}


def test_a_file_is_moved_when_all_of_it_is_done_and_replaces_none(tmp_path: Path) -> None:
    for name in ("in/a", "in/sub/b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    harness = harness_of(tmp_path / "in", on_done=f"move:{tmp_path / 'in' / '_done'}")
    assert sorted(harness.read) == ["a", "sub/b"]
    harness.tasks[0].commit()
    for _ in range(2):
        harness.discover()
    (tmp_path / "in/a").write_text("2\n")
    harness.discover()
    harness.tasks[0].commit()
    files = {path.relative_to(tmp_path / "in").as_posix(): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"_done/a": "1\n", "_done/a.1": "2\n", "_done/sub/b": "1\n"}
    assert harness.read == {"a": ["1", "2"], "sub/b": ["1"]} and harness.errors == []


def test_files_are_not_moved_into_their_own_folder_by_another_path_to_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for target in (tmp_path / "out" / ".." / "in" / "done", tmp_path / "link" / "done"):
        with pytest.raises(ConfigError, match="would be read again"):
            FilesSpout(tmp_path / "in", on_done=f"move:{target}")
    FilesSpout(tmp_path / "in", on_done=f"move:{tmp_path / 'in' / '..' / 'done'}")


def test_a_file_that_a_former_life_has_read_is_deleted_by_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    harness = harness_of(tmp_path, on_done="delete")
    harness.stop()
    harness.start(1)
    harness.tasks[0].commit()
    harness.turns()
    assert list(tmp_path.iterdir()) == [] and harness.read == {"a": ["1", "2"]}


def test_a_file_that_cannot_be_moved_is_moved_when_that_is_possible(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, target = tmp_path / "in", tmp_path / "done"
    source.mkdir()
    (source / "a").write_text("1\n")
    # No folder can be made there.
    target.write_text("")
    harness = harness_of(source, on_done=f"move:{target}")
    harness.tasks[0].commit()
    harness.discover()
    assert (source / "a").exists() and caplog.text.count("cannot be removed") == 1
    target.unlink()
    harness.discover()
    assert (target / "a").read_text() == "1\n" and not (source / "a").exists() and harness.read == {"a": ["1"]}


def test_files_at_a_url_are_moved_within_their_store(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    files.pipe("/moved/in/a", b"1\n")
    harness = harness_of("memory://moved/in", on_done="move:memory://moved/done")
    harness.tasks[0].commit()
    assert files.find("/moved") == ["/moved/done/a"] and files.cat("/moved/done/a") == b"1\n"


def test_a_file_that_is_moved_to_another_disk_shows_when_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename, (source, target) = os.rename, (tmp_path / "in", tmp_path / "done")

    def other_disk(old: Any, new: Any) -> None:
        if source in Path(old).parents and target in Path(new).parents:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(old, new)

    monkeypatch.setattr(os, "rename", other_disk)
    source.mkdir()
    (source / "a").write_bytes(bytes(1 << 16))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            folder_at(source, None, {}).move("a", str(target))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (target / "a").exists() and (source / "a").exists()
    folder_at(source, None, {}).move("a", str(target))
    assert [path.name for path in target.iterdir()] == ["a"] and (target / "a").stat().st_size == 1 << 16
    assert not (source / "a").exists()


def test_a_name_with_signs_of_a_pattern_is_moved_and_no_other_file_of_the_store(tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    for name in ("a[1]", "a1", "b*", "b2"):
        files.pipe(f"/signs/in/{name}", name.encode())
    folder = folder_at("memory://signs/in", None, {})
    for name in ("a[1]", "b*"):
        folder.move(name, "memory://signs/done")
    assert files.find("/signs") == ["/signs/done/a[1]", "/signs/done/b*", "/signs/in/a1", "/signs/in/b2"]
