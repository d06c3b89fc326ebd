from __future__ import annotations

import os
import signal
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from tests.tasks.environment import CODEC
from topo.errors import TopoEnvironmentError
from topo.ids import TaskId
from topo.wire.codec import join_packed
from topo.worker.crash_marker import CrashMark, CrashMarkerFile, read_marker

SPOUT, BOLT = TaskId(1), TaskId(2)


def packed(*roots: int) -> bytes:
    return array("Q", roots).tobytes()


def test_a_marker_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = CrashMarkerFile(tmp_path / "marker")
    assert read_marker(tmp_path / "marker") is None
    file.write(BOLT, packed(7, 2**64 - 1), [(SPOUT, b"\x92\x01\x02")])
    assert read_marker(tmp_path / "marker") == CrashMark(BOLT, (7, 2**64 - 1), ((SPOUT, b"\x01"), (SPOUT, b"\x02")))
    file.write(BOLT, packed(8), [])
    assert read_marker(tmp_path / "marker") == CrashMark(BOLT, (8,))
    file.close()


def test_a_marker_has_its_disk_space_from_the_start(tmp_path: Path) -> None:
    """A write to a hole of a mapped file ends the process when the disk is full."""
    CrashMarkerFile(tmp_path / "marker", size=1 << 16).close()
    assert (tmp_path / "marker").stat().st_blocks * 512 >= 1 << 16


def test_a_cleared_marker_names_no_tuple(tmp_path: Path) -> None:
    file = CrashMarkerFile(tmp_path / "marker")
    file.write(BOLT, packed(7), [])
    file.clear()
    assert read_marker(tmp_path / "marker") is None
    file.write(BOLT, packed(9), [])
    file.close()
    assert read_marker(tmp_path / "marker") == CrashMark(BOLT, (9,))


def test_a_marker_that_is_too_large_is_cut_and_flagged(tmp_path: Path) -> None:
    file = CrashMarkerFile(tmp_path / "marker", size=4096)
    each = [CODEC.pack_value("p" * 98)] * 20
    positions = [(SPOUT, join_packed(each[:5])), (TaskId(3), join_packed(each[5:]))]
    file.write(BOLT, packed(*range(1, 301)), positions)
    marker = read_marker(tmp_path / "marker")
    assert marker is not None and marker.truncated
    assert marker.roots == tuple(range(1, 301))
    spouts = [SPOUT] * 5 + [TaskId(3)] * 15
    assert 1 <= len(marker.positions) < 20
    assert marker.positions == tuple(zip(spouts, each, strict=True))[: len(marker.positions)]
    file.write(BOLT, packed(*range(1, 1001)), positions)
    marker = read_marker(tmp_path / "marker")
    assert marker == CrashMark(BOLT, tuple(range(1, (4096 - 48) // 8 + 1)), (), truncated=True)
    file.close()


def test_a_torn_or_damaged_marker_is_none(tmp_path: Path) -> None:
    path = tmp_path / "marker"
    file = CrashMarkerFile(path)
    file.write(BOLT, packed(7), [(SPOUT, b"\x91\x07")])
    file.close()
    whole = path.read_bytes()
    # Died before `end` was written.
    path.write_bytes(whole[:8] + bytes(8) + whole[16:])
    assert read_marker(path) is None
    # Shorter than its header, lengths that cannot be, positions that are none.
    torn = whole.replace(b"\x91\x07", b"\x9f\x07")
    for damaged in (b"", whole[:20], whole[:50], whole[:24] + b"\xff" * 8 + whole[32:], whole[:24] + b"\x03" + whole[25:], torn):
        path.write_bytes(damaged)
        assert read_marker(path) is None
    assert read_marker(tmp_path / "missing") is None


def test_a_marker_outlives_a_killed_process(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom topo.worker.crash_marker import CrashMarkerFile\n"
        "CrashMarkerFile(Path(sys.argv[1])).write(5, (42).to_bytes(8, 'little'), [])\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "marker")], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert read_marker(tmp_path / "marker") == CrashMark(TaskId(5), (42,))


def test_a_marker_that_cannot_be_made_is_the_environments_fault(tmp_path: Path) -> None:
    with pytest.raises(TopoEnvironmentError, match="cannot make the marker"):
        CrashMarkerFile(tmp_path / "missing" / "marker")
