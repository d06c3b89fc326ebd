"""Folders whose names survive a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from topo.durable import make_folder, sync_folder

PROC = Path("/proc")


@pytest.mark.skipif(not (PROC / "self").exists(), reason="needs a file system without sync")
def test_the_parent_of_a_folder_may_be_on_a_file_system_without_sync() -> None:
    with pytest.raises(OSError):
        sync_folder(PROC)
    make_folder(PROC / "self")
