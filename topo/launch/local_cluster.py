"""Topologies for as long as a `with` block lasts: for tests and notebooks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from topo.api.topology import Topology, TopologySource
from topo.errors import TopoEnvironmentError, UserError
from topo.launch.cluster import submit_background
from topo.launch.request import RunRequest
from topo.launch.running import RunningTopology
from topo.master_process.client import AnswerTimeout, Unreachable


class LocalCluster:
    """Runs topologies on this machine for as long as its block lasts.

        with LocalCluster() as cluster:
            running = cluster.submit("topologies/word_count.py")
            print(running.wait().reason)

    Args:
        home: the state folder; by default that of the environment.
    """

    def __init__(self, home: Path | None = None) -> None:
        self.home = home
        self._running: list[RunningTopology] = []

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(
        self,
        topology: str | Path | Topology | TopologySource,
        name: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        start_from: str | Path = "",
        drop_state: Sequence[str] = (),
        parallelism: Mapping[str, int] | None = None,
        py_files: Sequence[str] = (),
    ) -> RunningTopology:
        """Start a topology; it ends with the cluster, or with this process.

        Args:
            start_from: path or URL of a savepoint to continue from, or of a folder of checkpoints.
            drop_state: components of it whose state no task takes.
            parallelism: tasks by component, where they differ from those in the code.
            py_files: modules and archives that it imports from, besides the folder it lies in.

        Raises:
            TopoError: it cannot be started.
        """
        request = RunRequest(
            topology,
            name,
            parameters or {},
            settings or {},
            self.home,
            str(start_from),
            drop_state,
            parallelism=parallelism or {},
            py_files=py_files,
            foreground=True,
        )
        running = submit_background(request)
        self._running.append(running)
        return running

    def close(self) -> None:
        """Kill what still runs."""
        for running in self._running:
            with contextlib.suppress(Unreachable, AnswerTimeout, UserError):
                running.kill()
            with contextlib.suppress(TimeoutError, TopoEnvironmentError):
                running.wait(timeout_s=10.0)
        self._running.clear()
