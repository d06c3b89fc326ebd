"""The start file of a worker process, which only its user can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from topo.errors import TopoEnvironmentError
from topo.ids import Incarnation, WorkerId

STAND_BY = "--stand-by"
"""Argument of a spare process in place of a start file, with the folder of such files: it waits until stdin names one."""


class WorkerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One life of one worker.

    Attributes:
        topology: its name.
        reference: the code to import: the copied file or package, `path[:attribute]`.
        py_files: modules and archives that the code imports from, besides its own folder.
        parameters: arguments of the topology function.
        settings: settings that replace the topology's own, by public name.
        parallelism: tasks by component, where they differ from the code's.
        cores: of the machine that all workers share, if they do, as the master has planned for them.
        digest: of the plan and the code, which this worker must come to as well.
        master_endpoint: where the master's link is bound.
        master_key: its public CURVE key; empty over ipc.
        public_key, secret_key: this worker's own pair; empty over ipc.
        sockets: folder of the ipc sockets; empty over tcp.
        host: address to bind tcp inboxes to.
        note: path of the crash marker.
        log: path of the worker's log.
        checkpoints: path or URL of the topology's checkpoints; empty where none are taken.
        served: folders of checkpoints that only the master reaches.
        parts_endpoint: where the master writes and reads the parts in them; empty where there are none.
        folder: where components keep files; empty where the workers share no disk.
        parent: the process that starts this one, if the worker is to end with it; 0 if it is to outlive it.
    """

    topology: str
    worker: WorkerId
    incarnation: Incarnation
    term: int
    reference: str
    py_files: list[str] = []
    parameters: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    parallelism: dict[str, int] = {}
    cores: int | None = None
    digest: str
    master_endpoint: str
    master_key: str = ""
    public_key: str = ""
    secret_key: str = ""
    sockets: str = ""
    host: str = "127.0.0.1"
    note: str = ""
    log: str = ""
    checkpoints: str = ""
    served: list[str] = []
    parts_endpoint: str = ""
    folder: str = ""
    parent: int = 0

    def identity(self, suffix: str = "") -> bytes:
        """Return how the master addresses a connection of this worker."""
        return f"{self.worker}:{self.incarnation}{suffix}".encode()


def read_spec(path: Path) -> WorkerSpec:
    """Return the spec in a file. Raises TopoEnvironmentError when it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=WorkerSpec)
    except (OSError, msgspec.MsgspecError) as error:
        raise TopoEnvironmentError(f"cannot read the worker's start file {path}: {error}") from error


def parse_identity(identity: bytes) -> tuple[WorkerId, Incarnation] | None:
    """Return the worker and incarnation that an identity names; None when it is not one of a worker."""
    parts = identity.split(b":")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return WorkerId(int(parts[0])), Incarnation(int(parts[1]))
