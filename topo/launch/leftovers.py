"""Workers and sockets that a master has left behind when it was killed: found, ended and removed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from topo.errors import NotFoundError
from topo.launch.worker_command import WORKER_MODULE
from topo.storage.socket_folder import remove_socket_folder
from topo.storage.state_folder import StateFolder, TopologyFolder

if TYPE_CHECKING:
    from psutil import Process

_KILL_TIMEOUT_S = 5.0
_LOOK_S = 0.01


def end_leftovers(folder: TopologyFolder) -> int:
    """End the workers of a master that is gone, wait until they are, and remove their files and sockets.

    The caller holds the lock.

    Returns:
        How many there were.
    """
    left = _workers_of(folder)
    for worker in left:
        # With the processes that it has started: a worker leads its own session.
        with contextlib.suppress(OSError):
            os.killpg(worker.pid, signal.SIGKILL)
    until = time.monotonic() + _KILL_TIMEOUT_S
    while any(map(_is_alive, left)) and time.monotonic() < until:
        time.sleep(_LOOK_S)
    for path in folder.workers.iterdir():
        with contextlib.suppress(OSError):
            path.unlink()
    # A thread of a killed worker may still listen. A folder without workers may be a copy: the sockets are its original's.
    if (sockets := _sockets_of(folder)) is not None and (left or not _has_listener(sockets)):
        remove_socket_folder(sockets)
    return len(left)


def sweep_sockets(state: StateFolder) -> None:
    """Remove the socket folders of masters that were killed, of any topology that has neither a master nor workers any more."""
    for name in state.names():
        try:
            folder = state.find(name)
        except NotFoundError:  # removed meanwhile
            continue
        sockets = _sockets_of(folder)
        # Read before the look at the lock: a master that starts meanwhile has a folder of another name.
        if sockets is None or not sockets.is_dir() or folder.is_running() or _has_listener(sockets):
            continue
        remove_socket_folder(sockets)


def _sockets_of(folder: TopologyFolder) -> Path | None:
    with contextlib.suppress(OSError, ValueError, KeyError):
        endpoint = json.loads(folder.master.read_bytes())["client_endpoint"]
        if endpoint.startswith("ipc://"):
            return Path(endpoint.removeprefix("ipc://")).parent
    return None


def _has_listener(sockets: Path) -> bool:
    """Whether a process listens in a socket folder: a worker of a lost master, or of the topology that this one is a copy of."""
    for path in sockets.glob("*"):
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            return True
    return False


def _workers_of(folder: TopologyFolder) -> list[Process]:
    """Return the workers of a topology: their command line ends with a start file of it, or the folder if they were spares."""
    # By name, which an incarnation makes unique: their master may have had the folder by another path.
    places = tuple(f"/{path.name}" for path in folder.workers.glob("*.json"))
    if not places:
        return []
    places += (f" {folder.workers}",)
    # Needed after a crash only, and slow to import.
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # A forked worker has its command line as one text, which is read as words: a path with spaces is several.
            line = " ".join(process.cmdline()).rstrip()
            _, is_worker, place = line.partition(f"{WORKER_MODULE} ")
            if is_worker and line.endswith(places) and not _is_of_a_copy(folder, Path(place)):
                found.append(process)
    return found


def _is_of_a_copy(folder: TopologyFolder, start_file: Path) -> bool:
    """Whether another state folder has the worker's start file, too: one of the two is a copy, and the worker is the other's."""
    with contextlib.suppress(OSError):
        return not start_file.samefile(folder.workers / start_file.name)
    return False


def _is_alive(process: Process) -> bool:
    return bool(process.is_running() and process.status() != "zombie")
