"""Calling `topo` in tests: inside the test's process, through pipes, and on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from topo_cli.main import main

TOPO = (sys.executable, "-m", "topo_cli")
PATIENCE_S = 60.0
EXAMPLES = Path(__file__).parents[2] / "topologies"

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Result:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Result:
    """Call `topo` in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return Result(ended.value.code, printed.out, printed.err)


def piped(*arguments: object, **options: Any) -> Result:
    """Call `topo` in a separate process, through pipes."""
    done = subprocess.run(
        [*TOPO, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
        **options,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def _take_terminal() -> None:
    """Make the terminal this process's own. A shell that started the tests in the background has them ignore Ctrl-C."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """`topo` on its own terminal, as a person uses it."""

    def __init__(self, *arguments: object, columns: int = 100, rows: int = 30, **environment: str) -> None:
        self._controller, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        known = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "CI")}
        self.process = subprocess.Popen(
            [*TOPO, *map(str, arguments)],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**known, "TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(terminal)
        self.raw = ""

    @property
    def text(self) -> str:
        """The output to the terminal, without colours and movements."""
        return _ESCAPE.sub("", self.raw).replace("\r", "")

    def type(self, keys: str) -> None:
        """Press keys; "\\x03" is Ctrl-C."""
        os.write(self._controller, keys.encode())

    def wait_for(self, words: str) -> None:
        """Wait until words are on the terminal."""
        until = time.monotonic() + PATIENCE_S
        while words not in self.text:
            assert time.monotonic() < until, f"{words!r} never came:\n{self.text}"
            assert self._read(), f"{words!r} never came:\n{self.text}"

    def wait_until_it_reads(self) -> None:
        """Wait until the command sleeps over its input: a Ctrl-C just before that is kept by Python's reader for the next key."""
        process = psutil.Process(self.process.pid)
        asleep = 0
        until = time.monotonic() + PATIENCE_S
        while asleep < 3:
            assert time.monotonic() < until, "the command never waited for a key"
            asleep = asleep + 1 if process.status() == psutil.STATUS_SLEEPING else 0
            time.sleep(0.02)

    def wait(self) -> int:
        """Wait until the command has ended; return its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_S)

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._controller)
        self._controller = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        """End the command."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        os.close(self._controller)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> bool:
        """Read the next output, waiting for it; False when the command has closed the terminal."""
        ready, _, _ = select.select([self._controller], [], [], PATIENCE_S)
        assert ready, f"nothing more was written:\n{self.text}"
        try:
            data = os.read(self._controller, 65536)
        except OSError:
            return False
        self.raw += data.decode(errors="replace")
        return bool(data)
