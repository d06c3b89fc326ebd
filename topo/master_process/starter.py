"""The lives of workers: their start files, their keys, and the crash markers that they leave."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from topo.errors import TopoEnvironmentError
from topo.ids import Incarnation, TaskId, WorkerId
from topo.master.events import LaunchFailed, WorkerLaunched
from topo.master.links import Life, WorkerEnd
from topo.master_process.control_link import ControlLink
from topo.master_process.job import Job
from topo.master_process.launcher import Launcher, marker_path, spec_path
from topo.storage.state_folder import write_atomically
from topo.tracking.suspects import InFlightTuples
from topo.transport.security import KeyPair
from topo.transport.zmq import new_key_pair
from topo.worker.crash_marker import read_marker
from topo.worker.spec import WorkerSpec


class WorkerStarter:
    """Starts and ends the workers of one master.

    Args:
        keys: the master's own; None over ipc.
        served: folders of checkpoints that only the master reaches.
        parts_endpoint: where workers reach their parts in these; "" where there are none.
        before_start: called before each start; binds removed sockets again. Raises TopoEnvironmentError: none is started.
    """

    def __init__(
        self,
        job: Job,
        launcher: Launcher,
        link: ControlLink,
        sockets: Path,
        keys: KeyPair | None,
        digest: str,
        served: Sequence[str],
        parts_endpoint: str,
        before_start: Callable[[], None],
    ) -> None:
        self._job = job
        self._launcher = launcher
        self._link = link
        self._sockets = sockets
        self._keys = keys
        self._digest = digest
        self._served = list(served)
        self._parts_endpoint = parts_endpoint
        self._before_start = before_start
        self._worker_keys: dict[Life, KeyPair] = {}

    def start(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerLaunched | LaunchFailed:
        """Write the start file and start the process."""
        spec = self._spec(worker, incarnation, term)
        try:
            self._before_start()
            write_atomically(spec_path(self._job.folder, worker, incarnation), msgspec.json.encode(spec))
            self._launcher.start(worker, incarnation, spec)
        except TopoEnvironmentError as error:
            self.take_marker(worker, incarnation)
            return LaunchFailed(worker, incarnation, str(error))
        return WorkerLaunched(worker, incarnation)

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        self._launcher.stop(worker, incarnation, kill=kill)

    def poll(self) -> list[WorkerEnd]:
        return self._launcher.poll()

    def take_marker(self, worker: WorkerId, incarnation: Incarnation) -> InFlightTuples | None:
        """Remove the files of a life that is over; return the tuples that its user code worked on, None for none."""
        marker = marker_path(self._job.folder, worker, incarnation)
        found = read_marker(marker)
        for path in (marker, spec_path(self._job.folder, worker, incarnation)):
            with contextlib.suppress(OSError):
                path.unlink()
        self._worker_keys.pop((worker, incarnation), None)
        if found is None:
            return None
        return InFlightTuples(tuple(found.roots), tuple((TaskId(task), position) for task, position in found.positions))

    def _spec(self, worker: WorkerId, incarnation: Incarnation, term: int) -> WorkerSpec:
        job, config = self._job, self._job.plan.config
        keys = KeyPair("", "")
        if self._keys is not None:
            keys = self._worker_keys[worker, incarnation] = new_key_pair()
            self._link.allow_list.replace(pair.public for pair in self._worker_keys.values())
        return WorkerSpec(
            topology=job.plan.name,
            worker=worker,
            incarnation=incarnation,
            term=term,
            reference=job.submitted.reference,
            # On a cluster Spark puts them on the path of its executors.
            py_files=[] if job.is_spread else list(job.submitted.py_files),
            parameters=dict(job.submitted.parameters),
            settings=dict(job.submitted.settings),
            parallelism=dict(job.submitted.parallelism),
            cores=job.submitted.cores,
            digest=self._digest,
            master_endpoint=self._link.worker_endpoint,
            master_key=self._keys.public if self._keys is not None else "",
            public_key=keys.public,
            secret_key=keys.secret,
            sockets="" if config.transport == "tcp" else str(self._sockets),
            host=config.host,
            note=str(marker_path(job.folder, worker, incarnation)),
            log=str(job.folder.logs / f"worker-{worker}.log"),
            checkpoints=job.checkpoints,
            served=self._served,
            parts_endpoint=self._parts_endpoint,
            folder=str(job.folder.components),
            parent=os.getpid() if job.submitted.foreground else 0,
        )
