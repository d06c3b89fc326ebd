from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest

from tests.full_disk import full_disk
from topo.launch.exits import count_oom_kills, describe_exit, tail_of, why_wordless

FAULT = f"""Fatal Python error: Segmentation fault

Thread 0x00007e (most recent call first):
  File "{threading.__file__}", line 355 in wait

Current thread 0x00007f (most recent call first):
  File "{ctypes.__file__}", line 519 in string_at
  File "/home/me/words.py", line 12 in execute
  File "/home/me/other.py", line 3 in run
"""
FROZEN = f"""Current thread 0x00007f (most recent call first):
  File "{ctypes.__file__}", line 519 in string_at
  File "<frozen runpy>", line 88 in _run_code
"""
NO_THREAD = """Resource temporarily unavailable (src/thread.cpp:241)
Fatal Python error: Aborted

Current thread 0x00007f (most recent call first):
  File "/home/me/words.py", line 12 in execute
"""
LIBRARY_FAULT = f"""Current thread 0x00007f (most recent call first):
  File "{ctypes.__file__}", line 519 in string_at
"""


@pytest.mark.parametrize(
    ("code", "last_words", "oom_killed", "described"),
    [
        (0, "", False, "exited"),
        (-9, "", False, "killed by signal 9 (SIGKILL)"),
        (-9, "", True, "killed by signal 9 (SIGKILL), out of memory: the kernel ended it"),
        (-15, "noise", True, "killed by signal 15 (SIGTERM)"),
        (-11, FAULT, False, "killed by signal 11 (SIGSEGV) in /home/me/words.py, line 12"),
        (-11, LIBRARY_FAULT, False, f"killed by signal 11 (SIGSEGV) in {ctypes.__file__}, line 519"),
        (-11, FROZEN, False, f"killed by signal 11 (SIGSEGV) in {ctypes.__file__}, line 519"),
        (
            -6,
            NO_THREAD,
            False,
            "killed by signal 6 (SIGABRT): Resource temporarily unavailable (src/thread.cpp:241); no more processes or threads "
            "may be started: see ulimit -u, and the limit of the container",
        ),
        (
            -6,
            NO_THREAD.replace("Resource temporarily unavailable", "Invalid argument"),
            False,
            "killed by signal 6 (SIGABRT): Invalid argument (src/thread.cpp:241)",
        ),
        (-11, "Current thread 0x0 (most recent call first):\n  <no Python frame>", False, "killed by signal 11 (SIGSEGV)"),
        (-63, "", False, "killed by signal 63 (unknown)"),
        (1, "", False, "exit code 1"),
        (1, "Traceback\n  File\nValueError: odd\n\n", False, "exit code 1: ValueError: odd"),
        (1, "Traceback\nMemoryError", False, "exit code 1, out of memory: MemoryError"),
        (137, "", False, "exit code 137 (signal 9, SIGKILL, in a child process)"),
        (255, "", False, "exit code 255"),
    ],
)
def test_an_exit_is_told_in_words(code: int, last_words: str, oom_killed: bool, described: str) -> None:
    assert describe_exit(code, last_words, oom_killed) == described


def test_the_tail_of_a_file_begins_where_its_process_did(tmp_path: Path) -> None:
    path = tmp_path / "out"
    assert tail_of(path) == ""
    path.write_bytes(b"old\nnew\xff\n")
    assert tail_of(path, 4) == "new\N{REPLACEMENT CHARACTER}\n"
    path.write_bytes(b"x" * 100_000 + b"end")
    assert len(tail_of(path)) < 10_000 and tail_of(path).endswith("xend")


def test_oom_kills_are_counted_or_none() -> None:
    assert count_oom_kills() >= 0


def test_a_failure_without_words_on_a_full_disk_names_the_disk(tmp_path: Path) -> None:
    output = tmp_path / "worker-1.out"
    with full_disk():
        words = why_wordless(output)
    assert describe_exit(6, words) == f"exit code 6: no last words, since nothing can be written to {output}: File too large"
    with full_disk(100):
        assert why_wordless(output), "the last bytes of a disk take no words"
    assert why_wordless(output) == ""
    assert output.read_bytes() == b""
