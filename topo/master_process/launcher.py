"""The protocol of launchers, which make the processes of workers, and the files of one life of a worker."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from topo.ids import Incarnation, WorkerId
from topo.master.links import WorkerEnd
from topo.storage.state_folder import TopologyFolder
from topo.worker.spec import WorkerSpec


class Launcher(Protocol):
    """Starts and ends worker processes."""

    def start(self, worker: WorkerId, incarnation: Incarnation, spec: WorkerSpec) -> None:
        """Start a worker. Raises TopoEnvironmentError when it cannot be."""

    def poll(self) -> list[WorkerEnd]:
        """Return the workers that have ended since the last call."""

    def stop(self, worker: WorkerId, incarnation: Incarnation, *, kill: bool) -> None:
        """End a worker: by SIGKILL, or by SIGTERM. Nothing happens when it is gone."""

    def descriptors(self) -> Iterable[int]:
        """Return descriptors that become readable when a worker ends."""

    def close(self) -> None:
        """Kill the workers that are left."""


def spec_path(folder: TopologyFolder, worker: WorkerId, incarnation: Incarnation) -> Path:
    """Return where the start file of a worker's life is."""
    return folder.workers / f"{worker}-{incarnation}.json"


def marker_path(folder: TopologyFolder, worker: WorkerId, incarnation: Incarnation) -> Path:
    """Return where a worker's life marks the tuples that its user code processes."""
    return folder.workers / f"{worker}-{incarnation}.note"
