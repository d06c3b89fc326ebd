"""Processes that are prepared before workers are needed.

Most of the time of a start goes into Python and its imports: a third of a second of a processor, which takes several seconds on a
loaded machine. A spare has that behind it. It runs none of the user's code, and waits for orders on its stdin: on Linux to fork a
worker, of which this process becomes the parent, elsewhere to become one. When the launcher's process ends, however it does,
stdin ends and so does the spare.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from topo.launch.worker_command import WORKER_COMMAND, worker_environment
from topo.worker.parent import adopting
from topo.worker.spec import STAND_BY
from topo.worker.stand_by import BEGIN, CAN_FORK, READY, WorkerOrder

SETTLED_S = 2.0
"""A spare is prepared when no worker has been started for this time: until then its imports would delay theirs."""
IMPORTS_S = 10.0
"""The first workers wait this long for a spare that is being imported: they would have the same imports."""

_EARLY_PLACE = "run"
"""In place of the folder of start files, which is not known yet."""
_ANSWER_S = 3.0
"""A spare that does not answer for this time is done without: the master stands still meanwhile."""
_REAP_S = 5.0
_REAP_POLL_S = 0.002


class ForkedProcess:
    """A child of this process that a spare has forked: what a launcher needs of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | Any = None

    def wait(self, timeout: float) -> int:
        """Reap it; return its exit code, or the negative number of a signal. Raises subprocess.TimeoutExpired."""
        end = time.monotonic() + timeout
        while self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # Something else in this process has reaped it; `Popen` has this result, too.
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= end:
                raise subprocess.TimeoutExpired("a forked worker", timeout)
            else:
                time.sleep(_REAP_POLL_S)
        return self.returncode


WorkerProcess = subprocess.Popen[bytes] | ForkedProcess


@dataclass(slots=True, eq=False)
class Spare:
    """A process that stands by.

    Attributes:
        patience_s: how long a worker waits until it has imported topo.
    """

    process: subprocess.Popen[bytes]
    patience_s: float = 0.0
    is_ready: bool = False

    @property
    def pid(self) -> int:
        return self.process.pid

    def comes_up(self) -> bool:
        """Whether it has imported topo, or does so while its first worker waits."""
        end, self.patience_s = time.monotonic() + self.patience_s, 0.0
        # Anything else comes from modules that Python imports at its start.
        while not self.is_ready and (answer := self.answer(max(0.0, end - time.monotonic()))):
            self.is_ready = answer.splitlines(keepends=True)[-1] == READY
        return self.is_ready

    def order(self, order: WorkerOrder) -> bool:
        """Send an order; return whether the process has not ended before it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(order.line())
            self.process.stdin.flush()
            return self.process.poll() is None
        return False

    def fork(self, start_file: Path, output: Path) -> ForkedProcess | None:
        """Have it fork a worker, and adopt the worker; None when it does not, and has ended then."""
        with adopting():
            order = WorkerOrder(os.fspath(start_file), os.fspath(output), os.getpid())
            if self.order(order) and (worker := _number(self.answer(_ANSWER_S))):
                os.kill(worker, BEGIN)
                return ForkedProcess(worker)
            self.end_with_forks()
        return None

    def become(self, start_file: Path, output: Path) -> subprocess.Popen[bytes] | None:
        """Turn it into a worker; None when it has ended."""
        is_there = self.order(WorkerOrder(os.fspath(start_file), os.fspath(output)))
        self._close()
        return self.process if is_there else None

    def end(self) -> None:
        """End the process if it has not ended. Idempotent."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_REAP_S)
        self._close()

    def end_with_forks(self) -> None:
        """End it, and a worker that it has forked and that has not begun; reap those that this process has adopted."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        # A worker may have left the group; the pipe does not end before it has answered.
        until = time.monotonic() + _REAP_S
        while answer := self.answer(max(0.0, until - time.monotonic())):
            if worker := _number(answer):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.kill(worker, signal.SIGKILL)
                    ForkedProcess(worker).wait(_REAP_S)
        self.end()
        with suppress(ChildProcessError):
            # The process between the two, if it was adopted: it is killed, too.
            while time.monotonic() < until:
                if not os.waitpid(-self.process.pid, os.WNOHANG)[0]:
                    time.sleep(_REAP_POLL_S)

    def answer(self, within_s: float) -> bytes | None:
        """Return the bytes that come next, empty when all who could write have ended; None when none come in time."""
        assert self.process.stdout is not None
        answers = select.poll()
        answers.register(self.process.stdout, select.POLLIN)
        return os.read(self.process.stdout.fileno(), 4096) if answers.poll(1000 * within_s) else None

    def _close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()


class Spares:
    """The spares of one launcher.

    Args:
        command: of a worker, without its start file.
        place: the folder of start files, on the command line: it identifies the process.
        count: how many are kept.
        environment: returns that of a new process.
        clock: monotonic seconds.
        early: spares that were started before.
        can_fork: whether spares fork workers, and so are started at once.
    """

    def __init__(
        self,
        command: Sequence[str],
        place: Path,
        count: int,
        environment: Callable[[], Mapping[str, str]] = lambda: worker_environment(os.environ),
        clock: Callable[[], float] = time.monotonic,
        early: EarlySpares | None = None,
        can_fork: bool = CAN_FORK,
    ) -> None:
        self._command = [*command, STAND_BY, os.fspath(place)]
        self._count = count
        self._environment = environment
        self._clock = clock
        self._can_fork = can_fork
        self.waiting = [] if early is None else early.taken(dict(environment()), count)
        self._missing = 0
        self._prepare_at = 0.0
        if can_fork and not self.waiting:
            self._start(count, IMPORTS_S)

    def worker_started(self) -> None:
        """Wait before missing spares are prepared. Spares that died unused are replaced after the next such call only."""
        self._missing = self._count - len(self.waiting)
        self._prepare_at = self._clock() + SETTLED_S

    def prepare(self) -> None:
        """Start missing spares when it is time. A spare that cannot be started is done without."""
        if self._missing and self._clock() >= self._prepare_at:
            self._start(self._missing)
            self._missing = 0

    def take(self, start_file: Path, output: Path) -> WorkerProcess | None:
        """Make the worker of a start file, whose stdout and stderr go to `output`, of a spare; None when there is none."""
        return self._fork(start_file, output) if self._can_fork else self._turn(start_file, output)

    def pids(self) -> list[int]:
        return [spare.pid for spare in self.waiting]

    def close(self) -> None:
        """End them. Idempotent."""
        self._missing = 0
        for spare in self.waiting:
            spare.end()
        self.waiting.clear()

    def _fork(self, start_file: Path, output: Path) -> ForkedProcess | None:
        for spare in list(self.waiting):
            if not spare.comes_up():
                if spare.process.poll() is None:
                    # It has had the time that there is for all of them.
                    for other in self.waiting:
                        other.patience_s = 0.0
                    continue
            elif (worker := spare.fork(start_file, output)) is not None:
                return worker
            self.waiting.remove(spare)
            spare.end()
            if spare.is_ready:
                return None
        return None

    def _turn(self, start_file: Path, output: Path) -> subprocess.Popen[bytes] | None:
        while self.waiting:
            spare = self.waiting.pop(0)
            if (worker := spare.become(start_file, output)) is not None:
                return worker
            spare.end()
        return None

    def _start(self, count: int, patience_s: float = 0.0) -> None:
        for _ in range(count):
            with suppress(OSError):
                self.waiting.append(Spare(_start(self._command, self._environment()), patience_s))


class EarlySpares(NamedTuple):
    """Spares that were started before their launcher.

    Attributes:
        environment: theirs. The module of a topology may change that of this process when it is imported.
    """

    spares: list[Spare]
    environment: Mapping[str, str]

    def taken(self, environment: Mapping[str, str], count: int) -> list[Spare]:
        """Return at most `count` of the spares if they have this environment, which all workers of a run have; end the others."""
        taken = self.spares[:count] if self.environment == environment else []
        for spare in self.spares[len(taken) :]:
            spare.end()
        return taken

    def end(self) -> None:
        """End those that wait. Idempotent."""
        for spare in self.spares:
            spare.end()


@contextmanager
def early_spares() -> Iterator[EarlySpares]:
    """Start a spare for a launcher that is yet to be made: it imports topo while this process does, on another core.

    Yields:
        The spare. If the launcher has not ended it, it is ended at the end of the block.
    """
    early = EarlySpares([], worker_environment(os.environ))
    try:
        with suppress(OSError):
            early.spares.append(Spare(_start([*WORKER_COMMAND, STAND_BY, _EARLY_PLACE], early.environment), IMPORTS_S))
        yield early
    finally:
        early.end()


def _number(answer: bytes | None) -> int:
    """Return the id of a process; 0 where it is none."""
    return int(answer) if answer and answer.strip().isdigit() else 0


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        start_new_session=True,
    )
