"""Workers as child processes of the topology master, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from topo.errors import TopoEnvironmentError
from topo.ids import Incarnation, WorkerId
from topo.launch.exits import NO_PROCESS, bound_output, count_oom_kills, describe_exit, tail_of, why_wordless
from topo.launch.spares import EarlySpares, Spares, WorkerProcess
from topo.launch.worker_command import WORKER_COMMAND, worker_environment
from topo.master.links import WorkerEnd
from topo.master_process.launcher import spec_path
from topo.storage.state_folder import TopologyFolder
from topo.worker.spec import WorkerSpec

_REAP_S = 5.0


@dataclass(slots=True)
class _Child:
    process: WorkerProcess
    descriptor: int | None
    output: Path
    output_begin: int
    oom_kills: int


class LocalLauncher:
    """Starts workers in sessions of their own: a terminal's Ctrl-C reaches the foreground process alone, which then decides.

    Start workers from the main thread: Linux ends a worker that asked to die with its parent when the *thread* that started
    it ends.

    A spare makes a worker, where there is one: a process that has imported topo, or does so. `early` are spares that were
    started before the launcher, which ends them like its own.

    What a worker or its libraries write past Python's streams goes to `logs/worker-N.out`, kept within bounds at each start.
    """

    def __init__(
        self,
        folder: TopologyFolder,
        command: Sequence[str] = WORKER_COMMAND,
        spares: int = 0,
        early: EarlySpares | None = None,
    ) -> None:
        self._folder = folder
        self._command = list(command)
        self._spares = Spares(command, folder.workers, spares, early=early)
        self._children: dict[tuple[WorkerId, Incarnation], _Child] = {}
        self._killed_groups: set[int] = set()

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        """Start a worker, whose start file is written.

        Raises:
            TopoEnvironmentError: the process cannot be made.
        """
        start_file = spec_path(self._folder, worker, incarnation)
        output = self._folder.logs / f"worker-{worker}.out"
        try:
            begin = bound_output(output)
            process = self._spares.take(start_file, output) or self._fresh(start_file, output)
        except OSError as error:
            fix = NO_PROCESS if isinstance(error, BlockingIOError) else ""
            raise TopoEnvironmentError(f"cannot start worker {worker} of {spec.topology}: {error}{fix}") from error
        self._spares.worker_started()
        self._children[worker, incarnation] = _Child(process, _watch(process.pid), output, begin, count_oom_kills())

    def _fresh(self, start_file: Path, output: Path) -> subprocess.Popen[bytes]:
        with open(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            return subprocess.Popen(
                [*self._command, str(start_file)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=worker_environment(os.environ),
                start_new_session=True,
            )

    def poll(self) -> list[WorkerEnd]:
        """Return the workers that have ended since the last call, and end what processes they have left behind."""
        self._spares.prepare()
        ended = []
        for (worker, incarnation), child in list(self._children.items()):
            if _has_ended(child.process):
                self._reap(child)
                del self._children[worker, incarnation]
                ended.append(WorkerEnd(worker, incarnation, self._describe(child)))
        self._collect_orphans()
        return ended

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        child = self._children.get((worker, incarnation))
        if child is not None:
            _signal(child.process, signal.SIGKILL if kill else signal.SIGTERM, group=kill)

    def descriptors(self) -> Iterable[int]:
        return [child.descriptor for child in self._children.values() if child.descriptor is not None]

    def pids(self) -> dict[WorkerId, int]:
        return {worker: child.process.pid for (worker, _), child in self._children.items()}

    def close(self) -> None:
        """Kill the processes that are left. Idempotent."""
        self._spares.close()
        for child in self._children.values():
            _signal(child.process, signal.SIGKILL, group=True)
        for child in self._children.values():
            self._reap(child)
        self._children.clear()

    def _reap(self, child: _Child) -> None:
        # Before the process is reaped its group cannot be anyone else's.
        _signal(child.process, signal.SIGKILL, group=True)
        with suppress(subprocess.TimeoutExpired):
            child.process.wait(_REAP_S)
        if child.descriptor is not None:
            os.close(child.descriptor)
            child.descriptor = None
        self._killed_groups.add(child.process.pid)

    def _collect_orphans(self) -> None:
        """Reap what ended workers have left behind, if it is given to this process, as to the first one of a container."""
        for group in tuple(self._killed_groups):
            try:
                while os.waitpid(-group, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                self._killed_groups.remove(group)

    def _describe(self, child: _Child) -> str:
        oom_killed = count_oom_kills() > child.oom_kills
        words = tail_of(child.output, child.output_begin)
        if child.process.returncode > 0 and not words.strip():
            words = why_wordless(child.output)
        return describe_exit(child.process.returncode, words, oom_killed)


def _watch(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _has_ended(process: WorkerProcess) -> bool:
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _signal(process: WorkerProcess, number: int, *, group: bool) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(process.pid, number)
            else:
                os.kill(process.pid, number)
