from __future__ import annotations

import os
import signal
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from topo.errors import EnvironmentFault
from topo.ids import TaskId
from topo.worker.crash_marker import CrashMarkerFile, CrashNote, read_note

SPOUT, BOLT = TaskId(1), TaskId(2)


def packed(*roots: int) -> bytes:
    return array("Q", roots).tobytes()


def test_a_note_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = CrashMarkerFile(tmp_path / "note")
    assert read_note(tmp_path / "note") is None
    file.write(BOLT, packed(7, 2**64 - 1), [(SPOUT, b"\x01"), (SPOUT, b"\x02")])
    assert read_note(tmp_path / "note") == CrashNote(BOLT, (7, 2**64 - 1), ((SPOUT, b"\x01"), (SPOUT, b"\x02")))
    file.write(BOLT, packed(8), [])
    assert read_note(tmp_path / "note") == CrashNote(BOLT, (8,))
    file.close()


def test_a_cleared_note_says_that_nothing_is_in_hand(tmp_path: Path) -> None:
    file = CrashMarkerFile(tmp_path / "note")
    file.write(BOLT, packed(7), [])
    file.clear()
    assert read_note(tmp_path / "note") is None
    file.write(BOLT, packed(9), [])
    file.close()
    assert read_note(tmp_path / "note") == CrashNote(BOLT, (9,))


def test_a_note_that_is_too_large_is_cut_and_says_so(tmp_path: Path) -> None:
    file = CrashMarkerFile(tmp_path / "note", size=4096)
    positions = [(SPOUT, bytes(100))] * 20
    file.write(BOLT, packed(*range(1, 301)), positions)
    note = read_note(tmp_path / "note")
    assert note is not None and note.truncated
    assert note.roots == tuple(range(1, 301))
    assert 1 <= len(note.positions) < 20
    file.write(BOLT, packed(*range(1, 1001)), positions)
    note = read_note(tmp_path / "note")
    assert note == CrashNote(BOLT, tuple(range(1, (4096 - 48) // 8 + 1)), (), truncated=True)
    file.close()


def test_a_torn_or_damaged_note_is_none(tmp_path: Path) -> None:
    path = tmp_path / "note"
    file = CrashMarkerFile(path)
    file.write(BOLT, packed(7), [(SPOUT, b"p")])
    file.close()
    whole = path.read_bytes()
    # Died before `end` was written.
    path.write_bytes(whole[:8] + bytes(8) + whole[16:])
    assert read_note(path) is None
    # Shorter than it says, lengths that cannot be, positions that are none.
    for damaged in (b"", whole[:20], whole[:50], whole[:24] + b"\xff" * 8 + whole[32:], whole[:24] + b"\x03" + whole[25:]):
        path.write_bytes(damaged)
        assert read_note(path) is None
    assert read_note(tmp_path / "missing") is None


def test_a_note_outlives_a_killed_process(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom topo.worker.crash_marker import CrashMarkerFile\n"
        "CrashMarkerFile(Path(sys.argv[1])).write(5, (42).to_bytes(8, 'little'), [])\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path / "note")], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert read_note(tmp_path / "note") == CrashNote(TaskId(5), (42,))


def test_a_note_that_cannot_be_made_is_the_environments_fault(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="cannot make the note"):
        CrashMarkerFile(tmp_path / "missing" / "note")
