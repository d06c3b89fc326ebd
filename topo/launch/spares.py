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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from topo.launch.worker_command import WORKER_COMMAND, worker_environment
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
        early: spares that were started before.
    """

    def __init__(
        self,
        command: Sequence[str],
        place: Path,
        count: int,
        environment: Callable[[], Mapping[str, str]] = lambda: worker_environment(os.environ),
        clock: Callable[[], float] = time.monotonic,
        early: EarlySpares | None = None,
    ) -> None:
        self._command = [*command, STAND_BY, os.fspath(place)]
        self._count = count
        self._environment = environment
        self._clock = clock
        self._waiting = [] if early is None else early.taken(dict(environment()))
        self._missing = 0
        self._prepare_at = 0.0

    def worker_started(self) -> None:
        """Wait before missing spares are prepared. Spares that died unused are replaced after the next such call only."""
        self._missing = self._count - len(self._waiting)
        self._prepare_at = self._clock() + SETTLED_S

    def prepare(self) -> None:
        """Start missing spares, or end surplus ones, when it is time. A spare that cannot be started is done without."""
        if not self._missing or self._clock() < self._prepare_at:
            return
        for _ in range(self._missing):
            with suppress(OSError):
                self._waiting.append(_start(self._command, self._environment()))
        for process in self._waiting[self._count :]:
            _end(process)
        del self._waiting[self._count :]
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


class EarlySpares(NamedTuple):
    """Spares that were started before their launcher.

    Attributes:
        environment: theirs. The module of a topology may change that of this process when it is imported.
    """

    processes: list[subprocess.Popen[bytes]]
    environment: Mapping[str, str]

    def taken(self, environment: Mapping[str, str]) -> list[subprocess.Popen[bytes]]:
        """Return the processes if they have this environment; else end them, since all workers of a run have the same."""
        if self.environment == environment:
            return list(self.processes)
        self.end()
        return []

    def end(self) -> None:
        """End the processes that have not ended. Idempotent."""
        for process in self.processes:
            if process.returncode is None:
                _end(process)


@contextmanager
def early_spares(place: Path, count: int) -> Iterator[EarlySpares]:
    """Start spares for a launcher that is yet to be made: they import topo while this process does, on another core.

    Args:
        place: any folder, for the command line.

    Yields:
        The processes. Those that the launcher has not ended are ended at the end of the block.
    """
    early = EarlySpares([], worker_environment(os.environ))
    try:
        for _ in range(count):
            with suppress(OSError):
                early.processes.append(_start([*WORKER_COMMAND, STAND_BY, os.fspath(place)], early.environment))
        yield early
    finally:
        early.end()


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(BrokenPipeError):
        assert process.stdin is not None
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_REAP_S)
