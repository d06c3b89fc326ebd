"""Worker processes that are prepared before they are needed.

Most of the time between the loss of a worker and the next tuple goes into the start of Python and the imports: a third of a
second of a processor, which takes several seconds on a loaded machine. A spare has that behind it. It runs none of the user's
code, and waits until the launcher names a start file on its stdin. When the launcher's process ends, however it does, stdin ends
and so does the spare.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from topo.worker.spec import STAND_BY

SETTLED_S = 2.0
"""A spare is prepared when no worker has been started for this time: until then its imports would delay theirs."""

_REAP_S = 5.0


class Spares:
    """The spares of one launcher.

    Args:
        command: of a worker, without its start file.
        place: the folder of start files, on the command line: it identifies the process.
        count: how many are kept.
        environment: returns that of a new process.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        place: Path,
        count: int,
        environment: Callable[[], Mapping[str, str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = [*command, STAND_BY, os.fspath(place)]
        self._count = count
        self._environment = environment
        self._clock = clock
        self._waiting: list[subprocess.Popen[bytes]] = []
        self._missing = 0
        self._prepare_at = 0.0

    def worker_started(self) -> None:
        """Wait before missing spares are prepared. Spares that died unused are replaced after the next such call only."""
        self._missing = self._count - len(self._waiting)
        self._prepare_at = self._clock() + SETTLED_S

    def prepare(self) -> None:
        """Start missing spares, when it is time. A spare that cannot be started is done without."""
        if not self._missing or self._clock() < self._prepare_at:
            return
        for _ in range(self._missing):
            with suppress(OSError):
                self._waiting.append(
                    subprocess.Popen(
                        self._command,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env=dict(self._environment()),
                        start_new_session=True,
                    )
                )
        self._missing = 0

    def take(self, start_file: Path, output: Path) -> subprocess.Popen[bytes] | None:
        """Turn a spare into the worker of a start file, whose stdout and stderr go to `output`; None when there is no spare."""
        order = json.dumps([os.fspath(start_file), os.fspath(output)]).encode() + b"\n"
        while self._waiting:
            process = self._waiting.pop(0)
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(order)
                stdin.flush()
                if process.poll() is None:
                    return process
            _end(process)
        return None

    def pids(self) -> list[int]:
        return [process.pid for process in self._waiting]

    def close(self) -> None:
        """End them. Idempotent."""
        self._missing = 0
        for process in self._waiting:
            _end(process)
        self._waiting.clear()


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_S)
