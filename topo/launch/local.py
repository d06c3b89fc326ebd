"""Workers as child processes of the master."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from topo.errors import EnvironmentFault
from topo.ids import Incarnation, WorkerId
from topo.runtime.master import WorkerEnd, spec_path
from topo.runtime.state_folder import TopologyFolder
from topo.runtime.worker_spec import WorkerSpec

Life = tuple[WorkerId, Incarnation]


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    descriptor: int


class LocalLauncher:
    """Starts a process for each worker, in a session of its own, so that a terminal's Ctrl-C reaches the master alone."""

    def __init__(self, folder: TopologyFolder, die_with_parent: bool) -> None:
        self._folder = folder
        self._children: dict[Life, _Child] = {}
        self.die_with_parent = die_with_parent

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        """Start a worker. Raises EnvironmentFault when the system cannot."""
        command = [sys.executable, "-m", "topo.runtime.process", str(spec_path(self._folder, worker, incarnation))]
        try:
            with open(self._folder.logs / f"worker-{worker}.out", "ab") as out:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
            descriptor = os.pidfd_open(process.pid)
        except OSError as error:
            raise EnvironmentFault(f"cannot start worker {worker}: {error}") from error
        self._children[worker, incarnation] = _Child(process, descriptor)

    def poll(self) -> list[WorkerEnd]:
        """Return the workers that have ended since the last call."""
        ended = []
        for (worker, incarnation), child in list(self._children.items()):
            code = child.process.poll()
            if code is not None:
                os.close(child.descriptor)
                del self._children[worker, incarnation]
                ended.append(WorkerEnd(worker, incarnation, describe_exit(code)))
        return ended

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        """End a worker: by SIGKILL, or by SIGTERM."""
        child = self._children.get((worker, incarnation))
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)

    def descriptors(self) -> Iterable[int]:
        """Return descriptors that become readable when a worker ends."""
        return [child.descriptor for child in self._children.values()]

    def close(self) -> None:
        """Kill what is left, and wait for it."""
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError):
                child.process.kill()
        for child in self._children.values():
            child.process.wait()
            os.close(child.descriptor)
        self._children.clear()


def describe_exit(code: int) -> str:
    """Say in words how a process ended."""
    if code >= 0:
        return f"exited with {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", perhaps for lack of memory" if -code == signal.SIGKILL else ""
    return f"killed by {name}{hint}"
