"""Describes the end of a process, and bounds the file of its output."""

from __future__ import annotations

import errno
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

from topo.master.links import ENDED_WELL
from topo.user_code.files import is_installed

_SHELL_SIGNAL = 128
_TAIL_BYTES = 8192
_MAX_OUTPUT_BYTES = 4 * 1024 * 1024
_CRASHED_THREAD = re.compile(r"Current thread .*most recent call first\):\n((?:  File .*\n?)+)")
_ABORT = re.compile(r"^(.+ \(src/\w+\.[ch]pp:\d+\))\s*^Fatal Python error: Aborted", re.MULTILINE)
"""The words of libzmq when it ends the process."""
NO_PROCESS = "; no more processes or threads may be started: see ulimit -u, and the limit of the container"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def describe_exit(code: int, last_words: str = "", oom_killed: bool = False) -> str:
    """Say how a process ended.

    Args:
        code: as `subprocess` gives it: the exit code, or the negative number of the signal that killed it.
        last_words: the end of its standard error.
        oom_killed: the kernel has killed something for want of memory while the process ran.
    """
    if code < 0:
        described = f"killed by signal {-code} ({_signal_name(-code)})"
        if code == -signal.SIGKILL and oom_killed:
            return f"{described}, out of memory: the kernel ended it"
        return described + (_reason_of_abort(last_words) or _place_of_crash(last_words))
    if code == 0:
        return ENDED_WELL
    described = f"exit code {code}"
    if code > _SHELL_SIGNAL and (name := _signal_name(code - _SHELL_SIGNAL)) != "unknown":
        described += f" (signal {code - _SHELL_SIGNAL}, {name}, in a child process)"
    lines = last_words.strip().splitlines()
    if not lines:
        return described
    if lines[-1].startswith("MemoryError"):
        return f"{described}, out of memory: {lines[-1]}"
    return f"{described}: {lines[-1].strip()[:300]}"


def _reason_of_abort(last_words: str) -> str:
    aborts = _ABORT.findall(last_words)
    if not aborts:
        return ""
    return f": {aborts[-1]}{NO_PROCESS if aborts[-1].startswith(os.strerror(errno.EAGAIN)) else ''}"


def _place_of_crash(last_words: str) -> str:
    """Say where the thread was that crashed: in the innermost code that is neither topo's nor a library's, if there is any."""
    thread = _CRASHED_THREAD.search(last_words)
    frames = _FRAME.findall(thread[1]) if thread else []
    own = [frame for frame in frames if not frame[0].startswith("<") and not is_installed(Path(frame[0]))]
    return " in {}, line {}".format(*(own or frames)[0]) if frames else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def tail_of(path: Path, begin: int = 0) -> str:
    """The end of a file behind its first `begin` bytes; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(begin, end - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def why_wordless(output: Path) -> str:
    """Say why a process that has failed has left no words in its output, if no room is left there for them; else ""."""
    size = output.stat().st_size if output.exists() else 0
    try:
        with output.open("ab") as file:
            file.write(bytes(_TAIL_BYTES))
    except OSError as error:
        return f"no last words, since nothing can be written to {output}: {error.strerror}"
    finally:
        with suppress(OSError):
            os.truncate(output, size)
    return ""


def count_oom_kills() -> int:
    """How often the kernel has killed a process for want of memory: in this control group, or else on the machine."""
    try:
        group = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        counters = Path("/sys/fs/cgroup" + group.removeprefix("0::"), "memory.events").read_text()
    except (OSError, StopIteration):
        try:
            counters = Path("/proc/vmstat").read_text()
        except OSError:
            return 0
    return next((int(line.split()[1]) for line in counters.splitlines() if line.startswith("oom_kill ")), 0)


def bound_output(output: Path) -> int:
    """Keep a file that has grown too large as `NAME.1`, before a process appends to it; return where its output begins."""
    size = output.stat().st_size if output.exists() else 0
    if size <= _MAX_OUTPUT_BYTES:
        return size
    output.replace(output.with_name(f"{output.name}.1"))
    return 0
