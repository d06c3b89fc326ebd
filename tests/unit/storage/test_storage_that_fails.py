"""Storage that cannot be written, and who may read it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.storage.checkpoint_files import complete, write
from topo.errors import CheckpointMissingError, TopoEnvironmentError
from topo.storage.checkpoint_store import open_store
from topo.storage.files import LocalFiles, RemoteFiles, open_files


def test_a_folder_that_cannot_be_written_is_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = open_store(str(tmp_path / "file" / "checkpoints"), "words")
    with pytest.raises(TopoEnvironmentError, match=r"cannot write .*task-00001\.part"):
        write(store, 1)


@pytest.mark.parametrize("makes_root", [True, False])
def test_a_root_that_was_removed_is_not_made_again(tmp_path: Path, makes_root: bool) -> None:
    """It may lie in the folder of another run by then."""
    root = tmp_path / "run" / "checkpoints"
    LocalFiles(root).make_root()
    files = LocalFiles(root, makes_root=makes_root)
    files.write("0001/part", [b"bytes"])
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(TopoEnvironmentError, match="cannot write"):
        files.write("0002/part", [b"bytes"])
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_no_torn_file(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    files.write("a/whole", [b"before"])

    def chunks() -> Iterator[bytes]:
        yield bytes(100)
        raise OSError(28, "No space left on device")

    with pytest.raises(TopoEnvironmentError, match="No space left on device"):
        files.write("a/whole", chunks())
    assert files.read("a/whole") == b"before"
    assert files.names("a") == ["whole"]


@pytest.mark.parametrize(("name", "other"), [("run[1]", "run1"), ("run*", "run-2"), ("run?", "run3")])
def test_a_url_that_looks_like_a_pattern_reaches_no_other_folder(tmp_path: Path, name: str, other: str) -> None:
    own, others = (open_files(f"memory://{tmp_path.name}/{one}") for one in (name, other))
    others.write("1/part", [b"others"])
    own.write("1/part", [b"own"])
    assert own.names("1") == ["part"]
    assert own.read("1/part") == b"own"
    own.remove_folder("1")
    own.remove_folder("1")
    assert own.names("1") == []
    assert others.read("1/part") == b"others"


def test_what_is_written_is_private(tmp_path: Path) -> None:
    complete(open_store(str(tmp_path / "checkpoints"), "words"), 1)
    modes = {path.stat().st_mode & 0o077 for path in (tmp_path / "checkpoints").rglob("*")}
    assert modes == {0}


def test_a_url_of_an_unknown_kind_is_refused_when_the_store_is_opened() -> None:
    with pytest.raises(TopoEnvironmentError, match="cannot use nosuch://bucket/a"):
        open_files("nosuch://bucket/a/")


def test_a_store_that_refuses_the_connection_is_an_environment_fault() -> None:
    with pytest.raises(TopoEnvironmentError, match=r"cannot use ftp://127.0.0.1:1/a: .*Connection refused"):
        open_files("ftp://127.0.0.1:1/a")


def test_a_password_in_a_url_is_not_shown() -> None:
    with pytest.raises(TopoEnvironmentError, match=r"cannot use nosuch://me:\*\*\*@host/a") as refused:
        open_files("nosuch://me:secret@host/a")
    store = open_store("memory://me:secret@host/a", "words")
    with pytest.raises(CheckpointMissingError, match=r"in memory://me:\*\*\*@host/a") as missing:
        store.load(1)
    store._files._system = None  # type: ignore[attr-defined]
    with pytest.raises(TopoEnvironmentError, match=r"cannot write memory://me:\*\*\*@host/a/") as broken:
        write(store, 1)
    assert not any("secret" in str(error.value) for error in (refused, missing, broken))


def test_a_local_path_needs_no_fsspec(tmp_path: Path) -> None:
    assert isinstance(open_files(str(tmp_path)), LocalFiles)
    assert isinstance(open_files(f"file://{tmp_path}"), LocalFiles)
    assert isinstance(open_files("memory://somewhere"), RemoteFiles)
