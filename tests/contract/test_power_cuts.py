"""Stored files survive a power cut, also when a step of an earlier attempt has failed: on a file system that forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.children import run_child
from tests.contract.power import Loss, PowerCut
from tests.simulator.memory_files import MemoryFileSystem, WriteEnding
from topo.durable import make_folder
from topo.errors import TopoEnvironmentError
from topo.storage.files import LocalFiles

ROOT = Path("home/checkpoints")


def left(system: MemoryFileSystem) -> LocalFiles:
    """Return the files that would certainly be left after a power cut."""
    return LocalFiles(ROOT, system.after_power_cut())


@pytest.fixture
def system() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_folder(Path("home"))
    made.sync_folder(Path())
    return made


def test_a_written_file_is_left(system: MemoryFileSystem) -> None:
    LocalFiles(ROOT, system).write("0001/part", [b"some ", b"bytes"])
    assert left(system).read("0001/part") == b"some bytes"


def test_a_removed_file_stays_removed(system: MemoryFileSystem) -> None:
    files = LocalFiles(ROOT, system)
    files.write("0001/part", [b"bytes"])
    files.remove("0001/part")
    assert left(system).names("0001") == []


def test_a_file_is_left_whose_root_could_not_be_synced_at_first(system: MemoryFileSystem) -> None:
    files = LocalFiles(ROOT, system)
    system.ending = WriteEnding.WHOLE
    with pytest.raises(TopoEnvironmentError):
        files.write("0001/part", [b"bytes"])
    system.ending = None
    files.write("0002/part", [b"bytes"])
    assert left(system).read("0002/part") == b"bytes"


def test_a_file_is_left_whose_root_was_made_by_a_process_that_died(system: MemoryFileSystem) -> None:
    system.make_folder(ROOT)
    LocalFiles(ROOT, system).write("0001/part", [b"bytes"])
    assert left(system).read("0001/part") == b"bytes"


def test_a_file_is_left_whose_root_is_in_a_folder_that_was_made_by_a_process_that_died(system: MemoryFileSystem) -> None:
    root = Path("home/savepoints/1")
    system.make_folder(root.parent)
    LocalFiles(root, system).write("0001/part", [b"bytes"])
    assert LocalFiles(root, system.after_power_cut()).read("0001/part") == b"bytes"


def test_a_removal_that_could_not_be_synced_is_synced_when_it_is_repeated(system: MemoryFileSystem) -> None:
    files = LocalFiles(ROOT, system)
    files.write("0001/part", [b"bytes"])
    system.ending = WriteEnding.WHOLE
    with pytest.raises(TopoEnvironmentError):
        files.remove("0001/part")
    system.ending = None
    files.remove("0001/part")
    assert left(system).names("0001") == []


def test_a_folder_is_left_whose_parents_were_made_by_a_process_that_died(tmp_path: Path) -> None:
    """That process may also live, as another task of the sink does, and be about to sync them."""

    def work() -> None:
        make_folder(tmp_path / "day=1" / "hour=1" / "one")
        power = PowerCut(tmp_path, Loss.ALL)
        power.install()
        (tmp_path / "day=2" / "hour=2").mkdir(parents=True)
        make_folder(tmp_path / "day=2" / "hour=2" / "one")
        power.cut()
        assert (tmp_path / "day=2" / "hour=2" / "one").is_dir()

    assert run_child(work) == 0
